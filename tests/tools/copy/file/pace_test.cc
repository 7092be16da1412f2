#include "tools/copy/file/pace.h"

#include <gtest/gtest.h>

namespace rdfs::copy {
namespace {

using std::chrono_literals::operator""s;

TEST(Pace, WithoutALimitAllGoesAtOnce) {
  Pace pace(0);
  const TimePoint now{10s};
  EXPECT_FALSE(pace.limited());
  EXPECT_EQ(pace.Take(1 << 30, now), now);
  EXPECT_EQ(pace.Take(1, now), now);
}

TEST(Pace, EachWaitsForThoseBefore) {
  Pace pace(100);
  const TimePoint now{10s};
  EXPECT_EQ(pace.Take(200, now), now);
  EXPECT_EQ(pace.Take(100, now), now + 2s);
  EXPECT_EQ(pace.Take(100, now + 1s), now + 3s);
  EXPECT_EQ(pace.Take(100, now + 60s), now + 60s) << "a rest is not saved up";
  EXPECT_EQ(pace.Take(100, now + 60s), now + 61s);
}

TEST(Pace, RatesOfTheCommandLine) {
  EXPECT_EQ(*Pace::Parse("1K"), 1024U);
  EXPECT_EQ(*Pace::Parse("20M"), 20U << 20U);
  EXPECT_EQ(*Pace::Parse("3G"), std::uint64_t{3} << 30U);
  for (const char* wrong : {"", "K", "0M", "10", "10k", "10MB", "-1M", "1.5M", "99999999999G",
                            "18446744073709551616K"}) {
    EXPECT_FALSE(Pace::Parse(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace rdfs::copy
