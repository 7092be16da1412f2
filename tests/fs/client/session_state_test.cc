#include "fs/client/session_state.h"

#include <gtest/gtest.h>

#include <thread>

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(SequenceCounter, AcknowledgesUpToTheOldestUnanswered) {
  SequenceCounter counter;
  EXPECT_EQ(counter.Acknowledged(), 0U);
  EXPECT_EQ(counter.Take(0), 1U);
  counter.SetOldest(0, 1);
  EXPECT_EQ(counter.Take(1), 2U);
  counter.SetOldest(1, 2);
  EXPECT_EQ(counter.Acknowledged(), 0U);
  counter.SetOldest(0, SequenceCounter::kIdle);
  EXPECT_EQ(counter.Acknowledged(), 1U);
  counter.SetOldest(1, SequenceCounter::kIdle);
  EXPECT_EQ(counter.Acknowledged(), 2U);
}

// No number is ever acknowledged between being taken and being answered, whoever computes it.
TEST(SequenceCounter, NeverAcknowledgesWhatIsUnanswered) {
  SequenceCounter counter;
  std::atomic<bool> failed{false};
  std::vector<std::jthread> lanes;
  for (std::size_t cell = 0; cell < 3; ++cell) {
    lanes.emplace_back([&, cell] {
      for (int i = 0; i < 20000; ++i) {
        const std::uint64_t sequence = counter.Take(cell);
        if (counter.Acknowledged() >= sequence) failed = true;
        counter.SetOldest(cell, sequence);
        if (counter.Acknowledged() >= sequence) failed = true;
        counter.SetOldest(cell, SequenceCounter::kIdle);
      }
    });
  }
  lanes.clear();
  EXPECT_FALSE(failed);
  EXPECT_EQ(counter.Acknowledged(), 60000U);
}

TEST(Backoff, StartsAtOnceAndGrowsToABound) {
  Backoff backoff(42);
  EXPECT_EQ(backoff.Next(), milliseconds(0));
  milliseconds before{0};
  for (int i = 0; i < 40; ++i) {
    const milliseconds pause = backoff.Next();
    EXPECT_GE(pause, milliseconds(50));
    EXPECT_LE(pause, milliseconds(2500));
    if (i < 5) {
      EXPECT_GT(pause, before);
    }
    before = pause;
  }
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), milliseconds(0));
}

TEST(Heartbeat, AsksAfterAThirdOfTheLeaseAndGivesUpAfterAnother) {
  Heartbeat heartbeat(seconds(9));
  heartbeat.OnReceived(kStart);
  EXPECT_EQ(heartbeat.NextCheck(), kStart + seconds(3));
  EXPECT_EQ(heartbeat.Check(kStart + milliseconds(2999)), Heartbeat::Action::kNone);
  EXPECT_EQ(heartbeat.Check(kStart + seconds(3)), Heartbeat::Action::kAsk);
  EXPECT_EQ(heartbeat.Check(kStart + seconds(5)), Heartbeat::Action::kNone);
  EXPECT_EQ(heartbeat.Check(kStart + seconds(6)), Heartbeat::Action::kDead);
}

TEST(Heartbeat, CallsThatWaitForLessHaveTimeLeftForAnotherConnection) {
  Heartbeat heartbeat(seconds(30), seconds(9));
  heartbeat.OnReceived(kStart);
  EXPECT_EQ(heartbeat.Check(kStart + seconds(3)), Heartbeat::Action::kAsk);
  EXPECT_EQ(heartbeat.Check(kStart + seconds(6)), Heartbeat::Action::kDead);
  EXPECT_EQ(Heartbeat(seconds(9), seconds(30)).NextCheck(), TimePoint() + seconds(3));
  EXPECT_EQ(Heartbeat(seconds(9), seconds(0)).NextCheck(), TimePoint() + seconds(3));
}

TEST(Heartbeat, AnyWordCounts) {
  Heartbeat heartbeat(seconds(9));
  heartbeat.OnReceived(kStart);
  ASSERT_EQ(heartbeat.Check(kStart + seconds(3)), Heartbeat::Action::kAsk);
  heartbeat.OnReceived(kStart + seconds(4));
  EXPECT_EQ(heartbeat.Check(kStart + seconds(6)), Heartbeat::Action::kNone);
  EXPECT_EQ(heartbeat.Check(kStart + seconds(7)), Heartbeat::Action::kAsk);
}

