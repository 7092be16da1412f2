#include "fs/fuse/unlocks.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

TEST(UnlocksTest, WhoWaitsDoesSoForThoseThatWereThere) {
  Unlocks unlocks;
  EXPECT_FALSE(unlocks.any());
  unlocks.Begin(7);
  unlocks.Begin(9);
  const auto these = unlocks.UnderWay();
  unlocks.Begin(11);
  unlocks.End(9);
  EXPECT_FALSE(unlocks.AreOver(these));
  unlocks.End(7);
  EXPECT_TRUE(unlocks.AreOver(these));
  EXPECT_TRUE(unlocks.any());
  EXPECT_TRUE(unlocks.AreOver({}));
}

TEST(UnlocksTest, OneThatIsTakenUpAgainIsOne) {
  Unlocks unlocks;
  unlocks.Begin(7);
  unlocks.Begin(7);
  unlocks.End(8);
  EXPECT_TRUE(unlocks.any());
  unlocks.End(7);
  EXPECT_FALSE(unlocks.any());
}

}  // namespace
}  // namespace rdfs::fs::fuse
