// Peers that lie, stop in the middle, flood, or send what no peer of ours would: each ends its own
// connection only, reaches no memory, and makes nobody hold more than the bounds.
#include <functional>
#include <random>
#include <thread>

#include "tests/transport/tcp/raw_peer.h"

namespace rdfs::transport::tcp {
namespace {

using Hostile = RawPeer;

// Every kind of frame that a peer may begin with.
Bytes AllFrames(std::uint64_t read_key, std::uint64_t write_key) {
  Bytes bytes;
  AddMessage(bytes, "one");
  AddRead(bytes, read_key, 100, 1000);
  AddWrite(bytes, write_key, 7, std::string(300, 'x'));
  AddMessage(bytes, "");
  AddRead(bytes, read_key ^ 1, 0, 1);
  AddWrite(bytes, write_key ^ 1, 0, "drained");
  AddFrame(bytes, Opcode::kAcknowledge, 0);
  AddMessage(bytes, "three");
  return bytes;
}

TEST_F(Hostile, AStreamCutAtAnyByteEndsCleanly) {
  const std::size_t size = AllFrames(1, 2).size();
  for (std::size_t cut = 0; cut <= size; ++cut) {
    Restart();
    PeerSends(ByteSpan(AllFrames(read_key_, write_key_)).first(cut));
    ASSERT_TRUE(over_.ok()) << cut << ": " << over_.ToString();
    PeerCloses();
    ASSERT_EQ(over_.code(), Code::kDisconnected) << cut;
    ASSERT_LE(messages_.size(), 3U);
    if (cut < size) {
      ASSERT_LT(messages_.size(), 3U) << cut;
    }
  }
  EXPECT_EQ(messages_, (std::vector<std::string>{"one", "", "three"}));
}

TEST_F(Hostile, BytesThatComeOneByOneMeanTheSame) {
  const Bytes all = AllFrames(read_key_, write_key_);
  for (const std::byte& byte : all) PeerSends({&byte, 1});
  EXPECT_TRUE(over_.ok()) << over_.ToString();
  EXPECT_EQ(messages_, (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(AsText(ByteSpan(writable_->bytes()).subspan(6, 302)),
            "w" + std::string(300, 'x') + "w");
}

TEST_F(Hostile, ImpossibleHeadersEndTheConnection) {
  std::vector<Bytes> streams;
  for (const int opcode : {0, 9, 15, 127, 255}) {
    AddFrame(streams.emplace_back(), static_cast<Opcode>(opcode), 0);
  }
  AddFrame(streams.emplace_back(), Opcode::kMessage, kMaxMessageBytes + 1);
  AddFrame(streams.emplace_back(), Opcode::kMessage, 0xffffffff);
  AddFrame(streams.emplace_back(), Opcode::kReadRequest, 23);
  AddFrame(streams.emplace_back(), Opcode::kWrite, 15);
  AddFrame(streams.emplace_back(), Opcode::kWrite, 16 + (1U << 30U) + 1);
  AddFrame(streams.emplace_back(), Opcode::kAcknowledge, 1);
  AddFrame(streams.emplace_back(), Opcode::kBye, 1);
  AddText(streams.emplace_back(), "GET / HTTP/1.1\r\n\r\n");
  for (const Bytes& stream : streams) {
    Restart();
    PeerSends(stream);
    EXPECT_EQ(over_.code(), Code::kProtocolError) << over_.ToString();
  }
}

TEST_F(Hostile, AnswersToWhatWasNeverAskedEndTheConnection) {
  std::vector<Bytes> streams;
  AddFrame(streams.emplace_back(), Opcode::kReadReply, 10);
  AddFrame(streams.emplace_back(), Opcode::kReadReply, 0);
  AddFrame(streams.emplace_back(), Opcode::kReadRefused, 2);
  Add(streams.back(), Refusal{.reason = 1});
  AddFrame(streams.emplace_back(), Opcode::kWriteRefused, 2);
  Add(streams.back(), Refusal{.reason = 1});
  AddFrame(streams.emplace_back(), Opcode::kAcknowledge, 0, 1);
  AddFrame(streams.emplace_back(), Opcode::kMessage, 0, 65'535);
  for (const Bytes& stream : streams) {
    Restart();
    PeerSends(stream);
    EXPECT_EQ(over_.code(), Code::kProtocolError) << over_.ToString();
  }
}

TEST_F(Hostile, AnAnswerOfAnotherLengthEndsTheConnectionAndTouchesNothing) {
  for (const std::size_t length : {99U, 101U, 0U, 1U << 30U}) {
    Restart();
    ASSERT_TRUE(connection_->Read({local_.get(), 0, 100}, {}).ok());
    Bytes reply;
    AddFrame(reply, Opcode::kReadReply, length);
    AddText(reply, std::string(100, 'x'));
    PeerSends(reply);
    EXPECT_EQ(over_.code(), Code::kProtocolError) << length;
    EXPECT_TRUE(IsAll(*local_, 'l'));
  }
}

constexpr std::chrono::milliseconds kAtOnce{100};

// How long the end takes of a connection whose peer reads nothing, `before` which something is
// done; at best, until it was at once: others work on this machine, too.
class HostileEnd : public Hostile {
 protected:
  void Measure(const std::function<void()>& before) {
    const Bytes message(kMaxMessageBytes);
    for (int tries = 0; tries < 5 && least_ >= kAtOnce; ++tries) {
      Restart();
      for (int i = 0; i < 64; ++i) {
        ASSERT_TRUE(connection_->Send(message).ok());
        ASSERT_TRUE(connection_->Flush().ok());
      }
      ASSERT_GT(connection_->backlog_bytes(), 0U);
      before();
      const TimePoint begins = BootClock::now();
      connection_.reset();
      least_ = std::min<std::chrono::nanoseconds>(least_, BootClock::now() - begins);
    }
  }
  std::chrono::nanoseconds least_ = kAtOnce;
};

TEST_F(HostileEnd, WhoHasNotReadForLongIsNotWaitedFor) {
  // Longer than a goodbye takes.
  Measure([] { std::this_thread::sleep_for(std::chrono::milliseconds(250)); });
  EXPECT_LT(least_, kAtOnce);
}

TEST_F(HostileEnd, WhoIsAbandonedIsNotWaitedFor) {
  Measure([this] { connection_->Abandon(); });
  EXPECT_LT(least_, kAtOnce);
}

// A socket holds less than one region: part of each WRITE is still queued.
TEST_F(Hostile, AnswersToAWriteThatHasNotGoneEndTheConnection) {
  std::vector<Bytes> streams;
  AddFrame(streams.emplace_back(), Opcode::kAcknowledge, 0, 1);
  AddFrame(streams.emplace_back(), Opcode::kWriteRefused, 2);
  Add(streams.back(), Refusal{.reason = 1});
  for (const Bytes& stream : streams) {
    Restart();
    ASSERT_TRUE(connection_->Write({local_.get(), 0, kRegionBytes}, {}).ok());
    PeerSends(stream);
    EXPECT_EQ(over_.code(), Code::kProtocolError) << over_.ToString();
    EXPECT_TRUE(completions_.empty());
  }
}

TEST_F(Hostile, ARefusalOfAnUnknownReasonIsARefusal) {
  ASSERT_TRUE(connection_->Read({local_.get(), 0, 100}, {}).ok());
  ASSERT_TRUE(connection_->Write({local_.get(), 0, 100}, {}).ok());
  Bytes answers;
  AddFrame(answers, Opcode::kReadRefused, 2);
  Add(answers, Refusal{.reason = 999});
  AddFrame(answers, Opcode::kWriteRefused, 2);
  Add(answers, Refusal{.reason = 0});
  PeerSends(answers);
  EXPECT_TRUE(over_.ok());
  ASSERT_EQ(completions_.size(), 2U);
  for (const Status& status : completions_) EXPECT_EQ(status.errno_value(), EACCES);
}

TEST_F(Hostile, NoMemoryIsReachedOutsideWhatIsShared) {
  struct Case {
    std::uint64_t key, position;
    std::uint32_t length;
    std::uint16_t reason;
  };
  const std::uint64_t top = ~std::uint64_t{0};
  const std::vector<Case> reads{{0, 0, 1, 1},
                                {read_key_ + 1, 0, 1, 1},
                                {read_key_, kRegionBytes, 1, 2},
                                {read_key_, kRegionBytes - 1, 2, 2},
                                {read_key_, top, 1, 2},
                                {read_key_, top - 1, 8, 2},
                                {read_key_, 1, 1U << 30U, 2},
                                {write_key_, 0, 1, 3}};
  for (const Case& c : reads) {
    Bytes request;
    AddRead(request, c.key, c.position, c.length);
    PeerSends(request);
    Bytes expected;
    AddFrame(expected, Opcode::kReadRefused, 2);
    Add(expected, Refusal{.reason = c.reason});
    EXPECT_EQ(PeerReceives(), expected) << c.position;
  }
  const std::vector<Case> writes{{0, 0, 5, 1},
                                 {write_key_, kRegionBytes - 4, 5, 2},
                                 {write_key_, top - 2, 5, 2},
                                 {read_key_, 0, 5, 3}};
  for (const Case& c : writes) {
    Bytes request;
    AddWrite(request, c.key, c.position, std::string(c.length, '!'));
    AddMessage(request, "after");
    PeerSends(request);
    Bytes expected;
    AddFrame(expected, Opcode::kWriteRefused, 2);
    Add(expected, Refusal{.reason = c.reason});
    EXPECT_EQ(PeerReceives(), expected) << c.position;
  }
  EXPECT_EQ(messages_.size(), writes.size());
  EXPECT_TRUE(over_.ok());
  EXPECT_TRUE(IsAll(*readable_, 'r'));
  EXPECT_TRUE(IsAll(*writable_, 'w'));
}

TEST_F(Hostile, AReadRequestAboveTheLargestTransferEndsTheConnection) {
  Bytes request;
  AddRead(request, read_key_, 0, (1U << 30U) + 1);
  PeerSends(request);
  EXPECT_EQ(over_.code(), Code::kProtocolError);
}

TEST_F(Hostile, AnswersToReadsThatNobodyTakesAreKeptInTheRegionOnly) {
  Bytes requests;
  for (int i = 0; i < 100; ++i) AddRead(requests, read_key_, 0, kRegionBytes);
  PeerSends(requests);
  EXPECT_TRUE(over_.ok()) << over_.ToString();
  EXPECT_GT(connection_->backlog_bytes(), kRegionBytes);
  EXPECT_LT(connection_->kept_bytes(), kRegionBytes / 4);
}

TEST_F(Hostile, MoreReadsThanMayBeUnansweredEndTheConnection) {
  Bytes requests;
  for (std::size_t i = 0; i <= kMaxOutstanding + 8; ++i)
    AddRead(requests, read_key_, 0, kRegionBytes);
  PeerSends(requests);
  EXPECT_EQ(over_.code(), Code::kProtocolError) << over_.ToString();
}

TEST_F(Hostile, AFloodOfRefusedWritesWithoutReadingTheAnswersIsBounded) {
  Bytes writes;
  for (int i = 0; i < 1000; ++i) AddWrite(writes, 0, 0, "x");
  for (int i = 0; i < 1000 && over_.ok(); ++i) {
    PeerSends(writes);
    ASSERT_LE(connection_->backlog_bytes(), 64U * 1024U);
  }
  EXPECT_EQ(over_.code(), Code::kProtocolError) << over_.ToString();
}

TEST_F(Hostile, AFloodOfWritesWithoutReadingTheAcknowledgementsIsBounded) {
  Bytes writes;
  for (int i = 0; i < 1000; ++i) AddWrite(writes, write_key_, 0, "x");
  for (int i = 0; i < 1000 && over_.ok(); ++i) {
    PeerSends(writes);
    ASSERT_LE(connection_->backlog_bytes(), 64U * 1024U);
  }
  if (!over_.ok()) {
    EXPECT_EQ(over_.code(), Code::kProtocolError) << over_.ToString();
  }
}

TEST_F(Hostile, ByeIsTheEnd) {
  Bytes bytes;
  AddMessage(bytes, "last words");
  AddFrame(bytes, Opcode::kBye, 0);
  AddMessage(bytes, "from beyond");
  PeerSends(bytes);
  EXPECT_EQ(over_.code(), Code::kDisconnected);
  EXPECT_EQ(messages_, std::vector<std::string>{"last words"});
}

TEST_F(Hostile, RandomFramesNeverDoHarm) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    Restart();
    (void)connection_->Read({local_.get(), 0, random() % 50}, {});
    (void)connection_->Write({local_.get(), 0, random() % 50}, {});
    Bytes bytes;
    for (int frame = 0; frame < 5; ++frame) {
      const std::size_t body = random() % 60;
      AddFrame(bytes, static_cast<Opcode>(random() % 10), body,
               static_cast<std::uint16_t>(random() % 4 == 0 ? random() % 3 : 0));
      for (std::size_t i = 0; i < body; ++i) bytes.push_back(static_cast<std::byte>(random()));
    }
    PeerSends(bytes);
    PeerCloses();
    ASSERT_FALSE(over_.ok());
    ASSERT_EQ(over_.scope(), Scope::kConnection) << over_.ToString();
    ASSERT_TRUE(IsAll(*readable_, 'r') && IsAll(*writable_, 'w'));
  }
}

}  // namespace
}  // namespace rdfs::transport::tcp
