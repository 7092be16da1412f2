#include "fs/client/request_table.h"

#include <gtest/gtest.h>

namespace rdfs::fs::client {
namespace {

using std::chrono::seconds;
using Verdict = RequestTable::Verdict;

constexpr TimePoint kStart{std::chrono::hours(1)};
constexpr TimePoint kNever = TimePoint::max();

class RequestTableTest : public testing::Test {
 protected:
  // A call whose request is on the wire.
  Slot Sent(Opcode opcode, TimePoint deadline = kNever) {
    const Slot slot = *table_.Open(deadline);
    table_.Queue(slot, opcode);
    EXPECT_EQ(table_.Next(), slot);
    table_.MarkSent(slot);
    return slot;
  }
  SequenceCounter sequences_;
  RequestTable table_{sequences_, 0, 4};
};

TEST_F(RequestTableTest, AnswersReachTheirCall) {
  const Slot slot = Sent(Opcode::kLookup);
  const std::uint64_t ticket = table_.TicketOf(slot);
  const std::uint64_t sequence = table_.SequenceOf(slot);
  EXPECT_EQ(sequences_.Acknowledged(), 0U);
  const RequestTable::Arrival arrival = table_.OnReply(sequence, Opcode::kLookup);
  EXPECT_EQ(arrival.verdict, Verdict::kDeliver);
  EXPECT_EQ(arrival.slot, slot);
  EXPECT_EQ(sequences_.Acknowledged(), 1U);
  EXPECT_EQ(table_.Find(ticket), slot);
  table_.Finish(slot);
  EXPECT_EQ(table_.Find(ticket), std::nullopt);
  EXPECT_EQ(table_.open_calls(), 0U);
}

TEST_F(RequestTableTest, AnswersToNothingAreTold) {
  const Slot slot = Sent(Opcode::kLookup);
  const std::uint64_t sequence = table_.SequenceOf(slot);
  EXPECT_EQ(table_.OnReply(sequence + 1, Opcode::kLookup).verdict, Verdict::kUnknown);
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kMkdir).verdict, Verdict::kUnknown);
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kLookup).verdict, Verdict::kDeliver);
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kLookup).verdict, Verdict::kUnknown);  // twice
}

TEST_F(RequestTableTest, TheWireHasABoundThatUrgentOnesPass) {
  for (int i = 0; i < 4; ++i) Sent(Opcode::kSetLock);
  const Slot waits = *table_.Open(kNever);
  table_.Queue(waits, Opcode::kLookup);
  EXPECT_EQ(table_.Next(), std::nullopt);
  const Slot urgent = *table_.Open(kNever);
  table_.QueueUrgent(urgent, Opcode::kInterrupt);
  EXPECT_EQ(table_.Next(), urgent);
  table_.MarkSent(urgent);
  EXPECT_EQ(table_.Next(), std::nullopt);
}

TEST_F(RequestTableTest, AnUrgentOneThatIsAskedAgainIsSentOnce) {
  const Slot urgent = *table_.Open(kNever);
  table_.QueueUrgent(urgent, Opcode::kReclaimLock);
  const std::uint64_t sequence = table_.MarkSent(urgent).sequence;
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kReclaimLock).slot, urgent);
  table_.Queue(urgent, Opcode::kReclaimLock);  // the server said: not yet
  EXPECT_EQ(table_.Next(), urgent);
  table_.MarkSent(urgent);
  EXPECT_EQ(table_.Next(), std::nullopt);
}

TEST_F(RequestTableTest, WhatMayWaitForEverHoldsNothingUp) {
  std::vector<Slot> waiting;
  for (int i = 0; i < 100; ++i) {
    waiting.push_back(*table_.Open(kNever));
    table_.MayWait(waiting.back());
    table_.Queue(waiting.back(), Opcode::kSetLock);
    ASSERT_EQ(table_.Next(), waiting.back());
    table_.MarkSent(waiting.back());
  }
  const Slot other = Sent(Opcode::kMkdir);
  EXPECT_EQ(table_.on_wire(), 101U);
  EXPECT_EQ(sequences_.Acknowledged(), table_.SequenceOf(other) - 1);
  EXPECT_EQ(table_.OnReply(table_.SequenceOf(other), Opcode::kMkdir).slot, other);
  EXPECT_EQ(sequences_.Acknowledged(), 101U);
  const std::uint64_t sequence = table_.SequenceOf(waiting[7]);
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kSetLock).slot, waiting[7]);
  EXPECT_EQ(table_.ConnectionLost().again, 99U);
  EXPECT_EQ(table_.on_wire(), 0U);
}

