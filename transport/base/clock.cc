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
  return deadline <= now ? 0 : PollTimeoutMs(deadline - now);
}

int PollTimeoutMs(std::chrono::nanoseconds left) {
  if (left.count() <= 0) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left);
  return static_cast<int>(std::min<std::chrono::milliseconds>(ms, std::chrono::hours(1)).count());
}

}  // namespace rdfs
