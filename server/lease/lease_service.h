// LeaseService: leases and recalls of all sessions: the LeaseTable with a lock, the lanes that
// recalls travel on, and the timer of leases that run out.
//
// A handler's answer asks for its lease (Grant); the dispatcher begins a change before the handler
// runs, and parks the request where somebody must be asked first. The change ends with the answer:
// its Responder holds it.
//
// Any thread; one mutex, never held over a message or a system call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/protocol.h"
#include "server/inode/inode_table.h"
#include "server/lease/lease_change.h"
#include "server/lease/lease_table.h"
#include "server/loop/scheduler.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class Lane;

class LeaseService {
 public:
  // What is about to change, and how the clients that know of it are told.
  struct Target {
    InodeKey inode;
    fs::Handle handle;
    std::uint32_t parts = 0;  // kRecall...
    std::string name{};       // with kRecallName
    bool directory = false;
  };

  struct Lengths {
    std::chrono::milliseconds lease;  // what is changed behind the server's back is no older
    std::chrono::milliseconds watched_lease;  // where such changes are told
  };
  // How long a write may take to arrive whose program was told at once that it is done: others see
  // it all the same. A client that is gone is waited for as long beyond its lease.
  static constexpr std::chrono::milliseconds kWriteTravel{2000};

  LeaseService(const Clock& clock, Scheduler& scheduler, Lengths lengths, std::uint64_t epoch)
      : clock_(clock),
        scheduler_(scheduler),
        lengths_(lengths),
        epoch_(epoch),
        table_({.first_number = (epoch << 32U) | 1U, .write_travel = kWriteTravel}) {}
  // Requests that still wait are given up.
  ~LeaseService() { const auto waiting = std::move(waiting_); }
  LeaseService(const LeaseService&) = delete;
  LeaseService& operator=(const LeaseService&) = delete;

  // An earlier server may have granted leases until now: changes wait as long as those last, or
  // until each of its other sessions, where they are known, has said that it has forgotten them.
  void FollowAnother(std::optional<std::set<std::uint64_t>> sessions);

  // Somebody else on this host has changed these: who believes otherwise is told, and nobody waits.
  void ChangedOutside(std::span<const Target> targets);

  // Before an answer's facts are gathered.
  [[nodiscard]] LeaseTable::Stamp stamp();
  // How many milliseconds the session may believe what was gathered about the inode since then; 0
  // where that is about to change. `watched`: changes behind the server's back will be told.
  std::uint32_t Grant(const InodeKey& inode, std::uint64_t session, LeaseTable::Stamp since,
                      bool watched);

  // For how many milliseconds the session may answer writes to the inode before they are here; 0
  // where anybody else has a lease. Whether others have it open the caller knows.
  std::uint32_t GrantWrites(const InodeKey& inode, std::uint64_t session, LeaseTable::Stamp since);
  // LeaseTable's.
  void EndWrites(const InodeKey& inode, std::uint64_t session, LeaseTable::Stamp before);
  // Which of these another session may have written without a word to us yet; after a restart, all.
  void KeepWrittenByOthers(std::uint64_t session, std::vector<Target>& targets);
  [[nodiscard]] bool WrittenByAnother(const InodeKey& inode, std::uint64_t session);
  // Whether that may be so of any inode.
  [[nodiscard]] bool AnyWrittenByAnother(std::uint64_t session);

  // Whether no other session than this one, whether it has attached a lane or not, has one.
  [[nodiscard]] bool IsAlone(std::uint64_t session);
  // `change` says what it is about already (empty at first), and holds what is begun. False: it has
  // to wait; `ready` runs once, on any thread, when it need not any more.
  bool Begin(std::uint64_t session, std::span<const Target> targets, LeaseChange& change,
             std::function<void()> ready,
             LeaseTable::Purpose purpose = LeaseTable::Purpose::kChange);
  void End(std::span<const LeaseTable::ChangeNumber> changes);
  // Before the server stops: what sessions have written without a word to us yet is asked for, and
  // nobody gets a lease from now on. `find`: of an inode that is known. The rest as with Begin.
  using FindTarget = std::function<std::optional<Target>(const InodeKey&)>;
  bool TakeWrites(const FindTarget& find, LeaseChange& change, std::function<void()> ready);

  void Acknowledge(std::uint64_t session, std::uint64_t recall);
  // LeaseTable's.
  void WroteEarlier(std::uint64_t session);
  void ForgetsEarlier(std::uint64_t session);
  // What the session has not acknowledged is sent again on this lane.
  void LaneOpened(const std::shared_ptr<Lane>& lane);
  // The same on one that is left.
  void LaneClosed(const std::shared_ptr<Lane>& lane);
  void SessionEnded(std::uint64_t session);

  struct Stats {
    std::uint64_t recalls = 0;        // sent, repetitions too
    std::uint64_t expired_waits = 0;  // ended because a lease ran out
    std::size_t leases = 0;
  };
  [[nodiscard]] Stats stats();
  // The same as a line of the server's counters.
  [[nodiscard]] std::string Describe();

 private:
  static constexpr std::uint64_t kNobody = 0;  // no session's number
  using Message = std::vector<std::byte>;
  // What is to be done when the lock is given back.
  struct Later {
    std::vector<std::pair<std::shared_ptr<Lane>, Message>> messages;
    std::vector<std::function<void()>> ready;
    std::chrono::nanoseconds look_after{-1};
    std::uint64_t timer = 0;  // that then looks
  };
  void Carry(Later& later);
  void CollectReadyLocked(const std::vector<LeaseTable::ChangeNumber>& changes, Later& later);
  void SendLocked(LeaseTable::RecallNumber number, std::uint64_t session, Later& later);
  void WatchLocked(Later& later);
  [[nodiscard]] bool IsAloneLocked(std::uint64_t session) const;
  // Of no effect for another timer than the last one.
  void Expire(std::uint64_t timer);
  // With the handle that the recipient knows, maybe by another export.
  [[nodiscard]] Message Encode(LeaseTable::RecallNumber number, const Target& target,
                               const InodeTable& known_by) const;

  const Clock& clock_;
  Scheduler& scheduler_;
  const Lengths lengths_;
  const std::uint64_t epoch_;
  std::mutex mutex_;  // guards the rest
  LeaseTable table_;
  std::unordered_map<std::uint64_t, std::vector<std::weak_ptr<Lane>>> lanes_;  // by session
  std::unordered_map<LeaseTable::ChangeNumber, std::function<void()>> waiting_;
  std::unordered_map<LeaseTable::RecallNumber, Target> recalled_;
  TimePoint watched_ = TimePoint::max();
  std::uint64_t timer_ = 0;  // the last one's number
  std::uint64_t recalls_ = 0;
};

}  // namespace rdfs::server
