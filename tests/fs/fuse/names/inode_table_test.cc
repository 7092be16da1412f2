#include "fs/fuse/names/inode_table.h"

#include <gtest/gtest.h>

#include <array>

#include "fs/fuse/content/sequential.h"

namespace rdfs::fs::fuse {
namespace {

Handle H(int value) {
  const std::array<std::byte, 2> bytes{std::byte{1}, static_cast<std::byte>(value)};
  return *Handle::FromBytes(bytes);
}

TEST(InodeTable, AHandleHasOneNumberWhileTheKernelKnowsIt) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  EXPECT_EQ(table.Remember(H(1), kRootNode, "b"), a);  // a hard link
  EXPECT_EQ(*table.Find(a), H(1));
  table.Forget(a, 1);
  EXPECT_TRUE(table.Find(a));
  table.Forget(a, 1);
  EXPECT_FALSE(table.Find(a));
  EXPECT_NE(table.Remember(H(1), kRootNode, "a"), a) << "a number came back";
}

TEST(InodeTable, ForgettingTooMuchOrTheRootIsHarmless) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  table.Forget(a, 100);
  table.Forget(a, 1);
  table.Forget(kRootNode, 100);
  table.Forget(12345, 1);
  EXPECT_TRUE(table.Find(kRootNode));
  EXPECT_EQ(table.size(), 1U);
}

// What is believed of one file.
class InodeLeaseTest : public testing::Test {
 protected:
  static constexpr TimePoint kNow{std::chrono::hours(1)};
  static constexpr std::chrono::milliseconds kLease{1000};
  InodeTable table{H(0)};
  const NodeId a = table.Remember(H(1), kRootNode, "a");
};

TEST_F(InodeLeaseTest, PagesAreCurrentUnderALeaseThatSaysWhatTheOpenSaid) {
  table.Opened(a, 7, kNow);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow)) << "without a lease";
  table.SetLease(a, kNow + kLease, 7, kLease);
  EXPECT_TRUE(table.PagesAreCurrent(a, kNow));
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow + kLease)) << "it is out";
  EXPECT_EQ(table.lease_until(a), kNow + kLease);
  table.EndLease(a);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow)) << "recalled";
  table.SetLease(a, kNow + kLease, 8, kLease);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow)) << "somebody has written since the open";
  EXPECT_FALSE(table.Opened(a, 8, kNow - std::chrono::seconds(1)));
  EXPECT_TRUE(table.PagesAreCurrent(a, kNow));
}

// A server that was started anew gives shorter ones.
TEST_F(InodeLeaseTest, AShorterLeaseThatSaysSomethingElseEndsTheLongerOne) {
  table.Opened(a, 7, kNow);
  table.SetLease(a, kNow + kLease, 7, kLease);
  table.SetLease(a, kNow + kLease / 2, 7, kLease);
  EXPECT_EQ(table.lease_until(a), kNow + kLease) << "an answer that came late says the same";
  table.SetLease(a, kNow + kLease / 2, 8, kLease);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow));
  EXPECT_EQ(table.lease_until(a), kNow + kLease / 2);
  EXPECT_FALSE(table.Opened(a, 8, kNow - std::chrono::seconds(1)));
  EXPECT_TRUE(table.PagesAreCurrent(a, kNow));
}

TEST_F(InodeLeaseTest, WhatWasAskedBeforeAChangeOfOurOwnIsNoLease) {
  table.Opened(a, 7, kNow);
  table.SetLease(a, kNow + kLease, 7, kLease);
  table.OwnChange(a, kNow + kLease / 2, true);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow + kLease / 2));
  table.SetLease(a, kNow + kLease + kLease / 4, 7, kLease);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow + kLease / 2)) << "an answer from before the change";
  table.SetLease(a, kNow + 2 * kLease, 9, kLease);
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow + kLease));
  EXPECT_FALSE(table.Opened(a, 9, kNow));
  EXPECT_TRUE(table.PagesAreCurrent(a, kNow + kLease));
}

