// MachineSleep: tells when this machine has slept (suspend, hibernation).
//
// What the kernel is told to believe for so long it counts in jiffies, which stand still while the
// machine sleeps; leases go on (transport/base/clock.h). So what it has is too old when the machine
// wakes up, and no request of its says so: it answers those itself.
//
// A timer of CLOCK_REALTIME that ends when somebody sets that clock (TFD_TIMER_CANCEL_ON_SET,
// timerfd_create(2)) ends when the kernel sets it behind a sleep, too; idle, nothing runs. Whether
// it was a sleep, CLOCK_BOOTTIME says, which goes on where CLOCK_MONOTONIC stands still. One user.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "transport/base/fd.h"

namespace rdfs::fs::fuse {

// Pure: whether the two clocks have come apart.
class ClockGap {
 public:
  // Who reads them may be interrupted in between; leases have more to spare (LeaseLength).
  static constexpr std::chrono::milliseconds kTolerance{5};
  explicit ClockGap(std::chrono::nanoseconds gap) : known_(gap) {}
  // By how far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC now, or a little more than that; whether
  // it was less at the last look.
  bool Grew(std::chrono::nanoseconds gap) {
    const bool grew = gap > known_ + kTolerance;
    known_ = grew ? gap : std::min(known_, gap);
    return grew;
  }

 private:
  std::chrono::nanoseconds known_;
};

class MachineSleep {
 public:
  // Not to be had: nothing is noticed.
  MachineSleep();
  // For tests: readable when there is something to look at, and the gap of the clocks. The
  // smallest of three: what the first look goes by must not be too large.
  MachineSleep(Fd clock_set, std::function<std::chrono::nanoseconds()> read_gap)
      : clock_set_(std::move(clock_set)),
        read_gap_(std::move(read_gap)),
        gap_(std::min({read_gap_(), read_gap_(), read_gap_()})) {}

  // For poll(2), POLLIN: Look then.
  [[nodiscard]] int fd() const { return clock_set_.get(); }
  // Whether it has slept since the last look.
  bool Look();

 private:
  Fd clock_set_;
  std::function<std::chrono::nanoseconds()> read_gap_;
  ClockGap gap_;
};

}  // namespace rdfs::fs::fuse
