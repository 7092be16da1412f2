#include "transport/session/lane_token.h"

#include <gtest/gtest.h>

#include "tests/hex.h"
#include "transport/base/random.h"
#include "transport/session/session_table.h"

namespace rdfs::transport::session {
namespace {

Secret32 CountingSecret() {
  Secret32 secret;
  for (std::size_t i = 0; i < secret.size(); ++i) secret.bytes()[i] = static_cast<std::byte>(i);
  return secret;
}

// Computed once more by an independent program (hashlib, hmac).
TEST(LaneToken, GoldenBytes) {
  const LaneClaim claim{Kind::kShm, 0x0102030405060708, 3};
  EXPECT_EQ(ToHex(IssueLaneToken(claim, CountingSecret())),
            "524c0102000000000807060504030201"
            "0300000000000000"
            "c677ee1519345ce307032a453aec1cb774e5c7209c30bbe5");
  EXPECT_EQ(ToHex(claim.TlsKey(CountingSecret()).bytes()),
            "d2334386f54f15f552345499f383c7338191d1054aed76ea89ec771557a0b9b0");
}

TEST(LaneToken, SaysWhatItWasIssuedFor) {
  const auto token = IssueLaneToken({Kind::kVerbs, 77, 12}, CountingSecret());
  const auto claim = ParseLaneToken(token);
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(claim->kind, Kind::kVerbs);
  EXPECT_EQ(claim->session_id, 77U);
  EXPECT_EQ(claim->counter, 12U);
  EXPECT_TRUE(VerifyLaneToken(token, CountingSecret()));
}

TEST(LaneToken, AnyChangeIsDetected) {
  const auto token = IssueLaneToken({Kind::kTcp, 77, 12}, CountingSecret());
  for (std::size_t byte = 0; byte < token.size(); ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto changed = token;
      changed[byte] ^= static_cast<std::byte>(1U << bit);
      EXPECT_FALSE(ParseLaneToken(changed).ok() && VerifyLaneToken(changed, CountingSecret()))
          << byte << "." << bit;
    }
  }
}

TEST(LaneToken, AnyOtherLengthIsNoToken) {
  const auto token = IssueLaneToken({Kind::kTcp, 77, 12}, CountingSecret());
  std::vector<std::byte> bytes(token.begin(), token.end());
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(ParseLaneToken(bytes).ok());
  EXPECT_FALSE(VerifyLaneToken(bytes, CountingSecret()));
  for (std::size_t size = 0; size < token.size(); ++size) {
    EXPECT_FALSE(ParseLaneToken(ByteSpan(token).first(size)).ok());
    EXPECT_FALSE(VerifyLaneToken(ByteSpan(token).first(size), CountingSecret()));
  }
}

class SessionTableTest : public testing::Test {
 protected:
  SessionTableTest() { EXPECT_TRUE(table_.Add(TicketOf(7, 1), clock_.Now()).ok()); }

  static Secret32 SecretOf(int fill) {
    Secret32 secret;
    for (auto& byte : secret.bytes()) byte = static_cast<std::byte>(fill);
    return secret;
  }
  static SessionTable::Ticket TicketOf(std::uint64_t id, int fill) {
    return {id, nullptr, nullptr, SecretOf(fill), false};
  }
  Status Redeem(const LaneTokenBytes& token, Kind kind = Kind::kTcp) {
    return table_.Redeem(token, kind, clock_.Now()).status();
  }

