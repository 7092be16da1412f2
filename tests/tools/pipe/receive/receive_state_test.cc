// What rdrecv decides, event by event, in virtual time; and what a hostile sender gets.
#include "tools/pipe/receive/receive_state.h"

#include <gtest/gtest.h>

namespace rdfs::pipe {
namespace {

using std::chrono_literals::operator""s;
using Kind = ReceiveAction::Kind;

constexpr std::uint32_t kSlot = 4096;

class ReceiveStateTest : public testing::Test {
 protected:
  std::vector<Kind> Took() {
    std::vector<Kind> kinds;
    for (const ReceiveAction& action : actions_) kinds.push_back(action.kind);
    last_ = std::move(actions_);
    actions_.clear();
    return kinds;
  }
  void Hear(const Bytes& message) { state_.OnMessage(message, now_, actions_); }
  void Opened(std::uint64_t have = 0) {
    Welcome welcome;
    welcome.slot_bytes = kSlot;
    welcome.slots = 2;
    welcome.have_bytes = have;
    welcome.block_bytes = 100;
    welcome.blocks.resize((have + 99) / 100);
    state_.OnOpened(welcome, now_, actions_);
    EXPECT_EQ(Took(), std::vector{Kind::kSend});
  }
  void Begin(std::uint64_t offset = 0) { Hear(EncodeNumber(MessageType::kBegin, offset)); }
  void Begun() {
    Opened();
    Begin();
    EXPECT_EQ(Took(), std::vector{Kind::kBegin});
  }
  static RecordWire Record(std::uint64_t sequence) {
    RecordWire record{};
    record.type = 3;
    record.kind = 1;
    record.sequence = sequence;
    record.offset = sequence * 10;
    record.length = 10;
    record.wire_bytes = 10;
    return record;
  }
  void Heard(std::uint64_t sequence) {
    const RecordWire record = Record(sequence);
    sent_.Add(record.offset, record.length, record.digest);
    Hear(ToBytes(record));
  }
  void End(std::uint64_t records) {
    EndWire end{};
    end.type = 4;
    end.number = records;
    end.length = records * 10;
    end.digest = sent_.Value();
    Hear(ToBytes(end));
  }
  void Stored(std::uint64_t sequence) { state_.OnStored(sequence, now_, actions_); }
  bool Refused() { return state_.over() && state_.status().code() == Code::kProtocolError; }
  std::string Why() { return state_.status().message(); }

  TimePoint now_{100s};
  StreamDigest sent_;
  ReceiveActions actions_, last_;
  ReceiveState state_{std::nullopt, std::nullopt, 60s, now_};
};

TEST_F(ReceiveStateTest, AStreamThatArrives) {
  Begun();
  Heard(0);
  Heard(1);
  EXPECT_EQ(Took(), (std::vector{Kind::kStore, Kind::kStore}));
  EXPECT_EQ(last_[1].slot, 1U);
  Stored(1);
  EXPECT_TRUE(Took().empty());  // credits are in order
  EXPECT_EQ(state_.stored_offset(), 0U);
  Stored(0);
  EXPECT_EQ(Took(), std::vector{Kind::kSend});
  EXPECT_EQ(*DecodeNumber(last_[0].message), 2U);
  EXPECT_EQ(state_.stored_offset(), 20U);
  Heard(2);
  End(3);
  EXPECT_EQ(Took(), std::vector{Kind::kStore});  // not finished before all is stored
  Stored(2);
  EXPECT_EQ(Took(), std::vector{Kind::kFinishFile});
  EXPECT_EQ(last_[0].length, 30U);
  EXPECT_FALSE(state_.confirmed());
  state_.OnFinished({}, now_, actions_);
  EXPECT_EQ(Took(), std::vector{Kind::kSend});
  EXPECT_EQ(TypeOf(last_[0].message), MessageType::kStored);
  Hear(EncodeBare(MessageType::kFarewell));
  EXPECT_EQ(Took(), std::vector{Kind::kFinish});
  EXPECT_TRUE(state_.status().ok());
}

TEST_F(ReceiveStateTest, WhoHasNotGotItIsToldBeforeTheConfirmation) {
  Begun();
  End(0);
  (void)Took();
  state_.OnFinished({{"b:2", Status(Code::kDisconnected, "gone")}}, now_, actions_);
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kSend}));
  EXPECT_EQ(TypeOf(last_[0].message), MessageType::kReport);
  EXPECT_EQ(DecodeEnd(last_[1].message)->number, 1U);
}

