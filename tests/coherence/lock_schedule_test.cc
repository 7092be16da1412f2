// Seeded schedules of locks: whoever was told that he has one has had it alone, nobody waits for
// ever, and a planted bug must not go unnoticed.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/coherence/lock_world.h"

namespace rdfs::coherence {
namespace {

// Many more with ./check --full.
std::uint32_t Seeds() {
  const char* const asked = std::getenv("RDFS_COHERENCE_SEEDS");
  return asked == nullptr ? 200 : static_cast<std::uint32_t>(std::strtoul(asked, nullptr, 10));
}

TEST(LockSchedule, LocksAreLinearizableUnderFaults) {
  LockWorld::Counts all;
  std::uint64_t undecided = 0;
  for (std::uint32_t seed = 1; seed <= Seeds(); ++seed) {
    LockWorld world({.seed = seed});
    world.Run();
    ASSERT_EQ(world.Verdict(), "") << "seed " << seed;
    ASSERT_EQ(world.Stuck(), "") << "seed " << seed;
    const LockWorld::Counts& counts = world.counts();
    undecided += world.undecided();
    all.granted += counts.granted;
    all.refused += counts.refused;
    all.waited += counts.waited;
    all.deadlocks += counts.deadlocks;
    all.interrupted += counts.interrupted;
    all.reclaimed += counts.reclaimed;
    all.lost += counts.lost;
    all.restarts += counts.restarts;
    all.lanes += counts.lanes;
  }
  EXPECT_LT(undecided, Seeds() / 5U) << "of four histories each";
  // The schedules are about something.
  EXPECT_GT(all.granted, Seeds() * 50U);
  EXPECT_GT(all.refused, Seeds() * 5U);
  EXPECT_GT(all.waited, Seeds() * 5U);
  EXPECT_GT(all.deadlocks, Seeds() / 10U);
  EXPECT_GT(all.interrupted, Seeds());
  EXPECT_GT(all.reclaimed, Seeds());
  EXPECT_GT(all.lost, Seeds() / 10U);
  EXPECT_GT(all.restarts, Seeds() / 2U);
  EXPECT_GT(all.lanes, Seeds() * 5U);
}

TEST(LockSchedule, NothingIsLostWhereNothingBreaks) {
  for (std::uint32_t seed = 1; seed <= Seeds() / 4; ++seed) {
    LockWorld world({.seed = seed, .faults = false, .clients = 4});
    world.Run();
    ASSERT_EQ(world.Verdict(), "") << "seed " << seed;
    ASSERT_EQ(world.Stuck(), "") << "seed " << seed;
    ASSERT_EQ(world.counts().lost, 0U) << "seed " << seed;
  }
}

class PlantedInLocks : public testing::TestWithParam<LockBug> {};

TEST_P(PlantedInLocks, IsNoticed) {
  int noticed = 0;
  std::uint32_t seed = 0;
  while (noticed < 2 && seed < 2000) {
    LockWorld world({.seed = ++seed, .bug = GetParam()});
    world.Run();
    if (!world.Verdict().empty() || !world.Stuck().empty()) ++noticed;
  }
  RecordProperty("seeds", static_cast<int>(seed));
  EXPECT_EQ(noticed, 2);
}

INSTANTIATE_TEST_SUITE_P(LockSchedule, PlantedInLocks,
                         testing::Values(LockBug::kGivenAwayEarly, LockBug::kNoGrace,
                                         LockBug::kReclaimedAfterAnother,
                                         LockBug::kAnsweredByAnotherLife, LockBug::kNotReclaimed,
                                         LockBug::kNotAskedAgain));

}  // namespace
}  // namespace rdfs::coherence
