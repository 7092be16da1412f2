#include "server/lock/lock_service.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdfs::server {
namespace {

constexpr std::chrono::milliseconds kLongestBackOff{100};

// What a message, and each piece of what it leaves, may cost: looks at a lock, a nanosecond or two
// each.
constexpr std::size_t kLooksAtOnce = 1 << 18;
// Of trying one waiter, in looks: its system call, and how often it goes through the locks held.
constexpr std::size_t kLooksOfATry = 1000;
constexpr std::size_t kPassesOfATry = 4;
// Of one lock that is reclaimed, between those that its owner has taken since.
constexpr std::size_t kMostPieces = 16;

Lock WholeFile(const LockOwner& owner) {
  return {.owner = owner,
          .type = fs::LockType::kUnlock,
          .start = 0,
          .end = LockTable::kEnd,
          .open = 0,
          .pid = 0};
}

}  // namespace

int LockService::Test(const OpenFile& open, const Lock& wanted, Lock& found) {
  const std::lock_guard lock(mutex_);
  if (const auto conflict = table_.Conflict(open.inode->key, wanted)) {
    found = *conflict;
    return 0;
  }
  return files_.Test(open, wanted, found);
}

int LockService::TryLocked(const OpenFile& open, const Lock& wanted) {
  const InodeKey& inode = open.inode->key;
  const std::vector<Lock> held = table_.HeldBy(inode, wanted.owner);
  const bool replaces = wanted.owner.flock && !held.empty();
  if (!replaces && (table_.held_count() >= kMaxLocks || table_.HeldOn(inode) >= kMaxPerInode ||
                    table_.HeldOf(wanted.owner.session) >= max_of_session_)) {
    return table_.Conflict(inode, wanted) ? EAGAIN : ENOLCK;
  }
  const int error = table_.Conflict(inode, wanted) ? EAGAIN : files_.Set(open, wanted, held);
  if (error != 0) {
    // A change of a whole-file lock's kind gives the old one up first: who is refused has none.
    if (replaces && error == EAGAIN) UnlockLocked(inode, WholeFile(wanted.owner));
    return error;
  }
  table_.Apply(inode, wanted);
  files_.Update(inode, wanted.owner, table_.HeldBy(inode, wanted.owner));
  return 0;
}

void LockService::UnlockLocked(const InodeKey& inode, const Lock& range) {
  Lock unlock = range;
  unlock.type = fs::LockType::kUnlock;
  files_.Unlock(inode, unlock);
  table_.Apply(inode, unlock);
  files_.Update(inode, unlock.owner, table_.HeldBy(inode, unlock.owner));
}

void LockService::TellDropped(const InodeKey& inode,
                              const std::vector<LockTable::Dropped>& dropped) {
  for (const LockTable::Dropped& of : dropped) {
    for (const Lock& range : of.ranges) files_.Unlock(inode, range);
    files_.Update(inode, of.owner, of.left);
  }
}

int LockService::Set(const OpenPtr& open, const Lock& wanted, Responder* waiter) {
  const InodeKey& inode = open->inode->key;
  Answers answers;
  int error = 0;
  {
    const std::lock_guard lock(mutex_);
    if (waiter != nullptr) GiveUpLocked(wanted.owner.session, waiter->sequence(), answers);
    if (wanted.type != fs::LockType::kUnlock) {
      error = open->closed.load() ? EBADF : TryLocked(*open, wanted);
      if (error == 0) NoteGiven(inode, wanted.owner.session);
    } else if (SplitsTooMany(inode, wanted)) {
      error = ENOLCK;
    } else {
      UnlockLocked(inode, wanted);
    }
    if (error == EAGAIN && waiter != nullptr) error = ParkLocked(open, wanted, *waiter);
    // Locks that went away, or became weaker, may let others in.
    WakeLocked(inode, answers);
  }
  Send(std::move(answers));
  return error;
}

