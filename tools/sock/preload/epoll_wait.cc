// Waiting in an EpollSet: what is ready, who is told, and the sleep.
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <limits>
#include <utility>

#include "tools/sock/preload/epoll_set_parts.h"
#include "tools/sock/preload/libc.h"

namespace rdfs::sock {
namespace {

// Waits that the kernel is not asked in, one after the other; fewer when they take long.
constexpr std::uint32_t kAskEvery = 7;
// What the program is told of meanwhile for each bell that is heard then, which takes some 150 ns.
constexpr std::size_t kEventsToABell = 4;
// Between two looks at one whose bells cannot be heard, for want of descriptors.
constexpr std::chrono::milliseconds kWithoutBells{10};
// Looks at one that has nothing, some 50 ns each, until its peer may as well ring.
constexpr std::uint16_t kMostMisses = 128;

// In steps of some milliseconds, without a system call.
std::int64_t CoarseNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Whether there is a signal that only a wait with this mask lets in; it has been let in then, and
// errno is EINTR. The kernel does not while anything is ready, be it a bell.
bool SignalWaits(const sigset_t* mask) {
  const timespec none{};
  return mask != nullptr && libc().ppoll(nullptr, 0, &none, mask) < 0;
}

}  // namespace

// What is ready of one entry; nothing when the program has been told. With `arm` a bell will tell
// of the rest. As in the kernel an edge in one thing tells of all that is ready.
std::uint32_t EpollSet::Look(int fd, Entry& entry, bool arm, bool tell) {
  entry.soon = false;
  const Use use(fd);
  if (!use || !use->attached()) return entry.came & entry.events;
  if (entry.spent) return 0;
  End& end = use->end();
  const bool edge = (entry.events & EPOLLET) != 0;
  std::uint32_t ready = entry.came & entry.events;
  bool news = !edge || ready != 0;
  const std::uint64_t gate = end.IncomingGate();
  if ((entry.events & kIn) != 0 && end.Readable(fd, arm)) {
    ready |= entry.events & kIn;
    ask_ = ask_ || !end.RingHasBytes();  // the kernel has more to say of it: FIN, errors
    // Bytes that the program leaves unread must not keep the bell from ringing for the next.
    news = news || gate != entry.reported_gate || (arm && end.ArmForMore(gate));
  }
  if ((entry.came & EPOLLERR) != 0) end.Failed();
  // Looking has taken it away from the kernel's socket.
  if (end.memory().receive_error != 0) ready |= EPOLLERR;
  const std::uint32_t refusals = use->refusals;
  if ((entry.events & kOut) != 0) {
    const End::Outlet outlet = end.Writable(fd, arm);
    if (outlet == End::Outlet::kRoom) {
      ready |= entry.events & kOut;
      news = news || refusals != entry.reported_refusals;
    }
    entry.full = arm && outlet == End::Outlet::kFull;
    if (entry.full) {
      look_at_full_ = std::min(look_at_full_, DeadlineAfter(end.PatienceForRoom()));
    }
    entry.soon = outlet == End::Outlet::kSoon;
    const std::uint32_t asked =
        (entry.events & ~kOut) | (outlet == End::Outlet::kTcp ? entry.events & kOut : 0);
    if (HasToAsk(entry, asked)) Ask(fd, entry, asked);
  }
  if (arm && !entry.bells && !end.hung_up()) AddBells(end, fd, entry);
  if (arm && !entry.bells && !end.hung_up()) {
    entry.full = true;
    look_at_full_ = std::min(look_at_full_, DeadlineAfter(kWithoutBells));
  }
  if (ready == 0 || !news) return 0;
  if (!tell) return ready;
  if ((ready & kIn) != 0) entry.reported_gate = gate;
  if ((ready & kOut) != 0) entry.reported_refusals = refusals;
  return ready;
}

void EpollSet::WaitedForOutside(int epoll) {
  const Locked locked(lock_);
  if (!locked.held()) return;
  if (epoll >= 0) fd_ = epoll;
  if (!outside_.exchange(true)) Settle();
  // What rang may have been read without a wait on this set.
  if (bells_.valid()) Rung(false, attached_);
  bool any = false;
  int* last = &busy_;
  busy_end_ = 0;
  for (int rest = busy_; rest != 0;) {
    const int fd = rest - 1;
    Entry& entry = entries_[fd];
    rest = entry.next;
    entry.busy =
        entry.present && entry.attached && (Look(fd, entry, true, false) != 0 || entry.soon);
    if (!entry.busy) continue;  // quiet: a bell will ring
    any = true;
    *last = busy_end_ = fd + 1;
    last = &entry.next;
  }
  *last = 0;
  if (any) {
    RingWaker();
  } else if (waiters_ == 0) {
    QuietWaker();  // what it rang for has been told
  }
}

// Those whose ring has been full for long enough: it may be given up for TCP.
void EpollSet::LookAtFull(TimePoint now) {
  if (now < look_at_full_) return;
  look_at_full_ = Deadline::max();
  for (int fd = 0; fd < Registry().end(); ++fd) {
    Entry& entry = entries_[fd];
    if (!std::exchange(entry.full, false)) continue;
    if (entry.present && entry.attached) Busy(fd, entry);
  }
}

// Tells what is ready of the busy entries, behind what the kernel has `told`. Those that are not
// ready become quiet when armed, if a bell tells of them: all of them before a sleep, else one that
// has been looked at in vain for long. Who sleeps is woken for what there is no room for.
std::size_t EpollSet::Harvest(std::span<epoll_event> events, std::size_t told, bool arm) {
  std::size_t count = told;
  int rest = busy_;
  int* last = &busy_;
  busy_end_ = 0;
  // What was told goes behind the others, so that each has its turn.
  int behind = 0;
  int* last_behind = &behind;
  int behind_end = 0;
  bool more = false;
  bool soon = false;
  const auto append = [](int*& tail, int& end, int fd, Entry& entry) {
    *tail = end = fd + 1;
    tail = &entry.next;
    entry.busy = true;
  };
  // It may have moved since the kernel told of it, and in one answer nothing is told twice.
  const auto was_told = [&](const Entry& entry) {
    return std::any_of(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(told),
                       [&](const epoll_event& e) { return e.data.u64 == entry.data; });
  };
  while (rest != 0) {
    const int fd = rest - 1;
    Entry& entry = entries_[fd];
    rest = entry.next;
    entry.busy = false;
    if (!entry.present || !entry.attached) continue;
    const bool full = count == events.size();
    if (full || was_told(entry)) {
      more = more || (full && waiters_ > 1 && Look(fd, entry, false, false) != 0);
      soon = soon || entry.soon;
      append(last, busy_end_, fd, entry);
      continue;
    }
    const bool rests = arm || entry.misses == kMostMisses;
    const std::uint32_t ready = Look(fd, entry, rests);
    soon = soon || entry.soon;
    entry.misses = static_cast<std::uint16_t>(ready != 0 || rests ? 0 : entry.misses + 1);
    if (ready == 0 && (!rests || entry.soon)) append(last, busy_end_, fd, entry);
    if (ready == 0) continue;
    events[count++] = {.events = ready, .data = {.u64 = entry.data}};
    entry.came = 0;
    entry.spent = (entry.events & EPOLLONESHOT) != 0;
    if (entry.spent) Ask(fd, entry, Wanted(entry));
    append(last_behind, behind_end, fd, entry);
  }
  *last_behind = 0;
  *last = behind;
  if (behind != 0) busy_end_ = behind_end;
  soon_ = soon;
  if (more) RingWaker();
  return count;
}

// What the kernel said of entries that carry our mark is kept for Harvest, or goes to what the
// program is `told` of them already; the others' events stay, moved together. How many. So many
// `bells` are heard.
std::size_t EpollSet::Translate(std::span<epoll_event> told, std::span<epoll_event> events,
                                std::size_t count, std::size_t bells) {
  std::size_t out = 0;
  bool rung = false;
  for (std::size_t i = 0; i < count; ++i) {
    const epoll_event event = events[i];
    if (!IsMarked(event.data.u64)) {
      events[out++] = event;
      continue;
    }
    const auto what = static_cast<std::uint32_t>(event.data.u64);
    if (what == kBells) {
      Rung(true, bells);
      rung = true;
      continue;
    }
    const auto fd = static_cast<int>(what & kDescriptor);
    Entry* const entry = Find(fd);
    if (entry == nullptr && entries_ != nullptr && entries_[fd].lies) TakeOut(fd, entries_[fd]);
    if (entry == nullptr) continue;
    if (!entry->attached) {        // of one shot, or it left meanwhile
      if (entry->spent) continue;  // the kernel tells of errors though asked for nothing
      // What another thread's epoll_ctl has overtaken spends nothing of what that asked for.
      if (event.data.u64 == Marked(fd, entry->arming)) {
        entry->spent = (entry->events & EPOLLONESHOT) != 0;
      }
      events[out++] = {.events = event.events, .data = {.u64 = entry->data}};
      continue;
    }
    if ((event.events & ~entry->events) != 0) Excess(fd, *entry);
    if ((event.events & entry->events) == 0) continue;
    // In one answer nothing is told twice.
    const auto same = std::find_if(told.begin(), told.end(), [&](const epoll_event& other) {
      return other.data.u64 == entry->data;
    });
    if (same != told.end()) {
      same->events |= event.events & entry->events;
      continue;
    }
    entry->came |= event.events;
    Busy(fd, *entry);
  }
  // This wait is over before what rang is looked at; a bell that rang by its edge says no more.
  if (rung && (out > 0 || !told.empty()) && (waiters_ > 1 || outside_)) WakeWaiters();
  return out;
}

// Whether the only busy entry has become readable meanwhile.
bool EpollSet::SpinForOne() {
  int only = 0;
  {
    const Locked locked(lock_);
    if (busy_ == 0 || entries_[busy_ - 1].next != 0) return false;
    only = busy_ - 1;
    if ((entries_[only].events & kIn) == 0) return false;
  }
  const Use use(only);
  return use && use->attached() && use->end().SpinForBytes();
}

// Lets those run who have something to send, as long as that pays. True: look again, before all
// busy entries are armed and each of their peers has to ring.
bool EpollSet::GiveWay() {
  const TimePoint now = BootClock::now();
  {
    const Locked locked(lock_);
    if (!spin_.GoOn(now)) return false;
  }
  sched_yield();
  const Locked locked(lock_);
  spin_.GaveWay(BootClock::now() - now);
  return true;
}

// The wait itself: how many events the program is told, and in `told` how many there were with
// those that only we are.
int EpollSet::WaitInKernel(int epoll, std::span<epoll_event> events, int mine,
                           const EpollTimeout& timeout, const sigset_t* mask, int& told) {
  const std::span<epoll_event> before = events.first(static_cast<std::size_t>(mine));
  events = events.subspan(before.size());
  if (events.empty()) return told = 0;
  unasked_ = 0;
  const std::size_t bells = (told_unasked_.exchange(0) + before.size()) / kEventsToABell;
  // Every wait is one of the waiters_.
  told = Cancellable([&] { return timeout.Wait(epoll, events, mask); },
                     [](void* waiters) { --*static_cast<std::atomic<std::uint32_t>*>(waiters); },
                     &waiters_);
  if (attached_ != 0) asked_at_ = CoarseNow();
  if (told <= 0 || !mixed_) return told;
  if (!timeout.none()) ++TheCounts().sleeps;
  const Locked locked(lock_);
  fd_ = epoll;  // another thread may have used, and closed, another number
  return static_cast<int>(Translate(before, events, static_cast<std::size_t>(told), bells));
}

// What can be told without a wait; `ask`: whether the kernel has to be asked besides. A wait is to
// end at `look_again`.
int EpollSet::Gather(int epoll, std::span<epoll_event> events, bool arm, bool& ask,
                     Deadline& look_again) {
  ask = true;
  if (attached_ == 0) return 0;
  // There may always be more ready than the program has room for, and one connection may always be
  // ready again: so what only the kernel knows, bells too, has its turn first.
  // Never two times running, for it may fill all the room.
  const std::uint32_t unasked = unasked_;
  const bool turn = unasked >= kAskEvery || (unasked > 1 && CoarseNow() != asked_at_);
  int ignored = 0;
  const int told = turn ? std::max(WaitInKernel(epoll, events, 0, {}, nullptr, ignored), 0) : 0;
  const Locked locked(lock_);
  ask_ = false;
  if (look_at_full_ != Deadline::max()) LookAtFull(BootClock::now());
  // Armed also when the time is over at once: somebody may wait for this very set.
  const std::size_t count = Harvest(events, static_cast<std::size_t>(told), arm);
  ask = count == 0 || (ask_ && !turn && count < events.size());
  if (count != 0 && !ask) {
    ++unasked_;
    told_unasked_ += static_cast<std::uint32_t>(count);
  }
  look_again = soon_ ? std::min(look_at_full_, DeadlineAfter(kQuietLook)) : look_at_full_;
  return static_cast<int>(count);
}

int EpollTimeout::Wait(int epoll, std::span<epoll_event> events, const sigset_t* mask) const {
  const auto most = static_cast<int>(events.size());
  if (exact_ && libc().epoll_pwait2 != nullptr) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time_);
    const timespec time{seconds.count(), (time_ - seconds).count()};
    return libc().epoll_pwait2(epoll, events.data(), most, endless() ? nullptr : &time, mask);
  }
  // For as long as it was asked: who gets nothing then is told that the time is over.
  constexpr std::chrono::milliseconds kMost{std::numeric_limits<int>::max()};
  const auto whole = std::min(std::chrono::ceil<std::chrono::milliseconds>(time_), kMost);
  const int ms = endless() ? -1 : static_cast<int>(whole.count());
  return mask == nullptr ? libc().epoll_wait(epoll, events.data(), most, ms)
                         : libc().epoll_pwait(epoll, events.data(), most, ms, mask);
}

