// A server, its clients and their kernels in virtual time, from a seed. The decisions are the real
// ones (server/lease/lease_table.h, fs/client/recalls.h, LeaseEnd of fs/client/types.h); messages,
// clocks, kernels and the file system are simulated: messages are late, lost and out of order,
// clocks drift, clients freeze and die, the server crashes and comes back without its leases.
//
// Facts are registers: the attributes of a node, a name in a directory, a file's content. Processes
// read them, from the kernel's cache where it has them, and change them; Histories() says what they
// saw. After Run everything that was begun has ended, or Stuck() says that something has not.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fs/client/recalls.h"
#include "server/lease/lease_table.h"
#include "tests/coherence/history.h"
#include "tests/coherence/virtual_time.h"

namespace rdfs::coherence {

// What can be broken, to see that the checker notices.
enum class Bug : std::uint8_t {
  kNone,
  kRecallSkipped,        // one change in eight asks nobody
  kLeaseFromTheAnswer,   // the client counts from when the answer came
  kBelievedAfterRecall,  // the client believes a reply that it had asked for before the recall
  kAppliedBeforeAnswer,  // the server does not wait for acknowledgements
  kGrantedDuringChange,  // the server grants a lease on what is changing
  kForgottenLeases,      // a restarted server does not wait for leases of the one before
  kAcknowledgedTooSoon,  // the client acknowledges before its kernel has let go
  kLookedWithoutAsking,  // the server tells what another client may have written early
  kHeldBackNothing,      // the client acknowledges before what it wrote early has arrived
  kForgottenOnTheWay,    // the server looks at its lease only, not at what is written at its end
  kOvertaken,            // the client asks about a file before what it wrote early has arrived
};

struct WorldOptions {
  std::uint32_t seed = 0;
  Bug bug = Bug::kNone;
  bool faults = true;                           // loss, long delays, freezes, crashes
  unsigned lost_one_in = 25, slow_one_in = 12;  // messages, under faults
  bool epochs = true;                           // the kernels have them
  unsigned clients = 4;
  unsigned processes = 2;    // of each client
  unsigned operations = 60;  // of each process
  std::chrono::milliseconds write_lease{100};
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();
  void Run();

  // Empty, or the first register whose history is not linearizable, and why.
  [[nodiscard]] std::string Verdict() const;
  [[nodiscard]] std::string Stuck() const;
  [[nodiscard]] std::uint64_t expired_waits() const { return expired_waits_; }
  [[nodiscard]] std::uint64_t cache_hits() const { return cache_hits_; }
  [[nodiscard]] std::uint64_t recalls() const { return recalls_sent_; }
  [[nodiscard]] std::uint64_t early_writes() const { return early_writes_; }

 private:
  using Time = VirtualTime::Time;
  using Fact = std::size_t;
  struct Client;
  struct Server;
  struct Op;

  // To a client: held back while that one is frozen, dropped when it has died meanwhile.
  void AfterAt(Client& client, Time delay, std::function<void()> what);
  void Send(std::function<void()> deliver);
  std::uint64_t Tick() { return ++ticks_; }

  // ---- the processes and their kernel
  void NextOperation(Client& client, unsigned process);
  void StartRead(Client& client, unsigned process);
  void StartChange(Client& client, unsigned process);
  void Ask(Client& client, const std::shared_ptr<Op>& op);
  void Change(Client& client, const std::shared_ptr<Op>& op);
  void EndOperation(Client& client, const std::shared_ptr<Op>& op);
  void SendUntilAnswered(Client& client, const std::shared_ptr<Op>& op);
  void OnReply(Client& client, const std::shared_ptr<Op>& op, std::uint64_t value,
               std::uint32_t lease_ms);
  void OnDone(Client& client, const std::shared_ptr<Op>& op, std::uint32_t write_lease_ms);
  void OnRecall(Client& client, const fs::client::Recalls::Recall& recall);
  void Do(Client& client, const fs::client::Recalls::Actions& actions);
  void Invalidate(Client& client, std::uint64_t number);
  void TryInvalidate(Client& client, std::uint64_t number);
  void Drop(Client& client, const fs::client::Recalls::Recall& recall);
  void Acknowledge(Client& client, std::uint64_t number);
  bool WaitsBehind(Client& client, const std::shared_ptr<Op>& op);
  bool MayEndEarly(Client& client, const Op& op);
  void Arrived(Client& client, const std::shared_ptr<Op>& op);
  void Freeze();
  void KillClient();

  // ---- the server
  void OnAsk(Client& client, const std::shared_ptr<Op>& op);
  bool MustAskFirst(const Op& op);
  void Look(Client& client, const std::shared_ptr<Op>& op, std::uint64_t change);
  void OnChange(Client& client, const std::shared_ptr<Op>& op);
  void BeginChange(const std::shared_ptr<Op>& op);
  void SendRecalls(const server::LeaseTable::Begun& begun, const std::shared_ptr<Op>& op,
                   bool whole);
  void SendRecall(const server::LeaseTable::Recall& recall, const std::shared_ptr<Op>& op);
  void OnAcknowledge(std::uint64_t session, std::uint64_t number);
  void Ready(const std::vector<server::LeaseTable::ChangeNumber>& changes);
  void Apply(const std::shared_ptr<Op>& op, std::uint64_t change);
  void WatchExpiry();
  void CrashServer();
  [[nodiscard]] server::LeaseTable::Options NewTable() const;

  const WorldOptions options_;
  VirtualTime time_;
  std::uint64_t ticks_ = 0;  // order of everything that processes see
  bool faults_ = false;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<Server> server_;
  std::uint64_t life_ = 0;             // of the server: counts crashes
  std::vector<std::uint64_t> values_;  // on disk
  std::set<std::uint64_t> applied_;    // on disk: the record of requests
  std::vector<std::vector<Operation>> histories_;
  std::uint64_t next_op_ = 1;
  std::uint64_t next_session_ = 1;
  std::size_t unfinished_ = 0;  // processes, and writes that were told done and are on their way
  std::uint64_t expired_waits_ = 0, cache_hits_ = 0, recalls_sent_ = 0, early_writes_ = 0;
};

}  // namespace rdfs::coherence
