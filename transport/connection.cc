#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "transport/transport.h"

namespace rdfs::transport {
namespace {

using std::chrono::nanoseconds;

// A wake-up through the kernel costs some 5 us on the same processor and some 50 us on another that
// sleeps (more in a virtual machine), and a peer that has to be woken up first costs two of them.
// Spinning as long as that at most wastes no more than sleeping would; 2 us is one failed look.
constexpr nanoseconds kLeastSpin{2'000};
constexpr nanoseconds kMostSpin{100'000};
// Looks between two readings of the clock, which may cost a system call of its own.
constexpr int kLooksPerReading = 32;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Result<std::size_t> Connection::Spin(std::span<Completion> out, Deadline deadline) {
  // The first looks are free of the clock: in a ping-pong they find the answer.
  std::optional<TimePoint> until;
  while (true) {
    for (int i = 0; i < kLooksPerReading; ++i) {
      RDFS_ASSIGN_OR_RETURN(const std::size_t count, Poll(out));
      if (count > 0) return count;
      Relax();
    }
    const TimePoint now = BootClock::now();
    if (!until) until = std::min(now + spin_, deadline);
    if (now >= *until) return std::size_t{0};
  }
}

Result<std::size_t> Connection::Sleep(std::span<Completion> out, Deadline deadline) {
  while (true) {
    RDFS_ASSIGN_OR_RETURN(const bool armed, Arm());
    if (armed) {
      const int timeout_ms = PollTimeoutMs(deadline, BootClock::now());
      pollfd entry{.fd = fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, timeout_ms) < 0 && errno != EINTR) {
        return Status::FromErrno(errno, "poll on a connection");
      }
    }
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, Poll(out));
    if (count > 0 || BootClock::now() >= deadline) return count;
  }
}

Result<std::size_t> Connection::Wait(std::span<Completion> out, Deadline deadline) {
  const bool spin = SpinningPays();
  if (spin) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, Spin(out, deadline));
    if (count > 0) {
      spin_ = std::min(spin_ * 2, kMostSpin);
      return count;
    }
  } else {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, Poll(out));
    if (count > 0) return count;
  }
  const TimePoint asleep = BootClock::now();
  auto count = Sleep(out, deadline);
  // Two peers that sleep for each other take long because they sleep: when the answer came soon, a
  // longer spin would have found it. Otherwise this is an idle caller, who is not to spin.
  const bool soon = BootClock::now() - asleep < 2 * kMostSpin;
  if (spin) spin_ = soon ? std::min(spin_ * 2, kMostSpin) : std::max(spin_ / 2, kLeastSpin);
  return count;
}

std::string_view Name(Kind kind) {
  switch (kind) {
    case Kind::kTcp:
      return "tcp";
    case Kind::kShm:
      return "shm";
    case Kind::kVerbs:
      return "verbs";
  }
  return "unknown";
}

std::optional<Kind> KindFromName(std::string_view name) {
  for (const Kind kind : {Kind::kTcp, Kind::kShm, Kind::kVerbs}) {
    if (name == Name(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace rdfs::transport