TEST_F(InodeLeaseTest, AnOpenThatDropsPagesKeepsTheNextOneFromKeepingThem) {
  EXPECT_FALSE(table.Opened(a, 7, kNow));
  EXPECT_TRUE(table.Opened(a, 7, kNow)) << "there was nothing to drop";
  table.SetMayHavePages(a);
  EXPECT_FALSE(table.Opened(a, 8, kNow)) << "another client has written";
  table.SetLease(a, kNow + kLease, 8, kLease);
  EXPECT_FALSE(table.Opened(a, 8, kNow)) << "the first program may not run yet";
  EXPECT_FALSE(table.PagesAreCurrent(a, kNow));
  EXPECT_FALSE(table.PagesHold(a, kNow));
  const TimePoint later = kNow + std::chrono::milliseconds(60);
  EXPECT_TRUE(table.PagesAreCurrent(a, later));
  EXPECT_TRUE(table.PagesHold(a, later));
  EXPECT_TRUE(table.Opened(a, 8, later));
  // Also where nobody knows what they were: dropped without a lease, and read again.
  table.EndLease(a);
  table.PagesDropped(a, 0, later, later);
  EXPECT_FALSE(table.Opened(a, 9, later));
  EXPECT_FALSE(table.Opened(a, 9, later));
  // What this mount has written alone, they have.
  table.SetLease(a, later + kLease, 9, kLease);
  const TimePoint last = later + std::chrono::milliseconds(60);
  EXPECT_TRUE(table.Opened(a, 9, last));
  table.OwnChange(a, last, true);
  EXPECT_FALSE(table.Opened(a, 10, last));
  EXPECT_TRUE(table.Opened(a, 10, last));
}

// Who is to drop them a little later sees that they have gone since.
TEST(InodeTable, HowOftenPagesHaveGoneIsKnown) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  const TimePoint now{std::chrono::hours(1)};
  EXPECT_EQ(table.pages_gone(a), 0U);
  EXPECT_FALSE(table.Opened(a, 9, now));
  EXPECT_EQ(table.pages_gone(a), 1U);
  EXPECT_TRUE(table.Opened(a, 9, now));
  EXPECT_EQ(table.pages_gone(a), 1U);
  table.PagesDropped(a, 10, now, now);
  EXPECT_EQ(table.pages_gone(a), 2U);
  EXPECT_FALSE(table.ChangedLately(a, now));
  table.OwnChange(a, now, true);
  EXPECT_TRUE(table.ChangedLately(a, now + InodeTable::kLately / 2));
  EXPECT_FALSE(table.ChangedLately(a, now + InodeTable::kLately));
}

TEST_F(InodeLeaseTest, PagesHoldOverOurOwnChangesAndNoLeaseThatEndsUnseen) {
  table.Opened(a, 7, kNow);
  table.SetMayHavePages(a);
  EXPECT_FALSE(table.PagesHold(a, kNow)) << "without a lease";
  table.SetLease(a, kNow + kLease, 7, kLease);
  EXPECT_TRUE(table.PagesHold(a, kNow));
  // Out, and renewed: nothing has happened in between.
  EXPECT_FALSE(table.PagesHold(a, kNow + kLease));
  table.SetLease(a, kNow + 3 * kLease, 7, kLease);
  EXPECT_TRUE(table.PagesHold(a, kNow + 2 * kLease));
  // A change of our own, whose cookie is learnt while the lease still holds.
  TimePoint now = kNow + 2 * kLease + kLease / 2;
  table.OwnChange(a, now, true);
  EXPECT_TRUE(table.PagesHold(a, now));
  table.SetLease(a, now + kLease, 8, kLease);
  EXPECT_TRUE(table.PagesHold(a, now));
  EXPECT_FALSE(table.PagesAreOld(a, 8, now));
  table.SetLease(a, now + 3 * kLease, 8, kLease);
  EXPECT_TRUE(table.PagesHold(a, now + 2 * kLease)) << "8 is known to be our own";
  // One whose cookie nobody has seen when the lease was out.
  now += 2 * kLease;
  table.OwnChange(a, now, true);
  table.SetLease(a, now + 4 * kLease, 9, kLease);
  EXPECT_FALSE(table.PagesHold(a, now + 3 * kLease));
  EXPECT_TRUE(table.PagesAreOld(a, 9, now + 3 * kLease)) << "nobody can say";
  table.PagesDropped(a, 0, now + 3 * kLease, now + 3 * kLease);
  EXPECT_TRUE(table.PagesHold(a, now + 3 * kLease));
  // Somebody else's.
  table.SetLease(a, now + 6 * kLease, 10, kLease);
  EXPECT_FALSE(table.PagesHold(a, now + 5 * kLease));
  EXPECT_TRUE(table.PagesAreOld(a, 10, now));
  table.PagesDropped(a, 0, now + 5 * kLease, now + 5 * kLease);
  EXPECT_TRUE(table.PagesHold(a, now + 5 * kLease));
  // Recalled, and another lease that says nothing new.
  table.EndLease(a);
  EXPECT_FALSE(table.PagesHold(a, now + 5 * kLease));
  table.SetLease(a, now + 6 * kLease, 10, kLease);
  EXPECT_TRUE(table.PagesHold(a, now + 5 * kLease));
  // Dropped while there is no lease: what is read behind that may be anything.
  table.EndLease(a);
  table.PagesDropped(a, 0, now + 5 * kLease, now + 5 * kLease);
  table.SetLease(a, now + 6 * kLease, 10, kLease);
  EXPECT_FALSE(table.PagesHold(a, now + 5 * kLease));
  EXPECT_TRUE(table.PagesAreOld(a, 10, now));
}