int LockService::Reclaim(const OpenPtr& open, const Lock& wanted, bool may) {
  const InodeKey& inode = open->inode->key;
  Answers answers;
  int error = 0;
  {
    const std::lock_guard lock(mutex_);
    if (open->closed.load()) return EBADF;
    const auto given = given_.find(inode);
    const bool to_another = given != given_.end() && given->second != wanted.owner.session;
    if ((!may || reclaims_over_ || to_another) && !IsHeld(inode, wanted)) return ENOLCK;
    std::vector<Lock> pieces{wanted};
    if (given != given_.end()) pieces = NotOfAnotherType(inode, wanted);
    if (pieces.size() > kMostPieces) return ENOLCK;
    for (std::size_t i = 0; error == 0 && i < pieces.size(); ++i) {
      error = TryLocked(*open, pieces[i]);
    }
    WakeLocked(inode, answers);
  }
  Send(std::move(answers));
  return error;
}

bool LockService::IsHeld(const InodeKey& inode, const Lock& wanted) const {
  std::vector<Lock> held = table_.HeldBy(inode, wanted.owner);
  std::erase_if(held, [&](const Lock& lock) { return lock.type != wanted.type; });
  std::ranges::sort(held, {}, &Lock::start);
  std::uint64_t next = wanted.start;
  for (const Lock& lock : held) {
    if (lock.start > next) return false;
    if (lock.end >= wanted.end) return true;
    next = std::max(next, lock.end + 1);
  }
  return false;
}

std::vector<Lock> LockService::NotOfAnotherType(const InodeKey& inode, const Lock& wanted) const {
  std::vector<Lock> held = table_.HeldBy(inode, wanted.owner);
  std::erase_if(held, [&](const Lock& lock) { return lock.type == wanted.type; });
  std::ranges::sort(held, {}, &Lock::start);
  std::vector<Lock> pieces;
  Lock rest = wanted;
  for (const Lock& lock : held) {
    if (lock.end < rest.start) continue;
    if (lock.start > rest.end) break;
    if (lock.start > rest.start) {
      pieces.push_back(rest);
      pieces.back().end = lock.start - 1;
    }
    if (lock.end >= rest.end) return pieces;
    rest.start = lock.end + 1;
  }
  pieces.push_back(rest);
  return pieces;
}

void LockService::NoteGiven(const InodeKey& inode, std::uint64_t session) {
  if (reclaims_over_) return;
  const auto [given, first] = given_.emplace(inode, session);
  if (!first && given->second != session) given->second = 0;
  if (given_.size() <= kMaxGiven) return;
  reclaims_over_ = true;
  given_.clear();
}

void LockService::EndReclaims() {
  const std::lock_guard lock(mutex_);
  reclaims_over_ = true;
  given_.clear();
}

// A hole in the middle makes two locks of one.
bool LockService::SplitsTooMany(const InodeKey& inode, const Lock& unlock) const {
  if (table_.held_count() < kMaxLocks && table_.HeldOn(inode) < kMaxPerInode &&
      table_.HeldOf(unlock.owner.session) < max_of_session_) {
    return false;
  }
  return std::ranges::any_of(table_.HeldBy(inode, unlock.owner), [&](const Lock& lock) {
    return lock.start < unlock.start && lock.end > unlock.end;
  });
}

int LockService::ParkLocked(const OpenPtr& open, const Lock& wanted, Responder& waiter) {
  const auto of_session = by_session_.find(wanted.owner.session);
  const std::size_t waiting = of_session == by_session_.end() ? 0 : of_session->second.size();
  if (parked_.size() >= kMaxWaiters || waiting >= kMaxWaitersOfSession) return ENOLCK;
  const LockTable::WaiterId id = ++next_waiter_;
  if (!table_.Enqueue(open->inode->key, wanted, id)) return EDEADLK;
  by_session_[wanted.owner.session][waiter.sequence()] = id;
  waiter.LeaveQueue();
  Parked& parked = parked_[id];
  parked.responder = std::move(waiter);
  parked.open = open;
  parked.wanted = wanted;
  // While another client is in the way, its unlock wakes us; only local processes need a look.
  const InodeKey& inode = open->inode->key;
  if (!table_.Conflict(inode, wanted)) {
    watches_[inode].back_off = kFirstBackOff;
    WatchLocked(inode);
  }
  return kParked;
}