TEST_F(RequestTableTest, ALostConnectionSendsAgainInTheOrderOfSequences) {
  const Slot first = Sent(Opcode::kMkdir);
  const Slot second = Sent(Opcode::kRename);
  const Slot never_sent = *table_.Open(kNever);
  table_.Queue(never_sent, Opcode::kLookup);
  const Slot idle = *table_.Open(kNever);
  const std::uint64_t sequence = table_.SequenceOf(first);

  const RequestTable::Lost lost = table_.ConnectionLost();
  EXPECT_EQ(lost.again, 2U);
  EXPECT_EQ(lost.idle, std::vector<Slot>{idle});
  // An answer that comes now comes from nowhere.
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kMkdir).verdict, Verdict::kUnknown);
  for (const Slot slot : {first, second}) {
    ASSERT_EQ(table_.Next(), slot);
    const RequestTable::Sent sent = table_.MarkSent(slot);
    EXPECT_TRUE(sent.sent_before);
  }
  EXPECT_EQ(table_.SequenceOf(first), sequence);
  ASSERT_EQ(table_.Next(), never_sent);
  EXPECT_FALSE(table_.MarkSent(never_sent).sent_before);
  EXPECT_EQ(sequences_.Acknowledged(), 0U);
}

TEST_F(RequestTableTest, ACallThatGaveUpKeepsItsPlaceForTheLateAnswer) {
  const Slot slot = Sent(Opcode::kMkdir, kStart + seconds(1));
  EXPECT_TRUE(table_.Expire(kStart).empty());
  EXPECT_EQ(table_.Expire(kStart + seconds(1)), std::vector<Slot>{slot});
  const std::uint64_t sequence = table_.SequenceOf(slot);
  table_.Finish(slot);
  EXPECT_FALSE(table_.IsFree(slot));
  EXPECT_EQ(sequences_.Acknowledged(), 0U);  // its record must stay
  EXPECT_EQ(table_.OnReply(sequence, Opcode::kMkdir).verdict, Verdict::kLate);
  EXPECT_TRUE(table_.IsFree(slot));
  EXPECT_EQ(sequences_.Acknowledged(), 1U);
}

TEST_F(RequestTableTest, ACallThatGaveUpIsNotSentAgain) {
  const Slot slot = Sent(Opcode::kMkdir);
  table_.Finish(slot);
  EXPECT_EQ(table_.ConnectionLost().again, 0U);
  EXPECT_TRUE(table_.IsFree(slot));
  EXPECT_EQ(table_.Next(), std::nullopt);
  EXPECT_EQ(sequences_.Acknowledged(), 1U);
}

TEST_F(RequestTableTest, OneSidedOperationsKeepTheSlot) {
  const Slot slot = *table_.Open(kNever);
  table_.BeginLocal(slot);
  table_.BeginLocal(slot);
  table_.Finish(slot);
  EXPECT_FALSE(table_.EndLocal(slot));
  EXPECT_FALSE(table_.IsFree(slot));
  EXPECT_TRUE(table_.EndLocal(slot));
  EXPECT_TRUE(table_.IsFree(slot));

  const Slot quarantined = *table_.Open(kNever);
  table_.BeginLocal(quarantined);
  table_.Finish(quarantined);
  table_.ConnectionLost();
  EXPECT_FALSE(table_.IsFree(quarantined));
  table_.LocalOperationsOver();
  EXPECT_TRUE(table_.IsFree(quarantined));
}

TEST_F(RequestTableTest, DelayedOnesComeBackAtTheirTime) {
  const Slot slot = Sent(Opcode::kCreate);
  ASSERT_EQ(table_.OnReply(table_.SequenceOf(slot), Opcode::kCreate).verdict, Verdict::kDeliver);
  table_.QueueAt(slot, Opcode::kCreate, kStart + seconds(1));
  EXPECT_EQ(table_.NextTimer(), kStart + seconds(1));
  table_.Expire(kStart);
  EXPECT_EQ(table_.Next(), std::nullopt);
  table_.Expire(kStart + seconds(1));
  EXPECT_EQ(table_.Next(), slot);
  // The server refused it without doing anything: a new request, a new number.
  EXPECT_FALSE(table_.MarkSent(slot).sent_before);
}

TEST_F(RequestTableTest, TicketsNameNothingOnceTheirCallIsOver) {
  const Slot slot = *table_.Open(kNever);
  const std::uint64_t ticket = table_.TicketOf(slot);
  table_.Finish(slot);
  const Slot next = *table_.Open(kNever);
  EXPECT_EQ(next, slot);
  EXPECT_EQ(table_.Find(ticket), std::nullopt);
  EXPECT_EQ(table_.Find(UINT64_MAX), std::nullopt);
  EXPECT_EQ(table_.Find(0), std::nullopt);
}

}  // namespace
}  // namespace rdfs::fs::client