// A question may be asked just before its end, and sent once more: what came in between is not
// seen.
TEST_F(InodeLeaseTest, AnAnswerThatComesBehindTheLeaseDoesNotProlongIt) {
  for (const bool late : {false, true}) {
    table.Opened(a, 7, kNow);
    table.EndLease(a);
    table.SetLease(a, kNow + kLease, 7, kLease);
    table.OwnChange(a, kNow, true);
    const TimePoint asked = kNow + kLease - std::chrono::milliseconds(1);
    table.SetLease(a, asked + kLease, 8, kLease, late ? kNow + kLease : asked);
    EXPECT_EQ(table.PagesHold(a, kNow + kLease), !late);
  }
}

// Others' writes show all the same, where no lease tells that there were none.
TEST_F(InodeLeaseTest, AChangeOfOurOwnToTheAttributesHidesNobodysWrite) {
  table.SetMayHavePages(a);
  table.Opened(a, 7, kNow);
  table.SetLease(a, kNow + kLease, 7, kLease);
  table.OwnChange(a, kNow, false);
  table.SetLease(a, kNow + kLease + kLease / 2, 8, kLease);
  EXPECT_FALSE(table.PagesAreOld(a, 8, kNow)) << "nobody has written under that lease";
  table.OwnChange(a, kNow + 2 * kLease, false);
  EXPECT_TRUE(table.PagesAreOld(a, 10, kNow + 2 * kLease)) << "somebody may have, when it was out";
  table.SetLease(a, kNow + 3 * kLease, 10, kLease);
  EXPECT_TRUE(table.PagesAreOld(a, 10, kNow + 2 * kLease));
}

TEST_F(InodeLeaseTest, WhatIsReadWhilePagesAreDroppedIsNotOfALeaseThatBeginsMeanwhile) {
  table.SetMayHavePages(a);
  for (const bool before : {true, false}) {
    table.Opened(a, 7, kNow);
    table.EndLease(a);
    const TimePoint started = kNow + kLease / 2;
    const TimePoint known = before ? started - kLease / 4 : started + kLease / 4;
    table.SetLease(a, known + kLease, 8, kLease, known);
    table.PagesDropped(a, 0, started, started + kLease / 2);
    EXPECT_EQ(table.PagesHold(a, started + kLease / 2), before);
    EXPECT_EQ(table.PagesAreOld(a, 8, started), !before);
  }
}

// Where no lease is given: what was read behind the drop is at least what was known before it.
TEST_F(InodeLeaseTest, PagesThatWereDroppedForAContentAreNotDroppedForItAgain) {
  table.SetMayHavePages(a);
  table.Opened(a, 7, kNow);
  EXPECT_TRUE(table.PagesAreOld(a, 8, kNow));
  table.PagesDropped(a, 8, kNow, kNow);
  EXPECT_FALSE(table.PagesAreOld(a, 8, kNow));
  EXPECT_TRUE(table.PagesAreOld(a, 9, kNow));
  EXPECT_FALSE(table.PagesHold(a, kNow));
}

