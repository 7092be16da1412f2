// A copy through the caller, over real lanes: both far ends and the relay in one process.
#include "tools/copy/remote/relay.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/tools/copy/remote/pair.h"
#include "tests/tools/copy/temp_tree.h"
#include "tests/transport/kinds.h"
#include "tools/copy/remote/progress.h"
#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/sender.h"
#include "tools/copy/remote/sources.h"

namespace rdfs::copy {
namespace {

class RelayTest : public testing::TestWithParam<transport::Kind> {
 protected:
  RelayTest() {
    tree_.MakeDirectory("from");
    tree_.MakeDirectory("to");
  }
  void SetUp() override {
    ASSERT_EQ(first_.problem(), "");
    ASSERT_EQ(second_.problem(), "");
  }

  // What our sender does with the lane of its far end.
  Status SendAll(transport::Connection& lane) {
    Talk talk(lane, {});
    const Found found = FindSources({tree_ / "from"}, false, true, [](auto&, auto&) {});
    WalkOptions walk;
    walk.scan.recurse = true;
    walk.paths = found.paths;
    const Counter counter(counts_ ? CountOf(walk) : nullptr);
    while (counts_ && !counter.totals()) std::this_thread::yield();
    Sender sender(talk, first_.far.domain, found.begin, std::move(walk), 2);
    sender.counter = &counter;
    return sender.Run();
  }
  Status ReceiveAll(transport::Connection& lane) {
    Talk talk(lane, {});
    ReceiverSettings settings;
    settings.destination = tree_ / "to";
    settings.asked.recurse = true;
    settings.threads = 2;
    ProgressTeller teller(talk, tells_);
    settings.copied = teller.copied();
    Receiver receiver(talk, second_.far.domain, std::move(settings));
    receiver.on_turn = [&, now = TimePoint(std::chrono::seconds(1))]() mutable {
      if (!receiver.working()) return Status();
      now += std::chrono::milliseconds(200);  // each time
      return teller.Turn(receiver.bytes(), receiver.kept(), receiver.passed(), std::nullopt, now);
    };
    return receiver.Run();
  }
  // What an end that is not ours does until it is told to end, or the connection does.
  static Status Listen(Talk& talk, const Talk::OnMessage& on_message) {
    for (;;) {
      RDFS_ASSIGN_OR_RETURN(const bool heard, talk.Hear(on_message, nullptr));
      if (!heard) RDFS_RETURN_IF_ERROR(talk.Sleep({}));
    }
  }
  using Role = std::function<Status(transport::Connection&)>;
  Status Relayed(const std::vector<std::string>& asked) {
    return Relayed(
        asked, [&](auto& lane) { return SendAll(lane); },
        [&](auto& lane) { return ReceiveAll(lane); });
  }
  Status Relayed(const std::vector<std::string>& asked, const Role& send, const Role& receive) {
    std::thread sender([&] {
      sent_ = send(*first_.far.lane);
      first_.far.lane.reset();
    });
    std::thread receiver([&] {
      received_ = receive(*second_.far.lane);
      second_.far.lane.reset();
    });
    TalkSettings told;
    told.tell = [](const Notice&) {};
    Talk from(*first_.caller_lane, told);
    Talk to(*second_.caller_lane, told);
    Relay relay({from, *first_.caller_domain}, {to, *second_.caller_domain},
                [&](const Begin& begin, std::uint64_t failures) {
                  return CheckSources(asked, begin, failures);
                });
    relay.counts = counts_;
    Status status = relay.Run();
    done_ = relay.done();
    totals_ = relay.totals();
    progress_ = relay.progress();
    first_.caller_lane.reset();
    second_.caller_lane.reset();
    sender.join();
    receiver.join();
    return status;
  }

