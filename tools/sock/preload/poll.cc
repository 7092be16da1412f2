#include "tools/sock/preload/poll.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/timeout.h"
#include "tools/sock/preload/watch.h"

namespace rdfs::sock {
namespace {

// Without descriptors of ours no call is touched.
bool Concerned(const pollfd* fds, nfds_t count) {
  return Registry().end() > 0 && fds != nullptr && count > 0 && count < DescriptorTable::kMost;
}

// What select's sets mean in poll's events, as the kernel has it (fs/select.c).
constexpr short kReadEvents = POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR;
constexpr short kWriteEvents = POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR;
constexpr short kExceptEvents = POLLPRI;

// Sets may be longer than the C library's type, whose macros know of FD_SETSIZE descriptors.
constexpr int kWordBits = 8 * sizeof(fd_mask);
fd_mask& WordOf(fd_set* set, int fd) { return reinterpret_cast<fd_mask*>(set)[fd / kWordBits]; }
fd_mask BitOf(int fd) { return static_cast<fd_mask>(1UL << static_cast<unsigned>(fd % kWordBits)); }
bool Has(fd_set* set, int fd) { return set != nullptr && (WordOf(set, fd) & BitOf(fd)) != 0; }

struct Sets {
  fd_set* read;
  fd_set* write;
  fd_set* except;

  [[nodiscard]] short EventsOf(int fd) const {
    int events = 0;
    if (Has(read, fd)) events |= POLLIN;
    if (Has(write, fd)) events |= POLLOUT;
    if (Has(except, fd)) events |= POLLPRI;
    return static_cast<short>(events);
  }
  // Writes the answer over the question; how many bits are set.
  int Answer(std::span<const pollfd> fds) const {
    int count = 0;
    const auto keep = [&](fd_set* set, const pollfd& fd, int events) {
      if (!Has(set, fd.fd)) return;
      if ((fd.revents & events) != 0) {
        ++count;
      } else {
        WordOf(set, fd.fd) &= ~BitOf(fd.fd);
      }
    };
    for (const pollfd& fd : fds) {
      keep(read, fd, kReadEvents);
      keep(write, fd, kWriteEvents);
      keep(except, fd, kExceptEvents);
    }
    return count;
  }
};

// The sets as poll has them, into `fds`; how many.
std::size_t Collect(int end, const Sets& sets, pollfd* fds) {
  std::size_t count = 0;
  for (int fd = 0; fd < end; ++fd) {
    const short events = sets.EventsOf(fd);
    if (events != 0) fds[count++] = {fd, events, 0};
  }
  return count;
}

// A program may name as many descriptors as there may be (getdtablesize(3)), with sets of the C
// library's type: the kernel looks no further than its table of open ones goes, which those of our
// own have made longer. So: as far as the program has connections or epoll sets, or that type has
// room. Who names fewer has sets for them.
int EndOfSets(int end) {
  rlimit limit{};
  if (end <= FD_SETSIZE || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      static_cast<rlim_t>(end) < limit.rlim_cur) {
    return end;
  }
  const auto is_programs = [](int fd) {
    const Word::Kind kind = Registry().Get(fd).kind();
    return kind != Word::Kind::kNone && kind != Word::Kind::kHidden;
  };
  end = std::min(end, Registry().end());
  while (end > FD_SETSIZE && !is_programs(end - 1)) --end;
  return std::max(end, FD_SETSIZE);
}

// `kernel` is the C library's call, for an end of the sets.
template <typename Kernel>
int Select(int end, const Sets& sets, CallDeadline deadline, const sigset_t* mask, Kernel kernel) {
  if (end <= 0 || Registry().end() == 0) return kernel(end);
  const int saved = errno;
  end = EndOfSets(end);
  errno = saved;
  Room<pollfd, 64> fds(static_cast<std::size_t>(end));
  if (fds.data() == nullptr) return kernel(end);
  const std::span<pollfd> asked(fds.data(), Collect(end, sets, fds.data()));
  Watch watch(asked);
  if (watch.plain()) return watch.InKernel([&] { return kernel(end); });
  const int count = watch.Poll(deadline, mask);
  if (count < 0) return count;
  for (const pollfd& fd : asked) {
    if ((fd.revents & POLLNVAL) == 0) continue;
    errno = EBADF;
    return -1;
  }
  return sets.Answer(asked);
}

}  // namespace

int PollForProgram(pollfd* fds, nfds_t count, int timeout) {
  if (!Concerned(fds, count)) return libc().poll(fds, count, timeout);
  Watch watch({fds, count});
  if (watch.plain()) return watch.InKernel([&] { return libc().poll(fds, count, timeout); });
  return watch.Poll(
      timeout < 0 ? CallDeadline::max() : CallDeadlineAfter(std::chrono::milliseconds(timeout)),
      nullptr);
}

int PPollForProgram(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!Concerned(fds, count) || !Sane(timeout)) return libc().ppoll(fds, count, timeout, mask);
  Watch watch({fds, count});
  if (watch.plain()) {
    return watch.InKernel([&] { return libc().ppoll(fds, count, timeout, mask); });
  }
  return watch.Poll(DeadlineOf(timeout), mask);
}

int SelectForProgram(int end, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  timespec left{};
  // Linux takes more than a second of microseconds, too.
  if (timeout != nullptr) {
    left = {timeout->tv_sec + timeout->tv_usec / 1'000'000, timeout->tv_usec % 1'000'000 * 1000};
  }
  const auto kernel = [&](int last) { return libc().select(last, read, write, except, timeout); };
  const timespec* const wait = timeout == nullptr ? nullptr : &left;
  if (!Sane(wait)) return kernel(end);
  const CallDeadline deadline = DeadlineOf(wait);
  bool asked_kernel = false;
  const int count = Select(end, {read, write, except}, deadline, nullptr, [&](int last) {
    asked_kernel = true;
    return kernel(last);
  });
  // As Linux does: what is left of the time.
  if (!asked_kernel && timeout != nullptr) {
    const timespec rest = Left(deadline);
    timeout->tv_sec = rest.tv_sec;
    timeout->tv_usec = rest.tv_nsec / 1000;
  }
  return count;
}

int PSelectForProgram(int end, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                      const sigset_t* mask) {
  const auto kernel = [&](int last) {
    return libc().pselect(last, read, write, except, timeout, mask);
  };
  if (!Sane(timeout)) return kernel(end);
  return Select(end, {read, write, except}, DeadlineOf(timeout), mask, kernel);
}

RDSOCK_EXPORT(int, poll, (pollfd * fds, nfds_t count, int timeout)) {
  return PollForProgram(fds, count, timeout);
}
RDSOCK_EXPORT(int, __poll_chk, (pollfd * fds, nfds_t count, int timeout, size_t space)) {
  if (space / sizeof(pollfd) < count) abort();
  return PollForProgram(fds, count, timeout);
}
RDSOCK_EXPORT(int, ppoll,
              (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask)) {
  return PPollForProgram(fds, count, timeout, mask);
}
RDSOCK_EXPORT(int, __ppoll_chk,
              (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
               size_t space)) {
  if (space / sizeof(pollfd) < count) abort();
  return PPollForProgram(fds, count, timeout, mask);
}

RDSOCK_EXPORT(int, select,
              (int end, fd_set* read, fd_set* write, fd_set* except, timeval* timeout)) {
  return SelectForProgram(end, read, write, except, timeout);
}
RDSOCK_EXPORT(int, pselect,
              (int end, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
               const sigset_t* mask)) {
  return PSelectForProgram(end, read, write, except, timeout, mask);
}

}  // namespace rdfs::sock