// Who alone has a file open for writing is asked before anybody else writes to it.
TEST_F(InodeLeaseTest, WriteLeasesWithoutAGapKeepThePagesOfWhoWrites) {
  for (const bool gap : {false, true}) {
    table.SetMayHavePages(a);
    table.SetLease(a, kNow + kLease, 7, kLease, kNow);
    table.Opened(a, 7, kNow);
    TimePoint now = kNow;
    for (int i = 0; i < 4; ++i) {
      now += kLease / 2;
      if (gap && i == 2) now += kLease;
      table.OwnChange(a, now, true);
      table.SetWriteLease(a, now + kLease, now);
    }
    EXPECT_EQ(table.PagesAreOld(a, 11, now), gap);
    table.SetLease(a, now + kLease, 11, kLease, now);
    EXPECT_EQ(table.PagesAreOld(a, 11, now), gap);
    table.OwnChange(a, now, true);
    table.Closed(a);
    table.Opened(a, 12, now);
    table.EndLease(a);
  }
}

TEST_F(InodeLeaseTest, TheKernelHasWhatItWasToldAndWhatItDidItself) {
  AttrWire attr{};
  attr.size = 100;
  const auto tell = [&](TimePoint now) { return table.Tell(a, attr, now); };
  const TimePoint later = kNow + InodeTable::kAnswerTravel;
  EXPECT_FALSE(tell(kNow));
  EXPECT_FALSE(tell(kNow)) << "who was told may not run yet";
  EXPECT_TRUE(tell(later));
  for (Le32 AttrWire::*part : {&AttrWire::mode, &AttrWire::uid, &AttrWire::gid}) {
    attr.*part = 7;
    EXPECT_FALSE(table.Tell(a, attr, std::nullopt));
    EXPECT_TRUE(tell(kNow)) << "a change is taken at once";
  }
  table.Written(a, 50);
  EXPECT_TRUE(tell(later));
  EXPECT_TRUE(table.MayEndBefore(a, {101, kNow}));
  EXPECT_FALSE(table.MayEndBefore(a, {100, kNow}));
  table.Written(a, 120);
  EXPECT_FALSE(table.MayEndBefore(a, {120, kNow}));
  attr.size = 120;
  EXPECT_TRUE(tell(later));
  table.EndsAt(a, 120);
  EXPECT_TRUE(tell(later));
  table.EndsAt(a, 110);
  EXPECT_FALSE(tell(later)) << "it may have cut it";
  EXPECT_TRUE(tell(later + InodeTable::kAnswerTravel));
  table.ForgetTold(a);
  EXPECT_TRUE(table.MayEndBefore(a, {1, kNow}));
  EXPECT_FALSE(table.MayEndBefore(a, {0, kNow})) << "not known";
  EXPECT_FALSE(tell(later + InodeTable::kAnswerTravel));
}

TEST_F(InodeLeaseTest, WhereAFileEndedBeforeThisMountCutItItNeedNotEnd) {
  AttrWire attr{};
  attr.size = 100;
  (void)table.Tell(a, attr, kNow);
  const TimePoint later = kNow + std::chrono::milliseconds(1);
  table.Cut(a, later);
  table.OwnChange(a, later + kLease, true);
  EXPECT_FALSE(table.MayEndBefore(a, {600, kNow}));
  EXPECT_FALSE(table.MayEndBefore(a, {600, later}));
  EXPECT_TRUE(table.MayEndBefore(a, {600, later + std::chrono::milliseconds(1)}));
}

TEST_F(InodeLeaseTest, OfAFileWithoutPagesNoneAreOld) {
  table.Opened(a, 7, kNow);
  table.SetLease(a, kNow + kLease, 8, kLease);
  EXPECT_FALSE(table.PagesAreOld(a, 8, kNow));
  EXPECT_FALSE(table.may_have_pages(a));
  table.SetMayHavePages(a);
  EXPECT_TRUE(table.PagesAreOld(a, 8, kNow));
  table.Opened(a, 7, kNow);
  table.Closed(a);
  EXPECT_TRUE(table.PagesAreOld(a, 8, kNow));
  table.Closed(a);
  EXPECT_FALSE(table.PagesAreOld(a, 8, kNow)) << "nobody has it open";
}

