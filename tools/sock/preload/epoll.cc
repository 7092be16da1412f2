#include "tools/sock/preload/epoll.h"

#include <sys/epoll.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include "tools/sock/preload/epoll_set.h"
#include "tools/sock/preload/libc.h"

namespace rdfs::sock {
namespace {

// Programs have one, or one for each thread. Sets are never freed, only used again, so that a wait
// in one that another thread closes ends well.
constexpr std::size_t kMostSets = 1024;
constinit std::array<std::atomic<EpollSet*>, kMostSets> g_sets{};

// Whether one of them was ever put into one that is not among them.
constinit std::atomic<bool> g_nested_in_unknown{false};

EpollSet* SetOf(int epoll) {
  const Word word = Registry().Get(epoll);
  return word.kind() == Word::Kind::kEpoll ? g_sets[word.index()].load() : nullptr;
}

template <typename Do>
void ForEachSet(Do act) {
  for (std::atomic<EpollSet*>& place : g_sets) {
    EpollSet* const set = place.load();
    if (set == nullptr) return;  // they are made in order
    if (set->descriptors != 0) act(*set);
  }
}

// Somebody is about to wait for a set that others lie in, at whatever depth.
void LookAtNested() {
  ForEachSet([](EpollSet& set) {
    if (set.nested()) set.WaitedForOutside();
  });
}

// `outer`: null when it is not among ours. Somebody may wait for it already.
void Nest(EpollSet* outer, EpollSet& inner, int inner_fd) {
  if (outer == nullptr) {
    g_nested_in_unknown = true;
  } else {
    outer->HoldSets();
  }
  inner.BeNested();
  inner.WaitedForOutside(inner_fd);
}

// Without a place for it an instance goes unnoticed, and what is put into it stays on TCP.
int NoteEpoll(int fd) {
  if (fd < 0 || !IsThisProcess()) return fd;
  Registry().Forget(fd);
  for (std::uint32_t i = 0; i < kMostSets; ++i) {
    EpollSet* set = g_sets[i].load();
    if (set == nullptr) {
      auto* const made = new (std::nothrow) EpollSet;
      if (made == nullptr) return fd;
      if (g_sets[i].compare_exchange_strong(set, made)) set = made;
      if (set != made) delete made;
    }
    std::uint32_t closed = 0;
    if (!set->descriptors.compare_exchange_strong(closed, 1)) continue;
    set->Renew();
    Registry().Set(fd, Word(Word::Kind::kEpoll, i));
    return fd;
  }
  return fd;
}

}  // namespace

int EpollControl(int epoll, int operation, int fd, epoll_event* event) {
  EpollSet* const inner = SetOf(fd);
  if (inner != nullptr && operation == EPOLL_CTL_ADD) {
    const int result = libc().epoll_ctl(epoll, operation, fd, event);
    if (result == 0) Nest(SetOf(epoll), *inner, fd);
    return result;
  }
  EpollSet* const set = SetOf(epoll);
  if (set != nullptr && IsThisProcess()) return set->Control(epoll, operation, fd, event);
  if (operation != EPOLL_CTL_DEL) NeedTcp(fd);
  return libc().epoll_ctl(epoll, operation, fd, event);
}

namespace {

// `kernel` is the C library's call.
template <typename Kernel>
int Wait(int epoll, epoll_event* events, int most, const EpollTimeout& timeout,
         const sigset_t* mask, Kernel kernel) {
  EpollSet* const set = SetOf(epoll);
  if (set == nullptr || events == nullptr || most <= 0) {
    if (g_nested_in_unknown) LookAtNested();
    return kernel();
  }
  if (set->holds_sets()) LookAtNested();
  return set->Wait(epoll, {events, static_cast<std::size_t>(most)}, timeout, mask);
}

}  // namespace

int EpollWait(int epoll, epoll_event* events, int most, int timeout, const sigset_t* mask) {
  return Wait(epoll, events, most, EpollTimeout(timeout), mask, [&] {
    return mask == nullptr ? libc().epoll_wait(epoll, events, most, timeout)
                           : libc().epoll_pwait(epoll, events, most, timeout, mask);
  });
}

int EpollWait(int epoll, epoll_event* events, int most, const timespec* timeout,
              const sigset_t* mask) {
  if (timeout != nullptr &&
      (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000)) {
    errno = EINVAL;
    return -1;
  }
  return Wait(epoll, events, most, EpollTimeout(timeout), mask, [&] {
    if (libc().epoll_pwait2 != nullptr) {
      return libc().epoll_pwait2(epoll, events, most, timeout, mask);
    }
    // By number, where the C library is older.
    return static_cast<int>(libc().syscall(SYS_epoll_pwait2, epoll, reinterpret_cast<long>(events),
                                           most, reinterpret_cast<long>(timeout),
                                           reinterpret_cast<long>(mask), NSIG / 8));
  });
}

void EpollAttached(Connection& connection) {
  ForEachDescriptor(connection, [&](int fd) {
    ForEachSet([&](EpollSet& set) { set.Attached(connection, fd); });
  });
}

void EpollDetached(Connection& connection) {
  ForEachDescriptor(connection, [&](int fd) {
    ForEachSet([&](EpollSet& set) { set.Detached(connection.end(), fd); });
  });
}

bool EpollHas(int fd) {
  bool has = false;
  ForEachSet([&](EpollSet& set) { has = has || set.Has(fd); });
  return has;
}
void EpollForget(int fd) {
  ForEachSet([&](EpollSet& set) { set.Forget(fd); });
}
void EpollRefused(const Connection& connection, int fd) {
  const auto tell = [](int number) { ForEachSet([&](EpollSet& set) { set.Refused(number); }); };
  if (connection.descriptors() == 1) return tell(fd);
  ForEachDescriptor(connection, tell);  // a set may have it by another number
}
void EpollWaitedForBy(int fd) {
  EpollSet* const set = SetOf(fd);
  if (set == nullptr) return;
  if (set->holds_sets()) LookAtNested();
  set->WaitedForOutside(fd);
}

void EpollDuplicated(std::uint32_t index) { ++g_sets[index].load()->descriptors; }
void EpollClosed(std::uint32_t index) {
  EpollSet& set = *g_sets[index].load();
  if (set.descriptors == 1) set.Renew();
  --set.descriptors;
}

void EpollBeforeFork() {
  EpollSet::BeginFork();
  ForEachSet([](EpollSet& set) { set.BeforeFork(); });
}
void EpollAfterForkInParent() { EpollSet::EndFork(); }
void EpollAfterForkInChild() {
  EpollSet::ForkedHere();
  ForEachSet([](EpollSet& set) { set.AfterForkInChild(); });
}

RDSOCK_EXPORT(int, epoll_create, (int size)) {
  if (size > 0) return NoteEpoll(libc().epoll_create1(0));
  errno = EINVAL;
  return -1;
}
RDSOCK_EXPORT(int, epoll_create1, (int flags)) { return NoteEpoll(libc().epoll_create1(flags)); }
RDSOCK_EXPORT(int, epoll_ctl, (int epoll, int operation, int fd, epoll_event* event)) {
  return EpollControl(epoll, operation, fd, event);
}
RDSOCK_EXPORT(int, epoll_wait, (int epoll, epoll_event* events, int most, int timeout)) {
  return EpollWait(epoll, events, most, timeout, nullptr);
}
RDSOCK_EXPORT(int, epoll_pwait,
              (int epoll, epoll_event* events, int most, int timeout, const sigset_t* mask)) {
  return EpollWait(epoll, events, most, timeout, mask);
}
RDSOCK_EXPORT(int, epoll_pwait2,
              (int epoll, epoll_event* events, int most, const timespec* timeout,
               const sigset_t* mask)) {
  return EpollWait(epoll, events, most, timeout, mask);
}

}  // namespace rdfs::sock
