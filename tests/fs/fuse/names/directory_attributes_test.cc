// A directory's attributes are kept only when they were told behind its last change.
#include "fs/fuse/names/directory_attributes.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

constexpr NodeId kDirectory = 7;
const TimePoint kNow{std::chrono::hours(1)};

client::Attributes Sized(std::uint64_t size) {
  client::Attributes attributes{};
  attributes.attr.size = size;
  attributes.expires = kNow + std::chrono::seconds(1);
  return attributes;
}

TEST(DirectoryAttributes, AreThoseThatTheChangesAnswerToldUntilTheyExpire) {
  DirectoryAttributes known;
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0));
  const std::uint64_t change = known.Begin(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0));
  known.Keep(kDirectory, change, Sized(1));
  known.Settle(kDirectory, change);
  ASSERT_TRUE(known.Find(kDirectory, kNow, 0));
  EXPECT_EQ(known.Find(kDirectory, kNow, 0)->attr.size, 1U);
  EXPECT_FALSE(known.Find(kDirectory + 1, kNow, 0));
  EXPECT_FALSE(known.Find(kDirectory, kNow + std::chrono::seconds(1), 0));
}

TEST(DirectoryAttributes, AChangeOfWhichNothingWasToldLeavesRoomForWhatIsAsked) {
  DirectoryAttributes known;
  const std::uint64_t change = known.Begin(kDirectory);
  known.Settle(kDirectory, change);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0));
  known.Keep(kDirectory, change, Sized(1));
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0)) << "told too late";
  known.Remember(kDirectory, 6, Sized(4));
  EXPECT_EQ(known.Find(kDirectory, kNow, 6)->attr.size, 4U);
}

TEST(DirectoryAttributes, AnotherChangeMakesThemUntrue) {
  DirectoryAttributes known;
  const std::uint64_t first = known.Begin(kDirectory);
  known.Keep(kDirectory, first, Sized(1));
  known.Settle(kDirectory, first);
  const std::uint64_t second = known.Begin(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0));
  known.Keep(kDirectory, first, Sized(1));
  known.Settle(kDirectory, first);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0)) << "of the change before";
  known.Keep(kDirectory, second, Sized(2));
  known.Settle(kDirectory, second);
  EXPECT_EQ(known.Find(kDirectory, kNow, 0)->attr.size, 2U);
  known.Forget(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0));
  known.Keep(kDirectory, second, Sized(2));
  EXPECT_FALSE(known.Find(kDirectory, kNow, 0)) << "recalled meanwhile";
}

TEST(DirectoryAttributes, WhatIsRememberedCountsUntilAnythingChanges) {
  DirectoryAttributes known;
  known.Remember(kDirectory, 5, Sized(3));
  EXPECT_EQ(known.Find(kDirectory, kNow, 5)->attr.size, 3U);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 6));
  known.Remember(kDirectory, 6, Sized(4));
  EXPECT_EQ(known.Find(kDirectory, kNow, 6)->attr.size, 4U);
  EXPECT_FALSE(known.Find(kDirectory, kNow + std::chrono::seconds(1), 6));
  known.Forget(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow, 6));
  (void)known.Begin(kDirectory);
  known.Remember(kDirectory, 6, Sized(4));
  EXPECT_FALSE(known.Find(kDirectory, kNow, 6)) << "from before a change that is under way";
}

TEST(DirectoryAttributes, AreBounded) {
  DirectoryAttributes known;
  for (NodeId node = 1; node <= 3 * DirectoryAttributes::kMost; ++node) {
    const std::uint64_t change = known.Begin(node);
    known.Keep(node, change, Sized(node));
    known.Settle(node, change);
    EXPECT_EQ(known.Find(node, kNow, 0)->attr.size, node);
  }
  EXPECT_FALSE(known.Find(1, kNow, 0));
}

}  // namespace
}  // namespace rdfs::fs::fuse
