#include "transport/base/log_limit.h"

#include <gtest/gtest.h>

#include <chrono>

namespace rdfs {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr TimePoint kStart{hours(1)};

std::int64_t Written(LogLimit& limit, TimePoint now, int lines) {
  std::int64_t written = 0;
  for (int i = 0; i < lines; ++i) written += limit.Admit(now).write ? 1 : 0;
  return written;
}

TEST(LogLimitTest, AFloodIsCutOff) {
  LogLimit limit;
  EXPECT_EQ(Written(limit, kStart, 1'000'000), LogLimit::kBurst);
}

TEST(LogLimitTest, WhatWasLeftOutIsToldOnce) {
  LogLimit limit;
  (void)Written(limit, kStart, 1000);
  const LogLimit::Verdict next = limit.Admit(kStart + LogLimit::kPause);
  EXPECT_TRUE(next.write);
  EXPECT_EQ(next.left_out, 1000U - LogLimit::kBurst);
  EXPECT_FALSE(limit.Admit(kStart + LogLimit::kPause).write);
  EXPECT_EQ(limit.Admit(kStart + 2 * LogLimit::kPause).left_out, 1U);
}

TEST(LogLimitTest, ALongFloodIsATrickle) {
  LogLimit limit;
  std::int64_t written = 0;
  for (milliseconds at{0}; at < milliseconds(100'000); at += milliseconds(1)) {
    written += limit.Admit(kStart + at).write ? 1 : 0;
  }
  EXPECT_LE(written, LogLimit::kBurst + 100'000 / LogLimit::kPause.count());
  EXPECT_GE(written, LogLimit::kBurst);
}

TEST(LogLimitTest, AfterAPauseThereIsRoomAgainButNoMoreThanAtFirst) {
  LogLimit limit;
  (void)Written(limit, kStart, 1000);
  EXPECT_EQ(Written(limit, kStart + hours(10), 1000), LogLimit::kBurst);
}

}  // namespace
}  // namespace rdfs
