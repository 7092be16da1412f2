// LockTable: who holds and who waits for which byte ranges of which inode. Pure.
//
// Byte-range locks (fcntl) and whole-file locks (flock) do not see each other, as on one host.
// Ranges are inclusive; kEnd is "to the end of the file, wherever that is". What the server's own
// kernel says (other processes on its host) is the caller's business: LockService asks for a
// conflict here, then the kernel, and applies here what both allow.
//
// Owned by LockService, under its lock.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fs/protocol.h"
#include "server/inode/handle.h"

namespace rdfs::server {

struct LockOwner {
  std::uint64_t session = 0;
  std::uint64_t owner = 0;  // as the client's kernel numbers them
  bool flock = false;
  friend auto operator<=>(const LockOwner&, const LockOwner&) = default;
};
struct LockOwnerHash {
  std::size_t operator()(const LockOwner& owner) const noexcept {
    return std::hash<std::uint64_t>()((owner.session * 0x9e3779b97f4a7c15U) ^ (owner.owner << 1U) ^
                                      (owner.flock ? 1U : 0U));
  }
};

struct Lock {
  LockOwner owner;
  fs::LockType type = fs::LockType::kRead;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t open = 0;  // through which open file it was taken
  std::uint32_t pid = 0;
};

class LockTable {
 public:
  static constexpr std::uint64_t kEnd = 0x7fffffffffffffff;
  using WaiterId = std::uint64_t;
  // A search for a circle gives up behind so many looks at a lock (a millisecond or two), as the
  // kernel's does behind ten owners: it then waits.
  static constexpr std::size_t kMostLooksForCircle = 1 << 20;

  // The first lock of another owner in the way of `wanted`, by start of range.
  [[nodiscard]] std::optional<Lock> Conflict(const InodeKey& inode, const Lock& wanted) const;
  // Sets, changes or (kUnlock) removes; the caller has made sure that nothing conflicts.
  void Apply(const InodeKey& inode, const Lock& wanted);

  // Queues behind the waiters of the inode; ids only grow. False: waiting would close a circle of
  // owners that wait for each other (EDEADLK, fcntl locks only); nothing is queued then.
  [[nodiscard]] bool Enqueue(const InodeKey& inode, const Lock& wanted, WaiterId id);
  void Dequeue(const InodeKey& inode, WaiterId id);
  // A way through the waiters of an inode, in the order they came.
  struct Walk {
    WaiterId next = 0;  // where it goes on
    std::size_t looks_left = 0;
    bool over = false;
  };
  // The next waiter that nothing in the table stands in the way of. None: the walk is over, or has
  // no looks at a lock left. An earlier waiter does not hold up a later one whose range is free, as
  // in the kernel.
  [[nodiscard]] std::optional<WaiterId> NextRunnable(const InodeKey& inode, Walk& walk) const;
  [[nodiscard]] bool HasWaiters(const InodeKey& inode) const;

  // Removes what was taken through an open file. Of each owner who had some: the ranges to unlock,
  // as few as cover it and nothing else of the owner's, and what is left.
  struct Dropped {
    LockOwner owner;
    std::vector<Lock> ranges{}, left{};
  };
  std::vector<Dropped> DropThrough(const InodeKey& inode, std::uint64_t session,
                                   std::uint64_t open);
  // The same for all that a session has on the inode, in one pass.
  std::vector<Dropped> DropOf(const InodeKey& inode, std::uint64_t session);

  // Locks of the inode held by `owner`, in no order; and those taken through an open file.
  [[nodiscard]] std::vector<Lock> HeldBy(const InodeKey& inode, const LockOwner& owner) const;
  [[nodiscard]] std::vector<Lock> HeldThrough(const InodeKey& inode, std::uint64_t session,
                                              std::uint64_t open) const;
  [[nodiscard]] std::size_t HeldOn(const InodeKey& inode) const;
  [[nodiscard]] std::size_t held_count() const { return held_count_; }
  [[nodiscard]] std::size_t HeldOf(std::uint64_t session) const;
  [[nodiscard]] bool Idle(const InodeKey& inode) const { return !inodes_.contains(inode); }

 private:
  struct InodeLocks {
    std::vector<Lock> held;
    std::map<WaiterId, Lock> waiters;
  };
  using Inodes = std::unordered_map<InodeKey, InodeLocks, InodeKeyHash>;

  static bool Conflicts(const Lock& held, const Lock& wanted);
  // Of the session's locks.
  std::vector<Dropped> DropWhere(const InodeKey& inode, std::uint64_t session,
                                 const std::function<bool(const Lock&)>& goes);
  // Whether a lock is in the way; counts down the looks it took to know.
  static bool Blocked(const InodeLocks& locks, const Lock& wanted, std::size_t& looks_left);
  [[nodiscard]] bool ClosesCircle(const InodeLocks& locks, const Lock& wanted) const;
  void EraseIfIdle(const InodeKey& inode);
  void CountHeld(std::uint64_t session, std::size_t now, std::size_t before);

  Inodes inodes_;
  // Where an owner waits: the edges of the waits-for graph. An owner may wait in several threads.
  std::unordered_map<LockOwner, std::map<WaiterId, InodeKey>, LockOwnerHash> waiting_;
  std::size_t held_count_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> held_of_;  // by session; none is not in it
};

}  // namespace rdfs::server