void LockService::GiveUpLocked(LockTable::WaiterId id, int error, Answers& answers) {
  const auto it = parked_.find(id);
  Parked& parked = it->second;
  const InodeKey& inode = parked.open->inode->key;
  table_.Dequeue(inode, id);
  const auto watch = watches_.find(inode);
  if (watch != watches_.end() && !watch->second.timer && !table_.HasWaiters(inode)) {
    watches_.erase(watch);
  }
  const auto session = by_session_.find(parked.wanted.owner.session);
  session->second.erase(parked.responder.sequence());
  if (session->second.empty()) by_session_.erase(session);
  answers.push_back({std::move(parked.responder), error});
  parked_.erase(it);
}

void LockService::GiveUpLocked(std::uint64_t session, std::uint64_t sequence, Answers& answers) {
  const auto of_session = by_session_.find(session);
  if (of_session == by_session_.end()) return;
  const auto waiter = of_session->second.find(sequence);
  if (waiter != of_session->second.end()) GiveUpLocked(waiter->second, EINTR, answers);
}

void LockService::GiveUpLocked(const OpenFile& open, Answers& answers) {
  const auto of_session = by_session_.find(open.session);
  if (of_session == by_session_.end()) return;
  std::vector<LockTable::WaiterId> through;
  for (const auto& [sequence, id] : of_session->second) {
    if (parked_.at(id).open.get() == &open) through.push_back(id);
  }
  for (const LockTable::WaiterId id : through) GiveUpLocked(id, EINTR, answers);
}

void LockService::WatchLocked(const InodeKey& inode) {
  Watch& watch = watches_[inode];
  if (watch.timer) return;
  watch.timer = true;
  const auto delay = watch.back_off;
  watch.back_off = std::min(watch.back_off * 2, kLongestBackOff);
  scheduler_.After(delay, [this, inode] { Retry(inode); });
}

void LockService::Retry(const InodeKey& inode) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    watches_.at(inode).timer = false;
    if (table_.HasWaiters(inode)) {
      WakeLocked(inode, answers);
    } else {
      watches_.erase(inode);
    }
  }
  Send(std::move(answers));
}

void LockService::WakeLocked(const InodeKey& inode, Answers& answers) {
  const auto waking = waking_.find(inode);
  if (waking != waking_.end()) {
    waking->second.again = true;
  } else {
    WakePieceLocked(inode, {}, answers);
  }
}

void LockService::WakePieceLocked(const InodeKey& inode, Waking from, Answers& answers) {
  LockTable::Walk walk{.next = from.next, .looks_left = kLooksAtOnce};
  while (walk.looks_left > 0) {
    if (const auto id = table_.NextRunnable(inode, walk)) {
      const std::size_t looks = kLooksOfATry + kPassesOfATry * table_.HeldOn(inode);
      walk.looks_left -= std::min(walk.looks_left, looks);
      from.again |= TryWaiterLocked(*id, answers);
    } else if (walk.over) {
      if (!std::exchange(from.again, false)) return;
      walk = {.next = 0, .looks_left = walk.looks_left};
    }
  }
  waking_[inode] = {walk.next, from.again};
  scheduler_.After({}, [this, inode] { GoOnWaking(inode); });
}

void LockService::GoOnWaking(const InodeKey& inode) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    const auto left = waking_.extract(inode);
    WakePieceLocked(inode, left.mapped(), answers);
  }
  Send(std::move(answers));
}

bool LockService::TryWaiterLocked(LockTable::WaiterId id, Answers& answers) {
  const Parked& parked = parked_.at(id);
  const InodeKey& inode = parked.open->inode->key;
  // Its lane is lost: the client asks again when it is back, if it still wants the lock.
  const bool gone = parked.responder.lane().expired();
  const int error = gone ? EINTR : TryLocked(*parked.open, parked.wanted);
  if (error == 0) NoteGiven(inode, parked.wanted.owner.session);
  if (error == EAGAIN) {
    WatchLocked(inode);
    return false;
  }
  GiveUpLocked(id, error, answers);
  return true;
}