TEST_F(InodeLeaseTest, AStandingLastsUntilItsLeaseEndsOrTheFileMayHaveChanged) {
  const auto number = [&](TimePoint now) {
    const auto standing = table.FindStanding(a, now);
    return standing ? std::optional(standing->number) : std::nullopt;
  };
  EXPECT_FALSE(number(kNow)) << "without a lease";
  table.SetLease(a, kNow + kLease, 7, kLease);
  const auto first = number(kNow);
  ASSERT_TRUE(first);
  EXPECT_EQ(table.FindStanding(a, kNow)->until, kNow + kLease);
  EXPECT_FALSE(number(kNow + kLease)) << "it is out";
  table.SetLease(a, kNow + kLease + kLease / 2, 7, kLease);
  EXPECT_EQ(number(kNow + kLease), first) << "renewed";
  EXPECT_EQ(table.FindStanding(a, kNow)->until, kNow + kLease + kLease / 2);
  table.SetLease(a, kNow + kLease * 2, 8, kLease);
  const auto second = number(kNow + kLease);
  ASSERT_TRUE(second);
  EXPECT_NE(second, first) << "another cookie";
  table.OwnChange(a, kNow + kLease, true);
  const auto third = number(kNow + kLease);
  EXPECT_NE(third, second) << "a change of our own";
  table.EndLease(a);
  EXPECT_FALSE(number(kNow + kLease)) << "recalled";
  table.SetLease(a, kNow + kLease * 3, 8, kLease);
  const auto fourth = number(kNow + kLease * 2);
  ASSERT_TRUE(fourth);
  for (const auto& before : {first, second, third}) EXPECT_NE(fourth, before);
  (void)table.EndAllLeases();
  EXPECT_FALSE(number(kNow + kLease * 2));
  table.SetLease(a, kNow + kLease * 3, 8, kLease);
  const auto fifth = number(kNow + kLease * 2);
  EXPECT_NE(fifth, fourth);
  table.EndStanding(a);
  EXPECT_NE(number(kNow + kLease * 2), fifth) << "and the lease goes on";
}

// Another one's look-up has told the new cookie before, and what was read ahead since then may have
// come by grants from before it.
TEST_F(InodeLeaseTest, AnOpenBehindAnothersChangeEndsAStanding) {
  table.SetMayHavePages(a);
  (void)table.Opened(a, 7, kNow);
  table.SetLease(a, kNow + kLease, 8, kLease);
  const auto told = table.FindStanding(a, kNow);
  ASSERT_TRUE(told);
  (void)table.Opened(a, 8, kNow);
  const auto opened = table.FindStanding(a, kNow);
  ASSERT_TRUE(opened);
  EXPECT_NE(opened->number, told->number);
  (void)table.Opened(a, 8, kNow);
  EXPECT_EQ(table.FindStanding(a, kNow)->number, opened->number) << "nothing is new";
}

// A directory that is watched for changes has a longer one.
TEST(InodeTable, OfALongLeaseItCountsWhenItWasAskedFor) {
  constexpr TimePoint kNow{std::chrono::hours(1)};
  constexpr std::chrono::milliseconds kLong{5000};
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  table.OwnChange(a, kNow + std::chrono::milliseconds(1), true);
  EXPECT_FALSE(table.SetLease(a, kNow + kLong, 7, kLong));
  EXPECT_TRUE(table.SetLease(a, kNow + std::chrono::milliseconds(2) + kLong, 7, kLong));
}

TEST_F(InodeLeaseTest, XattrsThatAreNotThereAreKnownAsLongAsTheLeaseOfThen) {
  table.SetWithoutXattr(a, 1, kNow);
  EXPECT_FALSE(table.KnownWithoutXattr(a, 1, kNow)) << "without a lease";
  table.SetLease(a, kNow + kLease, 7, kLease);
  table.SetWithoutXattr(a, 1, kNow);
  EXPECT_TRUE(table.KnownWithoutXattr(a, 1, kNow));
  EXPECT_FALSE(table.KnownWithoutXattr(a, 2, kNow));
  EXPECT_FALSE(table.KnownWithoutXattr(a, 0, kNow));
  table.SetLease(a, kNow + 2 * kLease, 7, kLease);
  table.SetWithoutXattr(a, 2, kNow);
  EXPECT_FALSE(table.KnownWithoutXattr(a, 1, kNow + kLease)) << "the next lease says nothing of it";
  table.EndLease(a);
  EXPECT_FALSE(table.KnownWithoutXattr(a, 2, kNow)) << "recalled";
  table.SetLease(a, kNow + kLease, 7, kLease);
  table.SetWithoutXattr(a, 3, kNow);
  table.ForgetXattrs(a);
  EXPECT_FALSE(table.KnownWithoutXattr(a, 1, kNow));
  table.OwnChange(a, kNow + kLease / 2, true);
  table.SetWithoutXattr(a, 1, kNow);
  EXPECT_FALSE(table.KnownWithoutXattr(a, 1, kNow)) << "an answer from before the change";
}

