#include "server/pool/grant_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace rdfs::server {
namespace {

using std::chrono::milliseconds;

TimePoint At(std::int64_t ms) { return TimePoint(milliseconds(1000 + ms)); }

TEST(GrantTable, HoldsASessionToItsBytes) {
  GrantTable table({.session_bytes = 100, .total_bytes = 1000});
  EXPECT_TRUE(table.Grant(1, 10, 60, At(0), milliseconds(100)));
  EXPECT_FALSE(table.Grant(1, 11, 60, At(0), milliseconds(100)));
  EXPECT_EQ(table.session_bytes(1), 60U);
  EXPECT_TRUE(table.Grant(2, 11, 60, At(0), milliseconds(100))) << "another session's are its own";
  EXPECT_TRUE(table.Grant(1, 10, 60, At(50), milliseconds(100))) << "a renewal costs nothing";
  EXPECT_FALSE(table.Grant(1, 11, 60, At(120), milliseconds(100))) << "renewed: still held";
  EXPECT_TRUE(table.Grant(1, 11, 60, At(160), milliseconds(100)));
}

TEST(GrantTable, LeavesAPartOfThePoolAlone) {
  GrantTable table({.session_bytes = 1000, .total_bytes = 100});
  EXPECT_TRUE(table.Grant(1, 10, 60, At(0), milliseconds(100)));
  EXPECT_FALSE(table.Grant(2, 11, 60, At(0), milliseconds(100)));
  EXPECT_TRUE(table.Grant(2, 10, 60, At(0), milliseconds(100))) << "the same extent counts once";
  EXPECT_EQ(table.leased_bytes(), 60U);
  table.Expire(At(200));
  EXPECT_EQ(table.leased_bytes(), 0U);
}

TEST(GrantTable, EndsBehindTheClient) {
  const TimePoint now = At(0);
  const milliseconds lease(1000);
  // The client counts from before it asked, with a clock that runs 1 % slow.
  EXPECT_GT(GrantTable::ServerEnd(now, lease), now + lease + lease / 100);
}

TEST(GrantTable, ShortensLeasesAsItFills) {
  GrantTable table({.session_bytes = 1000, .total_bytes = 1000});
  EXPECT_EQ(table.SuggestLease(1, milliseconds(1000)), milliseconds(1000));
  ASSERT_TRUE(table.Grant(1, 10, 900, At(0), milliseconds(100)));
  EXPECT_LT(table.SuggestLease(2, milliseconds(1000)), milliseconds(300));
  EXPECT_GT(table.SuggestLease(2, milliseconds(1000)), milliseconds(0));
}

// Everybody's reads wait meanwhile.
TEST(GrantTable, ForgetsAFewAtATimeHoweverManyHaveRunOut) {
  constexpr std::uint64_t kExtents = 10'000;
  GrantTable table({.session_bytes = kExtents, .total_bytes = kExtents});
  for (std::uint64_t extent = 0; extent < kExtents; ++extent) {
    ASSERT_TRUE(table.Grant(1, extent, 1, At(0), milliseconds(100)));
  }
  std::size_t left = kExtents;
  for (std::uint64_t extent = kExtents; left > 0; ++extent) {
    const std::size_t gone = std::min<std::size_t>(left, GrantTable::kMaxExpired);
    left -= gone;
    const std::size_t fresh = extent - kExtents + 1;
    ASSERT_TRUE(table.Grant(1, extent, 1, At(200), milliseconds(100)));
    ASSERT_EQ(table.leased_bytes(), left + fresh);
    ASSERT_EQ(table.session_bytes(1), left + fresh);
  }
}

// Against a table that keeps every lease apart and looks at all of them each time.
TEST(GrantTable, AgreesWithANaiveOne) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    constexpr std::size_t kSession = 500;
    constexpr std::size_t kTotal = 900;
    GrantTable table({.session_bytes = kSession, .total_bytes = kTotal});
    std::map<std::pair<std::uint64_t, std::uint64_t>, TimePoint> leases;
    const auto bytes_of = [](std::uint64_t extent) { return 50 + extent % 3 * 50; };
    std::int64_t now = 0;
    for (int step = 0; step < 1500; ++step) {
      now += static_cast<std::int64_t>(random() % 8);
      std::erase_if(leases, [&](const auto& lease) { return lease.second < At(now); });
      const std::uint64_t session = random() % 3;
      const std::uint64_t extent = random() % 20;
      const milliseconds lease(random() % 100 + 1);
      std::size_t mine = 0;
      std::map<std::uint64_t, TimePoint> extents;
      for (const auto& [key, until] : leases) {
        if (key.first == session) mine += bytes_of(key.second);
        extents[key.second] = std::max(extents[key.second], until);
      }
      std::size_t total = 0;
      for (const auto& [key, until] : extents) total += bytes_of(key);
      const bool fits =
          (leases.contains({session, extent}) || mine + bytes_of(extent) <= kSession) &&
          (extents.contains(extent) || total + bytes_of(extent) <= kTotal);
      ASSERT_EQ(table.Grant(session, extent, bytes_of(extent), At(now), lease), fits)
          << "seed " << seed << " step " << step;
      if (fits) {
        TimePoint& until = leases[{session, extent}];
        until = std::max(until, GrantTable::ServerEnd(At(now), lease));
        ASSERT_GE(table.LeasedUntil(extent), until);
      }
    }
  }
}

}  // namespace
}  // namespace rdfs::server
