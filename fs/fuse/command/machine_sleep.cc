#include "fs/fuse/command/machine_sleep.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <limits>

#include "transport/base/clock.h"

namespace rdfs::fs::fuse {
namespace {

Fd TimerThatASetClockEnds() {
  Fd timer(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec never{};
  never.it_value.tv_sec = std::numeric_limits<time_t>::max();
  const int flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET;
  if (timer.valid() && timerfd_settime(timer.get(), flags, &never, nullptr) != 0) timer.Reset();
  return timer;
}

// The one that stands still first: a gap that seems too large does no harm.
std::chrono::nanoseconds ReadGap() {
  timespec monotonic{};
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  const auto boot = BootClock::now().time_since_epoch();
  return boot - std::chrono::seconds(monotonic.tv_sec) -
         std::chrono::nanoseconds(monotonic.tv_nsec);
}

}  // namespace

MachineSleep::MachineSleep() : MachineSleep(TimerThatASetClockEnds(), ReadGap) {}

bool MachineSleep::Look() {
  // ECANCELED when the clock was set, and then it waits for the next time.
  std::uint64_t count = 0;
  (void)!read(clock_set_.get(), &count, sizeof count);
  return gap_.Grew(read_gap_());
}

}  // namespace rdfs::fs::fuse
