#include "fs/client/held_locks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rdfs::fs::client {

namespace {

// Two of one owner that can be written as one.
bool Join(const HeldLocks::Held& a, const HeldLocks::Held& b) {
  if (a.flock != b.flock || a.lock.owner != b.lock.owner || a.lock.type != b.lock.type ||
      a.open != b.open) {
    return false;
  }
  const auto reaches = [](const Lock& first, const Lock& second) {
    return first.end >= second.start || first.end + 1 == second.start;
  };
  return reaches(a.lock, b.lock) && reaches(b.lock, a.lock);
}

}  // namespace

void HeldLocks::Apply(const Held& set) {
  const std::lock_guard guard(mutex_);
  std::vector<Held> kept;
  Held added = set;
  const bool locks = set.lock.type != LockType::kUnlock;
  for (const Held& held : held_) {
    if (locks && Join(held, added)) {
      added.lock.start = std::min(added.lock.start, held.lock.start);
      added.lock.end = std::max(added.lock.end, held.lock.end);
      continue;
    }
    const bool same = held.flock == set.flock && held.lock.owner == set.lock.owner;
    if (!same || held.lock.end < set.lock.start || set.lock.end < held.lock.start) {
      kept.push_back(held);
      continue;
    }
    if (held.lock.start < set.lock.start) {
      kept.push_back(held);
      kept.back().lock.end = set.lock.start - 1;
    }
    if (held.lock.end > set.lock.end) {
      kept.push_back(held);
      kept.back().lock.start = set.lock.end + 1;
    }
  }
  if (locks) kept.push_back(added);
  held_ = std::move(kept);
}

void HeldLocks::GiveUp(const Held& wanted) {
  if (wanted.lock.type == LockType::kUnlock) return Apply(wanted);
  const std::lock_guard guard(mutex_);
  std::erase_if(held_, [&](const Held& h) {
    return h.flock && wanted.flock && h.lock.owner == wanted.lock.owner &&
           h.lock.type != wanted.lock.type;
  });
}

void HeldLocks::DropOwner(std::uint64_t owner) {
  const std::lock_guard guard(mutex_);
  std::erase_if(held_, [owner](const Held& h) { return !h.flock && h.lock.owner == owner; });
}

void HeldLocks::DropOpen(const OpenFile* open) {
  const std::lock_guard guard(mutex_);
  std::erase_if(held_, [open](const Held& h) { return h.open == open; });
}

std::vector<Lock> HeldLocks::ToUndo(const Held& granted) const {
  std::vector<Lock> had;
  {
    const std::lock_guard guard(mutex_);
    for (const Held& h : held_) {
      const bool same = h.flock == granted.flock && h.lock.owner == granted.lock.owner;
      if (same && h.lock.start <= granted.lock.end && granted.lock.start <= h.lock.end) {
        had.push_back(h.lock);
      }
    }
  }
  std::ranges::sort(had, {}, &Lock::start);
  std::vector<Lock> undo;
  const auto ask = [&](std::uint64_t start, std::uint64_t end, LockType type) {
    undo.push_back(granted.lock);
    undo.back().start = start;
    undo.back().end = end;
    undo.back().type = type;
  };
  std::uint64_t next = granted.lock.start;
  for (const Lock& lock : had) {
    const std::uint64_t start = std::max(lock.start, next);
    const std::uint64_t end = std::min(lock.end, granted.lock.end);
    if (next < start) ask(next, start - 1, LockType::kUnlock);
    if (lock.type != granted.lock.type) ask(start, end, lock.type);
    next = end + 1;  // an end is below 2^63
  }
  if (next <= granted.lock.end) ask(next, granted.lock.end, LockType::kUnlock);
  return undo;
}

std::shared_ptr<void> HeldLocks::BeginUndo() {
  ++*undoing_;
  return {nullptr, [count = undoing_](void*) { --*count; }};
}

std::vector<HeldLocks::Held> HeldLocks::Of(const OpenFile* open) const {
  const std::lock_guard guard(mutex_);
  std::vector<Held> found;
  std::copy_if(held_.begin(), held_.end(), std::back_inserter(found),
               [open](const Held& h) { return h.open == open; });
  return found;
}

}  // namespace rdfs::fs::client
