#include "fs/client/held_locks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rdfs::fs::client {

void HeldLocks::Apply(const Held& set) {
  const std::lock_guard guard(mutex_);
  std::vector<Held> kept;
  for (const Held& held : held_) {
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
  if (set.lock.type != LockType::kUnlock) kept.push_back(set);
  held_ = std::move(kept);
}

void HeldLocks::GiveUp(const Held& wanted) {
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

std::vector<HeldLocks::Held> HeldLocks::Of(const OpenFile* open) const {
  const std::lock_guard guard(mutex_);
  std::vector<Held> found;
  std::copy_if(held_.begin(), held_.end(), std::back_inserter(found),
               [open](const Held& h) { return h.open == open; });
  return found;
}

}  // namespace rdfs::fs::client
