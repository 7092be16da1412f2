// What is in an EpollSet, and how the kernel is told of it.
#include <sys/mman.h>

#include <cerrno>

#include "tools/sock/preload/epoll_set_parts.h"
#include "tools/sock/preload/libc.h"

namespace rdfs::sock {

void EpollSet::Renew() {
  const Locked locked(lock_);
  if (entries_ != nullptr) munmap(entries_, DescriptorTable::kMost * sizeof(Entry));
  entries_ = nullptr;
  bells_.Reset();
  waker_.Reset();
  busy_ = busy_end_ = 0;
  attached_ = lying_ = 0;
  mixed_ = soon_ = false;
  nested_ = holds_sets_ = outside_ = false;
}

EpollSet::Entry* EpollSet::Find(int fd) {
  if (entries_ == nullptr || fd < 0 || fd >= DescriptorTable::kMost) return nullptr;
  return entries_[fd].present ? &entries_[fd] : nullptr;
}

void EpollSet::Busy(int fd, Entry& entry) {
  if (entry.busy) return;
  entry.busy = true;
  entry.next = 0;
  (busy_ == 0 ? busy_ : entries_[busy_end_ - 1].next) = fd + 1;
  busy_end_ = fd + 1;
}

int EpollSet::Control(int epoll, int operation, int fd, epoll_event* event) {
  const Word::Kind kind = Registry().Get(fd).kind();
  const bool ours = kind == Word::Kind::kSocket || kind == Word::Kind::kConnection;
  if (!ours || (event == nullptr && operation != EPOLL_CTL_DEL)) {
    return libc().epoll_ctl(epoll, operation, fd, event);
  }
  const bool exclusive = operation != EPOLL_CTL_DEL && (event->events & EPOLLEXCLUSIVE) != 0;
  const bool twice = operation == EPOLL_CTL_ADD && HasByAnotherNumber(fd);
  if (exclusive || twice || !HasEntries()) NeedTcp(fd, Reason::kNeedsTcp);
  const Locked locked(lock_);
  fd_ = epoll;
  if (!locked.held() || entries_ == nullptr) return libc().epoll_ctl(epoll, operation, fd, event);
  return operation == EPOLL_CTL_DEL ? Remove(fd, event) : Put(operation, fd, *event);
}

bool EpollSet::HasEntries() {
  const Locked locked(lock_);
  if (entries_ == nullptr) {
    entries_ = static_cast<Entry*>(MapZeros(DescriptorTable::kMost * sizeof(Entry), false));
  }
  return entries_ != nullptr;
}

bool EpollSet::Has(int fd) {
  const Locked locked(lock_);
  const Entry* const entry = Find(fd);
  return entry != nullptr && IsOwn(*entry);
}

// A bell can tell of one number only, and of one that was taken out it tells nobody.
bool EpollSet::HasByAnotherNumber(int fd) {
  const Use use(fd);
  if (!use || use->descriptors() < 2) return false;
  const Locked locked(lock_);
  bool has = false;
  ForEachDescriptor(*use, [&](int other) {
    if (other == fd || entries_ == nullptr) return;
    has = has || Find(other) != nullptr;
    Entry& entry = entries_[other];
    const bool left = !entry.present && entry.bells && IsOwn(entry);
    if (left && use->attached()) RemoveBells(use->end(), entry);
  });
  return has;
}

// Whether the kernel must be asked anew. Room it always has, so that is never asked in vain.
bool EpollSet::HasToAsk(const Entry& entry, std::uint32_t events) const {
  const std::uint32_t differ = events ^ entry.kernel_events;
  if (IsExact() || ((events | entry.kernel_events) & kModes) != 0) return differ != 0;
  return (differ & (events | kOut)) != 0;
}

// What the kernel is to be asked of an entry that is moved. OUT only Look adds.
std::uint32_t EpollSet::Exactly(const Entry& entry) {
  return (entry.events & ~kOut) | (entry.events & entry.kernel_events & kOut);
}

void EpollSet::TakeOut(int fd, Entry& entry) {
  entry.lies = false;
  --lying_;
  ++silenced_;
  const int saved = errno;
  if (IsOwn(entry)) (void)libc().epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr);
  errno = saved;
}

// The kernel has told of something that the program did not ask for, and would go on.
void EpollSet::Excess(int fd, Entry& entry) {
  if (!IsOwn(entry) || entry.kernel_events == Exactly(entry)) return;
  ++silenced_;
  Ask(fd, entry, Exactly(entry));
}

// The kernel has what the program has put there, and no more.
void EpollSet::Settle() {
  if (lying_ == 0 && attached_ == 0) return;
  for (int fd = 0; fd < Registry().end(); ++fd) {
    Entry& entry = entries_[fd];
    if (entry.lies) TakeOut(fd, entry);
    if (!entry.present || !entry.attached || (entry.events & kModes) != 0) continue;
    Excess(fd, entry);
  }
}

int EpollSet::Remove(int fd, epoll_event* event) {
  Entry* const entry = Find(fd);
  if (entry == nullptr && entries_[fd].lies) {
    errno = ENOENT;
    return -1;
  }
  const bool level = entry != nullptr && (entry->events & kModes) == 0;
  if (level && entry->attached && IsOwn(*entry) && !IsExact()) {
    entry->lies = true;
    ++lying_;
    --attached_;
    entry->present = entry->attached = false;
    return 0;
  }
  const int result = libc().epoll_ctl(fd_, EPOLL_CTL_DEL, fd, event);
  if (entry == nullptr) return result;
  if (entry->attached) --attached_;
  entry->present = entry->attached = false;
  return result;
}

