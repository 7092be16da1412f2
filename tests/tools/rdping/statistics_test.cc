#include "tools/rdping/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace rdfs::rdping {
namespace {

TEST(Statistics, PercentilesAreNearestRanks) {
  std::vector<std::int64_t> sorted(1000);
  std::iota(sorted.begin(), sorted.end(), 1);
  EXPECT_EQ(Percentile(sorted, 0.5), 500);
  EXPECT_EQ(Percentile(sorted, 0.99), 990);
  EXPECT_EQ(Percentile(sorted, 0.999), 999);
  EXPECT_EQ(Percentile(sorted, 1), 1000);
  EXPECT_EQ(Percentile(sorted, 0), 1);
  EXPECT_EQ(Percentile({}, 0.5), 0);
  EXPECT_EQ(Percentile({7}, 0.999), 7);
}

TEST(Statistics, SummaryOfUnsortedSamples) {
  Latencies latencies;
  for (const int us : {30, 10, 20}) latencies.Add(std::chrono::microseconds(us));
  const LatencySummary summary = latencies.Summarise(std::chrono::milliseconds(1));
  EXPECT_EQ(summary.count, 3U);
  EXPECT_DOUBLE_EQ(summary.average_us, 20);
  EXPECT_DOUBLE_EQ(summary.p50_us, 20);
  EXPECT_DOUBLE_EQ(summary.p99_us, 30);
  EXPECT_DOUBLE_EQ(summary.per_second, 3000);
  EXPECT_EQ(Latencies().Summarise({}).count, 0U);
}

}  // namespace
}  // namespace rdfs::rdping
