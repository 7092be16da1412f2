// Sessions in virtual time.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "server/session/session_state.h"
#include "server/session/session_table.h"

namespace rdfs::server {
namespace {

using std::chrono::seconds;

constexpr TimePoint At(std::int64_t second) { return TimePoint(seconds(1000 + second)); }

TEST(SessionState, LivesAsLongAsItIsHeardOf) {
  SessionState state(At(0), seconds(40));
  EXPECT_TRUE(state.LaneOpened(At(1)));
  EXPECT_EQ(state.phase(), SessionState::Phase::kAttached);
  state.Seen(At(30));
  EXPECT_FALSE(state.Expire(At(69)));
  EXPECT_TRUE(state.Expire(At(70)));
  EXPECT_FALSE(state.Expire(At(71))) << "ends once";
  EXPECT_FALSE(state.LaneOpened(At(72)));
}

TEST(SessionState, IsResumedWithinItsLeaseAfterTheLossOfItsLanes) {
  SessionState state(At(0), seconds(40));
  EXPECT_TRUE(state.LaneOpened(At(1)));
  EXPECT_TRUE(state.LaneOpened(At(1)));
  state.LaneClosed(At(100));
  EXPECT_EQ(state.phase(), SessionState::Phase::kAttached);
  state.LaneClosed(At(100));
  EXPECT_EQ(state.phase(), SessionState::Phase::kDetached);
  EXPECT_FALSE(state.Expire(At(139)));
  EXPECT_TRUE(state.LaneOpened(At(139)));
  EXPECT_EQ(state.phase(), SessionState::Phase::kAttached);
}

TEST(SessionState, OneThatNobodyUsesEnds) {
  SessionState state(At(0), seconds(40));
  EXPECT_TRUE(state.Expire(At(40)));
}

// Whatever happens, a session never ends within a lease of the last sign of life, and is over for
// good once it has.
TEST(SessionState, SchedulesKeepTheLease) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    SessionState state(At(0), seconds(40));
    std::int64_t now = 0, last = 0;
    std::uint32_t lanes = 0;
    for (int step = 0; step < 60; ++step) {
      now += static_cast<std::int64_t>(random() % 30);
      switch (random() % 4) {
        case 0:
          if (state.LaneOpened(At(now))) ++lanes, last = now;
          break;
        case 1:
          if (lanes > 0 && !state.over()) state.LaneClosed(At(now)), --lanes, last = now;
          break;
        case 2:
          if (!state.over()) state.Seen(At(now)), last = now;
          break;
        default:
          if (state.Expire(At(now))) {
            EXPECT_GE(now - last, 40) << "seed " << seed;
          }
      }
      if (!state.over()) {
        EXPECT_EQ(state.lanes(), lanes);
      }
    }
  }
}

SessionPtr MakeSession(std::uint8_t client) {
  FsSessionParams params;
  params.id = client;
  params.client_id[0] = std::byte{client};
  return std::make_shared<FsSession>(params, nullptr);
}

TEST(SessionTable, ResumesByClientIdUntilItExpires) {
  SessionTable table(seconds(40));
  const SessionPtr one = table.Add(MakeSession(1), At(0));
  const SessionPtr two = table.Add(MakeSession(2), At(10));
  EXPECT_EQ(table.Resume(one->params().client_id, At(20)), one);
  EXPECT_EQ(table.NextDeadline(), At(50));
  EXPECT_EQ(table.TakeExpired(At(50)), std::vector<SessionPtr>{two});
  EXPECT_EQ(table.Resume(two->params().client_id, At(51)), nullptr);
  one->Touch(At(55));
  EXPECT_TRUE(table.TakeExpired(At(70)).empty());
  EXPECT_EQ(table.TakeExpired(At(95)).size(), 1U);
  EXPECT_FALSE(table.LaneOpened(*one, At(96)));
  table.Cleared(*one);
  table.Cleared(*two);
  EXPECT_EQ(table.size(), 0U);
}

// Its host was suspended, say: what clients have sent has not been read yet.
TEST(SessionTable, AServerThatWasAwayEndsNobodyAtOnce) {
  SessionTable table(seconds(40));
  const SessionPtr one = table.Add(MakeSession(1), At(0));
  const SessionPtr two = table.Add(MakeSession(2), At(300));
  table.WasAway(At(300));
  EXPECT_TRUE(table.TakeExpired(At(300)).empty());
  EXPECT_EQ(table.NextDeadline(), At(320));
  EXPECT_EQ(table.TakeExpired(At(320)), std::vector<SessionPtr>{one});
  EXPECT_TRUE(table.TakeExpired(At(339)).empty()) << "nor has anybody less than before";
}

