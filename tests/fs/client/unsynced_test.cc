// Who is told that a crash of the server's host may have lost what was written.
#include "fs/client/unsynced.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdfs::fs::client {
namespace {

constexpr std::uint64_t kBefore = 1, kAfter = 2, kLater = 3;  // crashes

class UnsyncedTest : public testing::Test {
 protected:
  // An fsync that nothing overtakes.
  bool SyncFails(UnsyncedWrites::Told& told, std::uint64_t verifier) {
    writes_.Synced(verifier, writes_.noted());
    const int error = writes_.TakeLoss(told);
    EXPECT_TRUE(error == 0 || error == EIO) << error;
    return error != 0;
  }
  UnsyncedWrites writes_;
  UnsyncedWrites::Told writer_ = writes_.Opened(), other_ = writes_.Opened();
};

TEST_F(UnsyncedTest, NothingWrittenIsNothingLost) {
  EXPECT_FALSE(SyncFails(writer_, kBefore));
  writes_.ServerHas(kAfter);
  EXPECT_FALSE(SyncFails(writer_, kAfter));
  EXPECT_EQ(writes_.LossSince(writer_), 0);
}

TEST_F(UnsyncedTest, WhatIsSyncedIsNotLost) {
  writes_.Wrote(kBefore, writer_);
  EXPECT_FALSE(SyncFails(writer_, kBefore));
  EXPECT_FALSE(SyncFails(writer_, kAfter));
}

// Also verifiers of 0.
TEST_F(UnsyncedTest, AnFsyncOfAnotherVerifierFailsOnce) {
  writes_.Wrote(0, writer_);
  EXPECT_TRUE(SyncFails(writer_, kAfter));
  EXPECT_FALSE(SyncFails(writer_, kAfter));
}

TEST_F(UnsyncedTest, AWriteOfAnotherVerifierTellsOfTheLossOfThoseBefore) {
  writes_.Wrote(kBefore, writer_);
  writes_.Wrote(kAfter, writer_);
  writes_.Wrote(kAfter, writer_);
  EXPECT_TRUE(SyncFails(writer_, kAfter));
  EXPECT_FALSE(SyncFails(writer_, kAfter));
}

TEST_F(UnsyncedTest, EachThatWasOpenIsToldOnce) {
  writes_.Wrote(kBefore, writer_);
  EXPECT_TRUE(SyncFails(other_, kAfter));
  EXPECT_FALSE(SyncFails(other_, kAfter));
  EXPECT_TRUE(SyncFails(writer_, kAfter));
  EXPECT_FALSE(SyncFails(writer_, kAfter));
}

TEST_F(UnsyncedTest, WhatNobodyWasToldTheNextToOpenIs) {
  writes_.Wrote(kBefore, writer_);
  writes_.ServerHas(kAfter);
  UnsyncedWrites::Told next = writes_.Opened();
  EXPECT_TRUE(SyncFails(next, kAfter));
  UnsyncedWrites::Told last = writes_.Opened();
  EXPECT_FALSE(SyncFails(last, kAfter));
}

TEST_F(UnsyncedTest, EachLossIsTold) {
  writes_.Wrote(kBefore, writer_);
  EXPECT_TRUE(SyncFails(writer_, kAfter));
  writes_.Wrote(kAfter, writer_);
  EXPECT_TRUE(SyncFails(writer_, kLater));
  EXPECT_TRUE(SyncFails(other_, kLater));
  EXPECT_FALSE(SyncFails(other_, kLater));
}

TEST_F(UnsyncedTest, AnFsyncCoversOnlyWhatWasThereWhenItWasSent) {
  writes_.Wrote(kBefore, writer_);
  const std::uint64_t sent = writes_.noted();
  writes_.Wrote(kBefore, writer_);
  writes_.Synced(kBefore, sent);
  EXPECT_EQ(writes_.TakeLoss(writer_), 0);
  EXPECT_TRUE(SyncFails(writer_, kAfter));
}

// The crash came between the two: what it lost is told, what came behind it is not lost.
TEST_F(UnsyncedTest, WhatIsWrittenBehindACrashWhileAnFsyncIsUnderWayStays) {
  writes_.Wrote(kBefore, writer_);
  const std::uint64_t sent = writes_.noted();
  writes_.Wrote(kAfter, writer_);
  writes_.Synced(kAfter, sent);
  EXPECT_EQ(writes_.TakeLoss(writer_), EIO);
  writes_.ServerHas(kAfter);
  EXPECT_EQ(writes_.TakeLoss(writer_), 0);
  writes_.ServerHas(kLater);
  EXPECT_EQ(writes_.TakeLoss(writer_), EIO);
}

TEST_F(UnsyncedTest, EachCloseOfTheWriterTellsUntilFsyncHas) {
  writes_.Wrote(kBefore, writer_);
  EXPECT_EQ(writes_.LossSince(writer_), 0);
  writes_.ServerHas(kAfter);
  EXPECT_EQ(writes_.LossSince(writer_), EIO);
  EXPECT_EQ(writes_.LossSince(writer_), EIO);
  EXPECT_EQ(writes_.LossSince(other_), 0);  // has written nothing
  EXPECT_TRUE(SyncFails(writer_, kAfter));
  EXPECT_EQ(writes_.LossSince(writer_), 0);
}

TEST_F(UnsyncedTest, WhoWritesBehindTheCrashHasLostNothing) {
  writes_.Wrote(kBefore, writer_);
  writes_.Wrote(kAfter, other_);
  EXPECT_EQ(writes_.LossSince(writer_), EIO);
  EXPECT_EQ(writes_.LossSince(other_), 0);
}

TEST_F(UnsyncedTest, AWriteThatFailedWhenItWasSaidToBeDoneIsALoss) {
  writes_.Failed(EFBIG, writer_);
  EXPECT_EQ(writes_.LossSince(writer_), EFBIG);
  EXPECT_EQ(writes_.LossSince(other_), 0);
  UnsyncedWrites::Told next = writes_.Opened();
  for (UnsyncedWrites::Told* told : {&next, &other_, &writer_}) {
    EXPECT_EQ(writes_.TakeLoss(*told), EFBIG);
    EXPECT_EQ(writes_.TakeLoss(*told), 0);
  }
  EXPECT_EQ(writes_.LossSince(writer_), 0);
}

}  // namespace
}  // namespace rdfs::fs::client