TEST_F(ReceiveStateTest, AConnectionThatEndsIsNoEnd) {
  Begun();
  Heard(0);
  Stored(0);
  state_.Lost(Status(Code::kDisconnected, "bye"), actions_);
  EXPECT_EQ(Why(), "the sender is gone before the end of the stream (bye)");
}

TEST_F(ReceiveStateTest, BehindTheEndNobodyIsNeededToStoreTheRest) {
  Begun();
  Heard(0);
  End(1);
  EXPECT_EQ(Took(), std::vector{Kind::kStore});
  state_.Lost(Status(Code::kDisconnected, "bye"), actions_);
  EXPECT_FALSE(state_.over());
  Stored(0);
  EXPECT_EQ(Took(), std::vector{Kind::kFinishFile});
  state_.OnFinished({}, now_, actions_);
  EXPECT_EQ(Took(), std::vector{Kind::kFinish});
  EXPECT_TRUE(state_.status().ok());
}

TEST_F(ReceiveStateTest, BehindTheEndNobodyNeedsToSpeak) {
  Begun();
  Heard(0);
  End(1);
  (void)Took();
  now_ += 100s;
  state_.OnTime(now_, actions_);
  EXPECT_FALSE(state_.over());
  EXPECT_GT(state_.NextTime(), now_) << "a driver would not sleep";
  Stored(0);
  EXPECT_EQ(Took(), std::vector{Kind::kFinishFile});
  state_.OnFinished({}, now_, actions_);
  EXPECT_TRUE(state_.status().ok());
  EXPECT_TRUE(state_.over());
}

TEST_F(ReceiveStateTest, OnceFinishingNothingTakesItBack) {
  Begun();
  End(0);
  EXPECT_EQ(Took(), std::vector{Kind::kFinishFile});
  state_.Lost(Status(Code::kDisconnected, "bye"), actions_);
  EXPECT_FALSE(state_.over());
  state_.OnTime(now_ + 1000s, actions_);
  EXPECT_TRUE(Took().empty());
  // Nor has anybody anything left to go on with.
  Hear(EncodeAbort(Status(Code::kUnavailable, "for now")));
  EXPECT_TRUE(Took().empty());
  EXPECT_EQ(state_.sender(), ReceiveState::Sender::kFine);
  state_.OnFinished({}, now_, actions_);
  EXPECT_EQ(Took(), std::vector{Kind::kFinish});
  EXPECT_TRUE(state_.status().ok());
}

TEST_F(ReceiveStateTest, AnOutputThatCannotBeFinished) {
  Begun();
  End(0);
  (void)Took();
  state_.Fail(Status::FromErrno(ENOSPC, "cannot write x"), actions_);
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kFinish}));
  EXPECT_FALSE(state_.status().ok());
}

TEST_F(ReceiveStateTest, AnEndThatDoesNotFit) {
  Begun();
  Heard(0);
  sent_.Add(1, 2, {});
  End(1);
  EXPECT_TRUE(Refused());
  EXPECT_NE(Why().find("checksum"), std::string::npos);
}

TEST_F(ReceiveStateTest, RecordsBehindTheEnd) {
  Begun();
  End(0);
  EXPECT_FALSE(state_.over());
  Hear(ToBytes(Record(0)));
  EXPECT_TRUE(Refused());
}

TEST_F(ReceiveStateTest, Gaps) {
  Begun();
  Hear(ToBytes(Record(1)));
  EXPECT_TRUE(Refused());
}

TEST_F(ReceiveStateTest, OverrunningTheRing) {
  Begun();
  Heard(0);
  Heard(1);
  (void)Took();
  Heard(2);
  EXPECT_TRUE(Refused());
  EXPECT_EQ(Took(), (std::vector{Kind::kSend, Kind::kFinish}));
}

TEST_F(ReceiveStateTest, RecordsBeforeTheBegin) {
  Opened();
  Heard(0);
  EXPECT_TRUE(Refused());
}

