#include "server/lease/lease_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

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
  bool GrantWrites(LeaseTable::Session session) { return GrantWrites(session, table_.stamp()); }
  bool GrantWrites(LeaseTable::Session session, LeaseTable::Stamp since) {
    return table_.GrantWrites(kFile, session, since, now_, kLease);
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
  EXPECT_EQ(table_.Acknowledge(kBob, begun.recalls[0].number, now_), Changes{});
  EXPECT_TRUE(table_.IsWaiting(begun.change));
  EXPECT_EQ(table_.Acknowledge(kCarl, begun.recalls[1].number, now_), Changes{begun.change});
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

// Whose kernel takes what it believes along to what it has changed (rename(2)): others may still
// change that, who have recalled it already.
TEST_F(LeaseTableTest, WhoOvertakesAnothersChangeGetsNoLease) {
  EXPECT_TRUE(Grant(kBob));
  EXPECT_TRUE(Grant(kCarl));
  const LeaseTable::Begun first = Begin(kAnn);
  ASSERT_EQ(first.recalls.size(), 2U);
  for (const auto& recall : first.recalls) {
    if (recall.session == kBob) table_.Acknowledge(kBob, recall.number, now_);
  }
  const LeaseTable::Begun second = Begin(kBob);
  for (const auto& recall : second.recalls) table_.Acknowledge(recall.session, recall.number, now_);
  EXPECT_TRUE(table_.IsWaiting(first.change));
  EXPECT_FALSE(Grant(kBob));
  table_.End(second.change);
  EXPECT_FALSE(Grant(kBob));
  for (const auto& recall : first.recalls) {
    if (recall.session == kCarl) table_.Acknowledge(kCarl, recall.number, now_);
  }
  table_.End(first.change);
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
  table_.Acknowledge(kAnn, begun.recalls.at(0).number, now_);
  table_.End(begun.change);
  EXPECT_EQ(Holders(), 1U);
  begun = Begin(kBob, true);
  table_.Acknowledge(kAnn, begun.recalls.at(0).number, now_);
  table_.End(begun.change);
  EXPECT_EQ(Holders(), 0U);
}

TEST_F(LeaseTableTest, OnlyWhoWasAskedCanAnswerAndOnlyOnce) {
  EXPECT_TRUE(Grant(kAnn));
  EXPECT_TRUE(Grant(kBob));
  const LeaseTable::Begun begun = Begin(kCarl);
  EXPECT_EQ(table_.Acknowledge(kCarl, begun.recalls[0].number, now_), Changes{});
  EXPECT_EQ(table_.Acknowledge(kAnn, 12345, now_), Changes{});
  EXPECT_EQ(table_.Acknowledge(kAnn, begun.recalls[0].number, now_), Changes{});
  EXPECT_EQ(table_.Acknowledge(kAnn, begun.recalls[0].number, now_), Changes{});
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
  EXPECT_EQ(table_.Acknowledge(kAnn, begun.recalls[0].number, now_), Changes{});
  EXPECT_TRUE(Grant(kAnn));
}

// As a change behind the server's back does: it is over when it is told.
TEST_F(LeaseTableTest, WhatIsGrantedBehindAChangeOutlivesTheAcknowledgementOfItsRecall) {
  ASSERT_TRUE(Grant(kAnn));
  const LeaseTable::Begun outside = Begin(0, true);
  table_.End(outside.change);
  ASSERT_EQ(outside.recalls.size(), 1U);
  ASSERT_TRUE(Grant(kAnn));
  EXPECT_EQ(table_.Acknowledge(kAnn, outside.recalls[0].number, now_), Changes{});
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

TEST_F(LeaseTableTest, OnlyOneMayHaveWrittenWhatIsNotHere) {
  EXPECT_FALSE(table_.AnyWrittenByAnother(kBob, now_));
  EXPECT_TRUE(GrantWrites(kAnn));
  EXPECT_TRUE(table_.AnyWrittenByAnother(kBob, now_));
  EXPECT_FALSE(table_.AnyWrittenByAnother(kAnn, now_)) << "her own";
  EXPECT_TRUE(table_.WrittenByAnother(kFile, kBob, now_));
  EXPECT_FALSE(table_.WrittenByAnother(kFile, kAnn, now_));
  EXPECT_FALSE(table_.WrittenByAnother(kOther, kBob, now_));
  EXPECT_FALSE(GrantWrites(kBob));
  now_ += kLease + kLease / 50;
  EXPECT_FALSE(table_.WrittenByAnother(kFile, kBob, now_));
  EXPECT_TRUE(GrantWrites(kBob));
}

TEST_F(LeaseTableTest, WhatSomebodyElseBelievesIsNotWrittenWithoutAWord) {
  EXPECT_TRUE(Grant(kBob));
  EXPECT_FALSE(GrantWrites(kAnn));
  now_ += kLease + kLease / 50;
  EXPECT_TRUE(GrantWrites(kAnn));
}

TEST_F(LeaseTableTest, OfSeveralWritersEachIsAnotherForTheOthers) {
  EXPECT_TRUE(GrantWrites(kAnn));
  now_ += kLease / 2;
  EXPECT_TRUE(table_.GrantWrites(kOther, kBob, table_.stamp(), now_, kLease));
  EXPECT_TRUE(table_.AnyWrittenByAnother(kAnn, now_));
  EXPECT_TRUE(table_.AnyWrittenByAnother(kBob, now_));
  now_ += kLease / 2 + kLease / 50;
  EXPECT_FALSE(table_.AnyWrittenByAnother(kBob, now_));
  EXPECT_TRUE(table_.AnyWrittenByAnother(kCarl, now_));
}

TEST_F(LeaseTableTest, WhoHasNotAskedTheWriterBelievesNothing) {
  EXPECT_TRUE(GrantWrites(kAnn));
  EXPECT_FALSE(Grant(kBob));
  EXPECT_TRUE(Grant(kAnn));
  now_ += kLease + kLease / 50;
  EXPECT_TRUE(Grant(kBob));
}

TEST_F(LeaseTableTest, WhoHasClosedItWritesNoMore) {
  const LeaseTable::Stamp before = table_.stamp();
  EXPECT_TRUE(GrantWrites(kAnn));
  table_.EndWrites(kFile, kBob, table_.stamp());
  table_.EndWrites(kFile, kAnn, before);  // opened again meanwhile
  EXPECT_TRUE(table_.WrittenByAnother(kFile, kBob, now_));
  table_.EndWrites(kFile, kAnn, table_.stamp());
  EXPECT_FALSE(table_.WrittenByAnother(kFile, kBob, now_));
  EXPECT_TRUE(Grant(kBob));
  EXPECT_EQ(Begin(kBob).recalls.size(), 1U) << "she still knows what it is like";
}

TEST_F(LeaseTableTest, WhoLooksAsksWhoMayHaveWritten) {
  EXPECT_TRUE(GrantWrites(kAnn));
  const LeaseTable::Begun look = Begin(kBob, true);
  EXPECT_FALSE(look.ready);
  ASSERT_EQ(look.recalls.size(), 1U);
  EXPECT_EQ(look.recalls[0].session, kAnn);
  EXPECT_EQ(table_.Acknowledge(kAnn, look.recalls[0].number, now_), Changes{look.change});
  EXPECT_FALSE(table_.WrittenByAnother(kFile, kBob, now_));
  EXPECT_FALSE(GrantWrites(kAnn)) << "while he looks";
  const LeaseTable::Stamp before = table_.stamp();
  table_.End(look.change);
  EXPECT_FALSE(GrantWrites(kAnn, before));
  EXPECT_TRUE(GrantWrites(kAnn));
}

TEST_F(LeaseTableTest, WhatWasGatheredBeforeWritesWereLeasedIsNotBelieved) {
  const LeaseTable::Stamp before = table_.stamp();
  EXPECT_TRUE(GrantWrites(kAnn));
  EXPECT_FALSE(table_.Grant(kFile, kBob, before, now_, kLease));
}

TEST_F(LeaseTableTest, AWriteMayTravelBeyondItsLease) {
  constexpr auto kTravel = kLease / 2;
  LeaseTable table({.write_travel = kTravel});
  EXPECT_TRUE(table.GrantWrites(kFile, kAnn, table.stamp(), now_, kLease));
  now_ += kLease + kLease / 50;
  EXPECT_TRUE(table.AnyWrittenByAnother(kBob, now_));
  EXPECT_TRUE(table.WrittenByAnother(kFile, kBob, now_));
  const LeaseTable::Target target{.inode = kFile, .whole = true};
  EXPECT_FALSE(table.Begin(kBob, {&target, 1}, now_, LeaseTable::Purpose::kLook).ready);
  now_ += kTravel;
  EXPECT_FALSE(table.WrittenByAnother(kFile, kBob, now_));
}

TEST_F(LeaseTableTest, ASilentClientIsNotWaitedForAgainAndAgain) {
  EXPECT_TRUE(GrantWrites(kAnn));
  const LeaseTable::Begun look = Begin(kBob, true);
  EXPECT_FALSE(look.ready);
  now_ += kLease + kLease / 50;
  EXPECT_EQ(table_.Expire(now_), Changes{look.change});
  table_.End(look.change);
  EXPECT_FALSE(GrantWrites(kAnn));
  EXPECT_TRUE(Grant(kAnn));
  now_ += std::chrono::minutes(1);
  EXPECT_TRUE(GrantWrites(kAnn));
}

TEST_F(LeaseTableTest, NorOneThatAnswersLate) {
  EXPECT_TRUE(table_.GrantWrites(kFile, kAnn, table_.stamp(), now_, 2 * kLease));
  const LeaseTable::Begun look = Begin(kBob, true);
  now_ += kLease + milliseconds(1);
  EXPECT_EQ(table_.Acknowledge(kAnn, look.recalls.at(0).number, now_), Changes{look.change});
  table_.End(look.change);
  EXPECT_FALSE(GrantWrites(kAnn));
}

TEST_F(LeaseTableTest, AfterARestartAnybodyMayHaveWritten) {
  using Purpose = LeaseTable::Purpose;
  table_.BeQuietUntil(now_ + kLease, std::set<LeaseTable::Session>{kAnn, kBob});
  EXPECT_TRUE(table_.WrittenEarlierByAnother(kCarl, now_));
  EXPECT_FALSE(GrantWrites(kAnn));
  // What she had written before reaches the server though nobody has said anything yet.
  const LeaseTable::Target target{.inode = kFile};
  const auto begin = [&](LeaseTable::Session by, Purpose purpose) {
    return table_.Begin(by, {&target, 1}, now_, purpose);
  };
  EXPECT_TRUE(begin(kAnn, Purpose::kLeasedWrite).ready);
  EXPECT_FALSE(begin(kAnn, Purpose::kChange).ready);
  const LeaseTable::Begun hers = begin(kAnn, Purpose::kLook);
  EXPECT_FALSE(hers.ready);
  // Bob's kernel may still believe what it was told; what he has written is here.
  EXPECT_EQ(table_.WroteEarlier(kBob, now_), Changes{hers.change});
  EXPECT_TRUE(begin(kAnn, Purpose::kLook).ready);
  EXPECT_FALSE(begin(kAnn, Purpose::kChange).ready);
  EXPECT_FALSE(begin(kBob, Purpose::kLook).ready);
  EXPECT_EQ(table_.ForgetsEarlier(kAnn, now_).size(), 1U);
  EXPECT_FALSE(table_.WrittenEarlierByAnother(kCarl, now_));
  EXPECT_FALSE(begin(kAnn, Purpose::kChange).ready);
  EXPECT_EQ(table_.ForgetsEarlier(kBob, now_).size(), 3U);
  EXPECT_TRUE(begin(kAnn, Purpose::kChange).ready);
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

// Leases as they should be, beside the table.
class HeldLeases {
 public:
  explicit HeldLeases(unsigned seed) : random_(seed) {}

  void Step() {
    const InodeKey inode{.device = 1, .inode = 1 + random_() % kInodes};
    const LeaseTable::Session session = 1 + random_() % kSessions;
    switch (random_() % 8) {
      case 0:
        now_ += kLease / 3;
        break;
      case 1:
        (void)table_.SessionEnded(session);
        std::erase_if(until_, [&](const auto& held) { return held.first.first == session; });
        break;
      case 2:
        TakeAll(inode);
        break;
      default:
        if (table_.Grant(inode, session, table_.stamp(), now_, kLease)) {
          until_[{session, inode.inode}] = now_ + kLease + kLease / 100 + milliseconds(1);
        } else {
          EXPECT_EQ(Believed(session), kSessionLeases) << "there is room for what has not run out";
        }
    }
    Compare(inode);
  }
  void EndAll() {
    for (LeaseTable::Session session = 1; session <= kSessions; ++session) {
      (void)table_.SessionEnded(session);
    }
    EXPECT_EQ(table_.leases(), 0U);
    EXPECT_EQ(table_.inodes(), 0U);
  }

 private:
  static constexpr std::uint64_t kInodes = 12, kSessions = 4;
  static constexpr std::size_t kSessionLeases = 8;
  static constexpr LeaseTable::Session kNobody = 99;

  std::size_t Believed(LeaseTable::Session session) const {
    return static_cast<std::size_t>(std::ranges::count_if(until_, [&](const auto& held) {
      return held.first.first == session && held.second > now_;
    }));
  }
  LeaseTable::Begun Ask(const InodeKey& inode, bool whole) {
    const LeaseTable::Target target{.inode = inode, .whole = whole};
    return table_.Begin(kNobody, {&target, 1}, now_);
  }
  void TakeAll(const InodeKey& inode) {
    const LeaseTable::Begun begun = Ask(inode, true);
    for (const auto& recall : begun.recalls) {
      (void)table_.Acknowledge(recall.session, recall.number, now_);
    }
    table_.End(begun.change);
    std::erase_if(until_, [&](const auto& held) { return held.first.second == inode.inode; });
  }
  void Compare(const InodeKey& inode) {
    std::set<LeaseTable::Session> expected, asked;
    for (const auto& [held, until] : until_) {
      if (held.second == inode.inode && until > now_) expected.insert(held.first);
    }
    const LeaseTable::Begun begun = Ask(inode, false);
    for (const auto& recall : begun.recalls) {
      asked.insert(recall.session);
      (void)table_.Acknowledge(recall.session, recall.number, now_);
    }
    table_.End(begun.change);
    EXPECT_EQ(asked, expected);
  }

  std::mt19937 random_;
  TimePoint now_{std::chrono::hours(1)};
  LeaseTable table_{LeaseTable::Options{.session_leases = kSessionLeases}};
  std::map<std::pair<LeaseTable::Session, std::uint64_t>, TimePoint> until_;
};

TEST(LeaseTableSchedules, ASessionThatEndsTakesItsOwnLeasesAndNoOthers) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    HeldLeases leases(seed);
    for (int step = 0; step < 200; ++step) leases.Step();
    leases.EndAll();
  }
}

// Many leases of many sessions, each on inodes of its own.
class ManyLeases {
 public:
  static constexpr std::uint64_t kEach = 10'000;

  bool Grant(LeaseTable::Session session, std::uint64_t inode) {
    const std::uint64_t before = table_.looks();
    const bool granted = table_.Grant(KeyOf(session, inode), session, table_.stamp(), now_, kLease);
    most_looks_ = std::max(most_looks_, table_.looks() - before);
    return granted;
  }
  void GrantAll(LeaseTable::Session session) {
    for (std::uint64_t inode = 0; inode < kEach; ++inode) EXPECT_TRUE(Grant(session, inode));
  }
  // A change by somebody else asks the session.
  bool IsHolder(LeaseTable::Session session, std::uint64_t inode) {
    const LeaseTable::Target target{.inode = KeyOf(session, inode)};
    const LeaseTable::Begun begun = table_.Begin(99, {&target, 1}, now_);
    table_.End(begun.change);
    return begun.recalls.size() == 1 && begun.recalls[0].session == session;
  }
  void Pass(milliseconds time) { now_ += time; }
  [[nodiscard]] std::uint64_t most_looks() const { return most_looks_; }
  [[nodiscard]] const LeaseTable& table() const { return table_; }

 private:
  static InodeKey KeyOf(LeaseTable::Session session, std::uint64_t inode) {
    return {.device = session, .inode = inode};
  }
  TimePoint now_{std::chrono::hours(1)};
  LeaseTable table_{LeaseTable::Options{.session_leases = kEach}};
  std::uint64_t most_looks_ = 0;
};

// Everybody's requests wait meanwhile.
TEST(LeaseTableSchedules, AGrantLooksAtAFewLeasesHoweverManyThereAre) {
  constexpr std::uint64_t kEach = ManyLeases::kEach;
  constexpr LeaseTable::Session kLast = 10, kWalker = 11;
  ManyLeases leases;
  for (LeaseTable::Session session = 1; session <= kWalker; ++session) leases.GrantAll(session);
  for (std::uint64_t inode = kEach; inode < kEach + 1000; ++inode) {
    EXPECT_FALSE(leases.Grant(kWalker, inode));
  }
  EXPECT_EQ(leases.table().leases(), kWalker * kEach) << "none has run out";

  leases.Pass(2 * kLease);
  leases.GrantAll(kLast);  // renewed
  for (std::uint64_t inode = kEach; inode < 5 * kEach; ++inode) {
    ASSERT_EQ(leases.Grant(kWalker, inode), inode < 2 * kEach) << inode;
  }
  EXPECT_EQ(leases.table().leases(), 2 * kEach) << "the others have run out, and gone";
  EXPECT_EQ(leases.table().inodes(), 2 * kEach);
  for (std::uint64_t inode = 0; inode < kEach; ++inode) {
    ASSERT_TRUE(leases.IsHolder(kLast, inode)) << inode;
    ASSERT_TRUE(leases.IsHolder(kWalker, kEach + inode)) << inode;
  }
  EXPECT_LE(leases.most_looks(), LeaseTable::kMaxLooks);
}

TEST(LeaseTableSchedules, AFullSessionGetsTheRoomOfTheOneLeaseThatHasRunOut) {
  constexpr std::uint64_t kEach = ManyLeases::kEach;
  for (const std::uint64_t gone : {std::uint64_t{0}, kEach / 2, kEach - 1}) {
    SCOPED_TRACE(gone);
    ManyLeases leases;
    leases.GrantAll(kAnn);
    leases.Pass(kLease / 2);
    for (std::uint64_t inode = 0; inode < kEach; ++inode) {
      if (inode == gone) continue;
      EXPECT_TRUE(leases.Grant(kAnn, inode));
    }
    EXPECT_FALSE(leases.Grant(kAnn, kEach));
    leases.Pass(kLease / 4 * 3);
    std::uint64_t asked = 1;
    while (asked < kEach && !leases.Grant(kAnn, kEach)) ++asked;
    EXPECT_LE(asked, kEach / 16);
    EXPECT_FALSE(leases.Grant(kAnn, kEach + 1));
    for (std::uint64_t inode = 0; inode <= kEach; ++inode) {
      ASSERT_EQ(leases.IsHolder(kAnn, inode), inode != gone) << inode;
    }
    EXPECT_LE(leases.most_looks(), LeaseTable::kMaxLooks);
  }
}

// Everybody's requests wait meanwhile.
TEST(LeaseTableSchedules, TheEndOfASessionDoesNotGoThroughTheLeasesOfOthers) {
  constexpr std::uint64_t kOthers = 200'000;
  constexpr LeaseTable::Session kLast = 2000;
  const TimePoint now{std::chrono::hours(1)};
  LeaseTable table({.session_leases = kOthers});
  for (std::uint64_t inode = 1; inode <= kOthers; ++inode) {
    ASSERT_TRUE(table.Grant({1, inode}, kAnn, table.stamp(), now, kLease));
  }
  const TimePoint before = BootClock::now();
  for (LeaseTable::Session session = kBob; session <= kLast; ++session) {
    ASSERT_TRUE(table.Grant(kFile, session, table.stamp(), now, kLease));
    EXPECT_EQ(table.SessionEnded(session), Changes{});
  }
  EXPECT_LT(BootClock::now() - before, std::chrono::seconds(1));
  EXPECT_EQ(table.leases(), kOthers);
}

}  // namespace
}  // namespace rdfs::server
