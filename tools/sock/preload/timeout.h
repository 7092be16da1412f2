// What a call's timespec means: until when it waits, and what is left of that.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>

#include "transport/base/clock.h"

namespace rdfs::sock {

// As the kernel has it; null: for ever.
inline bool Sane(const timespec* timeout) {
  return timeout == nullptr ||
         (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1'000'000'000);
}
inline Deadline DeadlineOf(const timespec* timeout) {
  if (timeout == nullptr) return Deadline::max();
  // More than a year is for ever.
  constexpr time_t kMost = 365 * 24 * 3600;
  return DeadlineAfter(std::chrono::seconds(std::min(timeout->tv_sec, kMost)) +
                       std::chrono::nanoseconds(timeout->tv_nsec));
}
// Nothing, once it is over.
inline timespec Left(Deadline deadline) {
  const auto left =
      std::max<std::chrono::nanoseconds>(deadline - BootClock::now(), std::chrono::nanoseconds(0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
}

}  // namespace rdfs::sock
