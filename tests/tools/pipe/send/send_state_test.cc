// What rdsend decides, event by event, in virtual time.
#include "tools/pipe/send/send_state.h"

#include <gtest/gtest.h>

namespace rdfs::pipe {
namespace {

using std::chrono_literals::operator""s;
using Kind = SendAction::Kind;

constexpr std::uint32_t kSlot = 4096;

class SendStateTest : public testing::Test {
 protected:
  // The kinds of what was asked for since the last call.
  std::vector<Kind> Took() {
    std::vector<Kind> kinds;
    for (const SendAction& action : actions_) kinds.push_back(action.kind);
    last_ = std::move(actions_);
    actions_.clear();
    return kinds;
  }
  void Hear(const Bytes& message) { state_.OnMessage(message, now_, actions_); }
  void Welcomed(std::uint32_t slots) {
    Welcome welcome;
    welcome.ring.length = std::uint64_t{kSlot} * slots;
    welcome.slot_bytes = kSlot;
    welcome.slots = slots;
    Hear(welcome.Encode());
    EXPECT_EQ(Took(), std::vector{Kind::kCheck});
    state_.OnChecked(0, now_, actions_);
    EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kStart}));
  }
  void Made(std::uint64_t sequence) {
    ReadyRecord record;
    record.header.type = 3;
    record.header.kind = 1;
    record.header.sequence = sequence;
    record.header.offset = sequence * 10;
    record.header.length = 10;
    record.header.wire_bytes = 10;
    record.buffer = static_cast<std::uint32_t>(sequence % 3);
    state_.OnRecord(record, now_, actions_);
  }
  void Credit(std::uint64_t stored) { Hear(EncodeNumber(MessageType::kCredit, stored)); }
  EndWire TheEnd() {
    const auto end = DecodeEnd(last_.back().message);
    EXPECT_TRUE(end.ok());
    return end.ok() ? *end : EndWire{};
  }
  std::string Why() { return state_.status().message(); }

  TimePoint now_{100s};
  SendActions actions_, last_;
  SendState state_{std::nullopt, std::nullopt, 60s, now_};
};

const std::vector kOneRecord{Kind::kWrite, Kind::kSend};

TEST_F(SendStateTest, NeverMoreThanTheRingTakes) {
  Welcomed(2);
  Made(1);
  EXPECT_TRUE(Took().empty());  // record 0 goes first
  Made(0);
  EXPECT_EQ(Took(), (std::vector{Kind::kWrite, Kind::kSend, Kind::kWrite, Kind::kSend}));
  EXPECT_EQ(last_[2].slot, 1U);
  EXPECT_EQ(last_[2].buffer, 1U);
  Made(2);
  EXPECT_TRUE(Took().empty());
  Credit(1);
  EXPECT_EQ(Took(), kOneRecord);
  EXPECT_EQ(last_[0].slot, 0U);
}

TEST_F(SendStateTest, TheEndIsWhatTheReceiverConfirms) {
  Welcomed(4);
  state_.OnSourceEnd(2, 20, now_, actions_);
  EXPECT_TRUE(Took().empty());  // records are still being made
  Made(0);
  Made(1);
  EXPECT_EQ(Took().size(), 5U);
  EndWire stored = TheEnd();
  EXPECT_EQ(stored.number, 2U);
  EXPECT_EQ(stored.length, 20U);
  stored.type = 6;
  stored.number = 0;
  Hear(ToBytes(stored));
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kFinish}));
  EXPECT_TRUE(state_.over());
  EXPECT_TRUE(state_.status().ok());
}

TEST_F(SendStateTest, ReceiversThatFailedAreToldAndCounted) {
  Welcomed(4);
  state_.OnSourceEnd(0, 0, now_, actions_);
  (void)Took();
  EndWire stored = TheEnd();
  stored.type = 6;
  stored.number = 1;
  Hear(EncodeReport({"b:2", Status(Code::kDisconnected, "gone")}));
  Hear(ToBytes(stored));
  EXPECT_TRUE(state_.status().ok());
  ASSERT_EQ(state_.failed().size(), 1U);
  EXPECT_EQ(state_.failed()[0].name, "b:2");
}

TEST_F(SendStateTest, AReportThatIsMissingIsNoConfirmation) {
  Welcomed(4);
  state_.OnSourceEnd(0, 0, now_, actions_);
  (void)Took();
  EndWire stored = TheEnd();
  stored.type = 6;
  stored.number = 1;
  Hear(ToBytes(stored));
  EXPECT_FALSE(state_.status().ok());
}

TEST_F(SendStateTest, AReportBeforeTheEndIsOutOfTurn) {
  Welcomed(4);
  Hear(EncodeReport({"b:2", Status(Code::kDisconnected, "gone")}));
  EXPECT_FALSE(state_.status().ok());
}

