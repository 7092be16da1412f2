// What a call's timespec means: until when it waits, and what is left of that; and a socket's
// timeouts.
#pragma once

#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "tools/sock/call_clock.h"

namespace rdfs::sock {

// More than a year is for ever.
inline constexpr time_t kMostSeconds = 365 * 24 * 3600;

// As the kernel has it; null: for ever.
inline bool Sane(const timespec* timeout) {
  return timeout == nullptr ||
         (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1'000'000'000);
}
inline CallDeadline DeadlineOf(const timespec* timeout) {
  if (timeout == nullptr) return CallDeadline::max();
  return CallDeadlineAfter(std::chrono::seconds(std::min(timeout->tv_sec, kMostSeconds)) +
                           std::chrono::nanoseconds(timeout->tv_nsec));
}
// Nothing, once it is over.
inline timespec Left(CallDeadline deadline) {
  const auto left =
      std::max<std::chrono::nanoseconds>(deadline - CallClock::now(), std::chrono::nanoseconds(0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
}
// SO_RCVTIMEO and SO_SNDTIMEO, as the kernel takes them (sock_set_timeout() in net/core/sock.c). 0:
// for ever. Below zero is at once, which is the least time that there is.
inline constexpr std::int64_t kAtOnce = 1;
inline std::int64_t NanosecondsOf(const timeval& timeout) {
  if (timeout.tv_sec < 0) return kAtOnce;
  return std::int64_t{std::min(timeout.tv_sec, kMostSeconds)} * 1'000'000'000 +
         std::int64_t{timeout.tv_usec} * 1000;
}

}  // namespace rdfs::sock
