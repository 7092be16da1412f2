#include "transport/session/rate_limit.h"

#include <gtest/gtest.h>

#include <vector>

namespace rdfs::transport::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

PeerAddress Address(int host) {
  PeerAddress out{};
  out[14] = static_cast<std::byte>(host >> 8);
  out[15] = static_cast<std::byte>(host & 255);
  return out;
}

HalfOpen Open(int host, int progress, int since_ms) {
  return {Address(host), progress, TimePoint(milliseconds(since_ms))};
}

TEST(HalfOpenLimit, LetsInWhileThereIsRoom) {
  const std::vector<HalfOpen> open = {Open(1, 0, 1), Open(1, 0, 2)};
  EXPECT_EQ(ChooseVictim(open, Address(1), {4, 3}), std::nullopt);
  EXPECT_EQ(ChooseVictim({}, Address(1), {4, 3}), std::nullopt);
}

TEST(HalfOpenLimit, AFullAddressMakesRoomAmongItsOwn) {
  const std::vector<HalfOpen> open = {Open(2, 0, 0), Open(1, 0, 5), Open(1, 0, 3), Open(1, 0, 4)};
  EXPECT_EQ(ChooseVictim(open, Address(1), {8, 3}), 2U) << "the oldest of that address";
  EXPECT_EQ(ChooseVictim(open, Address(2), {8, 3}), std::nullopt);
}

TEST(HalfOpenLimit, SilentOnesGoBeforeThoseThatAnswer) {
  const std::vector<HalfOpen> open = {Open(1, 2, 0), Open(1, 1, 1), Open(1, 0, 9)};
  EXPECT_EQ(ChooseVictim(open, Address(1), {8, 1}), 2U);
  EXPECT_EQ(ChooseVictim(open, Address(1), {8, 8, 3}), 2U);
}

TEST(HalfOpenLimit, ThoseThatAnswerDoNotDriveEachOtherOutSoSoon) {
  std::vector<HalfOpen> open;
  for (int i = 0; i < 6; ++i) open.push_back(Open(1, 1, i));
  open.push_back(Open(1, 0, 6));
  EXPECT_EQ(ChooseVictim(open, Address(1), {20, 2, 8}), std::nullopt);
  open.push_back(Open(1, -1, 7));
  EXPECT_EQ(ChooseVictim(open, Address(1), {20, 2, 9}), 7U) << "one that has failed goes first";
  open.back() = Open(1, 1, 7);
  open.front() = Open(1, 2, 0);
  open[6] = Open(1, 2, 6);
  EXPECT_EQ(ChooseVictim(open, Address(1), {20, 2, 8}), 1U) << "the oldest with least progress";
  EXPECT_EQ(ChooseVictim(open, Address(2), {20, 2, 8}), std::nullopt);
}

TEST(HalfOpenLimit, AFullTableMakesRoomAmongAll) {
  const std::vector<HalfOpen> open = {Open(1, 1, 0), Open(2, 0, 7), Open(3, 0, 6)};
  EXPECT_EQ(ChooseVictim(open, Address(4), {3, 3}), 2U);
}

// A flood of silent connections from one address, one every 100 us, and a client of the same
// address that needs 20 ms for each of its two messages: it is never the one to go.
TEST(HalfOpenLimit, AnAnsweringClientOutlivesAFlood) {
  std::vector<HalfOpen> open;
  HalfOpen client = Open(1, 0, 0);
  client.address = Address(1);
  for (int step = 0; step < 400; ++step) {
    const TimePoint now(std::chrono::microseconds(100 * step));
    if (step == 1) open.push_back({Address(1), 1, now});  // its hello came with the connection
    if (const auto victim = ChooseVictim(open, Address(1), {})) {
      EXPECT_EQ(open[*victim].progress, 0);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(*victim));
    }
    open.push_back({Address(1), 0, now});
    EXPECT_LE(open.size(), HalfOpenLimits{}.per_address + 1);
  }
}

TEST(WrongKeyLimit, HoldsTheAnswerLongerAndLonger) {
  ManualClock clock;
  WrongKeyLimit limit;
  WrongKeyLimit::Duration last{0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(limit.OnWrongKey(Address(1), clock.Now()).count(), 0) << i;
  for (int i = 0; i < 20; ++i) {
    const auto hold = limit.OnWrongKey(Address(1), clock.Now());
    EXPECT_GE(hold, last);
    EXPECT_GE(hold, WrongKeyLimit::kFirstHold);
    EXPECT_LE(hold, WrongKeyLimit::kLongestHold);
    last = hold;
  }
  EXPECT_EQ(last, WrongKeyLimit::kLongestHold);
}

TEST(WrongKeyLimit, AsManyAreFreeAsItIsTold) {
  for (const std::size_t free : {1U, 3U, 20U}) {
    ManualClock clock;
    WrongKeyLimit limit(free);
    for (std::size_t i = 0; i < free; ++i) {
      EXPECT_EQ(limit.OnWrongKey(Address(1), clock.Now()).count(), 0);
    }
    EXPECT_EQ(limit.OnWrongKey(Address(1), clock.Now()), WrongKeyLimit::kFirstHold);
    for (int i = 0; i < 10; ++i) (void)limit.OnWrongKey(Address(1), clock.Now());
    EXPECT_EQ(limit.OnWrongKey(Address(1), clock.Now()), WrongKeyLimit::kLongestHold) << free;
  }
}

TEST(WrongKeyLimit, AddressesDoNotPayForEachOther) {
  ManualClock clock;
  WrongKeyLimit limit;
  for (int i = 0; i < 100; ++i) (void)limit.OnWrongKey(Address(1), clock.Now());
  EXPECT_EQ(limit.OnWrongKey(Address(2), clock.Now()).count(), 0);
}

TEST(WrongKeyLimit, ForgetsOneFailureASecond) {
  ManualClock clock;
  WrongKeyLimit limit;
  for (int i = 0; i < 1000; ++i) (void)limit.OnWrongKey(Address(1), clock.Now());
  clock.Advance(seconds(9));
  EXPECT_EQ(limit.OnWrongKey(Address(1), clock.Now()).count(), 0);
}

TEST(WrongKeyLimit, RemembersABoundedNumberOfAddresses) {
  ManualClock clock;
  WrongKeyLimit limit;
  for (int i = 0; i < 3000; ++i) {
    clock.Advance(milliseconds(1));
    (void)limit.OnWrongKey(Address(i), clock.Now());
  }
  EXPECT_EQ(limit.addresses(), WrongKeyLimit::kMaxAddresses);
}

TEST(TokenBucket, GivesABurstAndThenARate) {
  ManualClock clock;
  TokenBucket bucket(3, 2, clock.Now());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(clock.Now()));
  EXPECT_FALSE(bucket.Take(clock.Now()));
  clock.Advance(milliseconds(500));
  EXPECT_TRUE(bucket.Take(clock.Now()));
  EXPECT_FALSE(bucket.Take(clock.Now()));
  clock.Advance(seconds(60));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(clock.Now()));
  EXPECT_FALSE(bucket.Take(clock.Now()));
}

}  // namespace
}  // namespace rdfs::transport::session
