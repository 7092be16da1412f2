#include "fs/fuse/content/short_reads.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rdfs::fs::fuse {
namespace {

// As many turns as bring one try, in each of which so many short reads are there; how many the
// last turn of them but the try may take.
int AfterATry(ShortReads& reads, int there) {
  int most = 0;
  for (unsigned turn = 0; turn < ShortReads::kTryEvery; ++turn) {
    const int may = reads.Begin();
    if (may != ShortReads::kMost) most = may;
    reads.End(std::min(may, there));
  }
  return most;
}

TEST(ShortReadsTest, OneUntilATryHasFoundMore) {
  ShortReads reads(/*one_processor=*/true);
  for (unsigned turn = 1; turn < ShortReads::kTryEvery; ++turn) {
    EXPECT_EQ(reads.Begin(), 1);
    reads.End(1);
  }
  EXPECT_EQ(reads.Begin(), ShortReads::kMost);
  reads.End(5);
  EXPECT_EQ(reads.Begin(), 5);
}

TEST(ShortReadsTest, OfOneProgramWithOneThreadItStaysOneByOne) {
  ShortReads reads(true);
  EXPECT_EQ(AfterATry(reads, 1), 1);
  EXPECT_EQ(AfterATry(reads, 1), 1);
}

TEST(ShortReadsTest, HalfOfThemOnSeveralProcessors) {
  ShortReads reads(/*one_processor=*/false);
  for (const auto& [there, together] :
       {std::pair{1, 1}, {2, 1}, {3, 1}, {4, 2}, {16, 8}, {99, 8}}) {
    (void)AfterATry(reads, there);
    EXPECT_EQ(AfterATry(reads, there), together) << there;
  }
}

TEST(ShortReadsTest, FewerAgainWhenTheyBecomeFewer) {
  ShortReads reads(true);
  (void)AfterATry(reads, 15);
  EXPECT_EQ(AfterATry(reads, 2), 15) << "until the next try";
  EXPECT_EQ(AfterATry(reads, 2), 2);
}

TEST(ShortReadsTest, TurnsWithoutAnyChangeNothing) {
  ShortReads reads(true);
  (void)AfterATry(reads, 8);
  (void)AfterATry(reads, 0);
  EXPECT_EQ(AfterATry(reads, 0), 8);
}

}  // namespace
}  // namespace rdfs::fs::fuse
