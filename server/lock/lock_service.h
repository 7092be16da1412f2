// LockService: locks of all clients, against each other and against the server's own processes.
//
// What clients do to each other is decided in LockTable, what local processes do by the kernel
// (LockFiles). A request that must wait is parked with its Responder, never a thread: it is tried
// again when a lock of the inode goes away, or, while only a local process is in its way, by the
// inode's timer that starts at 2 ms and doubles up to 100 ms, since the kernel tells nobody. What a
// message costs is bounded: many waiters are tried in pieces, with others' messages between.
//
// Any thread; one mutex, held over system calls that do not wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/lock/lock_files.h"
#include "server/lock/lock_table.h"
#include "server/loop/scheduler.h"
#include "server/ops/responder.h"
#include "transport/base/clock.h"

namespace rdfs::server {

class LockService {
 public:
  static constexpr int kParked = -1;
  // Locks on one inode, and all together; more are ENOLCK.
  static constexpr std::size_t kMaxPerInode = 16384;
  static constexpr std::size_t kMaxLocks = 262144;
  // Requests of one session that wait, and all together; more are ENOLCK.
  static constexpr std::size_t kMaxWaitersOfSession = 4096;
  static constexpr std::size_t kMaxWaiters = 65536;
  // Files whose locks are known to have been given to somebody since the start; with more, nobody
  // reclaims any.
  static constexpr std::size_t kMaxGiven = 65536;

  // `max_files` as LockFiles has it.
  // `max_of_session`: locks that one session may hold; more are ENOLCK.
  LockService(const ProcFd& proc, DescriptorKeeper& keeper, Scheduler& scheduler,
              std::size_t max_files, std::size_t max_of_session = kMaxLocks)
      : scheduler_(scheduler), max_of_session_(max_of_session), files_(proc, keeper, max_files) {}

  // The first lock in the way of `wanted`, or `found` of type kUnlock. Returns an errno.
  int Test(const OpenFile& open, const Lock& wanted, Lock& found);
  // Sets or removes. Returns an errno (EAGAIN, EDEADLK, EBADF, ENOLCK), or with `waiter` kParked:
  // the Responder was taken and answers later. A request that comes again (its lane was lost) takes
  // the place of the first. On the lane's thread.
  int Set(const OpenPtr& open, const Lock& wanted, Responder* waiter);
  // Sets what its client had before the server went. ENOLCK where another client may have had the
  // file's locks meanwhile: unless it is held still, that is without `may` (no server has given the
  // session up), behind a lock that another session was given since the start, and behind
  // EndReclaims. EBADF where the file is closed meanwhile. What its owner has asked for and been
  // given since stays as it is: that was on its way already when this was asked for.
  int Reclaim(const OpenPtr& open, const Lock& wanted, bool may);
  void EndReclaims();
  // Gives a parked request up: it answers EINTR.
  void Interrupt(std::uint64_t session, std::uint64_t sequence);
  // POSIX: any close of the file drops all of its owner's locks on it.
  void OwnerClosed(const OpenFile& open, const LockOwner& owner);
  // The open file is gone, and says so (`closed`): drops what was taken through it, and what waits.
  void Released(const OpenFile& open);
  // The same for all open files of a session: in one pass over each inode's locks, of which there
  // may be thousands, each taken through another open file.
  void ReleasedAll(std::uint64_t session, std::span<const OpenPtr> opens);
  // Nobody waits any more. The session's locks go with its open files.
  void SessionEnded(std::uint64_t session);

  // At the start, before any request: what an earlier worker left with the supervisor. Returns
  // whether it was a lock's.
  bool Adopt(DescriptorKeeper::Kept& kept);
  // The client has its open file again, under another number.
  void Reclaimed(const OpenFile& open, std::uint64_t old_number);
  // Drops adopted locks whose open files nobody has reclaimed.
  void DropUnclaimed();

  [[nodiscard]] std::size_t held() const;
  [[nodiscard]] std::size_t waiting() const;

 private:
  struct Parked {
    Responder responder;
    OpenPtr open;
    Lock wanted;
  };
  static constexpr std::chrono::milliseconds kFirstBackOff{2};
  struct Watch {
    std::chrono::milliseconds back_off = kFirstBackOff;
    bool timer = false;
  };
  struct Waking {
    LockTable::WaiterId next = 0;
    bool again = false;  // from the start, once through
  };
  struct Answer {
    Responder responder;
    int error;
  };
  using Answers = std::vector<Answer>;
  struct Unclaimed {
    InodeKey inode;
    Lock lock;
  };

  int TryLocked(const OpenFile& open, const Lock& wanted);
  [[nodiscard]] bool SplitsTooMany(const InodeKey& inode, const Lock& unlock) const;
  [[nodiscard]] bool IsHeld(const InodeKey& inode, const Lock& wanted) const;
  // What is left of it between the owner's locks of another type.
  [[nodiscard]] std::vector<Lock> NotOfAnotherType(const InodeKey& inode, const Lock& wanted) const;
  void NoteGiven(const InodeKey& inode, std::uint64_t session);
  int ParkLocked(const OpenPtr& open, const Lock& wanted, Responder& waiter);
  // The request waits no more: its Responder, to be answered with `error`.
  void GiveUpLocked(LockTable::WaiterId id, int error, Answers& answers);
  // The same by the request's name, with EINTR, if there is such a one.
  void GiveUpLocked(std::uint64_t session, std::uint64_t sequence, Answers& answers);
  // All that wait through this open file.
  void GiveUpLocked(const OpenFile& open, Answers& answers);
  void UnlockLocked(const InodeKey& inode, const Lock& range);
  // The kernel and the supervisor, of what is no longer in the table.
  void TellDropped(const InodeKey& inode, const std::vector<LockTable::Dropped>& dropped);
  // Tries the inode's waiters; what is much is done in pieces, later.
  void WakeLocked(const InodeKey& inode, Answers& answers);
  void WakePieceLocked(const InodeKey& inode, Waking from, Answers& answers);
  void GoOnWaking(const InodeKey& inode);
  // Whether it waits no more.
  bool TryWaiterLocked(LockTable::WaiterId id, Answers& answers);
  void WatchLocked(const InodeKey& inode);
  void Retry(const InodeKey& inode);
  static void Send(Answers answers);

  Scheduler& scheduler_;
  const std::size_t max_of_session_;
  mutable std::mutex mutex_;
  LockTable table_;
  LockFiles files_;
  std::unordered_map<LockTable::WaiterId, Parked> parked_;
  std::unordered_map<std::uint64_t, std::map<std::uint64_t, LockTable::WaiterId>>
      by_session_;                                             // parked_, by session and sequence
  std::unordered_map<InodeKey, Watch, InodeKeyHash> watches_;  // of inodes that have waiters
  std::unordered_map<InodeKey, Waking, InodeKeyHash> waking_;  // where pieces that are left begin
  LockTable::WaiterId next_waiter_ = 0;
  std::vector<Unclaimed> unclaimed_;
  // Files whose locks were given since the start, to which session; 0: to several.
  std::unordered_map<InodeKey, std::uint64_t, InodeKeyHash> given_;
  bool reclaims_over_ = false;
};

}  // namespace rdfs::server
