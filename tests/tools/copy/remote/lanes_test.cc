// Further lanes of a copy, one end by hand.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <set>

#include "tests/tools/copy/remote/pair.h"
#include "tests/tools/pipe/temp_dir.h"
#include "tests/transport/kinds.h"
#include "tools/copy/remote/receive_lanes.h"
#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/send_lanes.h"

namespace rdfs::copy {
namespace {

using std::chrono_literals::operator""s;
using transport::Completion;
using transport::Connection;

// The next message of that type; empty if none comes.
Bytes Await(Connection& lane, MessageType type) {
  const Deadline deadline = DeadlineAfter(20s);
  std::array<Completion, 1> got;
  while (BootClock::now() < deadline) {
    const auto count = lane.Wait(got, deadline);
    if (!count.ok()) return {};
    if (*count > 0 && got[0].kind == Completion::Kind::kMessage && TypeOf(got[0].message) == type) {
      return {got[0].message.begin(), got[0].message.end()};
    }
  }
  return {};
}

void Say(Connection& lane, const Bytes& message) {
  EXPECT_TRUE(lane.Send(ByteSpan(message)).ok());
  EXPECT_TRUE(lane.Flush().ok());
}

class CopyLanes : public testing::TestWithParam<transport::Kind> {
 protected:
  void SetUp() override {
    ASSERT_EQ(pair_.problem(), "");
    auto ring =
        pipe::ShareRing(*pair_.caller_lane, *pair_.caller_domain, "ring", {64 << 10, 4}, 64 << 10);
    ASSERT_TRUE(ring.ok()) << ring.status().message();
    ring_ = *std::move(ring);
  }

  Pair::Other Open() {
    auto lanes = pair_.OpenOther(GetParam());
    EXPECT_TRUE(lanes.ok()) << lanes.status().message();
    return lanes.ok() ? *std::move(lanes) : Pair::Other();
  }

  // What the receiver's lanes have told once they have told something.
  static Status AwaitNews(ReceiveLanes& lanes, std::vector<BatchWire>& out) {
    pollfd entry{lanes.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 20'000), 1);
    return lanes.Take(out);
  }

  Pair pair_{GetParam()};
  pipe::Ring ring_;
};

TEST_P(CopyLanes, TellWhatCame) {
  auto lanes = ReceiveLanes::Create(ring_);
  ASSERT_TRUE(lanes.ok());
  Pair::Other gone = Open();
  Pair::Other stays = Open();
  ASSERT_TRUE(gone.caller != nullptr && stays.caller != nullptr);
  // One that ends before it has brought anything is nobody's loss.
  ASSERT_TRUE((*lanes)->Add(std::move(gone.caller)).ok());
  gone.far.reset();
  ASSERT_TRUE((*lanes)->Add(std::move(stays.caller)).ok());
  const auto welcome = Welcome::Decode(Await(*stays.far, MessageType::kWelcome));
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->slots, 4U);
  Say(*stays.far, EncodeBatch(3, 17, {}));
  std::vector<BatchWire> came;
  EXPECT_TRUE(AwaitNews(**lanes, came).ok());
  ASSERT_EQ(came.size(), 1U);
  EXPECT_EQ(came[0].number, 3U);
  // One that has brought something is missed.
  stays.far.reset();
  EXPECT_EQ(AwaitNews(**lanes, came).code(), Code::kDisconnected);
}

TEST_P(CopyLanes, BringNoMoreThanWasGrantedAndNothingElse) {
  const std::vector<std::vector<Bytes>> hostile{
      std::vector<Bytes>(5, EncodeBatch(0, 1, {})),
      {EncodeBatch(0, (64 << 10) + 1, {})},
      {EncodeCredit(1)},
  };
  for (const auto& messages : hostile) {
    auto lanes = ReceiveLanes::Create(ring_);
    ASSERT_TRUE(lanes.ok());
    Pair::Other lane = Open();
    ASSERT_TRUE(lane.caller != nullptr);
    ASSERT_TRUE((*lanes)->Add(std::move(lane.caller)).ok());
    std::vector<BatchWire> came;
    Status status;
    const Deadline deadline = DeadlineAfter(20s);
    while (status.ok() && BootClock::now() < deadline) {
      for (const Bytes& message : messages) (void)lane.far->Send(ByteSpan(message));
      (void)lane.far->Flush();
      // All of it has come before any of it is taken.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      status = (*lanes)->Take(came);
    }
    EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
  }
}

TEST_P(CopyLanes, CarryOnceTheyAreWelcome) {
  auto memory = SharedMemory::Create("from", 256 << 10, SharedMemory::Peers::kMayWrite);
  ASSERT_TRUE(memory.ok());
  auto region = pair_.far.domain->Register(*std::move(memory), transport::Access::kLocal);
  ASSERT_TRUE(region.ok());
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::uint32_t> released;
  auto lanes = SendLanes::Create({region->get(), 64 << 10, 4, [&](std::uint32_t buffer) {
                                    const std::lock_guard lock(mutex);
                                    released.insert(buffer);
                                    changed.notify_all();
                                  }});
  ASSERT_TRUE(lanes.ok());
  Pair::Other lane = Open();
  ASSERT_TRUE(lane.far != nullptr);
  ASSERT_TRUE((*lanes)->Add(std::move(lane.far)).ok());
  EXPECT_FALSE((*lanes)->ready());
  for (std::uint32_t i = 0; i < 4; ++i) {
    (*region)->bytes()[i * (64UL << 10)] = static_cast<std::byte>('a' + i);
    (*lanes)->Put({i, i, i == 3 ? 0U : 1U, {}});
  }
  const auto shared = lane.caller->Share(*ring_.memory);
  ASSERT_TRUE(shared.ok());
  Say(*lane.caller, Welcome{*shared, 64 << 10, 4}.Encode());
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto batch = DecodeBatch(Await(*lane.caller, MessageType::kBatch), 64 << 10);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->number, i);
    if (i < 3) {
      EXPECT_EQ(ring_.memory->bytes()[i * (64UL << 10)], static_cast<std::byte>('a' + i));
    }
  }
  EXPECT_TRUE((*lanes)->ready());
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, 20s, [&] { return released.size() == 4; }));
  }
  EXPECT_TRUE((*lanes)->status().ok());
  // From here on it is missed.
  lane.caller.reset();
  const Deadline deadline = DeadlineAfter(20s);
  while ((*lanes)->status().ok() && BootClock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ((*lanes)->status().code(), Code::kDisconnected);
}

