// What counts as a sleep of the machine. That a set clock ends such a timer, the kernel promises.
#include "fs/fuse/command/machine_sleep.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

namespace rdfs::fs::fuse {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(ClockGap, GrowsWithEachSleepOnce) {
  nanoseconds gap = hours(3);  // slept before we were there
  ClockGap clocks(gap);
  EXPECT_FALSE(clocks.Grew(gap));
  gap += milliseconds(100);
  EXPECT_TRUE(clocks.Grew(gap));
  EXPECT_FALSE(clocks.Grew(gap));
  gap += hours(8);
  EXPECT_TRUE(clocks.Grew(gap));
  EXPECT_FALSE(clocks.Grew(gap));
}

TEST(ClockGap, WhatComesBetweenTwoReadingsIsNone) {
  ClockGap clocks(hours(1));
  EXPECT_FALSE(clocks.Grew(hours(1) + ClockGap::kTolerance));
  // And does not add up.
  EXPECT_FALSE(clocks.Grew(hours(1) + ClockGap::kTolerance / 2));
  EXPECT_FALSE(clocks.Grew(hours(1) + ClockGap::kTolerance));
}

TEST(ClockGap, ASleepBehindAReadingThatWasTooLargeCounts) {
  ClockGap clocks(hours(1) + milliseconds(500));
  EXPECT_FALSE(clocks.Grew(hours(1)));
  EXPECT_TRUE(clocks.Grew(hours(1) + milliseconds(400)));
}

TEST(MachineSleep, AClockThatIsSetIsNone) {
  nanoseconds gap = hours(1);
  Fd set(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  MachineSleep sleep(std::move(set), [&gap] { return gap; });
  EXPECT_FALSE(sleep.Look());
  std::uint64_t count = 0;
  EXPECT_LT(read(sleep.fd(), &count, sizeof count), 0) << "it would be looked at again at once";
  gap += milliseconds(1500);
  EXPECT_TRUE(sleep.Look());
  EXPECT_FALSE(sleep.Look());
}

TEST(MachineSleep, WhatComesBetweenTheFirstTwoReadingsHidesNone) {
  nanoseconds gap = hours(1), interrupted = milliseconds(500);
  MachineSleep sleep(Fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)),
                     [&] { return gap + std::exchange(interrupted, nanoseconds(0)); });
  gap += milliseconds(100);
  EXPECT_TRUE(sleep.Look());
}

TEST(MachineSleep, ThisKernelHasSuchATimer) {
  const MachineSleep sleep;
  EXPECT_GE(sleep.fd(), 0);
}

}  // namespace
}  // namespace rdfs::fs::fuse
