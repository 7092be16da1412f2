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

}  // namespace
}  // namespace rdfs