// Or only late, each time again: who is dead is not kept for that.
TEST(SessionTable, ManyAbsencesAreOneRespite) {
  SessionTable table(seconds(40));
  const SessionPtr one = table.Add(MakeSession(1), At(0));
  table.WasAway(At(45));
  EXPECT_TRUE(table.TakeExpired(At(45)).empty());
  table.WasAway(At(64));
  EXPECT_TRUE(table.TakeExpired(At(64)).empty());
  one->Touch(At(64));  // heard of, it has another
  table.WasAway(At(110));
  EXPECT_TRUE(table.TakeExpired(At(110)).empty());
  table.WasAway(At(129));
  EXPECT_TRUE(table.TakeExpired(At(129)).empty());
  table.WasAway(At(130));
  EXPECT_EQ(table.TakeExpired(At(130)), std::vector<SessionPtr>{one});
}

TEST(SessionTable, OneThatIsEndedIsThereNoMoreAndItsNamesakeIsAnother) {
  SessionTable table(seconds(40));
  const SessionPtr one = table.Add(MakeSession(1), At(0));
  EXPECT_TRUE(table.Take(*one));
  EXPECT_FALSE(table.Take(*one));
  EXPECT_FALSE(table.LaneOpened(*one, At(1)));
  table.Cleared(*one);
  const SessionPtr again = table.Add(MakeSession(1), At(1));
  EXPECT_FALSE(table.Take(*one)) << "a goodbye that comes late ends nobody else";
  EXPECT_EQ(table.Resume(again->params().client_id, At(2)), again);
}

TEST(SessionTable, AClientGetsNoOtherSessionUntilItsLastIsClearedAway) {
  SessionTable table(seconds(40));
  const SessionPtr one = table.Add(MakeSession(1), At(0));
  const ClientId client = one->params().client_id;
  EXPECT_TRUE(table.WaitUntilCleared(client, seconds(0)));
  ASSERT_EQ(table.TakeExpired(At(40)).size(), 1U);
  EXPECT_TRUE(table.TakeExpired(At(90)).empty());
  EXPECT_EQ(table.NextDeadline(), std::nullopt);
  EXPECT_FALSE(table.WaitUntilCleared(client, seconds(0)));
  EXPECT_EQ(table.Resume(client, At(90)), nullptr);
  EXPECT_EQ(table.Add(MakeSession(1), At(90)), nullptr);
  std::thread clearing([&] { table.Cleared(*one); });
  EXPECT_TRUE(table.WaitUntilCleared(client, seconds(10)));
  clearing.join();
  const SessionPtr again = MakeSession(1);
  EXPECT_EQ(table.Add(again, At(91)), again);
  table.Cleared(*one);
  EXPECT_EQ(table.Resume(client, At(92)), again) << "cleared away late";
}

TEST(SessionTable, ASessionHasABoundedNumberOfLanes) {
  SessionTable table(seconds(40));
  const SessionPtr one = table.Add(MakeSession(1), At(0));
  for (std::size_t i = 0; i < ClientLimits{}.lanes; ++i) {
    EXPECT_TRUE(table.LaneOpened(*one, At(0)));
  }
  EXPECT_FALSE(table.LaneOpened(*one, At(0)));
  table.LaneClosed(*one, At(0));
  EXPECT_TRUE(table.LaneOpened(*one, At(0)));
}

TEST(OpenBudget, LeavesSomethingForTheNext) {
  OpenBudget budget(300);
  std::vector<std::size_t> mine;
  for (int session = 0; session < 4; ++session) {
    std::size_t count = 0;
    while (budget.Take(count)) ++count;
    EXPECT_GT(count, 0U);
    mine.push_back(count);
  }
  EXPECT_EQ(mine.front(), 200U);
  EXPECT_GT(budget.left(), 0U);
  for (const std::size_t count : mine) budget.Return(count);
  EXPECT_EQ(budget.left(), 300U);
}

TEST(FsSession, APlaceForAnOpenFileCountsUntilItIsGivenBack) {
  OpenBudget budget(300);
  FsSessionParams params;
  params.budget = &budget;
  params.limits.open_files = 1;
  FsSession session(params, nullptr);
  {
    const OpenPlace place = session.TakePlace();
    EXPECT_NE(place, nullptr);
    EXPECT_EQ(session.TakePlace(), nullptr);
    EXPECT_EQ(budget.left(), 299U);
  }
  EXPECT_EQ(budget.left(), 300U);
  EXPECT_NE(session.TakePlace(), nullptr);
}

TEST(SessionTable, TwoAtOnceGetTheSameSession) {
  SessionTable table(seconds(40));
  const SessionPtr first = table.Add(MakeSession(1), At(0));
  EXPECT_EQ(table.Add(MakeSession(1), At(0)), first);
}

}  // namespace
}  // namespace rdfs::server