TEST_F(SendStateTest, AnotherLengthOrDigestIsNoConfirmation) {
  Welcomed(4);
  state_.OnSourceEnd(0, 0, now_, actions_);
  (void)Took();
  EndWire stored = TheEnd();
  stored.type = 6;
  stored.digest[3] ^= std::byte{1};
  Hear(ToBytes(stored));
  EXPECT_TRUE(state_.over());
  EXPECT_FALSE(state_.status().ok());
}

TEST_F(SendStateTest, ALostConnectionIsNeverASuccess) {
  Welcomed(4);
  state_.OnSourceEnd(0, 0, now_, actions_);
  (void)Took();
  state_.Lost(Status(Code::kDisconnected, "bye"), actions_);
  EXPECT_EQ(Took(), std::vector{Kind::kFinish});
  EXPECT_EQ(Why(), "the receiver is gone before it confirmed the end (bye)");
}

TEST_F(SendStateTest, ConfirmingTooSoon) {
  Welcomed(4);
  EndWire stored{};
  stored.type = 6;
  Hear(ToBytes(stored));
  EXPECT_EQ(state_.status().code(), Code::kProtocolError);
}

TEST_F(SendStateTest, CreditsForWhatWasNeverSent) {
  Welcomed(4);
  Made(0);
  (void)Took();
  Credit(2);
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kFinish}));
  EXPECT_EQ(TypeOf(last_[0].message), MessageType::kAbort);
  EXPECT_EQ(state_.status().code(), Code::kProtocolError);
}

TEST_F(SendStateTest, AFailureOfOursIsToldAndFirst) {
  Welcomed(4);
  state_.Fail(Status::FromErrno(EIO, "cannot read x"), actions_);
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kFinish}));
  EXPECT_EQ(DecodeAbort(last_[0].message).message(), "cannot read x: Input/output error");
  state_.Lost(Status(Code::kDisconnected, "bye"), actions_);
  Made(0);
  Credit(1);
  state_.OnTime(now_ + 1000s, actions_);
  EXPECT_TRUE(Took().empty());
  EXPECT_EQ(Why(), "cannot read x: Input/output error");
}

TEST_F(SendStateTest, AFailureOfTheReceiversIsTold) {
  Welcomed(4);
  Hear(EncodeAbort(Status(Code::kErrno, "the disk is full")));
  EXPECT_EQ(Took(), std::vector{Kind::kFinish});
  EXPECT_EQ(Why(), "the receiver gave up: the disk is full");
}

TEST_F(SendStateTest, ASilentPeerIsGivenUp) {
  Welcomed(4);
  for (int i = 0; i < 100; ++i) {  // idle, and alive
    now_ = state_.NextTime();
    state_.OnTime(now_, actions_);
    EXPECT_EQ(Took(), std::vector{Kind::kSend});
    EXPECT_EQ(TypeOf(last_[0].message), MessageType::kPing);
    Hear(EncodeBare(MessageType::kPing));
  }
  const TimePoint heard = now_;
  while (!state_.over()) state_.OnTime(now_ = state_.NextTime(), actions_);
  EXPECT_EQ(now_ - heard, 60s);
  EXPECT_NE(Why().find("silent for 60 s"), std::string::npos);
}

// Whose limit is shorter than ours hears from us as often as it asks.
TEST_F(SendStateTest, APingIsAnsweredAndAnAnswerIsNot) {
  Welcomed(4);
  for (int i = 0; i < 10; ++i) {
    now_ += std::chrono::milliseconds(500);
    Hear(EncodeBare(MessageType::kPing));
    ASSERT_EQ(Took(), std::vector{Kind::kSend});
    EXPECT_EQ(TypeOf(last_[0].message), MessageType::kPing);
    now_ += std::chrono::milliseconds(1);
    Hear(EncodeBare(MessageType::kPing));
    EXPECT_TRUE(Took().empty());
  }
}

TEST_F(SendStateTest, MalformedMessagesEndIt) {
  for (const Bytes& message :
       {Bytes{}, Bytes{std::byte{77}}, EncodeBare(MessageType::kWelcome),
        EncodeNumber(MessageType::kBegin, 0), EncodeBare(MessageType::kFarewell)}) {
    SendState state(std::nullopt, std::nullopt, 60s, now_);
    state.OnMessage(message, now_, actions_);
    EXPECT_EQ(state.status().code(), Code::kProtocolError);
  }
}

TEST_F(SendStateTest, WhatTheReceiverHasIsCheckedFirst) {
  Welcome welcome;
  welcome.ring.length = kSlot;
  welcome.slot_bytes = kSlot;
  welcome.slots = 1;
  welcome.block_bytes = 100;
  welcome.have_bytes = 250;
  welcome.blocks.resize(3);
  Hear(welcome.Encode());
  EXPECT_EQ(Took(), std::vector{Kind::kCheck});
  state_.OnChecked(200, now_, actions_);
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kStart}));
  EXPECT_EQ(last_[1].offset, 200U);
  const auto begin = DecodeNumber(last_[0].message);
  ASSERT_TRUE(begin.ok());
  EXPECT_EQ(*begin, 200U);
}

}  // namespace
}  // namespace rdfs::pipe
