// Time as the kernel counts how long a program's calls may wait (poll(2), SO_RCVTIMEO, ...):
// CLOCK_MONOTONIC, which does not go on while the machine sleeps. By it is also counted how long we
// sleep within such a call for reasons of our own (End::Leave, BeforeClose, looks now and then);
// other deadlines of our own are BootClock's.
#pragma once

#include <time.h>

#include <chrono>

namespace rdfs::sock {

struct CallClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<CallClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept {
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return time_point(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
  }
};

using CallDeadline = CallClock::time_point;

inline CallDeadline CallDeadlineAfter(std::chrono::nanoseconds span) {
  return CallClock::now() + span;
}

}  // namespace rdfs::sock