  ManualClock clock_;
  SessionTable table_;
};

TEST_F(SessionTableTest, ATokenOpensOneLane) {
  const auto token = IssueLaneToken({Kind::kTcp, 7, 1}, SecretOf(1));
  EXPECT_TRUE(Redeem(token).ok());
  EXPECT_EQ(Redeem(token).code(), Code::kAuthenticationFailed) << "a replay";
}

TEST_F(SessionTableTest, OldTokensStayUsedForEver) {
  EXPECT_TRUE(Redeem(IssueLaneToken({Kind::kTcp, 7, 5}, SecretOf(1))).ok());
  for (std::uint64_t counter = 0; counter <= 5; ++counter) {
    EXPECT_FALSE(Redeem(IssueLaneToken({Kind::kTcp, 7, counter}, SecretOf(1))).ok()) << counter;
  }
  EXPECT_TRUE(Redeem(IssueLaneToken({Kind::kTcp, 7, 6}, SecretOf(1))).ok());
}

TEST_F(SessionTableTest, ATokenOfAnotherSessionOpensNothing) {
  ASSERT_TRUE(table_.Add(TicketOf(8, 2), clock_.Now()).ok());
  EXPECT_FALSE(Redeem(IssueLaneToken({Kind::kTcp, 8, 1}, SecretOf(1))).ok());
  EXPECT_FALSE(Redeem(IssueLaneToken({Kind::kTcp, 7, 1}, SecretOf(2))).ok());
  EXPECT_FALSE(Redeem(IssueLaneToken({Kind::kTcp, 9, 1}, SecretOf(1))).ok());
}

TEST_F(SessionTableTest, ATokenOfOneTransportOpensNothingOnAnother) {
  const auto token = IssueLaneToken({Kind::kShm, 7, 1}, SecretOf(1));
  EXPECT_FALSE(Redeem(token, Kind::kTcp).ok());
  EXPECT_TRUE(Redeem(token, Kind::kShm).ok()) << "the wrong try must not have used it up";
}

TEST_F(SessionTableTest, ForgedTokensUseNothingUp) {
  auto forged = IssueLaneToken({Kind::kTcp, 7, 1'000'000}, SecretOf(3));
  EXPECT_FALSE(Redeem(forged).ok());
  EXPECT_TRUE(Redeem(IssueLaneToken({Kind::kTcp, 7, 1}, SecretOf(1))).ok());
}

TEST_F(SessionTableTest, AnEndedSessionOpensNothing) {
  EXPECT_NE(table_.Remove(7), nullptr);
  EXPECT_EQ(table_.Remove(7), nullptr);
  EXPECT_FALSE(Redeem(IssueLaneToken({Kind::kTcp, 7, 1}, SecretOf(1))).ok());
}

TEST_F(SessionTableTest, BoundsHowFastASessionOpensLanes) {
  std::uint64_t counter = 0;
  const auto next = [&] { return Redeem(IssueLaneToken({Kind::kTcp, 7, ++counter}, SecretOf(1))); };
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(next().ok());
  EXPECT_EQ(next().code(), Code::kBusy);
  clock_.Advance(std::chrono::milliseconds(300));
  EXPECT_TRUE(next().ok());
  EXPECT_EQ(next().code(), Code::kBusy);
}

TEST_F(SessionTableTest, BoundsSessions) {
  for (std::uint64_t i = 1; i < SessionTable::kMaxSessions; ++i) {
    ASSERT_TRUE(table_.Add(TicketOf(table_.NewId(), 1), clock_.Now()).ok());
  }
  EXPECT_EQ(table_.Add(TicketOf(table_.NewId(), 1), clock_.Now()).code(), Code::kBusy);
  table_.Remove(7);
  EXPECT_TRUE(table_.Add(TicketOf(table_.NewId(), 1), clock_.Now()).ok());
}

TEST_F(SessionTableTest, WhoComesBackIsNotRefusedByAFullTable) {
  const auto add = [&](std::uint64_t id, const std::shared_ptr<void>& context) {
    SessionTable::Ticket ticket = TicketOf(id, 1);
    ticket.context = context;
    return table_.Add(std::move(ticket), clock_.Now()).ok();
  };
  const auto client = std::make_shared<int>();
  ASSERT_TRUE(add(8, client));
  EXPECT_EQ(table_.OldestOf(client), std::nullopt);
  while (table_.size() < SessionTable::kMaxSessions) ASSERT_TRUE(add(table_.NewId(), nullptr));
  EXPECT_EQ(table_.OldestOf(client), 8U);
  EXPECT_EQ(table_.OldestOf(std::make_shared<int>()), std::nullopt);
}

}  // namespace
}  // namespace rdfs::transport::session
