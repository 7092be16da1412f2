#include "transport/base/turn_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace rdfs {
namespace {

void LetTimePass() {
  const TimePoint before = BootClock::now();
  while (BootClock::now() == before) {
  }
}

TEST(TurnClock, StandsStillWithinATurnOfThisThreadOnly) {
  const TurnClock clock;
  const TimePoint before = clock.Now();
  LetTimePass();
  EXPECT_GT(clock.Now(), before);
  {
    const TurnClock::Turn turn;
    const TimePoint began = clock.Now();
    EXPECT_GT(began, before);
    LetTimePass();
    EXPECT_EQ(clock.Now(), began);
    std::thread([&] { EXPECT_GT(clock.Now(), began); }).join();
    EXPECT_EQ(clock.Now(), began);
  }
  const TimePoint after = clock.Now();
  LetTimePass();
  EXPECT_GT(clock.Now(), after);
}

}  // namespace
}  // namespace rdfs
