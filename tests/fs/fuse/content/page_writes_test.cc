// Which reads into the kernel's pages have to wait for a write, or be asked for again.
#include "fs/fuse/content/page_writes.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

constexpr NodeId kFile = 7;
constexpr NodeId kOther = 8;

TEST(PageWrites, AReadWaitsForAWriteToAPageOfIts) {
  PageWrites writes;
  EXPECT_EQ(writes.UnderWay(kFile, 0, 4096), 0U);
  writes.Begin(2, kFile, 4100, 8);
  EXPECT_EQ(writes.UnderWay(kFile, 0, 4096), 0U);
  EXPECT_EQ(writes.UnderWay(kOther, 4096, 4096), 0U);
  const PageWrites::Number write = writes.UnderWay(kFile, 8191, 1);  // of the same page
  ASSERT_NE(write, 0U);
  EXPECT_FALSE(writes.IsOver(write));
  writes.End(2);
  EXPECT_TRUE(writes.IsOver(write));
  EXPECT_EQ(writes.UnderWay(kFile, 8191, 1), 0U);
}

TEST(PageWrites, OneThatIsTakenUpAgainIsTheSame) {
  PageWrites writes;
  writes.Begin(2, kFile, 0, 1);
  const PageWrites::Number write = writes.UnderWay(kFile, 0, 1);
  writes.Begin(2, kFile, 0, 1);
  EXPECT_EQ(writes.UnderWay(kFile, 0, 1), write);
  writes.End(2);
  writes.End(2);
  writes.End(4);  // not known
  EXPECT_TRUE(writes.IsOver(write));
}

TEST(PageWrites, WhatWasReadWhileAWriteBeganIsNotTold) {
  PageWrites writes;
  const PageWrites::Number before = writes.ReadBegins();
  const PageWrites::Number elsewhere = writes.ReadBegins();
  writes.Begin(2, kFile, 4096, 4096);
  writes.End(2);
  const PageWrites::Number behind = writes.ReadBegins();
  EXPECT_TRUE(writes.ReadEnds(elsewhere, kFile, 0, 4096));
  EXPECT_FALSE(writes.ReadEnds(before, kFile, 0, 8192));
  EXPECT_TRUE(writes.ReadEnds(behind, kFile, 0, 8192));
}

TEST(PageWrites, WritesAreForgottenBehindTheReadsThatMetThem) {
  PageWrites writes;
  const PageWrites::Number first = writes.ReadBegins();
  writes.Begin(2, kFile, 0, 1);
  writes.Begin(4, kFile, 4096, 1);
  writes.End(2);
  const PageWrites::Number second = writes.ReadBegins();
  writes.End(4);  // began before the second read
  EXPECT_FALSE(writes.ReadEnds(first, kFile, 4096, 1));
  EXPECT_TRUE(writes.ReadEnds(second, kFile, 0, 8192));
  EXPECT_EQ(writes.remembered(), 0U);
}

// Of a read that takes longer than so many writes nobody knows any more: it is asked for again.
TEST(PageWrites, RemembersABoundedNumber) {
  PageWrites writes;
  const PageWrites::Number read = writes.ReadBegins();
  for (std::uint64_t unique = 2; unique < 20'000; unique += 2) {
    writes.Begin(unique, kOther, 0, 1);
    writes.End(unique);
  }
  EXPECT_LE(writes.remembered(), PageWrites::kMost);
  EXPECT_FALSE(writes.ReadEnds(read, kFile, 0, 1));
  EXPECT_EQ(writes.remembered(), 0U);
  EXPECT_TRUE(writes.ReadEnds(writes.ReadBegins(), kFile, 0, 1));
}

}  // namespace
}  // namespace rdfs::fs::fuse
