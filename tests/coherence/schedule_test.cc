// Seeded schedules of whole systems: what every process saw must have been possible in one order,
// nothing may hang, and a planted bug must not go unnoticed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/coherence/world.h"

namespace rdfs::coherence {
namespace {

using std::chrono::milliseconds;

// Many more with ./check --full.
std::uint32_t Seeds() {
  const char* const asked = std::getenv("RDFS_COHERENCE_SEEDS");
  return asked == nullptr ? 100 : static_cast<std::uint32_t>(std::strtoul(asked, nullptr, 10));
}

TEST(Schedule, EverythingIsLinearizableUnderFaults) {
  std::uint64_t hits = 0, recalls = 0, expired = 0, early = 0;
  for (std::uint32_t seed = 1; seed <= Seeds(); ++seed) {
    World world({.seed = seed});
    world.Run();
    ASSERT_EQ(world.Verdict(), "") << "seed " << seed;
    ASSERT_EQ(world.Stuck(), "") << "seed " << seed;
    hits += world.cache_hits();
    recalls += world.recalls();
    expired += world.expired_waits();
    early += world.early_writes();
  }
  // The schedules are about something.
  EXPECT_GT(hits, Seeds() * 10U);
  EXPECT_GT(recalls, Seeds() * 10U);
  EXPECT_GT(expired, Seeds() / 10U);
  EXPECT_GT(early, Seeds() * 2U);
}

TEST(Schedule, NothingWaitsForALeaseToRunOutWhereNothingIsLost) {
  std::uint64_t recalls = 0;
  for (std::uint32_t seed = 1; seed <= Seeds() / 3; ++seed) {
    World world({.seed = seed, .faults = false, .clients = 6, .processes = 3});
    world.Run();
    ASSERT_EQ(world.Verdict(), "") << "seed " << seed;
    ASSERT_EQ(world.Stuck(), "") << "seed " << seed;
    ASSERT_EQ(world.expired_waits(), 0U) << "seed " << seed;
    recalls += world.recalls();
  }
  EXPECT_GT(recalls, Seeds() * 10U);
}

TEST(Schedule, WithoutEpochsClientsInOneDirectoryWaitForALease) {
  std::uint64_t expired = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    World world({.seed = seed, .faults = false, .epochs = false, .clients = 6, .processes = 3});
    world.Run();
    ASSERT_EQ(world.Verdict(), "") << "seed " << seed;
    ASSERT_EQ(world.Stuck(), "") << "seed " << seed;
    expired += world.expired_waits();
  }
  EXPECT_GT(expired, 0U);
}

class Planted : public testing::TestWithParam<Bug> {};

TEST_P(Planted, IsNoticed) {
  int noticed = 0;
  std::uint32_t seed = 0;
  WorldOptions options{.bug = GetParam()};
  if (GetParam() == Bug::kLeaseFromTheAnswer) {
    // Shows where answers are slow and recalls are lost.
    options.lost_one_in = 6;
    options.slow_one_in = 2;
  }
  if (GetParam() == Bug::kForgottenOnTheWay) {
    // Shows where most leases end before anybody else asks.
    options.slow_one_in = 4;
    options.write_lease = milliseconds(5);
  }
  while (noticed < 2 && seed < 2000) {
    options.seed = ++seed;
    World world(options);
    world.Run();
    if (!world.Verdict().empty()) ++noticed;
  }
  RecordProperty("seeds", static_cast<int>(seed));
  EXPECT_EQ(noticed, 2);
}

INSTANTIATE_TEST_SUITE_P(Schedule, Planted,
                         testing::Values(Bug::kRecallSkipped, Bug::kLeaseFromTheAnswer,
                                         Bug::kBelievedAfterRecall, Bug::kAppliedBeforeAnswer,
                                         Bug::kGrantedDuringChange, Bug::kForgottenLeases,
                                         Bug::kAcknowledgedTooSoon, Bug::kLookedWithoutAsking,
                                         Bug::kHeldBackNothing, Bug::kForgottenOnTheWay,
                                         Bug::kOvertaken));

}  // namespace
}  // namespace rdfs::coherence