// How a wait ends. Who sleeps need not know of an entry that has to be looked at again and again,
// and who knows goes back to the program.
int EpollSet::HandOn(int result) {
  if (soon_ && attached_ != 0 && (waiters_ != 0 || outside_)) {
    const Locked locked(lock_);
    WakeWaiters();
  }
  return result;
}

int EpollSet::Wait(int epoll, std::span<epoll_event> events, const EpollTimeout& most,
                   const sigset_t* mask) {
  const CallDeadline deadline = most.endless() ? CallDeadline::max()
                                : most.none()  ? CallDeadline()
                                               : CallDeadlineAfter(most.time());
  if (fd_ != epoll) fd_ = epoll;
  bool spin = !most.none() && attached_ != 0;
  bool waited = false;
  bool begins = true;
  for (bool late = false;; begins = false) {
    ++waiters_;  // before looking: who changes something later sees it
    const std::uint32_t silenced = silenced_;
    bool ask = false;
    Deadline look_again = Deadline::max();
    const int mine = Gather(epoll, events, !spin, ask, look_again);
    if (mine == 0 && spin) {
      const bool came = SpinForOne();
      spin = came || GiveWay();
      waited = waited || !came;
      if (came || !spin) {
        --waiters_;
        continue;
      }
    }
    // Who spins hears of the others' bells, too.
    EpollTimeout timeout;
    if (mine == 0 && !spin) timeout = begins ? most : most.Left(deadline, CallClock::now());
    if (look_again != Deadline::max()) timeout = timeout.AtMost(look_again - BootClock::now());
    int told = 0;
    const int more = ask ? WaitInKernel(epoll, events, mine, timeout, mask, told) : 0;
    --waiters_;
    if (more < 0) return HandOn(mine > 0 ? mine : -1);
    if (mine + more > 0) {
      if (waited) {
        const Locked locked(lock_);
        spin_.Came();
      }
      return HandOn(mine + more);
    }
    const bool whole = begins && !spin && look_again == Deadline::max();
    if (told == 0 && whole) return HandOn(0);
    // Nothing, or what has to be looked at: a bell rings on until somebody has armed.
    if (told > 0 && SignalWaits(mask)) return HandOn(-1);
    if (spin) continue;
    const bool expired = CallClock::now() >= deadline;
    if (expired && (told == 0 || late)) return HandOn(0);
    late = expired && silenced_ == silenced;
  }
}

}  // namespace rdfs::sock
