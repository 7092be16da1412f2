#include "server/loop/answer_times.h"

#include <gtest/gtest.h>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;
using std::chrono::microseconds;

AnswerTimes::Sums SumsOf(const AnswerTimes& times) {
  AnswerTimes::Sums sums;
  times.AddTo(sums);
  return sums;
}

TEST(AnswerTimes, AnAnswerTakesUntilItGoesOut) {
  ManualClock clock;
  AnswerTimes times;
  const TimePoint taken = clock.Now();
  times.GoOut(clock.Now());  // nothing yet
  times.Note(Opcode::kLookup, taken);
  clock.Advance(microseconds(10));
  times.Note(Opcode::kLookup, clock.Now());
  times.Note(static_cast<Opcode>(60000), taken);
  EXPECT_EQ(SumsOf(times)[Counters::IndexOf(Opcode::kLookup)].count(), 0U);
  clock.Advance(microseconds(20));
  times.GoOut(clock.Now());
  clock.Advance(microseconds(500));
  times.GoOut(clock.Now());  // once each
  const AnswerTimes::Sums sums = SumsOf(times);
  const LatencyHistogram& lookups = sums[Counters::IndexOf(Opcode::kLookup)];
  EXPECT_EQ(lookups.count(), 2U);
  EXPECT_EQ(lookups.sum, microseconds(50));
  EXPECT_EQ(lookups.longest, microseconds(30));
  EXPECT_EQ(sums[0].count(), 1U) << "what is not known";
}

TEST(AnswerTimes, WhatIsRefusedUnseenHasNone) {
  Harness server;
  const TimePoint before = BootClock::now();
  EXPECT_EQ(server.Lookup(server.root(), "none").errno_value(), ENOENT);
  ASSERT_EQ(server.lane->answered.size(), 1U);
  EXPECT_EQ(server.lane->answered[0].first, Opcode::kLookup);
  EXPECT_GE(server.lane->answered[0].second, before);
  EXPECT_LE(server.lane->answered[0].second, BootClock::now());
  const Body body = Body().Add(server.root()).Name("x");
  EXPECT_TRUE(
      server.Deliver(server.lane, Harness::Message(Opcode::kLookup, body.bytes(), 99, 4711)));
  EXPECT_EQ(server.TakeAnswer(server.lane).error, fs::WireError::kUnknownSession);
  EXPECT_EQ(server.lane->answered.size(), 1U);
}

// One that has waited is served anew, and is as old as before.
TEST(AnswerTimes, ARequestIsTakenOnce) {
  Harness server;
  const TimePoint first = BootClock::now();
  Responder responder(server.lane, Opcode::kUnlink, 1, 7, server.core().counters);
  responder.SetTaken(first);
  Responder moved = std::move(responder);
  moved.SetTaken(first + microseconds(10));
  moved.Errno(ENOENT);
  ASSERT_EQ(server.lane->answered.size(), 1U);
  EXPECT_EQ(server.lane->answered[0].second, first);
}

}  // namespace
}  // namespace rdfs::server
