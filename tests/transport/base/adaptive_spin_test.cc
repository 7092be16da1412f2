#include "transport/base/adaptive_spin.h"

#include <gtest/gtest.h>

#include <chrono>

namespace rdfs {
namespace {

using std::chrono::microseconds;

constexpr microseconds kLongest{100};

// Runs one wait in virtual time, looking every microsecond; what is waited for comes `after` its
// begin. Returns how long it spun.
microseconds Wait(AdaptiveSpin& spin, TimePoint& now, microseconds after) {
  const TimePoint start = now;
  while (now - start < after) {
    if (!spin.GoOn(now)) {
      const auto spun = std::chrono::duration_cast<microseconds>(now - start);
      EXPECT_FALSE(spin.GoOn(now + kLongest)) << "a wait that sleeps does not spin again";
      now = start + after;
      spin.Came();
      return spun;
    }
    now += microseconds(1);
  }
  spin.Came();
  return after;
}

TEST(AdaptiveSpinTest, AnAnswerThatComesSoonIsNeverSleptFor) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Wait(spin, now, microseconds(60)), microseconds(60));
}

TEST(AdaptiveSpinTest, SpinningThatNeverPaysCostsNextToNothing) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 10; ++i) (void)Wait(spin, now, microseconds(500));
  microseconds wasted{0};
  for (int i = 0; i < 640; ++i) wasted += Wait(spin, now, microseconds(500));
  EXPECT_EQ(wasted, 10 * kLongest);
}

// Asking first changes nothing but that no clock is looked at.
TEST(AdaptiveSpinTest, WhoAsksFirstSpinsAsOften) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  EXPECT_FALSE(spin.Skips());
  for (int i = 0; i < 10; ++i) (void)Wait(spin, now, microseconds(500));
  ASSERT_FALSE(spin.pays());
  int skipped = 0;
  microseconds wasted{0};
  for (int i = 0; i < 640; ++i) {
    if (spin.Skips()) {
      ++skipped;
      EXPECT_TRUE(spin.Skips());
      EXPECT_FALSE(spin.GoOn(now)) << "a wait that sleeps does not spin again";
      spin.Came();
    } else {
      wasted += Wait(spin, now, microseconds(500));
    }
  }
  EXPECT_EQ(skipped, 630);
  EXPECT_EQ(wasted, 10 * kLongest);
}

TEST(AdaptiveSpinTest, APauseDoesNotEndWhatPays) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Wait(spin, now, microseconds(40)), microseconds(40));
    (void)Wait(spin, now, microseconds(1'000'000));
    EXPECT_EQ(Wait(spin, now, microseconds(40)), microseconds(40));
  }
}

TEST(AdaptiveSpinTest, IsFoundWorthwhileAgain) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 10; ++i) (void)Wait(spin, now, microseconds(500));
  int slept = 0;
  for (int i = 0; i < 200; ++i) slept += Wait(spin, now, microseconds(7)) < microseconds(7) ? 1 : 0;
  EXPECT_LT(slept, 64);
}

TEST(AdaptiveSpinTest, WhatComesAtOnceIsNoWait) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 10; ++i) (void)Wait(spin, now, microseconds(500));
  for (int i = 0; i < 1000; ++i) spin.Came();
  EXPECT_FALSE(spin.GoOn(now)) << "nothing was learnt";
}

// As Wait, but each look gives the processor away; `away` says for how long, the first time.
microseconds WaitGivingWay(AdaptiveSpin& spin, TimePoint& now, microseconds after,
                           microseconds away) {
  const TimePoint start = now;
  if (spin.GoOn(now)) {
    now += away;
    spin.GaveWay(away);
  }
  const auto so_far = std::chrono::duration_cast<microseconds>(now - start);
  if (so_far < after) return so_far + Wait(spin, now, after - so_far);
  spin.Came();
  return so_far;
}

TEST(AdaptiveSpinTest, WhoeverSendsTheAnswerMayHaveTheProcessor) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(WaitGivingWay(spin, now, microseconds(60), microseconds(50)), microseconds(60));
  }
}

TEST(AdaptiveSpinTest, AProcessorLostToWhoComputesIsNotGivenAwayAgainSoon) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  const microseconds slice{3000};
  int lost = 0;
  for (int i = 0; i < 100'000; ++i) {
    const TimePoint start = now;
    (void)WaitGivingWay(spin, now, microseconds(60), slice);
    if (now - start < slice) continue;
    ++lost;
    EXPECT_FALSE(spin.pays()) << "an answer that came meanwhile was not in time";
  }
  // 64, 128, ... 8192 waits between them: some 8 until the tries are as rare as they get.
  EXPECT_GT(lost, 8);
  EXPECT_LE(lost, 8 + 100'000 / 8192);
}

TEST(AdaptiveSpinTest, TrustComesBackWhenNobodyComputesAnyMore) {
  AdaptiveSpin spin(kLongest);
  TimePoint now{};
  for (int i = 0; i < 100'000; ++i) {
    (void)WaitGivingWay(spin, now, microseconds(60), microseconds(3000));
  }
  for (int i = 0; i < 2 * 8192; ++i) (void)Wait(spin, now, microseconds(60));
  EXPECT_TRUE(spin.pays());
  // A loss now makes the tries half as frequent again, no more.
  (void)WaitGivingWay(spin, now, microseconds(60), microseconds(3000));
  int waits = 0;
  while (Wait(spin, now, microseconds(60)) < microseconds(60)) ++waits;
  EXPECT_LE(waits, 128);
}

}  // namespace
}  // namespace rdfs
