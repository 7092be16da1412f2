// Seeded schedules of the switch-over in virtual time. What must hold in each: the bytes come out
// as they went in, nobody sleeps for ever, and a reset happens only where a process died or left
// with bytes in the ring.
#include <gtest/gtest.h>

#include "tests/tools/sock/switch_world.h"

namespace rdfs::sock {
namespace {

Sum RunSeeds(const Plan& plan, unsigned seeds) { return RunSeedsOf<World>(plan, seeds); }

TEST(SwitchSchedule, OneWriterAndOneReader) {
  const Sum sum = RunSeeds({}, 400);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs * 2);
  EXPECT_GT(sum.through_ring, sum.runs * 4000U);
}

TEST(SwitchSchedule, SharedByForkAtBothEnds) {
  const Sum sum = RunSeeds({.writers = 3, .readers = 2}, 400);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs * 2);
}

TEST(SwitchSchedule, BothEndsShutAtOnce) {
  const Sum sum = RunSeeds({.writers = 2, .readers = 2, .refuses = true}, 400);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs);
}

TEST(SwitchSchedule, TheWritersGoOnWithoutTheShim) {
  const Sum sum = RunSeeds({.writers = 2, .readers = 2, .writer_leaves = true}, 300);
  EXPECT_EQ(sum.complete, sum.runs);
}

TEST(SwitchSchedule, TheReadersGoOnWithoutTheShim) {
  const Sum sum = RunSeeds({.writers = 2, .readers = 2, .reader_leaves = true}, 600);
  // The rest ended by a reset, because TCP had carried bytes behind those in the ring.
  EXPECT_EQ(sum.complete + sum.broken, sum.runs);
  EXPECT_GT(sum.complete, sum.runs / 2);
  EXPECT_GT(sum.resent, 0U);
}

TEST(SwitchSchedule, BothEndsGoOnWithoutTheShim) {
  const Sum sum =
      RunSeeds({.writers = 2, .readers = 2, .reader_leaves = true, .writer_leaves = true}, 1000);
  EXPECT_EQ(sum.complete + sum.broken, sum.runs);
  EXPECT_GT(sum.complete, sum.runs / 2);
  EXPECT_GT(sum.resent, 0U);
}

TEST(SwitchSchedule, ProcessesDieAtAnyStep) {
  const Sum sum = RunSeeds({.writers = 4, .readers = 4, .kills = true, .refuses = true}, 1500);
  EXPECT_GT(sum.complete, sum.runs / 2);
}

TEST(SwitchSchedule, ProcessesDieWhileOneEndLeaves) {
  const Sum sum = RunSeeds(
      {.writers = 3, .readers = 3, .kills = true, .reader_leaves = true, .writer_leaves = true},
      1000);
  EXPECT_GT(sum.complete, 0U);
}

TEST(SwitchSchedule, CarriedBetweenHosts) {
  const Sum sum = RunSeeds({.writers = 2, .readers = 2, .carried = true}, 200);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs);
  EXPECT_GT(sum.through_ring, sum.runs * 4000U);
}

TEST(SwitchSchedule, CarriedAndRefused) {
  const Sum sum = RunSeeds({.writers = 2, .readers = 2, .refuses = true, .carried = true}, 200);
  EXPECT_EQ(sum.complete, sum.runs);
}

TEST(SwitchSchedule, CarriedAndTheWritersLeave) {
  const Sum sum =
      RunSeeds({.writers = 2, .readers = 2, .writer_leaves = true, .carried = true}, 150);
  EXPECT_EQ(sum.complete, sum.runs);
}

TEST(SwitchSchedule, CarriedAndTheReadersLeave) {
  const Sum sum =
      RunSeeds({.writers = 2, .readers = 2, .reader_leaves = true, .carried = true}, 300);
  EXPECT_EQ(sum.complete + sum.broken, sum.runs);
  EXPECT_GT(sum.complete, sum.runs / 3);
  EXPECT_GT(sum.resent, 0U);
}

TEST(SwitchSchedule, CarriedWhileProcessesDie) {
  const Sum sum =
      RunSeeds({.writers = 4, .readers = 4, .kills = true, .refuses = true, .carried = true}, 400);
  EXPECT_GT(sum.complete, sum.runs / 2);
}

