// A directory's attributes are kept only when they were told behind its last change.
#include "fs/fuse/directory_attributes.h"

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

TEST(DirectoryAttributes, AreThoseBehindTheChangeUntilTheyExpire) {
  DirectoryAttributes known;
  EXPECT_FALSE(known.Find(kDirectory, kNow));
  const std::uint64_t change = known.Begin(kDirectory);
  known.Settle(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow));
  known.Keep(kDirectory, change, Sized(1));
  ASSERT_TRUE(known.Find(kDirectory, kNow));
  EXPECT_EQ(known.Find(kDirectory, kNow)->attr.size, 1U);
  EXPECT_FALSE(known.Find(kDirectory + 1, kNow));
  EXPECT_FALSE(known.Find(kDirectory, kNow + std::chrono::seconds(1)));
}

TEST(DirectoryAttributes, ToldBeforeTheChangeWasAnsweredDoNotCount) {
  DirectoryAttributes known;
  const std::uint64_t change = known.Begin(kDirectory);
  known.Keep(kDirectory, change, Sized(1));
  known.Settle(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow));
}

TEST(DirectoryAttributes, AnotherChangeMakesThemUntrue) {
  DirectoryAttributes known;
  const std::uint64_t first = known.Begin(kDirectory);
  known.Settle(kDirectory);
  known.Keep(kDirectory, first, Sized(1));
  const std::uint64_t second = known.Begin(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow));
  known.Settle(kDirectory);
  known.Keep(kDirectory, first, Sized(1));
  EXPECT_FALSE(known.Find(kDirectory, kNow));
  known.Keep(kDirectory, second, Sized(2));
  EXPECT_EQ(known.Find(kDirectory, kNow)->attr.size, 2U);
  known.Forget(kDirectory);
  EXPECT_FALSE(known.Find(kDirectory, kNow));
  known.Keep(kDirectory, second, Sized(2));
  EXPECT_FALSE(known.Find(kDirectory, kNow));
}

TEST(DirectoryAttributes, AreBounded) {
  DirectoryAttributes known;
  for (NodeId node = 1; node <= 3 * DirectoryAttributes::kMost; ++node) {
    const std::uint64_t change = known.Begin(node);
    known.Settle(node);
    known.Keep(node, change, Sized(node));
    EXPECT_EQ(known.Find(node, kNow)->attr.size, node);
  }
  EXPECT_FALSE(known.Find(1, kNow));
}

}  // namespace
}  // namespace rdfs::fs::fuse
