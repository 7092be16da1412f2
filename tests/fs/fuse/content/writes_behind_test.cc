#include "fs/fuse/content/writes_behind.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

constexpr NodeId kFile = 7, kOther = 8;

TEST(WritesBehind, NobodyWaitsForNothing) {
  WritesBehind behind;
  EXPECT_FALSE(behind.any());
  EXPECT_EQ(behind.NowFor(kFile).last, 0U);
  EXPECT_TRUE(behind.IsOver(behind.NowFor(WritesBehind::kAnyNode)));
}

TEST(WritesBehind, WhoComesLaterWaitsForThoseBefore) {
  WritesBehind behind;
  const auto first = behind.Begin(kFile, 0, 100);
  const auto second = behind.Begin(kFile, 100, 100);
  ASSERT_NE(first, 0U);
  ASSERT_NE(second, 0U);
  const auto wait = behind.NowFor(kFile);
  const auto later = behind.Begin(kFile, 200, 100);
  EXPECT_FALSE(behind.IsOver(wait));
  behind.End(second);
  EXPECT_FALSE(behind.IsOver(wait));
  behind.End(first);
  EXPECT_TRUE(behind.IsOver(wait)) << "it began behind";
  EXPECT_TRUE(behind.any());
  EXPECT_FALSE(behind.IsOver(behind.NowFor(WritesBehind::kAnyNode)));
  behind.End(later);
  behind.End(later);
  EXPECT_FALSE(behind.any());
}

TEST(WritesBehind, OtherFilesAreNotWaitedFor) {
  WritesBehind behind;
  ASSERT_NE(behind.Begin(kFile, 0, 100), 0U);
  EXPECT_EQ(behind.NowFor(kOther).last, 0U);
  EXPECT_NE(behind.NowFor(WritesBehind::kAnyNode).last, 0U);
  EXPECT_NE(behind.Begin(kOther, 0, 100), 0U);
}

TEST(WritesBehind, OnePlaceIsWrittenByOneAtATime) {
  WritesBehind behind;
  const auto first = behind.Begin(kFile, 100, 100);
  for (const std::uint64_t offset : {1U, 100U, 150U, 199U}) {
    EXPECT_EQ(behind.Begin(kFile, offset, 100), 0U) << offset;
  }
  EXPECT_NE(behind.Begin(kFile, 0, 100), 0U);
  EXPECT_NE(behind.Begin(kFile, 200, 100), 0U);
  behind.End(first);
  EXPECT_NE(behind.Begin(kFile, 150, 50), 0U);
}

TEST(WritesBehind, AreBounded) {
  WritesBehind behind;
  std::uint64_t at = 0;
  while (behind.Begin(kFile, at, 1 << 20) != 0) at += 1 << 20;
  EXPECT_EQ(at, 2U << 20);
  WritesBehind small;
  std::size_t count = 0;
  while (small.Begin(kFile, count, 1) != 0) ++count;
  EXPECT_EQ(count, 32U);
}

}  // namespace
}  // namespace rdfs::fs::fuse
