#include "server/identity/group_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <thread>

#include "tests/server/server_harness.h"
#include "transport/base/clock.h"

namespace rdfs::server {
namespace {

using std::chrono::seconds;
using List = std::vector<gid_t>;

// A database that answers when it is let.
class GroupCacheTest : public ::testing::Test {
 protected:
  void Advance(std::chrono::nanoseconds span) {
    clock_.Advance(span);
    scheduler_.Advance(span);
  }
  // All that was asked is answered.
  void Answer() {
    while (!asked_.empty()) {
      const std::function<void()> task = std::move(asked_.front());
      asked_.pop_front();
      task();
    }
  }
  // What is known; empty: nothing.
  List Known(Ids ids) {
    const GroupCache::Groups groups = cache_.Known(ids);
    return groups ? *groups : List();
  }
  List Ask(Ids ids) {
    cache_.WhenKnown(ids, [] {});
    Answer();
    return Known(ids);
  }

  ManualClock clock_;
  ManualScheduler scheduler_;
  std::optional<List> answer_ = {{1, 2}};
  std::deque<std::function<void()>> asked_;
  GroupCache cache_{clock_, scheduler_, [this](Ids) { return answer_; },
                    [this](std::function<void()> task) { asked_.push_back(std::move(task)); }};
  const Ids user_{.uid = 7, .gid = 1};
};

TEST_F(GroupCacheTest, AUserIsAskedForOnceAndAllWhoWaitAreCalledOnce) {
  EXPECT_EQ(Known(user_), List());
  int called = 0;
  cache_.WhenKnown(user_, [&] { ++called; });
  cache_.WhenKnown(user_, [&] { ++called; });
  EXPECT_EQ(asked_.size(), 1U);
  EXPECT_EQ(called, 0);
  EXPECT_EQ(Known(user_), List());
  Answer();
  EXPECT_EQ(called, 2);
  EXPECT_EQ(Known(user_), (List{1, 2}));
  cache_.WhenKnown(user_, [&] { ++called; });
  EXPECT_EQ(called, 3) << "it is known";
  Advance(GroupCache::kPatience);
  EXPECT_EQ(called, 3);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(GroupCacheTest, WhatIsKnownIsUsedWhileItIsAskedForAnew) {
  Ask(user_);
  Advance(seconds(59));
  EXPECT_EQ(Known(user_), (List{1, 2}));
  EXPECT_TRUE(asked_.empty());
  Advance(seconds(2));
  answer_ = {{1, 5}};
  EXPECT_EQ(Known(user_), (List{1, 2}));
  EXPECT_EQ(Known(user_), (List{1, 2}));
  ASSERT_EQ(asked_.size(), 1U);
  Answer();
  EXPECT_EQ(Known(user_), (List{1, 5}));
}

TEST_F(GroupCacheTest, WhatIsLongPastIsNotUsed) {
  Ask(user_);
  answer_ = {{1}};
  Advance(GroupCache::kKept + GroupCache::kUsedMeanwhile);
  EXPECT_EQ(Known(user_), List());
  EXPECT_EQ(Ask(user_), (List{1}));
}

TEST_F(GroupCacheTest, WhereNobodyAnswersWhatWasKnownHoldsOn) {
  Ask(user_);
  answer_ = std::nullopt;
  Advance(seconds(61));
  EXPECT_EQ(Known(user_), (List{1, 2}));
  Answer();
  EXPECT_EQ(Known(user_), (List{1, 2}));
  EXPECT_TRUE(asked_.empty()) << "for another minute";
  EXPECT_EQ(Ask({.uid = 8, .gid = 3}), (List{3})) << "nothing was known";
  answer_ = {{1, 5}};
  Advance(seconds(61));
  EXPECT_EQ(Known(user_), (List{1, 2}));
  Answer();
  EXPECT_EQ(Known(user_), (List{1, 5}));
}

TEST_F(GroupCacheTest, NobodyWaitsLongForADatabaseThatHangs) {
  int called = 0;
  cache_.WhenKnown(user_, [&] { ++called; });
  Advance(GroupCache::kPatience - seconds(1));
  EXPECT_EQ(called, 0);
  Advance(seconds(1));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(Known(user_), (List{1}));
  // It is not asked a second time while it hangs, and who is active does not wait any more.
  for (int minute = 0; minute < 5; ++minute) {
    Advance(seconds(61));
    EXPECT_EQ(Known(user_), (List{1}));
  }
  EXPECT_EQ(asked_.size(), 1U);
  Answer();
  EXPECT_EQ(Known(user_), (List{1, 2})) << "late, but an answer";
}

TEST_F(GroupCacheTest, ARefreshThatHangsKeepsNobody) {
  Ask(user_);
  for (int second = 0; second < 600; ++second) {
    Advance(seconds(1));
    ASSERT_EQ(Known(user_), (List{1, 2})) << second;
  }
  EXPECT_EQ(asked_.size(), 1U);
}

TEST_F(GroupCacheTest, WhoWaitsAfterTheEndIsNotCalled) {
  int called = 0;
  cache_.WhenKnown(user_, [&] { ++called; });
  cache_.Stop();
  Answer();
  Advance(GroupCache::kPatience);
  EXPECT_EQ(called, 0);
}

TEST_F(GroupCacheTest, ManyUsersAreBoundedAndLeaveOthersAlone) {
  for (std::uint32_t uid = 0; uid < 5000; ++uid) Ask({.uid = uid, .gid = 1});
  std::size_t known = 0;
  for (std::uint32_t uid = 0; uid < 5000; ++uid) {
    if (cache_.Known({.uid = uid, .gid = 1})) ++known;
  }
  EXPECT_EQ(known, GroupCache::kMostUsers);
}

TEST_F(GroupCacheTest, NobodyWhoIsWaitedForIsForgotten) {
  int called = 0;
  cache_.WhenKnown(user_, [&] { ++called; });
  for (std::uint32_t uid = 1000; uid < 7000; ++uid) {
    cache_.WhenKnown(
        {.uid = uid, .gid = 1}, [&] { ++called; }, uid / 500);
  }
  Answer();
  EXPECT_EQ(called, 6001);
}

// The second of what is asked for is the other one's, however many the first asker has.
TEST_F(GroupCacheTest, AskersTakeTurns) {
  constexpr std::uint64_t kOne = 5, kOther = 3;
  int one = 0, other = 0;
  for (std::uint32_t uid = 1000; uid < 1300; ++uid) {
    EXPECT_TRUE(cache_.WhenKnown(
        {.uid = uid, .gid = 1}, [&] { ++one; }, kOne));
  }
  EXPECT_TRUE(cache_.WhenKnown(
      user_, [&] { ++other; }, kOther));
  for (int i = 0; i < 2; ++i) {
    asked_.front()();
    asked_.pop_front();
  }
  EXPECT_EQ(other, 1);
  EXPECT_EQ(one, 1);
  Answer();
  EXPECT_EQ(one, 300);
}

TEST_F(GroupCacheTest, WhoWaitsForAUserOfAnothersQueueHasItsOwnTurn) {
  constexpr std::uint64_t kOne = 5, kOther = 3;
  int other = 0;
  for (std::uint32_t uid = 1000; uid < 1300; ++uid) {
    EXPECT_TRUE(cache_.WhenKnown(
        {.uid = uid, .gid = 1}, [] {}, kOne));
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(cache_.WhenKnown(
        {.uid = 1299, .gid = 1}, [&] { ++other; }, kOther));
  }
  for (int i = 0; i < 2; ++i) {
    asked_.front()();
    asked_.pop_front();
  }
  EXPECT_EQ(other, 2);
  EXPECT_EQ(asked_.size(), 299U);
  Answer();
}

TEST_F(GroupCacheTest, AnAskerHasItsBound) {
  constexpr std::uint64_t kOne = 5, kOther = 3;
  int called = 0;
  const auto ask = [&](std::uint32_t uid, std::uint64_t asker) {
    return cache_.WhenKnown(
        {.uid = uid, .gid = 1}, [&] { ++called; }, asker);
  };
  for (std::uint32_t uid = 0; uid < GroupCache::kMostAsked; ++uid) EXPECT_TRUE(ask(uid, kOne));
  EXPECT_FALSE(ask(5000, kOne));
  EXPECT_TRUE(ask(0, kOne)) << "it is asked for already";
  EXPECT_TRUE(ask(5000, kOther));
  // Nobody who was given up on is forgotten while the database has not answered.
  Advance(GroupCache::kPatience);
  EXPECT_FALSE(ask(5001, kOne));
  Answer();
  EXPECT_EQ(called, static_cast<int>(GroupCache::kMostAsked) + 2);
  EXPECT_TRUE(ask(5001, kOne));
  Answer();
  EXPECT_EQ(Known({.uid = 5001, .gid = 1}), (List{1, 2}));
}

// What was known is used on where nothing more may be asked.
TEST_F(GroupCacheTest, ARefreshCountsToo) {
  constexpr std::uint64_t kOne = 5;
  Ask(user_);
  for (std::uint32_t uid = 1000; uid < 1000 + GroupCache::kMostAsked; ++uid) {
    EXPECT_TRUE(cache_.WhenKnown(
        {.uid = uid, .gid = 1}, [] {}, kOne));
  }
  Advance(seconds(61));
  const std::size_t asked = asked_.size();
  EXPECT_NE(cache_.Known(user_, kOne), nullptr);
  EXPECT_EQ(asked_.size(), asked);
  EXPECT_NE(cache_.Known(user_, 0), nullptr);
  EXPECT_EQ(asked_.size(), asked + 1);
}

// Several hang, and others get no thread; these wait no longer than those.
TEST(GroupThreads, AskOnAFewThreadsAndOutliveTheCache) {
  const SystemClock clock;
  ManualScheduler scheduler;
  const auto gate = std::make_shared<std::promise<void>>();
  const std::shared_future<void> open = gate->get_future().share();
  std::atomic<int> hanging = 0, called = 0;
  const auto ended = std::make_shared<std::atomic<int>>(0);
  {
    GroupCache cache(clock, scheduler, [&hanging, open, ended](Ids) {
      ++hanging;
      open.wait();
      ++*ended;
      return std::optional<List>();
    });
    for (std::uint32_t uid = 1; uid <= 10; ++uid) {
      cache.WhenKnown({.uid = uid, .gid = uid}, [&] { ++called; });
    }
    while (hanging < static_cast<int>(GroupCache::kMostThreads)) std::this_thread::yield();
    scheduler.Advance(GroupCache::kPatience);
    EXPECT_EQ(called, 10);
    EXPECT_EQ(hanging, static_cast<int>(GroupCache::kMostThreads));
    const GroupCache::Groups groups = cache.Known({.uid = 10, .gid = 10});
    ASSERT_NE(groups, nullptr);
    EXPECT_EQ(*groups, (List{10}));
  }
  gate->set_value();
  // What had not begun nobody needs any more.
  while (*ended < static_cast<int>(GroupCache::kMostThreads)) std::this_thread::yield();
}

TEST(GroupThreads, TellWhatTheDatabaseOfThisHostSays) {
  const SystemClock clock;
  ManualScheduler scheduler;
  GroupCache cache(clock, scheduler);
  std::promise<void> known;
  const Ids me{.uid = ::geteuid(), .gid = ::getegid()};
  cache.WhenKnown(me, [&] { known.set_value(); });
  ASSERT_EQ(known.get_future().wait_for(seconds(10)), std::future_status::ready);
  const auto groups = cache.Known(me);
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(*groups, *GroupCache::AskUserDatabase(me));
  EXPECT_NE(std::find(groups->begin(), groups->end(), me.gid), groups->end());
}

}  // namespace
}  // namespace rdfs::server
