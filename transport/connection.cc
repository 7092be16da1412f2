#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "transport/transport.h"

namespace rdfs::transport {
namespace {

using std::chrono::nanoseconds;

// A wake-up through the kernel costs some 5 us on the same processor and some 50 us on another that
// sleeps (more in a virtual machine), and a peer that has to be woken up first costs two of them.
// Spinning as long as that at most (transport.h) wastes no more than sleeping would; 2 us is one
// failed look.
constexpr nanoseconds kLeastSpin{2'000};
// What a look is taken to cost, in bounds: a verbs one is some 20 ns, a socket's a system call.
constexpr nanoseconds kCheapestLook{5};
constexpr nanoseconds kDearestLook{20'000};

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Result<std::size_t> Connection::Look(std::span<Completion> out, std::int64_t times) {
  for (; times > 0; --times) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, Poll(out));
    if (count > 0) return count;
    Relax();
  }
  return std::size_t{0};
}

// The clock may cost a system call of its own, so looks are counted instead: what they cost is
// measured in the second half of a spin whose first half found nothing. A round trip that fits into
// the first half reads no clock at all.
Result<std::size_t> Connection::Spin(std::span<Completion> out, Deadline deadline, TimePoint& now) {
  const std::int64_t half = std::max<std::int64_t>(spin_ / look_cost_ / 2, 1);
  RDFS_ASSIGN_OR_RETURN(std::size_t count, Look(out, half));
  if (count > 0) return count;
  const TimePoint before = BootClock::now();
  now = before;
  if (before >= deadline) return std::size_t{0};
  RDFS_ASSIGN_OR_RETURN(count, Look(out, half));
  if (count > 0) return count;
  now = BootClock::now();
  // Never much dearer than believed: this thread may only have been off its processor.
  look_cost_ =
      std::clamp((now - before) / half, kCheapestLook, std::min(2 * look_cost_, kDearestLook));
  return std::size_t{0};
}

Result<std::size_t> Connection::Sleep(std::span<Completion> out, Deadline deadline,
                                      TimePoint& now) {
  while (true) {
    RDFS_ASSIGN_OR_RETURN(const bool armed, Arm());
    if (armed) {
      pollfd entry{.fd = fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, PollTimeoutMs(deadline, now)) < 0 && errno != EINTR) {
        return Status::FromErrno(errno, "poll on a connection");
      }
    }
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, Poll(out));
    now = BootClock::now();
    if (count > 0 || now >= deadline) return count;
  }
}

Result<std::size_t> Connection::Wait(std::span<Completion> out, Deadline deadline) {
  const bool spin = SpinningPays();
  TimePoint now;
  RDFS_ASSIGN_OR_RETURN(std::size_t count, spin ? Spin(out, deadline, now) : Poll(out));
  if (count > 0) {
    if (spin) spin_ = std::min(spin_ * 2, most_spin_);
    return count;
  }
  if (!spin) now = BootClock::now();
  const TimePoint asleep = now;
  RDFS_ASSIGN_OR_RETURN(count, Sleep(out, deadline, now));
  // Two peers that sleep for each other take long because they sleep: when the answer came soon, a
  // longer spin would have found it. Otherwise this is an idle caller, who is not to spin.
  const bool soon = now - asleep < 2 * most_spin_;
  if (spin) spin_ = soon ? std::min(spin_ * 2, most_spin_) : std::max(spin_ / 2, kLeastSpin);
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