// TCP goes on where nothing is owed; else it is a reset, and at the end, too, where nobody can say
// any more that all has come.
TEST(SwitchSchedule, CarriersDie) {
  const Sum sum =
      RunSeeds({.writers = 2, .readers = 2, .carried = true, .carriers_die = true}, 400);
  EXPECT_GT(sum.complete, 0U);
  EXPECT_GT(sum.broken, 0U);
  EXPECT_EQ(sum.resent, 0U);
}

TEST(SwitchSchedule, CarriersDieWhileProcessesDieAndLeave) {
  (void)RunSeeds({.writers = 3,
                  .readers = 3,
                  .kills = true,
                  .reader_leaves = true,
                  .writer_leaves = true,
                  .refuses = true,
                  .carried = true,
                  .carriers_die = true},
                 400);
}

// A driver that breaks a rule must be found out.
class SwitchPlanted : public testing::TestWithParam<Planted> {};

TEST_P(SwitchPlanted, IsFound) {
  const Plan shared{.writers = 2, .readers = 2, .planted = GetParam()};
  const Plan small{.bytes = 2000, .planted = GetParam()};
  for (unsigned seed = 1; seed <= 8000; ++seed) {
    Plan plan = seed % 2 == 0 ? shared : small;
    plan.seed = seed;
    if (!World(plan).Run().wrong.empty()) return;
  }
  FAIL() << "no schedule noticed";
}

// The same where ends leave, and processes die.
class LeavingPlanted : public testing::TestWithParam<Planted> {};

TEST_P(LeavingPlanted, IsFound) {
  for (unsigned seed = 1; seed <= 8000; ++seed) {
    const Plan plan{.seed = seed,
                    .writers = 1 + seed % 2,
                    .readers = 1 + seed / 2 % 2,
                    .kills = GetParam() == Planted::kTrustsTakenBack,
                    .reader_leaves = GetParam() == Planted::kLeavesRing,
                    .writer_leaves = true,
                    .planted = GetParam()};
    if (!World(plan).Run().wrong.empty()) return;
  }
  FAIL() << "no schedule noticed";
}

INSTANTIATE_TEST_SUITE_P(Rules, LeavingPlanted,
                         testing::Values(Planted::kLeavesRing, Planted::kTakesBlindly,
                                         Planted::kTrustsTakenBack));

INSTANTIATE_TEST_SUITE_P(Rules, SwitchPlanted,
                         testing::Values(Planted::kEndSeenLast, Planted::kOpensAnywhere,
                                         Planted::kArmsAfterLooking, Planted::kWrongPosition,
                                         Planted::kNoLock, Planted::kStaleConsumed,
                                         Planted::kBellForAll));

// The same for carriers, and for the ends of what they carry.
class CarriedPlanted : public testing::TestWithParam<Planted> {};

TEST_P(CarriedPlanted, IsFound) {
  const Planted planted = GetParam();
  const bool dies = planted == Planted::kLostIsGone || planted == Planted::kLostPasses;
  for (unsigned seed = 1; seed <= 8000; ++seed) {
    const Plan plan{.seed = seed,
                    .bytes = seed % (dies ? 2 : 8) == 0 ? 40'000U : 2000U,
                    .writers = 1 + seed / 2 % 2,
                    .readers = 1 + seed / 4 % 2,
                    .kills = planted == Planted::kReturnedEarly,
                    .reader_leaves = planted == Planted::kReturnedEarly,
                    .refuses = planted == Planted::kWishShuts,
                    .carried = true,
                    .carriers_die = dies,
                    .planted = planted};
    if (!World(plan).Run().wrong.empty()) return;
  }
  FAIL() << "no schedule noticed";
}

INSTANTIATE_TEST_SUITE_P(Rules, CarriedPlanted,
                         testing::Values(Planted::kEvenFirst, Planted::kOddLate,
                                         Planted::kQuietEarly, Planted::kNoFlush, Planted::kNoAsk,
                                         Planted::kCompleteLast, Planted::kWishShuts,
                                         Planted::kLostPasses, Planted::kLostIsGone,
                                         Planted::kReturnedEarly, Planted::kNotLookedAgain));

}  // namespace
}  // namespace rdfs::sock