TEST_F(InodeLeaseTest, ThatThereIsNoCapabilityIsNoNewsBehindOurOwnChange) {
  table.SetWithoutCapability(a, kNow, kNow + kLease);
  EXPECT_TRUE(table.KnownWithoutCapability(a, kNow));
  table.ForgetCapability(a);
  table.OwnChange(a, kNow + kLease / 2, true);
  table.SetWithoutCapability(a, kNow, kNow + kLease);
  EXPECT_FALSE(table.KnownWithoutCapability(a, kNow + kLease / 2)) << "asked before it was set";
  table.SetWithoutCapability(a, kNow + kLease / 2, kNow + kLease);
  EXPECT_TRUE(table.KnownWithoutCapability(a, kNow + kLease / 2));
}

TEST(InodeTable, KnowsWhatIsBehindAName) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  EXPECT_EQ(table.FindChild(kRootNode, "a"), a);
  EXPECT_FALSE(table.FindChild(kRootNode, "b"));
  table.Removed(kRootNode, "a");
  EXPECT_FALSE(table.FindChild(kRootNode, "a"));
}

TEST(InodeTable, PathsFollowRenames) {
  InodeTable table(H(0));
  const NodeId dir = table.Remember(H(1), kRootNode, "dir");
  const NodeId file = table.Remember(H(2), dir, "file");
  table.Renamed(kRootNode, "dir", kRootNode, "moved", false);
  const auto path = table.PathTo(file);
  ASSERT_TRUE(path);
  ASSERT_EQ(path->size(), 2U);
  EXPECT_EQ((*path)[0].name, "moved");
  EXPECT_EQ((*path)[0].parent, H(0));
  EXPECT_EQ((*path)[1].name, "file");
  EXPECT_EQ((*path)[1].expected, H(2));
  const auto by_handle = table.WaysTo(H(2));
  ASSERT_EQ(by_handle.size(), 1U);
  EXPECT_EQ(by_handle[0], *path);
  EXPECT_TRUE(table.WaysTo(H(9)).empty());
  EXPECT_EQ(table.WaysTo(H(0)).size(), 1U) << "no step leads to the root";
}

TEST(InodeTable, AFileOfSeveralNamesIsFoundByEach) {
  InodeTable table(H(0));
  const NodeId dir = table.Remember(H(1), kRootNode, "dir");
  const NodeId file = table.Remember(H(2), kRootNode, "one");
  table.Remember(H(2), dir, "two");
  table.Remember(H(2), kRootNode, "three");
  const auto names = [&] {
    std::vector<std::string> last;
    for (const auto& way : table.WaysTo(H(2))) last.push_back(way.back().name);
    return last;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"three", "two", "one"}));
  table.Remember(H(2), dir, "two");
  EXPECT_EQ(names(), (std::vector<std::string>{"two", "three", "one"})) << "seen last";
  table.Removed(kRootNode, "three");
  table.Renamed(kRootNode, "one", dir, "four", false);
  EXPECT_EQ(names(), (std::vector<std::string>{"four", "two"}));
  table.Remember(H(3), dir, "two");
  EXPECT_EQ(names(), std::vector<std::string>{"four"}) << "another file has that name";
  for (int i = 0; i < 100; ++i) table.Remember(H(2), dir, std::to_string(i));
  EXPECT_EQ(names().size(), 8U);
  EXPECT_EQ(names().front(), "99");
  table.Forget(dir, 1);
  table.Forget(file, 200);
  EXPECT_EQ(table.size(), 3U) << "the root, and the way to the other file";
}

// An open file whose name was taken away in the kernel: its directory may be forgotten first.
TEST(InodeTable, AWayStaysKnownAsLongAsSomebodyNeedsIt) {
  InodeTable table(H(0));
  const NodeId dir = table.Remember(H(1), kRootNode, "dir");
  const NodeId below = table.Remember(H(2), dir, "below");
  const NodeId file = table.Remember(H(3), below, "file");
  table.Forget(below, 1);
  table.Forget(dir, 1);
  const auto path = table.PathTo(file);
  ASSERT_TRUE(path);
  EXPECT_EQ(path->size(), 3U);
  EXPECT_EQ(table.Remember(H(1), kRootNode, "dir"), dir) << "it is the same one";
  table.Forget(file, 1);
  EXPECT_EQ(table.size(), 2U) << "the root, and what the kernel knows again";
  EXPECT_FALSE(table.FindNode(H(2)));
  table.Forget(dir, 1);
  EXPECT_EQ(table.size(), 1U);
}

