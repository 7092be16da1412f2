// poll and select as programs see them.
#include <poll.h>
#include <stdlib.h>
#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/watch.h"

namespace rdfs::sock {
namespace {

Deadline DeadlineOf(const timespec* timeout) {
  if (timeout == nullptr) return Deadline::max();
  // More than a year is for ever.
  constexpr time_t kMost = 365 * 24 * 3600;
  return DeadlineAfter(std::chrono::seconds(std::min(timeout->tv_sec, kMost)) +
                       std::chrono::nanoseconds(timeout->tv_nsec));
}

bool Sane(const timespec* timeout) {
  return timeout == nullptr ||
         (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1'000'000'000);
}

// Without descriptors of ours no call is touched.
bool Concerned(const pollfd* fds, nfds_t count) {
  return Registry().end() > 0 && fds != nullptr && count > 0 && count < DescriptorTable::kMost;
}

int Poll(pollfd* fds, nfds_t count, int timeout) {
  if (!Concerned(fds, count)) return libc().poll(fds, count, timeout);
  Watch watch({fds, count});
  if (watch.plain()) return libc().poll(fds, count, timeout);
  return watch.Poll(
      timeout < 0 ? Deadline::max() : DeadlineAfter(std::chrono::milliseconds(timeout)), nullptr);
}

int PPoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!Concerned(fds, count) || !Sane(timeout)) return libc().ppoll(fds, count, timeout, mask);
  Watch watch({fds, count});
  if (watch.plain()) return libc().ppoll(fds, count, timeout, mask);
  return watch.Poll(DeadlineOf(timeout), mask);
}

// What select's sets mean in poll's events, as the kernel has it (fs/select.c).
constexpr short kReadEvents = POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR;
constexpr short kWriteEvents = POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR;
constexpr short kExceptEvents = POLLPRI;

struct Sets {
  fd_set* read;
  fd_set* write;
  fd_set* except;

  [[nodiscard]] short EventsOf(int fd) const {
    int events = 0;
    if (read != nullptr && FD_ISSET(fd, read)) events |= POLLIN;
    if (write != nullptr && FD_ISSET(fd, write)) events |= POLLOUT;
    if (except != nullptr && FD_ISSET(fd, except)) events |= POLLPRI;
    return static_cast<short>(events);
  }
  // Writes the answer over the question; how many bits are set.
  int Answer(std::span<const pollfd> fds) const {
    int count = 0;
    const auto keep = [&](fd_set* set, const pollfd& fd, int events) {
      if (set == nullptr || !FD_ISSET(fd.fd, set)) return;
      if ((fd.revents & events) != 0) {
        ++count;
      } else {
        FD_CLR(fd.fd, set);
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

// `kernel` is the C library's call.
template <typename Kernel>
int Select(int end, const Sets& sets, Deadline deadline, const sigset_t* mask, Kernel kernel) {
  if (end <= 0 || end > FD_SETSIZE || Registry().end() == 0) return kernel();
  Room<pollfd, 64> fds(static_cast<std::size_t>(end));
  if (fds.data() == nullptr) return kernel();
  const std::span<pollfd> asked(fds.data(), Collect(end, sets, fds.data()));
  Watch watch(asked);
  if (watch.plain()) return kernel();
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

RDSOCK_EXPORT(int, poll, (pollfd * fds, nfds_t count, int timeout)) {
  return Poll(fds, count, timeout);
}
RDSOCK_EXPORT(int, __poll_chk, (pollfd * fds, nfds_t count, int timeout, size_t space)) {
  if (space / sizeof(pollfd) < count) abort();
  return Poll(fds, count, timeout);
}
RDSOCK_EXPORT(int, ppoll,
              (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask)) {
  return PPoll(fds, count, timeout, mask);
}
RDSOCK_EXPORT(int, __ppoll_chk,
              (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
               size_t space)) {
  if (space / sizeof(pollfd) < count) abort();
  return PPoll(fds, count, timeout, mask);
}

RDSOCK_EXPORT(int, select,
              (int end, fd_set* read, fd_set* write, fd_set* except, timeval* timeout)) {
  timespec left{};
  // Linux takes more than a second of microseconds, too.
  if (timeout != nullptr) {
    left = {timeout->tv_sec + timeout->tv_usec / 1'000'000, timeout->tv_usec % 1'000'000 * 1000};
  }
  const auto kernel = [&] { return libc().select(end, read, write, except, timeout); };
  const timespec* const wait = timeout == nullptr ? nullptr : &left;
  if (!Sane(wait)) return kernel();
  const Deadline deadline = DeadlineOf(wait);
  bool asked_kernel = false;
  const int count = Select(end, {read, write, except}, deadline, nullptr, [&] {
    asked_kernel = true;
    return kernel();
  });
  // As Linux does: what is left of the time.
  if (!asked_kernel && timeout != nullptr) {
    const auto rest = std::max<std::chrono::nanoseconds>(deadline - BootClock::now(),
                                                         std::chrono::nanoseconds(0));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(rest);
    timeout->tv_sec = static_cast<time_t>(seconds.count());
    timeout->tv_usec = static_cast<suseconds_t>((rest - seconds).count() / 1000);
  }
  return count;
}
RDSOCK_EXPORT(int, pselect,
              (int end, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
               const sigset_t* mask)) {
  const auto kernel = [&] { return libc().pselect(end, read, write, except, timeout, mask); };
  if (!Sane(timeout)) return kernel();
  return Select(end, {read, write, except}, DeadlineOf(timeout), mask, kernel);
}

}  // namespace rdfs::sock
