// The grace period: in virtual time, and what the dispatcher makes of it.
#include "server/session/grace.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint At(std::int64_t second) { return TimePoint(seconds(1000 + second)); }

TEST(GracePeriod, IsNoneWithoutAnybodyToWaitFor) {
  GracePeriod grace;
  EXPECT_FALSE(grace.active(At(0)));
  grace.Begin({}, At(20));
  EXPECT_FALSE(grace.active(At(0)));
}

TEST(GracePeriod, EndsWithTheLastOneThatIsBack) {
  GracePeriod grace;
  grace.Begin({1, 2}, At(20));
  EXPECT_EQ(grace.left(At(1)), seconds(19));
  grace.Done(2);
  grace.Done(2);
  grace.Done(77);
  EXPECT_TRUE(grace.active(At(2)));
  EXPECT_EQ(grace.missing(), 1U);
  grace.Done(1);
  EXPECT_FALSE(grace.active(At(2)));
  EXPECT_EQ(grace.left(At(2)), seconds(0));
}

TEST(GracePeriod, EndsByItself) {
  GracePeriod grace;
  grace.Begin({1}, At(20));
  EXPECT_TRUE(grace.active(At(20) - std::chrono::nanoseconds(1)));
  EXPECT_EQ(grace.left(At(20) - std::chrono::nanoseconds(1)), milliseconds(1));
  EXPECT_FALSE(grace.active(At(20)));
}

// Active exactly while somebody is missing and the time has not run out.
TEST(GracePeriod, SchedulesOfManyClients) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::uint64_t> sessions(1 + random() % 50);
    for (std::size_t i = 0; i < sessions.size(); ++i) sessions[i] = i;
    std::set<std::uint64_t> missing(sessions.begin(), sessions.end());
    GracePeriod grace;
    grace.Begin(sessions, At(20));
    for (std::int64_t now = 0; now < 30; ++now) {
      for (auto back = random() % 5; back > 0; --back) {
        const std::uint64_t session = random() % 60;
        grace.Done(session);
        missing.erase(session);
      }
      EXPECT_EQ(grace.active(At(now)), now < 20 && !missing.empty()) << "seed " << seed;
    }
  }
}

class GraceTest : public testing::Test {
 protected:
  GraceTest() {
    std::ofstream(server / "file") << "0123456789";
    open_ = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
    const TimePoint end = BootClock::now() + std::chrono::hours(1);
    server.core().grace.Begin({4711}, end);
  }
  fs::LockRequest Lock(fs::LockType type) const {
    fs::LockRequest lock{};
    lock.open = open_;
    lock.owner = 1;
    lock.type = static_cast<std::uint32_t>(type);
    lock.end = LockTable::kEnd;
    return lock;
  }
  Answer SetAttr(std::uint32_t valid) {
    fs::SetAttrRequest request{};
    request.valid = valid;
    request.mode = 0600;
    return server.Ask(Opcode::kSetAttr, Body().Add(request).Add(server.Walk("file")));
  }
  Harness server{{.record = true}};
  std::uint64_t open_ = 0;
};

TEST_F(GraceTest, WhatCouldTakeFromOthersIsHeldBack) {
  const fs::WireError held = fs::WireError::kGrace;
  const Body file = Body().Add(server.root()).Name("file");
  EXPECT_EQ(server.Ask(Opcode::kUnlink, file).error, held);
  EXPECT_EQ(server
                .Ask(Opcode::kRename, Body()
                                          .Add(fs::RenameRequest{})
                                          .Add(server.root())
                                          .Name("file")
                                          .Add(server.root())
                                          .Name("other"))
                .error,
            held);
  EXPECT_EQ(server.Ask(Opcode::kSetLock, Body().Add(Lock(fs::LockType::kRead))).error, held);
  EXPECT_EQ(SetAttr(fs::kSetMode).error, held);
  // Nothing is held that harms nobody.
  EXPECT_TRUE(SetAttr(fs::kSetMtimeNow).ok());
  EXPECT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(Lock(fs::LockType::kUnlock))).ok());
  EXPECT_TRUE(server.Open(server.Walk("file"), fs::kOpenRead).ok());
  EXPECT_TRUE(server.Write(open_, 0, "x").ok());

  server.core().grace.Done(4711);
  EXPECT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(Lock(fs::LockType::kRead))).ok());
  EXPECT_TRUE(server.Ask(Opcode::kUnlink, file).ok());
}

TEST_F(GraceTest, LocksAreReclaimedByWhoIsWaitedForOnly) {
  const Body lock = Body().Add(Lock(fs::LockType::kWrite));
  EXPECT_EQ(server.Ask(Opcode::kReclaimLock, lock).error, fs::WireError::kGrace);
  server.core().grace.Begin({server.session()->id()}, BootClock::now() + std::chrono::hours(1));
  EXPECT_TRUE(server.Ask(Opcode::kReclaimLock, lock).ok());
  EXPECT_TRUE(server.Ask(Opcode::kReclaimLock, lock).ok()) << "twice is as good as once";
  EXPECT_EQ(server.core().locks.held(), 1U);
  EXPECT_TRUE(server.Ask(Opcode::kGraceEnd, Body()).ok());
  EXPECT_EQ(server.Ask(Opcode::kReclaimLock, lock).error, fs::WireError::kGrace);
}