TEST(InodeTable, ARenameOverAFileTakesItsPlaceAway) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  const NodeId b = table.Remember(H(2), kRootNode, "b");
  table.Renamed(kRootNode, "a", kRootNode, "b", false);
  EXPECT_EQ(table.FindPlace(a)->name, "b");
  EXPECT_FALSE(table.FindPlace(b));
  EXPECT_FALSE(table.PathTo(b));
}

TEST(InodeTable, AnExchangeMovesBoth) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  const NodeId b = table.Remember(H(2), kRootNode, "b");
  table.Renamed(kRootNode, "a", kRootNode, "b", true);
  EXPECT_EQ(table.FindPlace(a)->name, "b");
  EXPECT_EQ(table.FindPlace(b)->name, "a");
}

TEST(InodeTable, HintsThatFormARingEnd) {
  InodeTable table(H(0));
  const NodeId a = table.Remember(H(1), kRootNode, "a");
  const NodeId b = table.Remember(H(2), a, "b");
  table.Remember(H(1), b, "a");  // another client moved a below its own child, as we saw it
  EXPECT_FALSE(table.PathTo(b));
}

TEST(SequentialReader, AsksAheadOnlyOfWhoReadsOn) {
  SequentialReader reader;
  EXPECT_GT(reader.Next(0, 131072), 0U);
  EXPECT_GT(reader.Next(131072, 131072), 131072U);
  // Read-ahead sends these two the other way round.
  EXPECT_GT(reader.Next(131072, 131072), 0U);
  EXPECT_EQ(reader.Next(1U << 30U, 4096), 0U);
  EXPECT_EQ(reader.Next(5000000, 4096), 0U);
  SequentialReader random;
  EXPECT_EQ(random.Next(77 * 4096, 4096), 0U);
  for (int i = 0; i < 20; ++i)
    EXPECT_LE(reader.Next(5000000 + 4096U * static_cast<unsigned>(i), 4096),
              SequentialReader::kMostAhead);
}

constexpr std::uint32_t kPage = 4096;

TEST(SequentialReader, BytesAreWantedFromItsSecondReadOnAndFewBehindAShortRun) {
  SequentialReader reader;
  reader.Next(0, kPage);
  EXPECT_EQ(reader.wanted(), 0U) << "it may want no more than that";
  for (std::uint64_t i = 1; i < 8; ++i) {
    reader.Next(i * kPage, kPage);
    EXPECT_GT(reader.wanted(), 0U) << i;
    EXPECT_LE(reader.wanted(), 4 * (i + 1) * kPage) << i;
  }
  for (std::uint64_t i = 1; i < 40; ++i) reader.Next(i * 32 * kPage, 32 * kPage);
  EXPECT_EQ(reader.wanted(), SequentialReader::kMostAhead);
  reader.Next(38 * 32 * std::uint64_t{kPage}, 32 * kPage);
  EXPECT_GT(reader.wanted(), 0U) << "two that came the other way round";
  reader.Next(1U << 30U, kPage);
  EXPECT_EQ(reader.wanted(), 0U) << "somewhere else";
  reader.Next((1U << 30U) + kPage, kPage);
  EXPECT_LE(reader.wanted(), 8 * kPage);
}

TEST(SequentialReader, NoBytesAreWantedWhereItJumpsAboutNearby) {
  SequentialReader random;
  random.Next(0, 256 * kPage);
  for (const std::uint64_t page : {7U, 200U, 33U, 90U, 12U, 250U, 3U}) {
    random.Next(page * kPage, kPage);
    EXPECT_EQ(random.wanted(), 0U) << page;
  }
  // One that reads on, and another one not far behind it.
  SequentialReader both;
  both.Next(0, kPage);
  std::uint32_t brought = 0;
  for (std::uint64_t page = 1; page < 200; ++page) {
    both.Next(page * kPage, kPage);
    if (page > 2) brought += both.wanted();
    if (page > 1) both.Next((page - 2) * kPage, kPage);
    if (page > 2) brought += both.wanted();
  }
  EXPECT_EQ(brought, 0U);
}

}  // namespace
}  // namespace rdfs::fs::fuse
