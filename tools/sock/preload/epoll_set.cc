#include "tools/sock/preload/epoll_set.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/sock/preload/libc.h"
#include "transport/base/random.h"

namespace rdfs::sock {
namespace {

constexpr std::uint32_t kIn = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kOut = EPOLLOUT | EPOLLWRNORM;
constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;
constexpr std::uint32_t kModes = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP;
constexpr std::uint32_t kBells = 0xffffffffU;   // in place of a descriptor
constexpr std::uint32_t kRoomBell = 1U << 30U;  // beside a descriptor, in the inner set
constexpr int kBellsAtOnce = 64;
constexpr std::uint32_t kAskEvery = 8;
// Looks at one that has nothing, some 50 ns each, until its peer may as well ring.
constexpr std::uint16_t kMostMisses = 128;

// What the kernel gives back for entries of ours, above a descriptor and its entry's arming: not a
// pointer, not a small number, and another one in every process.
constexpr unsigned kArmingShift = 20;
constexpr std::uint32_t kDescriptor = DescriptorTable::kMost - 1;
static_assert(kDescriptor < 1U << kArmingShift);
std::uint64_t Mark() {
  static const std::uint64_t mark = (RandomU64() | (1ULL << 63U)) & ~std::uint64_t{kBells};
  return mark;
}
std::uint64_t Marked(std::uint32_t what) { return Mark() | what; }
std::uint64_t Marked(int fd, std::uint8_t arming) {
  return Mark() | std::uint32_t{arming} << kArmingShift | static_cast<std::uint32_t>(fd);
}
bool IsMarked(std::uint64_t data) { return (data & ~std::uint64_t{kBells}) == Mark(); }

// Holds the lock, unless this very thread does already and a signal handler has come between.
class Locked {
 public:
  explicit Locked(pthread_mutex_t& lock) : lock_(lock), held_(pthread_mutex_lock(&lock_) == 0) {}
  ~Locked() {
    if (held_) pthread_mutex_unlock(&lock_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  pthread_mutex_t& lock_;
  const bool held_;
};

// Whether there is a signal that only a wait with this mask lets in; it has been let in then, and
// errno is EINTR. The kernel does not while anything is ready, be it a bell.
bool SignalWaits(const sigset_t* mask) {
  const timespec none{};
  return mask != nullptr && libc().ppoll(nullptr, 0, &none, mask) < 0;
}

}  // namespace

void EpollSet::Renew() {
  const Locked locked(lock_);
  if (entries_ != nullptr) munmap(entries_, DescriptorTable::kMost * sizeof(Entry));
  entries_ = nullptr;
  bells_.Reset();
  waker_.Reset();
  busy_ = 0;
  attached_ = 0;
  mixed_ = inherited_ = false;
  nested_ = holds_sets_ = outside_ = false;
}

EpollSet::Entry* EpollSet::Find(int fd) {
  if (entries_ == nullptr || fd < 0 || fd >= DescriptorTable::kMost) return nullptr;
  return entries_[fd].present ? &entries_[fd] : nullptr;
}

void EpollSet::Busy(int fd, Entry& entry) {
  if (entry.busy) return;
  entry.busy = true;
  entry.next = busy_;
  busy_ = fd + 1;
}

// --- what is in the set

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

// A bell can tell of one number only.
bool EpollSet::HasByAnotherNumber(int fd) {
  const Use use(fd);
  if (!use || use->descriptors() < 2) return false;
  const Locked locked(lock_);
  const Word word = Registry().Get(fd);
  for (int other = 0; other < Registry().end(); ++other) {
    if (other != fd && Registry().Get(other) == word && Find(other) != nullptr) return true;
  }
  return false;
}

int EpollSet::Remove(int fd, epoll_event* event) {
  const int result = libc().epoll_ctl(fd_, EPOLL_CTL_DEL, fd, event);
  Entry* const entry = Find(fd);
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
  const int result = libc().epoll_ctl(fd_, operation, fd, &asked);
  if (result != 0) return result;
  Entry& entry = entries_[fd];
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
                .bells = entry.bells,
                .overhears = entry.overhears,
                .arming = arming};
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

void EpollSet::Hear(int operation, int bell, std::uint32_t events, std::uint32_t what) {
  epoll_event event{.events = events, .data = {.u64 = what}};
  (void)libc().epoll_ctl(bells_.get(), operation, bell, &event);
}

// The data bell lies there readable until somebody finds no bytes: a wait for anything else that
// listens to it so would never sleep.
void EpollSet::HearBytes(const End& end, int fd, Entry& entry) {
  const bool overhears = !entry.present || entry.spent || (entry.events & kIn) == 0;
  if (overhears == entry.overhears) return;
  entry.overhears = overhears;
  const int saved = errno;
  Hear(EPOLL_CTL_MOD, end.bells().data, overhears ? EPOLLIN | EPOLLET : EPOLLIN,
       static_cast<std::uint32_t>(fd));
  errno = saved;
}

void EpollSet::AddBells(const End& end, int fd, Entry& entry) {
  if (end.hung_up()) return;
  // Programs ask for bytes and for room in turn: only a bell that has rung is worth a call.
  if (entry.bells && entry.overhears) HearBytes(end, fd, entry);
  if (entry.bells) return;
  entry.bells = true;
  entry.overhears = false;
  const int saved = errno;
  if (!bells_.valid()) {
    bells_.Reset(epoll_create1(EPOLL_CLOEXEC));
    mixed_ = true;
    epoll_event inner{.events = EPOLLIN, .data = {.u64 = Marked(kBells)}};
    (void)libc().epoll_ctl(fd_, EPOLL_CTL_ADD, bells_.get(), &inner);
    waker_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Hear(EPOLL_CTL_ADD, waker_.get(), EPOLLIN, kBells);
  }
  const auto what = static_cast<std::uint32_t>(fd);
  Hear(EPOLL_CTL_ADD, end.bells().data, EPOLLIN, what);
  // Its ring is taken by who finds no room, and others have to sleep, too.
  Hear(EPOLL_CTL_ADD, end.bells().room, EPOLLIN | EPOLLET, what | kRoomBell);
  errno = saved;
}

// Another thread waits for what it knew when it began.
void EpollSet::WakeWaiters() {
  if (waiters_ != 0 || outside_) RingWaker();
}

// There may be something of the entry that nobody was told of.
void EpollSet::Announce(int fd, Entry& entry) {
  const bool only_outside = outside_ && waiters_ == 0;
  // A bell rings for what is not there yet, and saves them a look for nothing.
  if (only_outside && Look(fd, entry, true, false) == 0) return;
  Busy(fd, entry);
  WakeWaiters();
}

// Not again while it rings: who waits for edges would take that for news.
void EpollSet::RingWaker() {
  if (!waker_.valid()) return;
  const int saved = errno;
  pollfd rings{waker_.get(), POLLIN, 0};
  if (libc().poll(&rings, 1, 0) == 0) (void)eventfd_write(waker_.get(), 1);
  errno = saved;
}

void EpollSet::QuietWaker() {
  if (!waker_.valid()) return;
  eventfd_t ignored = 0;
  const int saved = errno;
  (void)eventfd_read(waker_.get(), &ignored);
  errno = saved;
}

void EpollSet::RemoveBells(const End& end, Entry& entry) {
  entry.bells = false;
  const int saved = errno;
  (void)libc().epoll_ctl(bells_.get(), EPOLL_CTL_DEL, end.bells().data, nullptr);
  (void)libc().epoll_ctl(bells_.get(), EPOLL_CTL_DEL, end.bells().room, nullptr);
  errno = saved;
}

void EpollSet::Attached(Connection& connection, int fd) {
  const Locked locked(lock_);
  Entry* const entry = Find(fd);
  if (entry == nullptr || entry->attached) return;
  connection.in_epoll = true;
  entry->attached = true;
  ++attached_;
  AddBells(connection.end(), fd, *entry);
  Ask(fd, *entry, Wanted(*entry));
  Announce(fd, *entry);
}

void EpollSet::Detached(const End& end, int fd) {
  const Locked locked(lock_);
  Entry* const entry = Find(fd);
  if (entry == nullptr || !entry->attached) return;
  entry->attached = false;
  --attached_;
  if (inherited_) return;
  RemoveBells(end, *entry);
  Ask(fd, *entry, Wanted(*entry));
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
  if (entry.bells && !inherited_ && use && use->attached()) RemoveBells(use->end(), entry);
  if (entry.present && entry.attached) --attached_;
  entry.present = entry.attached = entry.bells = false;
}

void EpollSet::AfterForkInChild() {
  lock_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  waiters_ = 0;
  inherited_ = true;
}

// --- waiting

// What is ready of one entry; nothing when the program has been told. With `arm` a bell will tell
// of the rest. As in the kernel an edge in one thing tells of all that is ready.
std::uint32_t EpollSet::Look(int fd, Entry& entry, bool arm, bool tell) {
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
  const std::uint32_t refusals = use->refusals;
  if ((entry.events & kOut) != 0) {
    const End::Outlet outlet = end.Writable(fd, arm);
    if (outlet == End::Outlet::kRoom) {
      ready |= entry.events & kOut;
      news = news || refusals != entry.reported_refusals;
    }
    const std::uint32_t asked =
        (entry.events & ~kOut) | (outlet == End::Outlet::kTcp ? entry.events & kOut : 0);
    if (asked != entry.kernel_events) Ask(fd, entry, asked);
  }
  if (ready == 0 || !news) return 0;
  if (!tell) return ready;
  if ((ready & kIn) != 0) entry.reported_gate = gate;
  if ((ready & kOut) != 0) entry.reported_refusals = refusals;
  return ready;
}

void EpollSet::WaitedForOutside() {
  const Locked locked(lock_);
  if (!locked.held()) return;
  outside_ = true;
  // What rang may have been read without a wait on this set.
  if (bells_.valid()) Rung(false);
  bool any = false;
  int* last = &busy_;
  for (int rest = busy_; rest != 0;) {
    const int fd = rest - 1;
    Entry& entry = entries_[fd];
    rest = entry.next;
    entry.busy = entry.present && entry.attached && Look(fd, entry, true, false) != 0;
    if (!entry.busy) continue;  // quiet: a bell will ring
    any = true;
    *last = fd + 1;
    last = &entry.next;
  }
  *last = 0;
  if (any) {
    RingWaker();
  } else if (waiters_ == 0) {
    QuietWaker();  // what it rang for has been told
  }
}

// Tells what is ready of the busy entries. Those that are not ready become quiet when armed: all of
// them before a sleep, else one that has been looked at in vain for long.
std::size_t EpollSet::Harvest(std::span<epoll_event> events, bool arm) {
  std::size_t count = 0;
  int rest = busy_;
  int* last = &busy_;
  // What was told goes behind the others, so that each has its turn.
  int told = 0;
  int* last_told = &told;
  const auto append = [](int*& tail, int fd, Entry& entry) {
    *tail = fd + 1;
    tail = &entry.next;
    entry.busy = true;
  };
  while (rest != 0) {
    const int fd = rest - 1;
    Entry& entry = entries_[fd];
    rest = entry.next;
    entry.busy = false;
    if (!entry.present || !entry.attached) continue;
    if (count == events.size()) {
      append(last, fd, entry);
      continue;
    }
    const bool rests = arm || entry.misses == kMostMisses;
    const std::uint32_t ready = Look(fd, entry, rests);
    entry.misses = static_cast<std::uint16_t>(ready != 0 || rests ? 0 : entry.misses + 1);
    if (ready == 0 && !rests) append(last, fd, entry);
    if (ready == 0) continue;
    events[count++] = {.events = ready, .data = {.u64 = entry.data}};
    entry.came = 0;
    entry.spent = (entry.events & EPOLLONESHOT) != 0;
    if (entry.spent) Ask(fd, entry, Wanted(entry));
    append(last_told, fd, entry);
  }
  *last_told = 0;
  *last = told;
  return count;
}

// What the kernel said of entries that carry our mark is kept for Harvest, or goes to what the
// program is `told` of them already; the others' events stay, moved together. How many.
std::size_t EpollSet::Translate(std::span<epoll_event> told, std::span<epoll_event> events,
                                std::size_t count) {
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
      Rung(true);
      rung = true;
      continue;
    }
    const auto fd = static_cast<int>(what & kDescriptor);
    Entry* const entry = Find(fd);
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
  if (rung && out > 0 && (waiters_ > 1 || outside_)) WakeWaiters();
  return out;
}

void EpollSet::Rung(bool take_waker) {
  std::array<epoll_event, kBellsAtOnce> bells;
  const int count = libc().epoll_pwait(bells_.get(), bells.data(), kBellsAtOnce, 0, nullptr);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = bells[static_cast<std::size_t>(i)].data.u64;
    if (what == kBells) {
      if (take_waker) QuietWaker();
      continue;
    }
    const auto fd = static_cast<int>(what & ~kRoomBell);
    Entry& entry = entries_[fd];
    const Use use(fd);
    const bool attached = use && use->attached();
    const bool over = (bells[static_cast<std::size_t>(i)].events & kAlways) != 0;
    if (over && attached) use->end().HungUp();
    // A bell that has hung up would wake for ever, and one that nobody asks for now.
    if (attached && (over || !entry.present)) RemoveBells(use->end(), entry);
    if (attached && entry.bells) HearBytes(use->end(), fd, entry);
    // Who goes rings, too, and waits for what our ring held for it.
    if (attached && entry.overhears) (void)use->end().Readable(fd, false);
    if (entry.present) Busy(fd, entry);
  }
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
int EpollSet::WaitInKernel(int epoll, std::span<epoll_event> events, int mine, int timeout,
                           const sigset_t* mask, int& told) {
  const std::span<epoll_event> before = events.first(static_cast<std::size_t>(mine));
  events = events.subspan(before.size());
  if (events.empty()) return told = 0;
  const auto most = static_cast<int>(events.size());
  told = mask == nullptr ? libc().epoll_wait(epoll, events.data(), most, timeout)
                         : libc().epoll_pwait(epoll, events.data(), most, timeout, mask);
  if (told <= 0 || !mixed_) return told;
  if (timeout != 0) ++TheCounts().sleeps;
  const Locked locked(lock_);
  return static_cast<int>(Translate(before, events, static_cast<std::size_t>(told)));
}

int EpollSet::Wait(int epoll, std::span<epoll_event> events, int timeout_ms, const sigset_t* mask) {
  const Deadline deadline =
      timeout_ms < 0 ? Deadline::max() : DeadlineAfter(std::chrono::milliseconds(timeout_ms));
  fd_ = epoll;
  bool spin = timeout_ms != 0 && attached_ != 0;
  bool waited = false;
  for (bool late = false;;) {
    ++waiters_;  // before looking: who changes something later sees it
    int mine = 0;
    bool ask = true;
    if (attached_ != 0) {
      const Locked locked(lock_);
      // Armed also when the time is over at once: somebody may wait for this very set.
      ask_ = false;
      mine = static_cast<int>(Harvest(events, !spin));
      ask = mine == 0 || ask_ || ++unasked_ % kAskEvery == 0;
    }
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
    int timeout = timeout_ms < 0 ? -1 : PollTimeoutMs(deadline, BootClock::now());
    if (mine > 0 || spin) timeout = 0;
    int told = 0;
    const int more = ask ? WaitInKernel(epoll, events, mine, timeout, mask, told) : 0;
    --waiters_;
    if (more < 0) return mine > 0 ? mine : -1;
    if (mine + more > 0) {
      if (waited) {
        const Locked locked(lock_);
        spin_.Came();
      }
      return mine + more;
    }
    // Nothing, or what has to be looked at: a bell rings on until somebody has armed.
    if (told > 0 && SignalWaits(mask)) return -1;
    if (spin) continue;
    const bool expired = timeout_ms >= 0 && BootClock::now() >= deadline;
    if (expired && (told == 0 || late)) return 0;
    late = expired;
  }
}

}  // namespace rdfs::sock