// Nobody waits any more: what the client had, another one may have had since.
class ReclaimTest : public testing::Test {
 protected:
  explicit ReclaimTest(bool may = true) : server({.may_reclaim = may}) {
    std::ofstream(server / "file") << "0123456789";
    std::ofstream(server / "other") << "0123456789";
    mine_ = server.lane;
    theirs_ = server.NewLane(server.NewSession(77));
  }
  int Ask(const std::shared_ptr<MemoryLane>& lane, Opcode opcode, std::string_view name,
          fs::LockType type, std::uint64_t start = 0, std::uint64_t end = 9) {
    server.lane = lane;
    fs::LockRequest lock{};
    lock.open = OpenOf(lane, name);
    lock.owner = 1;
    lock.type = static_cast<std::uint32_t>(type);
    lock.start = start;
    lock.end = end;
    return server.Ask(opcode, Body().Add(lock)).errno_value();
  }
  std::uint64_t OpenOf(const std::shared_ptr<MemoryLane>& lane, std::string_view name) {
    std::uint64_t& open = opens_[{lane.get(), std::string(name)}];
    if (open == 0) {
      open = server.OpenNumber(
          server.Open(server.Walk(std::string(name)), fs::kOpenRead | fs::kOpenWrite));
    }
    return open;
  }
  static constexpr Opcode kSet = Opcode::kSetLock, kReclaim = Opcode::kReclaimLock;
  static constexpr fs::LockType kWrite = fs::LockType::kWrite, kUnlock = fs::LockType::kUnlock,
                                kRead = fs::LockType::kRead;

  Harness server;
  std::shared_ptr<MemoryLane> mine_, theirs_;

 private:
  std::map<std::pair<const MemoryLane*, std::string>, std::uint64_t> opens_;
};

TEST_F(ReclaimTest, ALockComesBackWhereNobodyElseHadOne) {
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), 0);
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), 0) << "twice is as good as once";
  EXPECT_EQ(Ask(mine_, kSet, "file", kUnlock), 0);
  EXPECT_EQ(Ask(theirs_, kSet, "file", kWrite), 0);
  EXPECT_EQ(Ask(theirs_, kReclaim, "file", kWrite), 0) << "it is held still";
  EXPECT_EQ(Ask(theirs_, kSet, "file", kUnlock), 0);
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), ENOLCK) << "what it was for may have changed";
  EXPECT_EQ(Ask(mine_, kReclaim, "other", kWrite), 0);
  EXPECT_EQ(Ask(mine_, kSet, "file", kWrite), 0) << "anybody may ask for a new one";
}

// It was on its way when the client asked for what it had before.
TEST_F(ReclaimTest, WhatItsOwnerHasBeenGivenSinceStays) {
  EXPECT_EQ(Ask(mine_, kSet, "file", kWrite), 0);
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kRead), 0);
  EXPECT_EQ(Ask(theirs_, kSet, "file", kRead), EAGAIN) << "it is a read lock now";
  // In the middle of what is reclaimed.
  EXPECT_EQ(Ask(mine_, kSet, "other", kWrite, 3, 5), 0);
  EXPECT_EQ(Ask(mine_, kReclaim, "other", kRead), 0);
  EXPECT_EQ(Ask(theirs_, kSet, "other", kRead, 3, 5), EAGAIN);
  EXPECT_EQ(Ask(theirs_, kSet, "other", kWrite, 0, 2), EAGAIN);
  EXPECT_EQ(Ask(theirs_, kSet, "other", kWrite, 6, 9), EAGAIN);
  EXPECT_EQ(Ask(theirs_, kSet, "other", kRead, 0, 2), 0);
}

TEST_F(ReclaimTest, NotForEver) {
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), 0);
  server.core().locks.EndReclaims();
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), 0) << "it is held still";
  EXPECT_EQ(Ask(mine_, kReclaim, "other", kWrite), ENOLCK);
}

class GivenUpTest : public ReclaimTest {
 protected:
  GivenUpTest() : ReclaimTest(false) {}
};

TEST_F(GivenUpTest, HasNoLocksToAskFor) {
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), ENOLCK);
  EXPECT_EQ(Ask(mine_, kSet, "file", kWrite), 0);
  EXPECT_EQ(Ask(mine_, kReclaim, "file", kWrite), 0);
}

TEST_F(GraceTest, AClientSaysThatItIsBack) {
  server.core().grace.Begin({server.session()->id()}, BootClock::now() + std::chrono::hours(1));
  server.core().grace.Done(4711);
  EXPECT_TRUE(server.core().grace.active(BootClock::now()));
  EXPECT_TRUE(server.Ask(Opcode::kGraceEnd, Body()).ok());
  EXPECT_FALSE(server.core().grace.active(BootClock::now()));
}

// What has its record already was carried out in the epoch before: that answer is not held back.
TEST_F(GraceTest, ARecordedAnswerIsGivenAtOnce) {
  server.core().grace.Done(4711);
  const Body body = Body().Add(server.root()).Name("file");
  ASSERT_TRUE(server.Deliver(server.lane, Harness::Message(Opcode::kUnlink, body.bytes(), 500)));
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  server.core().grace.Begin({4711}, BootClock::now() + std::chrono::hours(1));
  ASSERT_TRUE(server.Deliver(server.lane, Harness::Message(Opcode::kUnlink, body.bytes(), 500)));
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
}

}  // namespace
}  // namespace rdfs::server
