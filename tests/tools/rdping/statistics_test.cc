#include "tools/rdping/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

namespace rdfs::rdping {
namespace {

// Nothing in it grows with what is added: a minute of laps over shared memory is some 10^9 of them.
static_assert(std::is_trivially_copyable_v<Latencies> && sizeof(Latencies) < 64 << 10);

TEST(Statistics, PercentilesAreNearestRanks) {
  Latencies latencies;
  for (std::uint64_t i = 250; i > 0; --i) latencies.Add(i);
  EXPECT_EQ(latencies.Percentile(0.5), 125U);
  EXPECT_EQ(latencies.Percentile(0.99), 248U);
  EXPECT_EQ(latencies.Percentile(0.999), 250U);
  EXPECT_EQ(latencies.Percentile(1), 250U);
  EXPECT_EQ(latencies.Percentile(0), 1U);
  EXPECT_EQ(Latencies().Percentile(0.5), 0U);
  Latencies one;
  one.Add(123'456'789);
  EXPECT_EQ(one.Percentile(0.999), 123'456'789U) << "never outside of what was added";
}

TEST(Statistics, PercentilesAreRightToOnePercent) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> all;
  Latencies latencies;
  for (int i = 0; i < 20'000; ++i) {
    // All powers of two are as frequent as any, up to the largest that there is.
    all.push_back(random() >> (random() % 64));
    latencies.Add(all.back());
  }
  std::ranges::sort(all);
  for (const double fraction : {0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0}) {
    const double rank = std::ceil(fraction * static_cast<double>(all.size()));
    const auto exact = static_cast<double>(all[static_cast<std::size_t>(rank) - 1]);
    const auto told = static_cast<double>(latencies.Percentile(fraction));
    EXPECT_NEAR(told, exact, exact / 100) << fraction;
  }
}

TEST(Statistics, SummaryOfUnsortedSamples) {
  Latencies latencies;
  for (const std::uint64_t ticks : {60U, 20U, 40U}) latencies.Add(ticks);
  const LatencySummary summary = latencies.Summarise(500);  // two ticks a microsecond
  EXPECT_EQ(summary.count, 3U);
  EXPECT_DOUBLE_EQ(summary.average_us, 20);
  EXPECT_DOUBLE_EQ(summary.p50_us, 20);
  EXPECT_DOUBLE_EQ(summary.p99_us, 30);
  EXPECT_DOUBLE_EQ(summary.per_second, 50'000);
  EXPECT_EQ(Latencies().Summarise(1).count, 0U);
}

}  // namespace
}  // namespace rdfs::rdping
