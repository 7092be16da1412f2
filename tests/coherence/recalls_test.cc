#include "fs/client/recalls.h"

#include <gtest/gtest.h>

#include "fs/protocol.h"

namespace rdfs::fs::client {
namespace {

using Act = Recalls::Act;

std::vector<Act> Acts(const Recalls::Actions& actions) {
  std::vector<Act> acts;
  for (const Recalls::Action& action : actions) acts.push_back(action.act);
  return acts;
}
Recalls::Recall Name(std::uint64_t number, Recalls::Node directory) {
  return {
      .number = number, .node = directory, .parts = kRecallAttributes | kRecallName, .name = "x"};
}

TEST(Recalls, AcknowledgesWhatTheKernelHasLetGoOf) {
  Recalls recalls(true);
  EXPECT_EQ(Acts(recalls.Arrived(Name(1, 5))), std::vector{Act::kInvalidate});
  ASSERT_NE(recalls.Find(1), nullptr);
  EXPECT_EQ(recalls.Find(1)->name, "x");
  EXPECT_EQ(Acts(recalls.Invalidated(1)), std::vector{Act::kAcknowledge});
  EXPECT_EQ(recalls.pending(), 0U);
  EXPECT_TRUE(recalls.Invalidated(1).empty());
}

TEST(Recalls, WhatWasAskedBeforeIsNotBelieved) {
  Recalls recalls(true);
  const Recalls::Stamp before = recalls.stamp();
  EXPECT_TRUE(recalls.MayBelieve(before));
  (void)recalls.Arrived(Name(1, 5));
  EXPECT_FALSE(recalls.MayBelieve(before));
  EXPECT_TRUE(recalls.MayBelieve(recalls.stamp()));
}

TEST(Recalls, ARepetitionInvalidatesOnceAndStopsBelieving) {
  Recalls recalls(true);
  (void)recalls.Arrived(Name(1, 5));
  const Recalls::Stamp between = recalls.stamp();
  EXPECT_TRUE(recalls.Arrived(Name(1, 5)).empty());
  EXPECT_FALSE(recalls.MayBelieve(between));
  EXPECT_EQ(Acts(recalls.Invalidated(1)), std::vector{Act::kAcknowledge});
  // The acknowledgement was lost, and it is recalled once more.
  EXPECT_EQ(Acts(recalls.Arrived(Name(1, 5))), std::vector{Act::kInvalidate});
}

// It was acknowledged before the kernel was done, and that was lost with its lane.
TEST(Recalls, WhatIsAcknowledgedIsSoAgain) {
  Recalls recalls(true);
  EXPECT_TRUE(recalls.ChangeBegins(5).empty());
  (void)recalls.Arrived(Name(1, 5));
  EXPECT_EQ(Acts(recalls.Arrived(Name(1, 5))), std::vector{Act::kAcknowledge});
  EXPECT_TRUE(recalls.Invalidated(1).empty());
}

TEST(Recalls, OwnChangesInTheDirectoryAreNotWaitedFor) {
  Recalls recalls(true);
  EXPECT_TRUE(recalls.ChangeBegins(5).empty());
  EXPECT_EQ(Acts(recalls.Arrived(Name(1, 5))),
            (std::vector{Act::kInvalidate, Act::kNewEpoch, Act::kAcknowledge}));
  EXPECT_TRUE(recalls.Invalidated(1).empty());
  EXPECT_EQ(Acts(recalls.Arrived(Name(2, 6))), std::vector{Act::kInvalidate});
  recalls.ChangeEnds(5);
  EXPECT_EQ(Acts(recalls.Arrived(Name(3, 5))), std::vector{Act::kInvalidate});
}

TEST(Recalls, NorThoseThatBeginWhileTheKernelIsAtIt) {
  Recalls recalls(true);
  (void)recalls.Arrived(Name(1, 5));
  EXPECT_EQ(Acts(recalls.ChangeBegins(5)), (std::vector{Act::kNewEpoch, Act::kAcknowledge}));
  EXPECT_TRUE(recalls.ChangeBegins(5).empty());
  EXPECT_TRUE(recalls.Invalidated(1).empty());
}

TEST(Recalls, WithoutEpochsThereIsOnlyWaiting) {
  Recalls recalls(false);
  (void)recalls.ChangeBegins(5);
  EXPECT_EQ(Acts(recalls.Arrived(Name(1, 5))), std::vector{Act::kInvalidate});
  EXPECT_TRUE(recalls.ChangeBegins(5).empty());
}

TEST(Recalls, AttributesAloneNeverWait) {
  Recalls recalls(true);
  (void)recalls.ChangeBegins(5);
  EXPECT_EQ(Acts(recalls.Arrived({.number = 1, .node = 5, .parts = kRecallAttributes})),
            std::vector{Act::kInvalidate});
}

// Of a file that the kernel does not know yet.
TEST(Recalls, AttributesGiveWayByANewEpochOnly) {
  Recalls recalls(true);
  (void)recalls.Arrived({.number = 1, .node = 5, .parts = kRecallAttributes});
  EXPECT_EQ(Acts(recalls.GiveWay(1)), (std::vector{Act::kNewEpoch, Act::kAcknowledge}));
  (void)recalls.Arrived({.number = 2, .node = 5, .parts = kRecallAttributes | kRecallContent});
  EXPECT_EQ(Acts(recalls.GiveWay(2)), (std::vector{Act::kNewEpoch, Act::kAcknowledge}));
  Recalls none(false);
  (void)none.Arrived({.number = 1, .node = 5, .parts = kRecallAttributes | kRecallContent});
  EXPECT_TRUE(none.GiveWay(1).empty());
  EXPECT_EQ(Acts(none.Invalidated(1)), std::vector{Act::kAcknowledge});
}

TEST(Recalls, PagesAreLetGoOfFirst) {
  Recalls recalls(false);
  const Recalls::Recall pages{.number = 1, .node = 5, .parts = kRecallContent};
  EXPECT_EQ(Acts(recalls.Arrived(pages)), std::vector{Act::kInvalidate});
  EXPECT_EQ(Acts(recalls.Invalidated(1)), std::vector{Act::kAcknowledge});
}

TEST(Recalls, PagesUnderWritesOfOurOwnAreNotWaitedFor) {
  Recalls recalls(false);
  Recalls::Recall pages{.number = 1, .node = 5, .parts = kRecallContent};
  (void)recalls.Arrived(pages);
  EXPECT_EQ(Acts(recalls.ChangeBegins(5)), std::vector{Act::kAcknowledge});
  EXPECT_TRUE(recalls.Invalidated(1).empty());
  pages.number = 2;
  EXPECT_EQ(Acts(recalls.Arrived(pages)), (std::vector{Act::kInvalidate, Act::kAcknowledge}));
  recalls.ChangeEnds(5);
  pages.number = 3;
  EXPECT_EQ(Acts(recalls.Arrived(pages)), std::vector{Act::kInvalidate});
}

}  // namespace
}  // namespace rdfs::fs::client
