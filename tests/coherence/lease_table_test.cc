#include "server/lease_table.h"

#include <gtest/gtest.h>

namespace rdfs::server {
namespace {

using std::chrono::milliseconds;
using Changes = std::vector<LeaseTable::ChangeNumber>;

constexpr milliseconds kLease{1000};
constexpr LeaseTable::Session kAnn = 1, kBob = 2, kCarl = 3;
constexpr InodeKey kFile{.device = 1, .inode = 7};
constexpr InodeKey kOther{.device = 1, .inode = 8};

class LeaseTableTest : public testing::Test {
 protected:
  bool Grant(LeaseTable::Session session, const InodeKey& inode = kFile) {
    return table_.Grant(inode, session, table_.stamp(), now_, kLease);
  }
  LeaseTable::Begun Begin(LeaseTable::Session by, bool whole = false) {
    const LeaseTable::Target target{.inode = kFile, .whole = whole};
    return table_.Begin(by, {&target, 1}, now_);
  }
  // As many as a change by somebody else would ask.
  std::size_t Holders() {
    const LeaseTable::Begun begun = Begin(99);
    table_.End(begun.change);
    return begun.recalls.size();
  }

  TimePoint now_{std::chrono::hours(1)};
  LeaseTable table_{LeaseTable::Options{}};
};

TEST_F(LeaseTableTest, AChangeWaitsForEverybodyElse) {
  EXPECT_TRUE(Grant(kAnn));
  EXPECT_TRUE(Grant(kBob));
  EXPECT_TRUE(Grant(kCarl));
  const LeaseTable::Begun begun = Begin(kAnn);
  EXPECT_FALSE(begun.ready);
  ASSERT_EQ(begun.recalls.size(), 2U);
  EXPECT_EQ(table_.Acknowledge(kBob, begun.recalls[0].number), Changes{});
  EXPECT_TRUE(table_.IsWaiting(begun.change));
  EXPECT_EQ(table_.Acknowledge(kCarl, begun.recalls[1].number), Changes{begun.change});
  table_.End(begun.change);
}

TEST_F(LeaseTableTest, NobodyElseMeansNoWaiting) {
  EXPECT_TRUE(Grant(kAnn));
  EXPECT_TRUE(Begin(kAnn).ready);
}

TEST_F(LeaseTableTest, AChangeOfAnythingGivesNobodyElseALease) {
  const LeaseTable::Stamp before = table_.stamp();
  const LeaseTable::Begun begun = table_.Begin(kAnn, {}, now_);
  EXPECT_TRUE(begun.ready);
  EXPECT_FALSE(Grant(kBob));
  EXPECT_TRUE(Grant(kAnn));
  table_.End(begun.change);
  EXPECT_FALSE(table_.Grant(kFile, kBob, before, now_, kLease));
  EXPECT_TRUE(Grant(kBob));
}

TEST_F(LeaseTableTest, ALeaseLastsLongerHereThanAtTheClient) {
  EXPECT_TRUE(Grant(kAnn));
  now_ += kLease;
  const LeaseTable::Begun begun = Begin(kBob);
  EXPECT_FALSE(begun.ready);
  EXPECT_EQ(table_.Expire(now_), Changes{});
  now_ += kLease / 50;
  EXPECT_EQ(table_.Expire(now_), Changes{begun.change});
  EXPECT_EQ(table_.expired_waits(), 1U);
  table_.End(begun.change);
  EXPECT_TRUE(Begin(kBob).ready);
}

TEST_F(LeaseTableTest, WhatChangesIsNotLeasedToOthers) {
  const LeaseTable::Begun begun = Begin(kAnn);
  EXPECT_FALSE(Grant(kBob));
  EXPECT_TRUE(Grant(kBob, kOther));
  EXPECT_TRUE(Grant(kAnn));  // knows what it does
  table_.End(begun.change);
  EXPECT_TRUE(Grant(kBob));
}

TEST_F(LeaseTableTest, WhatWasGatheredBeforeAChangeIsNotLeasedBehindIt) {
  const LeaseTable::Stamp before = table_.stamp();
  table_.End(Begin(kAnn).change);
  EXPECT_FALSE(table_.Grant(kFile, kBob, before, now_, kLease));
  EXPECT_TRUE(table_.Grant(kFile, kAnn, before, now_, kLease));
  EXPECT_TRUE(Grant(kBob));
}

TEST_F(LeaseTableTest, NorWhenAllWasForgottenMeanwhileAndSomebodyElseHasALeaseNow) {
  const LeaseTable::Stamp before = table_.stamp();
  table_.End(Begin(kAnn).change);
  EXPECT_EQ(table_.inodes(), 0U);
  EXPECT_TRUE(Grant(kCarl));
  EXPECT_FALSE(table_.Grant(kFile, kBob, before, now_, kLease));
}

TEST_F(LeaseTableTest, AnOlderChangeBySomebodyElseIsNotForgotten) {
  EXPECT_TRUE(Grant(kCarl));  // keeps the entry
  const LeaseTable::Stamp before = table_.stamp();
  table_.End(Begin(kBob).change);
  table_.End(Begin(kAnn).change);
  EXPECT_FALSE(table_.Grant(kFile, kAnn, before, now_, kLease));
}

TEST_F(LeaseTableTest, ARecallLeavesTheRestOfALeaseUnlessItTakesAll) {
  EXPECT_TRUE(Grant(kAnn));
  LeaseTable::Begun begun = Begin(kBob);
  table_.Acknowledge(kAnn, begun.recalls.at(0).number);
  table_.End(begun.change);
  EXPECT_EQ(Holders(), 1U);
  begun = Begin(kBob, true);
  table_.Acknowledge(kAnn, begun.recalls.at(0).number);
  table_.End(begun.change);
  EXPECT_EQ(Holders(), 0U);
}

TEST_F(LeaseTableTest, OnlyWhoWasAskedCanAnswerAndOnlyOnce) {
  EXPECT_TRUE(Grant(kAnn));
  EXPECT_TRUE(Grant(kBob));
  const LeaseTable::Begun begun = Begin(kCarl);
  EXPECT_EQ(table_.Acknowledge(kCarl, begun.recalls[0].number), Changes{});
  EXPECT_EQ(table_.Acknowledge(kAnn, 12345), Changes{});
  EXPECT_EQ(table_.Acknowledge(kAnn, begun.recalls[0].number), Changes{});
  EXPECT_EQ(table_.Acknowledge(kAnn, begun.recalls[0].number), Changes{});
  EXPECT_TRUE(table_.IsWaiting(begun.change));
  EXPECT_EQ(table_.Outstanding(kBob), Changes{begun.recalls[1].number});
}

TEST_F(LeaseTableTest, ASessionThatEndsIsWaitedForNoMore) {
  EXPECT_TRUE(Grant(kAnn));
  const LeaseTable::Begun begun = Begin(kBob);
  EXPECT_EQ(table_.SessionEnded(kAnn), Changes{begun.change});
  EXPECT_EQ(table_.expired_waits(), 0U);
  EXPECT_EQ(table_.leases(), 0U);
}

TEST_F(LeaseTableTest, AChangeThatIsGivenUpIsWaitedForByNobody) {
  EXPECT_TRUE(Grant(kAnn));
  const LeaseTable::Begun begun = Begin(kBob);
  table_.End(begun.change);
  EXPECT_EQ(table_.Acknowledge(kAnn, begun.recalls[0].number), Changes{});
  EXPECT_TRUE(Grant(kAnn));
}

// As a change behind the server's back does: it is over when it is told.
TEST_F(LeaseTableTest, WhatIsGrantedBehindAChangeOutlivesTheAcknowledgementOfItsRecall) {
  ASSERT_TRUE(Grant(kAnn));
  const LeaseTable::Begun outside = Begin(0, true);
  table_.End(outside.change);
  ASSERT_EQ(outside.recalls.size(), 1U);
  ASSERT_TRUE(Grant(kAnn));
  EXPECT_EQ(table_.Acknowledge(kAnn, outside.recalls[0].number), Changes{});
  EXPECT_EQ(Begin(kBob).recalls.size(), 1U) << "she believes what she asked for since";
}

TEST_F(LeaseTableTest, AfterARestartEveryChangeWaitsForTheLeasesOfBefore) {
  table_.~LeaseTable();
  new (&table_) LeaseTable({.quiet_until = now_ + kLease});
  const LeaseTable::Begun begun = Begin(kAnn);
  EXPECT_FALSE(begun.ready);
  EXPECT_TRUE(begun.recalls.empty());
  EXPECT_EQ(table_.NextExpiry(), now_ + kLease);
  now_ += kLease;
  EXPECT_EQ(table_.Expire(now_), Changes{begun.change});
  EXPECT_EQ(table_.expired_waits(), 0U);
}

TEST_F(LeaseTableTest, WhoWasAloneBeforeARestartNeedNotWait) {
  table_.BeQuietUntil(now_ + kLease, std::set<LeaseTable::Session>{kAnn});
  EXPECT_TRUE(Begin(kAnn).ready);
  EXPECT_FALSE(Begin(kBob).ready);
}

TEST_F(LeaseTableTest, NobodyWaitsForWhoHasForgottenWhatWasBefore) {
  table_.BeQuietUntil(now_ + kLease, std::set<LeaseTable::Session>{kAnn, kBob});
  const LeaseTable::Begun anns = Begin(kAnn);
  const LeaseTable::Begun bobs = Begin(kBob);
  EXPECT_FALSE(anns.ready);
  EXPECT_FALSE(bobs.ready);
  EXPECT_EQ(table_.ForgetsEarlier(kCarl, now_), Changes{});
  EXPECT_EQ(table_.ForgetsEarlier(kBob, now_), Changes{anns.change});
  EXPECT_FALSE(Begin(kBob).ready) << "nothing is known of what Ann believes";
  EXPECT_EQ(table_.ForgetsEarlier(kAnn, now_).front(), bobs.change);
  EXPECT_TRUE(Begin(kBob).ready);
}

TEST_F(LeaseTableTest, TheNumberOfLeasesIsBounded) {
  LeaseTable table({.session_leases = 10});
  for (std::uint64_t inode = 1; inode <= 10; ++inode) {
    EXPECT_TRUE(table.Grant({1, inode}, kAnn, table.stamp(), now_, kLease));
  }
  EXPECT_FALSE(table.Grant({1, 11}, kAnn, table.stamp(), now_, kLease));
  EXPECT_TRUE(table.Grant({1, 5}, kAnn, table.stamp(), now_, kLease));
  EXPECT_TRUE(table.Grant({1, 11}, kBob, table.stamp(), now_, kLease));
  now_ += 3 * kLease;
  EXPECT_TRUE(table.Grant({1, 11}, kAnn, table.stamp(), now_, kLease));
  EXPECT_LE(table.leases(), 3U);
  EXPECT_LE(table.inodes(), 3U);
}

}  // namespace
}  // namespace rdfs::server
