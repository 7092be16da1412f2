// The bells of an EpollSet's connections, and its own, which wake its waits.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/sock/preload/epoll_set_parts.h"
#include "tools/sock/preload/libc.h"

namespace rdfs::sock {
namespace {

constexpr std::uint32_t kRoomBell = 1U << 30U;  // beside a descriptor, in the inner set
constexpr int kBellsAtOnce = 64;

}  // namespace

bool EpollSet::Hear(int operation, int bell, std::uint32_t events, std::uint32_t what) {
  epoll_event event{.events = events, .data = {.u64 = what}};
  return libc().epoll_ctl(bells_.get(), operation, bell, &event) == 0 || errno == EEXIST;
}

// The data bell lies there readable until somebody finds no bytes: a wait for anything else that
// listens to it so would never sleep.
void EpollSet::HearBytes(const End& end, int fd, Entry& entry) {
  const bool overhears = !entry.present || entry.spent || (entry.events & kIn) == 0;
  if (overhears == entry.overhears) return;
  entry.overhears = overhears;
  const int saved = errno;
  (void)Hear(EPOLL_CTL_MOD, end.bells().data, overhears ? EPOLLIN | EPOLLET : EPOLLIN,
             static_cast<std::uint32_t>(fd));
  errno = saved;
}

// False without descriptors, or room in the kernel for one more watch.
bool EpollSet::MakeBells() {
  if (bells_.valid()) return true;
  bells_.Reset(epoll_create1(EPOLL_CLOEXEC));
  waker_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  mixed_ = true;
  epoll_event inner{.events = EPOLLIN, .data = {.u64 = Marked(kBells)}};
  if (bells_.valid() && waker_.valid() && Hear(EPOLL_CTL_ADD, waker_.get(), EPOLLIN, kBells) &&
      libc().epoll_ctl(fd_, EPOLL_CTL_ADD, bells_.get(), &inner) == 0) {
    return true;
  }
  bells_.Reset();
  waker_.Reset();
  return false;
}

// Where they cannot be had its ring is looked at every so often: see Look.
void EpollSet::AddBells(const End& end, int fd, Entry& entry) {
  if (end.hung_up()) return;
  // Programs ask for bytes and for room in turn: only a bell that has rung is worth a call.
  if (entry.bells && entry.overhears) HearBytes(end, fd, entry);
  if (entry.bells) return;
  entry.overhears = false;
  const int saved = errno;
  const auto what = static_cast<std::uint32_t>(fd);
  // The room bell's ring is taken by who finds no room, and others have to sleep, too.
  entry.bells = MakeBells() && Hear(EPOLL_CTL_ADD, end.bells().data, EPOLLIN, what) &&
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
  const int saved = errno;  // of the call that brought us here
  // A bell rings for what is not there yet, and saves them a look for nothing.
  const bool nothing = only_outside && Look(fd, entry, true, false) == 0 && !entry.soon;
  errno = saved;
  if (nothing) return;
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

// What is heard of `fd`: its bell, or that it has hung up.
void EpollSet::Heard(int fd, bool over) {
  Entry& entry = entries_[fd];
  const Use use(fd);
  const bool attached = use && use->attached();
  if (over && attached) use->end().HungUp();
  // A bell that has hung up would wake for ever, and one that nobody asks for now.
  if (attached && (over || !entry.present)) RemoveBells(use->end(), entry);
  if (attached && entry.bells) HearBytes(use->end(), fd, entry);
  // Who goes rings, too, and waits for what our ring held for it.
  if (attached && entry.overhears) (void)use->end().Readable(fd, false);
  if (entry.present) Busy(fd, entry);
}

// Hears `most` bells, or a few more. Those of busy entries ring on and go behind the others when
// they have been heard: until the first one comes again, or none does.
void EpollSet::Rung(bool take_waker, std::size_t most) {
  std::array<epoll_event, kBellsAtOnce> bells;
  std::uint64_t first = kBells;
  bool again = false;
  most = std::min<std::size_t>(most, attached_);
  for (std::size_t heard = 0; heard <= most && !again; heard += bells.size()) {
    const int count = libc().epoll_pwait(bells_.get(), bells.data(), kBellsAtOnce, 0, nullptr);
    for (int i = 0; i < count; ++i) {
      const epoll_event& bell = bells[static_cast<std::size_t>(i)];
      const std::uint64_t what = bell.data.u64;
      if (what == kBells) {
        if (take_waker) QuietWaker();
        continue;
      }
      again = again || what == first;
      if (first == kBells && (what & kRoomBell) == 0) first = what;
      Heard(static_cast<int>(what & ~kRoomBell), (bell.events & kAlways) != 0);
    }
    if (count < kBellsAtOnce) return;
  }
}

}  // namespace rdfs::sock