int EpollSet::Put(int operation, int fd, const epoll_event& event) {
  const Use use(fd);
  const bool attached = use && use->attached();
  const auto arming = static_cast<std::uint8_t>(entries_[fd].arming + 1);
  epoll_event asked = event;
  asked.events |= kAlways;
  if (attached) asked.events &= ~kOut;  // OUT when Look finds that only the kernel has room
  // Of one shot it has to be known whether it was told when the connection moves.
  if (attached || (event.events & EPOLLONESHOT) != 0) {
    asked.data.u64 = Marked(fd, arming);
    mixed_ = true;
  }
  Entry& entry = entries_[fd];
  if (entry.lies && operation == EPOLL_CTL_MOD) {
    errno = ENOENT;
    return -1;
  }
  if (entry.lies && !attached) TakeOut(fd, entry);
  const bool there = entry.lies || (operation == EPOLL_CTL_MOD && entry.present && entry.attached);
  // Each epoll_ctl arms edges and one shots anew.
  const bool level = ((asked.events | entry.kernel_events) & kModes) == 0;
  if (!attached || !there || !level || !IsOwn(entry) || HasToAsk(entry, asked.events)) {
    const int result =
        libc().epoll_ctl(fd_, entry.lies && IsOwn(entry) ? EPOLL_CTL_MOD : operation, fd, &asked);
    if (result != 0) return result;
  } else {
    asked.events = entry.kernel_events;
  }
  if (entry.lies) --lying_;
  if (entry.present && entry.attached) --attached_;
  entry = Entry{.data = event.data.u64,
                .reported_gate = ~std::uint64_t{0},
                .reported_refusals = ~std::uint32_t{0},
                .events = event.events | kAlways,
                .kernel_events = asked.events,
                .came = 0,
                .next = entry.next,
                .present = true,
                .attached = attached,
                .busy = entry.busy,
                .spent = false,
                .lies = false,
                .bells = entry.bells,
                .full = false,
                .soon = false,
                .overhears = entry.overhears,
                .arming = arming,
                .forks = forks_};
  if (use) use->in_epoll = true;
  if (!attached) return 0;
  ++attached_;
  AddBells(use->end(), fd, entry);
  Announce(fd, entry);
  return 0;
}

// What the kernel is asked of an entry that is TCP's.
std::uint32_t EpollSet::Wanted(const Entry& entry) {
  return entry.spent ? entry.events & kModes : entry.events;
}

void EpollSet::Ask(int fd, Entry& entry, std::uint32_t events) {
  entry.kernel_events = events;
  epoll_event asked{.events = events, .data = {.u64 = Marked(fd, entry.arming)}};
  if (!entry.attached && (entry.events & EPOLLONESHOT) == 0) asked.data.u64 = entry.data;
  const int saved = errno;
  (void)libc().epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &asked);
  errno = saved;
}

void EpollSet::Attached(Connection& connection, int fd) {
  const Locked locked(lock_);
  Entry* const entry = Find(fd);
  if (entry == nullptr || entry->attached) return;
  connection.in_epoll = true;
  entry->attached = true;
  entry->forks = forks_;  // what the kernel has of it is ours from here on
  ++attached_;
  AddBells(connection.end(), fd, *entry);
  Ask(fd, *entry, Wanted(*entry));
  Announce(fd, *entry);
}

void EpollSet::Detached(const End& end, int fd) {
  const Locked locked(lock_);
  if (entries_ == nullptr) return;
  Entry& entry = entries_[fd];
  // They lie there also when the program has taken it out.
  if (entry.lies) TakeOut(fd, entry);
  if (entry.bells && IsOwn(entry)) RemoveBells(end, entry);
  if (!entry.present || !entry.attached) return;
  entry.attached = false;
  --attached_;
  if (IsOwn(entry)) Ask(fd, entry, Wanted(entry));
}

void EpollSet::Refused(int fd) {
  const Locked locked(lock_);
  Entry* const entry = Find(fd);
  if (entry == nullptr || !entry->attached || (entry->events & kOut) == 0) return;
  Announce(fd, *entry);
}

void EpollSet::Forget(int fd) {
  const Locked locked(lock_);
  if (!locked.held() || entries_ == nullptr || fd >= DescriptorTable::kMost) return;
  Entry& entry = entries_[fd];
  const Use use(fd);
  if (entry.lies) TakeOut(fd, entry);
  if (entry.bells && IsOwn(entry) && use && use->attached()) RemoveBells(use->end(), entry);
  if (entry.present && entry.attached) --attached_;
  entry.present = entry.attached = entry.bells = false;
}

// What the kernel has belongs to both processes from here on. Behind BeginFork, so that it stays
// exact until the child is there.
void EpollSet::BeforeFork() {
  const Locked locked(lock_);
  if (locked.held()) Settle();
}

void EpollSet::AfterForkInChild() {
  lock_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  waiters_ = 0;
  ++forks_;
}

}  // namespace rdfs::sock
