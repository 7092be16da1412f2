#include "server/lock_table.h"

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

std::vector<LockOwner> LockTable::Blockers(const InodeLocks& locks, const Lock& wanted) const {
  std::vector<LockOwner> owners;
  for (const Lock& held : locks.held) {
    if (Conflicts(held, wanted)) owners.push_back(held.owner);
  }
  return owners;
}

bool LockTable::ClosesCircle(const InodeLocks& locks, const Lock& wanted) const {
  std::unordered_set<LockOwner, LockOwnerHash> seen;
  std::vector<LockOwner> next = Blockers(locks, wanted);
  while (!next.empty()) {
    const LockOwner owner = next.back();
    next.pop_back();
    if (owner == wanted.owner) return true;
    if (!seen.insert(owner).second) continue;
    const auto waits = waiting_.find(owner);
    if (waits == waiting_.end()) continue;
    for (const InodeKey& key : waits->second) {
      const auto it = inodes_.find(key);
      if (it == inodes_.end()) continue;
      for (const Waiter& waiter : it->second.waiters) {
        if (!(waiter.wanted.owner == owner)) continue;
        const auto blockers = Blockers(it->second, waiter.wanted);
        next.insert(next.end(), blockers.begin(), blockers.end());
      }
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
  locks.waiters.push_back({id, wanted});
  waiting_[wanted.owner].push_back(inode);
  return true;
}

void LockTable::Dequeue(const InodeKey& inode, WaiterId id) {
  const auto it = inodes_.find(inode);
  if (it == inodes_.end()) return;
  auto& waiters = it->second.waiters;
  const auto waiter =
      std::find_if(waiters.begin(), waiters.end(), [id](const Waiter& w) { return w.id == id; });
  if (waiter == waiters.end()) return;
  const auto waits = waiting_.find(waiter->wanted.owner);
  if (waits != waiting_.end()) {
    const auto place = std::find(waits->second.begin(), waits->second.end(), inode);
    if (place != waits->second.end()) waits->second.erase(place);
    if (waits->second.empty()) waiting_.erase(waits);
  }
  waiters.erase(waiter);
  EraseIfIdle(inode);
}

std::vector<LockTable::WaiterId> LockTable::Runnable(const InodeKey& inode) const {
  std::vector<WaiterId> ids;
  const auto it = inodes_.find(inode);
  if (it == inodes_.end()) return ids;
  for (const Waiter& waiter : it->second.waiters) {
    if (Blockers(it->second, waiter.wanted).empty()) ids.push_back(waiter.id);
  }
  return ids;
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