class SessionStateTest : public testing::Test {
 protected:
  static std::vector<std::byte> GrantBytes(const MountGrant& grant, bool with_root = true) {
    std::vector<std::byte> bytes(1024);
    ByteWriter writer(bytes);
    writer.Write(grant);
    Entry root{};
    root.handle = *Handle::FromBytes(AsBytes("root"));
    if (with_root) WriteEntry(writer, root);
    bytes.resize(writer.size());
    return bytes;
  }
  static MountGrant MakeGrant(std::uint64_t epoch, std::uint32_t flags = 0) {
    return {.major = kProtocolMajor,
            .minor = 0,
            .session = 5,
            .epoch = epoch,
            .verifier = 1,
            .lease_ms = 30000,
            .attr_lease_ms = 1000,
            .grace_ms = 0,
            .flags = flags,
            .max_transfer_bytes = 1 << 20};
  }
  SessionState state_ = SessionState::Create("export", "host", 1000, 100, kMountReadOnly);
};

TEST_F(SessionStateTest, AsksWithTheEpochThatItKnows) {
  const std::vector<std::byte> first = state_.Request();
  ByteReader reader(first);
  const auto request = reader.Read<MountRequest>();
  EXPECT_EQ(AsText(reader.ReadSized16(255)), "export");
  EXPECT_EQ(AsText(reader.ReadSized16(255)), "host");
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_EQ(std::uint64_t{request.last_epoch}, 0U);
  EXPECT_EQ(std::uint32_t{request.uid}, 1000U);

  ASSERT_TRUE(state_.OnGrant(GrantBytes(MakeGrant(77)), kStart).ok());
  const std::vector<std::byte> second = state_.Request();
  const auto again = ByteReader(second).Read<MountRequest>();
  EXPECT_EQ(std::uint64_t{again.last_epoch}, 77U);
  EXPECT_EQ(again.client_id, request.client_id);
}

TEST_F(SessionStateTest, ReclaimsUnlessResumed) {
  const Result<Admission> first = state_.OnGrant(GrantBytes(MakeGrant(1)), kStart);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->must_reclaim);  // there is nothing yet
  const Result<Admission> resumed = state_.OnGrant(GrantBytes(MakeGrant(1, kGrantResumed)), kStart);
  ASSERT_TRUE(resumed.ok());
  EXPECT_FALSE(resumed->must_reclaim);
  const Result<Admission> restarted = state_.OnGrant(GrantBytes(MakeGrant(2)), kStart);
  ASSERT_TRUE(restarted.ok());
  EXPECT_TRUE(restarted->must_reclaim);
  // The session that is resumed is one whose grant never arrived.
  const auto unheard = state_.OnGrant(GrantBytes(MakeGrant(3, kGrantResumed)), kStart);
  ASSERT_TRUE(unheard.ok());
  EXPECT_TRUE(unheard->must_reclaim);
  EXPECT_FALSE(unheard->resumed);
  EXPECT_GT(restarted->generation, resumed->generation);
}

TEST_F(SessionStateTest, RefusesGrantsThatNoCorrectServerGives) {
  EXPECT_EQ(state_.OnGrant({}, kStart).status().code(), Code::kProtocolError);
  EXPECT_EQ(state_.OnGrant(GrantBytes(MakeGrant(1), false), kStart).status().code(),
            Code::kProtocolError);
  EXPECT_EQ(state_.OnGrant(GrantBytes(MakeGrant(0)), kStart).status().code(), Code::kProtocolError);
  MountGrant other = MakeGrant(1);
  other.major = 2;
  EXPECT_EQ(state_.OnGrant(GrantBytes(other), kStart).status().code(), Code::kVersionMismatch);
  const std::vector<std::byte> whole = GrantBytes(MakeGrant(1));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(state_.OnGrant(ByteSpan(whole).first(size), kStart).ok()) << size;
  }
}

}  // namespace
}  // namespace rdfs::fs::client
