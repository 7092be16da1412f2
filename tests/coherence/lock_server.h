// LockServer: one life of a server in a world of locks (lock_world.h).
//
// The decisions are the real ones, server/lock/lock_service.h with the kernel's locks beneath it,
// server/session/grace.h and server/session/session_state.h; what lies between them in
// server/service.cc, dispatch.cc and ops_lock.cc is here in short: sessions and their leases, the
// record of requests, what is held back in a grace period. Messages are structs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "server/lock/lock_service.h"
#include "server/loop/lane.h"
#include "server/process/counters.h"
#include "server/session/grace.h"
#include "server/session/session_state.h"
#include "tests/coherence/virtual_time.h"
#include "tests/server/temp_dir.h"

namespace rdfs::coherence {

// What can be broken, to see that the checker notices.
enum class LockBug : std::uint8_t {
  kNone,
  kGivenAwayEarly,         // a silent session is over before its lease is
  kNoGrace,                // a restarted server gives locks before those who had some are back
  kReclaimedAfterAnother,  // a lock is given back though another one had it meanwhile
  kAnsweredByAnotherLife,  // the record of an earlier server answers for a lock that is gone
  kNotReclaimed,           // the client does not ask a restarted server for its locks
  kNotAskedAgain,          // the client does not ask again for what it waits for (it hangs)
};

struct LockMessage {
  enum class Kind : std::uint8_t {
    kRenew,
    kSet,  // of a file that no server knows yet it opens it as well
    kReopen,
    kReclaim,
    kRelease,
    kInterrupt,
    kGraceEnd
  };
  Kind kind = Kind::kRenew;
  std::uint64_t sequence = 0;
  std::uint64_t acknowledged = 0;
  std::size_t file = 0;
  server::Lock lock{};       // with the number of the open file; kRelease: whose and through which
  bool wait = false;         // kSet
  bool fresh = false;        // kSet: nobody has answered anything about the open file yet
  std::uint64_t target = 0;  // kInterrupt: its sequence
};

class LockServer final : server::Scheduler {
 public:
  static constexpr std::size_t kFiles = 2;
  static constexpr std::chrono::milliseconds kLease{200};  // a session's

  // What outlives the server: its files, and the records of requests that it leaves.
  struct Disk {
    Disk();
    struct Answered {
      std::uint64_t epoch = 0;
      fs::WireError error{};
    };
    struct Record {
      std::uint64_t acknowledged = 0;
      std::map<std::uint64_t, Answered> answered;
      std::size_t opens = 0;
      bool given_up = false;  // IntentRing::NoteGivenUp
    };
    server::TempDir directory;
    std::vector<server::InodePtr> inodes;
    std::map<std::uint64_t, Record> records;  // by session
    std::uint64_t epoch = 0;
    server::Counters counters;  // answers that are thrown away late still count
  };
  struct Welcome {
    std::uint64_t epoch = 0;
    bool resumed = false;   // the session is still there, with its locks
    bool given_up = false;  // its locks are gone
    server::LanePtr lane;
  };
  // `sequence` 0: the server ends the lane.
  using Answer = std::function<void(std::uint64_t sequence, fs::WireError error)>;

  LockServer(VirtualTime& time, Disk& disk, LockBug bug);
  ~LockServer() override;

  Welcome Admit(std::uint64_t session, Answer answer);
  void Handle(const server::LanePtr& lane, const LockMessage& message);
  void LaneGone(std::uint64_t session);

 private:
  class SimulatedLane;
  struct Session {
    server::SessionState state;
    server::SessionPtr session;
    std::map<std::uint64_t, server::OpenPtr> opens{};
    std::vector<std::weak_ptr<SimulatedLane>> lanes{};
    bool may_reclaim = false;
  };

  void After(std::chrono::nanoseconds delay, std::function<void()> task) override;
  [[nodiscard]] TimePoint Now() const;
  [[nodiscard]] bool HeldBack(const LockMessage& message) const;
  server::OpenPtr OpenOf(Session& session, const LockMessage& message);
  void Set(Session& session, const server::LanePtr& lane, const LockMessage& message);
  fs::WireError Reclaim(Session& session, const LockMessage& message);
  void Release(Session& session, const LockMessage& message);
  void WatchLease(std::uint64_t session);
  void EndSession(std::uint64_t session);

  VirtualTime& time_;
  Disk& disk_;
  const LockBug bug_;
  const double rate_;  // of its clock
  const server::ProcFd proc_;
  const std::unique_ptr<server::DescriptorKeeper> keeper_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  server::GracePeriod grace_;
  std::map<std::uint64_t, Session> sessions_;
  server::LockService locks_;
};

}  // namespace rdfs::coherence