void LockService::Interrupt(std::uint64_t session, std::uint64_t sequence) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    GiveUpLocked(session, sequence, answers);
  }
  Send(std::move(answers));
}

void LockService::OwnerClosed(const OpenFile& open, const LockOwner& owner) {
  const InodeKey& inode = open.inode->key;
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    if (table_.Idle(inode) || table_.HeldBy(inode, owner).empty()) return;
    UnlockLocked(inode, WholeFile(owner));
    WakeLocked(inode, answers);
  }
  Send(std::move(answers));
}

void LockService::Released(const OpenFile& open) {
  const InodeKey& inode = open.inode->key;
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    if (table_.Idle(inode)) return;
    GiveUpLocked(open, answers);
    if (table_.HeldOf(open.session) > 0) {
      TellDropped(inode, table_.DropThrough(inode, open.session, open.number));
    }
    WakeLocked(inode, answers);
  }
  Send(std::move(answers));
}

void LockService::SessionEnded(std::uint64_t session) {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    while (by_session_.contains(session)) {
      GiveUpLocked(by_session_.at(session).begin()->second, EINTR, answers);
    }
  }
  Send(std::move(answers));
}

void LockService::ReleasedAll(std::uint64_t session, std::span<const OpenPtr> opens) {
  for (const OpenPtr& open : opens) {
    const InodeKey& inode = open->inode->key;
    Answers answers;
    {
      const std::lock_guard lock(mutex_);
      if (table_.HeldOf(session) == 0) return;
      const auto dropped = table_.DropOf(inode, session);
      if (dropped.empty()) continue;
      TellDropped(inode, dropped);
      WakeLocked(inode, answers);
    }
    Send(std::move(answers));
  }
}

bool LockService::Adopt(DescriptorKeeper::Kept& kept) {
  const std::lock_guard lock(mutex_);
  const auto adopted = files_.Adopt(kept);
  for (const auto& file : adopted) {
    for (const Lock& held : file.locks) {
      table_.Apply(file.inode, held);
      unclaimed_.push_back({file.inode, held});
    }
  }
  return !adopted.empty();
}

void LockService::Reclaimed(const OpenFile& open, std::uint64_t old_number) {
  const std::lock_guard lock(mutex_);
  const InodeKey& inode = open.inode->key;
  for (Lock held : table_.HeldThrough(inode, open.session, old_number)) {
    held.open = open.number;
    table_.Apply(inode, held);
    files_.Update(inode, held.owner, table_.HeldBy(inode, held.owner));
  }
  std::erase_if(unclaimed_, [&](const Unclaimed& entry) {
    return entry.inode == inode && entry.lock.owner.session == open.session &&
           entry.lock.open == old_number;
  });
}

void LockService::DropUnclaimed() {
  Answers answers;
  {
    const std::lock_guard lock(mutex_);
    for (const Unclaimed& entry : std::exchange(unclaimed_, {})) {
      // Not what was reclaimed through a file of another number: twice killed, the server may have
      // given it one that its client never heard of.
      const Lock& then = entry.lock;
      TellDropped(entry.inode, table_.DropThrough(entry.inode, then.owner.session, then.open));
      WakeLocked(entry.inode, answers);
    }
  }
  Send(std::move(answers));
}

std::size_t LockService::held() const {
  const std::lock_guard lock(mutex_);
  return table_.held_count();
}

std::size_t LockService::waiting() const {
  const std::lock_guard lock(mutex_);
  return parked_.size();
}

void LockService::Send(Answers answers) {
  for (Answer& answer : answers) {
    Responder::SendFromAnywhere(std::move(answer.responder), fs::ToWire(answer.error));
  }
}

}  // namespace rdfs::server
