// A server of locks, its clients and their processes in virtual time, from a seed: connections
// break with what is on its way, clients freeze and die, processes are killed and interrupted,
// clocks drift, and the server crashes once, forgets its locks and is asked for them again.
//
// Processes lock and unlock two files, by flock and by ranges of fcntl, with and without waiting.
// What they were told is checked against LocksModel, file by file: nobody has what another one
// has, from when he is told so until he gives it back or his lease is over (half of one where the
// server crashed), and nobody is refused what is free. After Run everything that was begun has
// ended, or Stuck() says that it has not.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fs/client/open_file.h"
#include "tests/coherence/lock_server.h"
#include "tests/coherence/models.h"
#include "tests/coherence/search.h"

namespace rdfs::coherence {

struct LockWorldOptions {
  std::uint32_t seed = 0;
  LockBug bug = LockBug::kNone;
  bool faults = true;
  unsigned clients = 3;
  unsigned processes = 2;    // of each client
  unsigned operations = 40;  // of each process
};

class LockWorld {
 public:
  struct Counts {
    std::uint64_t granted = 0, refused = 0, waited = 0, deadlocks = 0, interrupted = 0;
    std::uint64_t reclaimed = 0, lost = 0, restarts = 0, lanes = 0;
  };

  explicit LockWorld(const LockWorldOptions& options);
  ~LockWorld();
  void Run();

  // Empty, or what is not linearizable.
  [[nodiscard]] std::string Verdict();
  [[nodiscard]] std::string Stuck() const;
  // Histories whose check would have taken too long.
  [[nodiscard]] std::uint64_t undecided() const { return undecided_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  using Time = VirtualTime::Time;
  using Held = fs::client::HeldLocks::Held;
  struct Call;
  struct Connection;
  struct Process;
  struct Client;
  using CallPtr = std::shared_ptr<Call>;

  // To a client: held back while it is frozen, dropped when it has died meanwhile.
  void AfterAt(Client& client, Time delay, std::function<void()> what);
  Time Latency();

  // ---- processes
  void Start(Client& client, std::size_t process);
  void Next(Client& client, std::size_t process);
  void Lock(Client& client, std::size_t process);
  void Unlock(Client& client, std::size_t process, const Held& held);
  void Ask(Client& client, std::size_t process, LockMessage message);
  [[nodiscard]] Time GivenUpSince(const Client& client) const;
  void Interrupt(Client& client, const CallPtr& call);
  void Exit(Client& client, std::size_t process);
  void OnExited(Client& client, std::size_t process, const CallPtr& call);
  [[nodiscard]] std::vector<Held> HeldOf(const Process& process) const;
  void OnSet(Client& client, const CallPtr& call, fs::WireError error);
  void Record(const Call& call, LocksModel::Kind kind, std::uint64_t end, bool sure = true);
  void RecordUnsure(const Call& call);
  void RecordGivenUp(Client& client);
  void RecordForgotten(const Client& client, const Call& call);

  // ---- clients
  CallPtr Submit(Client& client, LockMessage message, std::size_t process);
  void Transmit(Client& client, const CallPtr& call);
  void OnAnswer(Client& client, std::uint64_t sequence, fs::WireError error);
  void Dial(Client& client);
  void Read(Client& client, const std::shared_ptr<Connection>& connection);
  void OnWelcome(Client& client, const LockServer::Welcome& welcome);
  void AskForLocks(Client& client, std::size_t process, std::size_t file, bool on_the_way);
  void GoOn(Client& client);
  [[nodiscard]] bool SomebodyDowngrades(std::size_t file) const;
  void LoseFile(Client& client, std::size_t process, std::size_t file);
  void Renew(Client& client);
  [[nodiscard]] bool CrashedWithin(Time from, Time to) const;
  // Until when the client's locks are its own, whatever it hears, if the server has crashed since
  // it was heard last, or not. In true time.
  [[nodiscard]] Time Promise(const Client& client, bool crashed) const;

  // ---- what goes wrong
  void Break(Client& client);
  void Freeze();
  void KillClient();
  void CrashServer();
  void RecordDeaths();

  const LockWorldOptions options_;
  LockServer::Disk disk_;
  VirtualTime time_;
  bool faults_ = false;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<LockServer> server_;
  std::vector<std::weak_ptr<Connection>> connections_;  // that the server has
  std::vector<Time> crashes_;
  struct Death;
  std::vector<Death> deaths_;
  // By file; flocks, then ranges.
  std::vector<std::vector<Timed<LocksModel::Call>>> histories_;
  std::uint64_t next_owner_ = 1, next_open_ = 1, next_session_ = 1;
  std::size_t unfinished_ = 0;  // processes
  std::string wrong_;
  std::uint64_t undecided_ = 0;
  Counts counts_;
};

}  // namespace rdfs::coherence