TEST_F(ReceiveStateTest, GoingOnOnlyWhereItWasOffered) {
  for (const auto& [offset, good] :
       {std::pair{250U, true}, {200U, true}, {0U, true}, {150U, false}, {300U, false}}) {
    ReceiveState state(std::nullopt, std::nullopt, 60s, now_);
    Welcome welcome;
    welcome.slot_bytes = kSlot;
    welcome.slots = 2;
    welcome.have_bytes = 250;
    welcome.block_bytes = 100;
    welcome.blocks.resize(3);
    state.OnOpened(welcome, now_, actions_);
    state.OnMessage(EncodeNumber(MessageType::kBegin, offset), now_, actions_);
    EXPECT_EQ(!state.over(), good) << offset;
    EXPECT_EQ(state.stored_offset(), good ? offset : 0) << offset;
  }
}

TEST_F(ReceiveStateTest, TheSendersFailureIsTold) {
  Begun();
  Hear(EncodeAbort(Status::FromErrno(EIO, "cannot read x")));
  EXPECT_EQ(Took(), std::vector{Kind::kFinish});
  EXPECT_EQ(Why(), "the sender gave up: cannot read x: Input/output error");
}

// In a chain another sender may go on then, and only then.
TEST_F(ReceiveStateTest, WhoseFailureItWas) {
  using Sender = ReceiveState::Sender;
  const auto after = [&](auto fail) {
    ReceiveState state(std::nullopt, std::nullopt, 60s, now_);
    ReceiveActions out;
    EXPECT_EQ(state.sender(), Sender::kFine);
    fail(state, out);
    EXPECT_TRUE(state.over());
    state.Lost(Status(Code::kDisconnected, "later"), out);  // changes nothing any more
    return state.sender();
  };
  const auto aborts = [&](Code code) {
    return after([&](ReceiveState& state, ReceiveActions& out) {
      state.OnMessage(EncodeAbort(Status(code, "why")), now_, out);
    });
  };
  EXPECT_EQ(aborts(Code::kUnavailable), Sender::kGoesOn);
  EXPECT_EQ(aborts(Code::kDisconnected), Sender::kOver);
  EXPECT_EQ(aborts(Code::kErrno), Sender::kOver);
  EXPECT_EQ(after([](ReceiveState& state, ReceiveActions& out) {
              state.Lost(Status(Code::kDisconnected, "gone"), out);
            }),
            Sender::kGoesOn);
  EXPECT_EQ(after([&](ReceiveState& state, ReceiveActions& out) { state.OnTime(now_ + 60s, out); }),
            Sender::kGoesOn);
  EXPECT_EQ(after([](ReceiveState& state, ReceiveActions& out) {
              state.Fail(Status::FromErrno(ENOSPC, "cannot write x"), out);
            }),
            Sender::kFine);
}

TEST_F(ReceiveStateTest, AbortBeforeAnythingElse) {
  Hear(EncodeAbort(Status(Code::kErrno, "no such file")));
  EXPECT_EQ(Why(), "the sender gave up: no such file");
}

TEST_F(ReceiveStateTest, ASilentPeerIsGivenUp) {
  Begun();
  while (!state_.over()) state_.OnTime(now_ = state_.NextTime(), actions_);
  EXPECT_EQ(now_, TimePoint(160s));
}

TEST_F(ReceiveStateTest, APingIsAnsweredAndAnAnswerIsNot) {
  Begun();
  for (int i = 0; i < 10; ++i) {
    now_ += std::chrono::milliseconds(500);
    actions_.clear();
    Hear(EncodeBare(MessageType::kPing));
    ASSERT_EQ(actions_.size(), 1U);
    EXPECT_EQ(TypeOf(actions_[0].message), MessageType::kPing);
    now_ += std::chrono::milliseconds(1);
    actions_.clear();
    Hear(EncodeBare(MessageType::kPing));
    EXPECT_TRUE(actions_.empty());
  }
}

TEST_F(ReceiveStateTest, NoLimitWhenNoneIsWanted) {
  ReceiveState state(std::nullopt, std::nullopt, 0s, now_);
  state.OnTime(now_ + 100000s, actions_);
  EXPECT_FALSE(state.over());
}

}  // namespace
}  // namespace rdfs::pipe
