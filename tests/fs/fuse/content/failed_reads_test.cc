#include "fs/fuse/content/failed_reads.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kPage = 4096;

class FailedReadsTest : public testing::Test {
 protected:
  [[nodiscard]] bool Again(std::uint64_t page, std::uint64_t pages = 1) const {
    return reads_.IsAskedAgain(
        {.node = 5, .thread = 77, .offset = page * kPage, .length = pages * kPage}, clock_.Now());
  }

  FailedReads reads_;
  ManualClock clock_;
};

TEST_F(FailedReadsTest, APageOfAFailedReadaheadIsAskedForAgain) {
  EXPECT_FALSE(Again(10));
  reads_.Failed({.node = 5, .thread = 77, .offset = 10 * kPage, .length = 32 * kPage},
                clock_.Now());
  EXPECT_TRUE(Again(10));
  EXPECT_TRUE(Again(10, 32));
  clock_.Advance(FailedReads::kAgain - milliseconds(1));
  EXPECT_TRUE(Again(41)) << "and by a fault once more";
  clock_.Advance(milliseconds(1));
  EXPECT_FALSE(Again(41));
}

TEST_F(FailedReadsTest, WhatWasNotWaitedForIsNot) {
  const FailedReads::Read failed{
      .node = 5, .thread = 77, .offset = 10 * kPage, .length = 2 * kPage};
  reads_.Failed(failed, clock_.Now());
  EXPECT_FALSE(Again(9));
  EXPECT_FALSE(Again(9, 2));
  EXPECT_FALSE(Again(11, 2));
  EXPECT_FALSE(Again(12));
  FailedReads::Read other = failed;
  other.node = 6;
  EXPECT_FALSE(reads_.IsAskedAgain(other, clock_.Now()));
  other = failed;
  other.thread = 78;
  EXPECT_FALSE(reads_.IsAskedAgain(other, clock_.Now()));
  other.thread = 0;
  reads_.Failed(other, clock_.Now());
  EXPECT_FALSE(reads_.IsAskedAgain(other, clock_.Now())) << "may be another one";
  other = failed;
  other.offset = UINT64_MAX - kPage;
  EXPECT_FALSE(reads_.IsAskedAgain(other, clock_.Now()));
}

TEST_F(FailedReadsTest, TheLastOnesAreRemembered) {
  for (std::uint64_t page = 0; page <= FailedReads::kMost; ++page) {
    reads_.Failed({.node = 5, .thread = 77, .offset = page * kPage, .length = kPage}, clock_.Now());
  }
  EXPECT_FALSE(Again(0));
  EXPECT_TRUE(Again(1));
  EXPECT_TRUE(Again(FailedReads::kMost));
}

}  // namespace
}  // namespace rdfs::fs::fuse
