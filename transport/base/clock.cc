#include "transport/base/clock.h"

#include <time.h>

#include <algorithm>

namespace rdfs {

BootClock::time_point BootClock::now() noexcept {
  timespec ts{};
  clock_gettime(CLOCK_BOOTTIME, &ts);
  return time_point(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
}

int PollTimeoutMs(Deadline deadline, TimePoint now) {
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  return static_cast<int>(std::min<std::chrono::milliseconds>(left, std::chrono::hours(1)).count());
}

}  // namespace rdfs