// A sender by hand: `attack` is given its first lane, and the further one behind its Welcome.
class CopyLanesHostile : public CopyLanes {
 protected:
  Status Receive(const std::function<void(Connection& first, Pair::Other& further)>& attack) {
    Pair::Other other = Open();
    std::thread far([&] {
      Begin begin;
      begin.sources = {{.asked = 0, .is_directory = true, .name = "asked"}};
      Say(*pair_.far.lane, begin.Encode()->front());
      if (!Await(*other.far, MessageType::kWelcome).empty()) attack(*pair_.far.lane, other);
    });
    TalkSettings told;
    told.tell = [](const Notice&) {};
    Talk talk(*pair_.caller_lane, std::move(told));
    ReceiverSettings settings;
    settings.destination = dir_ / "";
    settings.threads = 2;
    settings.asked.recurse = true;
    Receiver receiver(talk, pair_.caller_domain, std::move(settings));
    receiver.further = [&] { return std::move(other.caller); };
    receiver.on_turn = [deadline = DeadlineAfter(20s)] {
      return BootClock::now() < deadline ? Status() : Status(Code::kDeadlineExceeded, "it hangs");
    };
    Status status = receiver.Run();
    far.join();
    return status;
  }
  pipe::TempDir dir_;
};

TEST_P(CopyLanesHostile, ABatchTwice) {
  const Status status = Receive([](Connection&, Pair::Other& further) {
    Say(*further.far, EncodeBatch(2, 0, {}));
    Say(*further.far, EncodeBatch(2, 0, {}));
  });
  EXPECT_EQ(status.message(), "the other rdcp sent a batch out of turn");
}

TEST_P(CopyLanesHostile, ABatchBeyondTheRing) {
  const Status status =
      Receive([](Connection&, Pair::Other& further) { Say(*further.far, EncodeBatch(64, 0, {})); });
  EXPECT_EQ(status.message(), "the other rdcp sent a batch out of turn");
}

TEST_P(CopyLanesHostile, AnEndThatCountsMoreThanComes) {
  const Status status = Receive([](Connection& first, Pair::Other& further) {
    Say(*further.far, EncodeBatch(1, 0, {}));
    Tally end;
    end.batches = 2;
    Say(first, end.Encode(MessageType::kEnd));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    further.far.reset();
  });
  EXPECT_EQ(status.code(), Code::kDisconnected) << status.message();
}

TEST_P(CopyLanesHostile, AnEndOfAnotherContent) {
  const Status status = Receive([](Connection& first, Pair::Other& further) {
    Tally end;
    end.batches = 1;
    end.digest[0] = std::byte{1};
    Say(first, end.Encode(MessageType::kEnd));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Say(*further.far, EncodeBatch(0, 0, {}));
    (void)Await(first, MessageType::kAbort);
  });
  EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
}

// By hand nobody polls, as verbs want of who sends; and over verbs a copy has no further lanes.
const auto kKinds = testing::Values(transport::Kind::kShm, transport::Kind::kTcp);
INSTANTIATE_TEST_SUITE_P(Kinds, CopyLanes, kKinds, transport::KindName);
INSTANTIATE_TEST_SUITE_P(Kinds, CopyLanesHostile, kKinds, transport::KindName);

}  // namespace
}  // namespace rdfs::copy
