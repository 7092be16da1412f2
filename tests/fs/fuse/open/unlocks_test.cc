#include "fs/fuse/open/unlocks.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

TEST(UnlocksTest, WhoWaitsDoesSoForThoseOfTheFileThatWereThere) {
  Unlocks unlocks;
  EXPECT_FALSE(unlocks.any(1));
  unlocks.Begin(7, 1);
  unlocks.Begin(9, 1);
  unlocks.Begin(10, 2);
  const auto these = unlocks.UnderWay(1);
  unlocks.Begin(11, 1);
  unlocks.End(9);
  EXPECT_FALSE(unlocks.AreOver(these));
  unlocks.End(7);
  EXPECT_TRUE(unlocks.AreOver(these));
  EXPECT_TRUE(unlocks.any(1));
  EXPECT_TRUE(unlocks.any(2));
  EXPECT_FALSE(unlocks.any(3));
  EXPECT_TRUE(unlocks.AreOver({}));
}

TEST(UnlocksTest, OneThatIsTakenUpAgainIsOne) {
  Unlocks unlocks;
  unlocks.Begin(7, 1);
  unlocks.Begin(7, 1);
  unlocks.End(8);
  EXPECT_TRUE(unlocks.any(1));
  unlocks.End(7);
  EXPECT_FALSE(unlocks.any(1));
}

}  // namespace
}  // namespace rdfs::fs::fuse
