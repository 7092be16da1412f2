#include "transport/base/latency.h"

#include <gtest/gtest.h>

#include <thread>

namespace rdfs {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using Histogram = LatencyHistogram;

TEST(Latency, ABucketHoldsWhatIsLongerThanTheEdgeBelowUpToItsOwn) {
  EXPECT_EQ(Histogram::BucketOf(nanoseconds(-1)), 0U);
  EXPECT_EQ(Histogram::BucketOf(nanoseconds(0)), 0U);
  for (std::size_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
    EXPECT_EQ(Histogram::BucketOf(Histogram::UpperEdge(i)), i);
    EXPECT_EQ(Histogram::BucketOf(Histogram::UpperEdge(i) + nanoseconds(1)), i + 1);
  }
  EXPECT_EQ(Histogram::UpperEdge(0), microseconds(1));
  EXPECT_GT(Histogram::UpperEdge(Histogram::kBuckets - 2), seconds(30)) << "the default deadline";
  EXPECT_EQ(Histogram::BucketOf(nanoseconds::max()), Histogram::kBuckets - 1);
}

Histogram Of(std::initializer_list<nanoseconds> times) {
  LatencyRecorder recorder;
  for (const nanoseconds time : times) recorder.Record(time);
  Histogram out;
  recorder.AddTo(out);
  return out;
}

TEST(Latency, PercentilesAreRightToABucketAndNeverAboveTheLongest) {
  EXPECT_EQ(Histogram{}.Percentile(50), nanoseconds(0));
  const Histogram one = Of({microseconds(5)});
  EXPECT_EQ(one.count(), 1U);
  EXPECT_EQ(one.Percentile(1), microseconds(5));
  EXPECT_EQ(one.Percentile(99), microseconds(5));

  LatencyRecorder recorder;
  for (int i = 0; i < 990; ++i) recorder.Record(microseconds(100));
  for (int i = 0; i < 10; ++i) recorder.Record(milliseconds(50));
  Histogram mixed;
  recorder.AddTo(mixed);
  EXPECT_EQ(mixed.sum, microseconds(99'000) + milliseconds(500));
  EXPECT_GT(mixed.Percentile(50), microseconds(64));
  EXPECT_LE(mixed.Percentile(50), microseconds(128));
  EXPECT_EQ(mixed.Percentile(99), microseconds(128)) << "the 990th of 1000";
  EXPECT_EQ(mixed.Percentile(100), milliseconds(50));
}

// Evenly spread within a bucket, as it is taken to be.
TEST(Latency, PercentilesAreExactWhereTimesAreSpreadEvenly) {
  LatencyRecorder recorder;
  for (int i = 1; i <= 1024; ++i) recorder.Record(microseconds(1024 + i));
  Histogram times;
  recorder.AddTo(times);
  EXPECT_EQ(times.Percentile(50), microseconds(1024 + 512));
}

TEST(Latency, WhatHasNoBucketOfItsOwnIsStillTold) {
  const Histogram long_ones = Of({hours(2), hours(3), nanoseconds(-5)});
  EXPECT_EQ(long_ones.count(), 3U);
  EXPECT_EQ(long_ones.longest, hours(3));
  EXPECT_EQ(long_ones.Percentile(99), hours(3));
  EXPECT_EQ(long_ones.sum, hours(5));
}

TEST(Latency, SumsAddUp) {
  Histogram sum = Of({microseconds(3), microseconds(100)});
  sum.Add(Of({microseconds(4), seconds(1)}));
  EXPECT_EQ(sum.buckets[2], 2U);
  EXPECT_EQ(sum.count(), 4U);
  EXPECT_EQ(sum.longest, seconds(1));
  EXPECT_EQ(sum.sum, microseconds(107) + seconds(1));
}

// Reading while another thread writes: no time is lost, and none counted twice.
TEST(Latency, IsReadWhileItIsWritten) {
  constexpr std::uint64_t kTimes = 100'000;
  LatencyRecorder recorder;
  std::thread writer([&recorder] {
    for (std::uint64_t i = 0; i < kTimes; ++i) recorder.Record(microseconds(i % 100));
  });
  std::uint64_t before = 0;
  while (before < kTimes / 2) {
    Histogram seen;
    recorder.AddTo(seen);
    EXPECT_GE(seen.count(), before);
    before = seen.count();
  }
  writer.join();
  Histogram all;
  recorder.AddTo(all);
  EXPECT_EQ(all.count(), kTimes);
}

}  // namespace
}  // namespace rdfs
