#include "server/lock/lock_table.h"

#include <algorithm>
#include <unordered_set>

namespace rdfs::server {
namespace {

bool Overlaps(const Lock& a, const Lock& b) { return a.start <= b.end && b.start <= a.end; }

// Two locks of one owner that can be written as one.
bool Joins(const Lock& a, const Lock& b) {
  if (!(a.owner == b.owner) || a.type != b.type || a.open != b.open) return false;
  if (Overlaps(a, b)) return true;
  return (a.end < b.start && a.end + 1 == b.start) || (b.end < a.start && b.end + 1 == a.start);
}

}  // namespace

bool LockTable::Conflicts(const Lock& held, const Lock& wanted) {
  if (wanted.type == fs::LockType::kUnlock || held.owner == wanted.owner) return false;
  if (held.owner.flock != wanted.owner.flock || !Overlaps(held, wanted)) return false;
  return held.type == fs::LockType::kWrite || wanted.type == fs::LockType::kWrite;
}

std::optional<Lock> LockTable::Conflict(const InodeKey& inode, const Lock& wanted) const {
  const auto it = inodes_.find(inode);
  if (it == inodes_.end()) return std::nullopt;
  std::optional<Lock> first;
  for (const Lock& held : it->second.held) {
    if (Conflicts(held, wanted) && (!first || held.start < first->start)) first = held;
  }
  return first;
}

void LockTable::Apply(const InodeKey& inode, const Lock& wanted) {
  InodeLocks& locks = inodes_[inode];
  const std::size_t before = locks.held.size();
  held_count_ -= before;
  std::vector<Lock> kept;
  kept.reserve(locks.held.size() + 2);
  Lock added = wanted;
  for (const Lock& held : locks.held) {
    if (!(held.owner == wanted.owner)) {
      kept.push_back(held);
      continue;
    }
    if (wanted.type != fs::LockType::kUnlock && Joins(held, added)) {
      added.start = std::min(added.start, held.start);
      added.end = std::max(added.end, held.end);
      continue;
    }
    if (!Overlaps(held, wanted)) {
      kept.push_back(held);
      continue;
    }
    if (held.start < wanted.start) {
      kept.push_back(held);
      kept.back().end = wanted.start - 1;
    }
    if (held.end > wanted.end) {
      kept.push_back(held);
      kept.back().start = wanted.end + 1;
    }
  }
  if (wanted.type != fs::LockType::kUnlock) kept.push_back(added);
  locks.held = std::move(kept);
  held_count_ += locks.held.size();
  CountHeld(wanted.owner.session, locks.held.size(), before);
  EraseIfIdle(inode);
}

// All that an Apply changes is of one owner.
void LockTable::CountHeld(std::uint64_t session, std::size_t now, std::size_t before) {
  std::size_t& held = held_of_[session];
  held = held + now - before;
  if (held == 0) held_of_.erase(session);
}

std::size_t LockTable::HeldOf(std::uint64_t session) const {
  const auto it = held_of_.find(session);
  return it == held_of_.end() ? 0 : it->second;
}

bool LockTable::Blocked(const InodeLocks& locks, const Lock& wanted, std::size_t& looks_left) {
  const auto first =
      std::ranges::find_if(locks.held, [&](const Lock& held) { return Conflicts(held, wanted); });
  const auto looks = static_cast<std::size_t>(first - locks.held.begin()) + 1;
  looks_left -= std::min(looks_left, looks);
  return first != locks.held.end();
}

bool LockTable::ClosesCircle(const InodeLocks& locks, const Lock& wanted) const {
  std::unordered_set<LockOwner, LockOwnerHash> seen;
  std::vector<LockOwner> next;
  std::size_t looks_left = kMostLooksForCircle;
  // Adds the owners in the way of one wait that were not met yet; true: `wanted`'s is among them.
  const auto meets_itself = [&](const InodeLocks& at, const Lock& wait) {
    for (const Lock& held : at.held) {
      if (!Conflicts(held, wait)) continue;
      if (held.owner == wanted.owner) return true;
      if (seen.insert(held.owner).second) next.push_back(held.owner);
    }
    looks_left -= std::min(looks_left, at.held.size());
    return false;
  };
  if (meets_itself(locks, wanted)) return true;
  while (!next.empty()) {
    const auto waits = waiting_.find(next.back());
    next.pop_back();
    if (waits == waiting_.end()) continue;
    for (const auto& [id, inode] : waits->second) {
      if (looks_left == 0) return false;
      const InodeLocks& at = inodes_.at(inode);
      if (meets_itself(at, at.waiters.at(id))) return true;
    }
  }
  return false;
}

bool LockTable::Enqueue(const InodeKey& inode, const Lock& wanted, WaiterId id) {
  InodeLocks& locks = inodes_[inode];
  if (!wanted.owner.flock && ClosesCircle(locks, wanted)) {
    EraseIfIdle(inode);
    return false;
  }
  locks.waiters.emplace(id, wanted);
  waiting_[wanted.owner].emplace(id, inode);
  return true;
}

void LockTable::Dequeue(const InodeKey& inode, WaiterId id) {
  const auto it = inodes_.find(inode);
  if (it == inodes_.end()) return;
  const auto waiter = it->second.waiters.find(id);
  if (waiter == it->second.waiters.end()) return;
  const auto waits = waiting_.find(waiter->second.owner);
  waits->second.erase(id);
  if (waits->second.empty()) waiting_.erase(waits);
  it->second.waiters.erase(waiter);
  EraseIfIdle(inode);
}

std::optional<LockTable::WaiterId> LockTable::NextRunnable(const InodeKey& inode,
                                                           Walk& walk) const {
  const auto it = inodes_.find(inode);
  if (it != inodes_.end()) {
    const InodeLocks& locks = it->second;
    for (auto waiter = locks.waiters.lower_bound(walk.next); waiter != locks.waiters.end();
         ++waiter) {
      if (walk.looks_left == 0) return std::nullopt;
      walk.next = waiter->first + 1;
      if (!Blocked(locks, waiter->second, walk.looks_left)) return waiter->first;
    }
  }
  walk.over = true;
  return std::nullopt;
}

bool LockTable::HasWaiters(const InodeKey& inode) const {
  const auto it = inodes_.find(inode);
  return it != inodes_.end() && !it->second.waiters.empty();
}

std::vector<Lock> LockTable::HeldBy(const InodeKey& inode, const LockOwner& owner) const {
  std::vector<Lock> out;
  const auto it = inodes_.find(inode);
  if (it == inodes_.end()) return out;
  for (const Lock& held : it->second.held) {
    if (held.owner == owner) out.push_back(held);
  }
  return out;
}

std::vector<Lock> LockTable::HeldThrough(const InodeKey& inode, std::uint64_t session,
                                         std::uint64_t open) const {
  std::vector<Lock> out;
  const auto it = inodes_.find(inode);
  if (it == inodes_.end()) return out;
  for (const Lock& held : it->second.held) {
    if (held.owner.session == session && held.open == open) out.push_back(held);
  }
  return out;
}

std::vector<LockTable::Dropped> LockTable::DropThrough(const InodeKey& inode, std::uint64_t session,
                                                       std::uint64_t open) {
  return DropWhere(inode, session, [&](const Lock& lock) { return lock.open == open; });
}

std::vector<LockTable::Dropped> LockTable::DropOf(const InodeKey& inode, std::uint64_t session) {
  return DropWhere(inode, session, [](const Lock&) { return true; });
}

std::vector<LockTable::Dropped> LockTable::DropWhere(const InodeKey& inode, std::uint64_t session,
                                                     const std::function<bool(const Lock&)>& goes) {
  const auto through = [&](const Lock& lock) {
    return lock.owner.session == session && goes(lock);
  };
  std::vector<Dropped> dropped;
  const auto it = inodes_.find(inode);
  if (it == inodes_.end() || std::ranges::none_of(it->second.held, through)) return dropped;
  std::vector<Lock>& held = it->second.held;
  std::ranges::sort(held, [](const Lock& a, const Lock& b) {
    return a.owner != b.owner ? a.owner < b.owner : a.start < b.start;
  });
  for (auto first = held.begin(); first != held.end();) {
    const auto end = std::find_if(first, held.end(),
                                  [&](const Lock& lock) { return lock.owner != first->owner; });
    Dropped of{.owner = first->owner};
    bool joins = false;
    for (; first != end; ++first) {
      if (!through(*first)) {
        of.left.push_back(*first);
      } else if (joins) {
        of.ranges.back().end = first->end;
      } else {
        of.ranges.push_back(*first);
      }
      joins = through(*first);
    }
    if (!of.ranges.empty()) dropped.push_back(std::move(of));
  }
  const std::size_t count = std::erase_if(held, through);
  held_count_ -= count;
  CountHeld(session, 0, count);
  EraseIfIdle(inode);
  return dropped;
}

std::size_t LockTable::HeldOn(const InodeKey& inode) const {
  const auto it = inodes_.find(inode);
  return it == inodes_.end() ? 0 : it->second.held.size();
}

void LockTable::EraseIfIdle(const InodeKey& inode) {
  const auto it = inodes_.find(inode);
  if (it != inodes_.end() && it->second.held.empty() && it->second.waiters.empty()) {
    inodes_.erase(it);
  }
}

}  // namespace rdfs::server