  TempTree tree_;
  Pair first_{GetParam()}, second_{GetParam()};
  bool counts_ = false;  // the sender, and the caller takes it
  bool tells_ = false;   // the receiver, of its progress
  Status sent_, received_;
  Tally done_;
  std::optional<Totals> totals_;
  std::optional<Progress> progress_;
};

TEST_P(RelayTest, ATreeArrives) {
  std::mt19937_64 random(7);
  std::string noise(30 << 20, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  tree_.Write("from/large", noise);
  for (int i = 0; i < 300; ++i) tree_.Write("from/" + std::to_string(i), std::to_string(i));
  const Status status = Relayed({tree_ / "from"});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(sent_.ok()) << sent_.message();
  EXPECT_TRUE(received_.ok()) << received_.message();
  EXPECT_TRUE(tree_.Read("to/from/large") == noise);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(tree_.Read("to/from/" + std::to_string(i)), std::to_string(i));
  }
  EXPECT_EQ(done_.entries, 301U) << "and no directory";
}

// How much there is to do is the sender's to say, how much is done the receiver's.
TEST_P(RelayTest, TheCallerHearsHowFarItIs) {
  // More than a receiver that was not let run for a while takes in one turn.
  constexpr std::uint64_t kFiles = 3000;
  for (std::uint64_t i = 0; i < kFiles; ++i) tree_.Write("from/" + std::to_string(i), "content");
  counts_ = tells_ = true;
  const Status status = Relayed({tree_ / "from"});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(received_.ok()) << received_.message();
  ASSERT_TRUE(totals_ && progress_);
  EXPECT_EQ(totals_->files, kFiles);
  EXPECT_EQ(totals_->bytes, 7 * kFiles);
  EXPECT_LE(progress_->copied.files, kFiles);
  EXPECT_LE(progress_->copied.bytes, 7 * kFiles);
}

TEST_P(RelayTest, ProgressThatNobodyAskedForEndsAll) {
  tree_.Write("from/f", "x");
  tells_ = true;
  EXPECT_EQ(Relayed({tree_ / "from"}).code(), Code::kProtocolError);
  EXPECT_FALSE(sent_.ok());
  EXPECT_FALSE(received_.ok());
}

TEST_P(RelayTest, WhatWasNotAskedForEndsAll) {
  tree_.Write("from/f", "x");
  const Status status = Relayed({"other"});
  EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
  EXPECT_FALSE(sent_.ok());
  EXPECT_FALSE(received_.ok());
  EXPECT_EQ(tree_.Entries("to"), 0U);
}

// A sender that does not wait for credits would write over what has not gone on.
TEST_P(RelayTest, MoreThanWasGrantedEndsAll) {
  const auto flood = [&](transport::Connection& lane) {
    Talk talk(lane, {});
    Begin begin;
    begin.sources = {{.asked = 0, .is_directory = true, .name = "from"}};
    EXPECT_TRUE(talk.Say(begin.Encode()->front()).ok());
    return Listen(talk, [&](MessageType, ByteSpan message) -> Status {
      RDFS_ASSIGN_OR_RETURN(const Welcome welcome, Welcome::Decode(message));
      for (std::uint64_t i = 0; i <= welcome.slots; ++i) {
        RDFS_RETURN_IF_ERROR(talk.Say(EncodeBatch(i, 0, pipe::DigestOf({}))));
      }
      return {};
    });
  };
  const auto grant_once = [&](transport::Connection& lane) {
    Talk talk(lane, {});
    pipe::Ring ring;
    return Listen(talk, [&](MessageType type, ByteSpan) -> Status {
      if (type != MessageType::kBegin) return {};
      RDFS_ASSIGN_OR_RETURN(ring, pipe::ShareRing(lane, *second_.far.domain, "test",
                                                  {kMinSlotBytes, 4}, kMinSlotBytes));
      return talk.Say(Welcome{ring.shared, kMinSlotBytes, 4}.Encode());
    });
  };
  const Status status = Relayed({tree_ / "from"}, flood, grant_once);
  EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
  EXPECT_FALSE(sent_.ok());
  EXPECT_FALSE(received_.ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, RelayTest, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::copy
