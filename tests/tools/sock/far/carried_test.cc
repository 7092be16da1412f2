// The bells of one carried connection, with the test as the program's end.
#include "tools/sock/far/carried.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tools/sock/meeting_wire.h"
#include "tools/sock/packet.h"
#include "transport/domain.h"

namespace rdfs::sock::far {
namespace {

constexpr std::uint32_t kRing = 16 * 1024;

// A carried connection and what its program's end got of it.
struct Served {
  std::unique_ptr<Carried> carried;
  std::unique_ptr<Channel> channel;
  Fd data, room;  // the end's
};

void Serve(std::uint32_t id, Served& served) {
  auto made = Carried::Create(id, transport::Domain::Create("test"), kRing);
  ASSERT_TRUE(made.ok()) << made.status().message();
  served.carried = *std::move(made);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  served.data = Fd(ends[0]);
  served.carried->Seat(Fd(ends[1]), 7);
  served.carried->Begin(0, {});
  MeetingWire answer;
  std::array<Fd, 2> fds;
  const auto size =
      ReceivePacket(served.data.get(), std::as_writable_bytes(std::span(&answer, 1)), fds);
  ASSERT_TRUE(size.ok());
  ASSERT_EQ(*size, sizeof(answer));
  auto channel = Channel::Adopt(std::move(fds[0]), kRing);
  ASSERT_TRUE(channel.ok()) << channel.status().message();
  served.channel = std::make_unique<Channel>(*std::move(channel));
  served.room = std::move(fds[1]);
}

class CarriedTest : public testing::Test {
 protected:
  void SetUp() override {
    Served served;
    ASSERT_NO_FATAL_FAILURE(Serve(1, served));
    carried_ = std::move(served.carried);
    channel_ = std::move(served.channel);
    data_ = std::move(served.data);
    room_ = std::move(served.room);
  }

  std::atomic<std::uint32_t>& reader_armed() {
    return channel_->Outgoing(Channel::Role::kGuest).words->reader_armed;
  }
  std::atomic<std::uint32_t>& writer_armed() {
    return channel_->Incoming(Channel::Role::kGuest).words->writer_armed;
  }
  static bool Readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 0) > 0;
  }

  std::unique_ptr<Carried> carried_;
  std::unique_ptr<Channel> channel_;
  Fd data_, room_;  // the end's
};

TEST_F(CarriedTest, WhoLooksAgainAndAgainIsNotRung) {
  carried_->Arm();
  EXPECT_EQ(reader_armed(), 1U);
  EXPECT_EQ(writer_armed(), 1U);
  carried_->Disarm();
  EXPECT_EQ(reader_armed(), 0U);
  EXPECT_EQ(writer_armed(), 0U);
  carried_->Arm();
  EXPECT_EQ(reader_armed(), 1U);
  EXPECT_EQ(writer_armed(), 1U);
}

TEST_F(CarriedTest, ARingThatWasNotWaitedForIsTakenBeforeTheNextSleep) {
  carried_->Arm();
  ASSERT_EQ(reader_armed().exchange(0), 1U);
  Ring(data_.get());
  ASSERT_EQ(writer_armed().exchange(0), 1U);
  Ring(room_.get());
  carried_->Disarm();
  EXPECT_TRUE(Readable(carried_->data()));
  EXPECT_TRUE(Readable(carried_->room()));
  carried_->Arm();
  EXPECT_FALSE(Readable(carried_->data()));
  EXPECT_FALSE(Readable(carried_->room()));
  EXPECT_EQ(reader_armed(), 1U);
  EXPECT_EQ(writer_armed(), 1U);
}

// The same without a Disarm between.
TEST_F(CarriedTest, ArmingAnewTakesWhatHasRung) {
  carried_->Arm();
  reader_armed() = 0;
  Ring(data_.get());
  carried_->Arm();
  EXPECT_FALSE(Readable(carried_->data()));
  EXPECT_EQ(reader_armed(), 1U);
}

// Its program was stopped between the flag and the bell.
TEST_F(CarriedTest, ALateRingWakesOnce) {
  carried_->Arm();
  ASSERT_EQ(reader_armed().exchange(0), 1U);
  carried_->Disarm();
  carried_->Arm();
  EXPECT_EQ(reader_armed(), 1U);
  Ring(data_.get());
  ASSERT_TRUE(Readable(carried_->data()));
  carried_->Hear(carried_->data(), false);
  EXPECT_FALSE(Readable(carried_->data()));
  EXPECT_EQ(reader_armed(), 0U);
  carried_->Arm();
  EXPECT_EQ(reader_armed(), 1U);
}

// Who rings is heard in a sleep, however often it has rung while nobody slept.
TEST_F(CarriedTest, RingsAreTakenOneByOne) {
  carried_->Arm();
  for (int i = 0; i < 3; ++i) Ring(data_.get());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Readable(carried_->data()));
    carried_->Hear(carried_->data(), false);
  }
  EXPECT_FALSE(Readable(carried_->data()));
  EXPECT_GE(carried_->data(), 0);
}

TEST_F(CarriedTest, AnEndThatIsGoneIsFoundWithRingsInItsBells) {
  carried_->Arm();
  Ring(data_.get());
  data_.Reset();
  pollfd one{carried_->data(), POLLIN, 0};
  ASSERT_EQ(poll(&one, 1, 0), 1);
  EXPECT_NE(one.revents & POLLHUP, 0);
  carried_->Hear(carried_->data(), true);
  EXPECT_EQ(carried_->data(), -1);
  EXPECT_EQ(carried_->room(), -1);
}

// What was said of a descriptor may be of the one before it.
TEST_F(CarriedTest, AnEndThatIsThereIsNotTakenForGone) {
  carried_->Arm();
  Ring(data_.get());
  carried_->Hear(carried_->data(), true);
  EXPECT_GE(carried_->data(), 0);
  EXPECT_FALSE(Readable(carried_->data()));
}

TEST_F(CarriedTest, AnEndThatSaysNothingMoreIsGone) {
  ASSERT_EQ(shutdown(room_.get(), SHUT_WR), 0);
  ASSERT_TRUE(Readable(carried_->room()));
  carried_->Hear(carried_->room(), false);
  EXPECT_EQ(carried_->data(), -1);
}

// A lane on which one WRITE can be under way.
class NarrowRoad final : public Carried::Road {
 public:
  void Tell(std::uint32_t, const Word&) override {}
  void Tell(std::uint32_t, const Bytes&) override {}
  [[nodiscard]] bool MayShip() const override { return room_; }
  Status Ship(Carried& connection, std::uint64_t, std::uint64_t count) override {
    room_ = false;
    shipped_[connection.id()] += count;
    return {};
  }
  void Completed() { room_ = true; }
  [[nodiscard]] std::uint64_t shipped(const Carried& by) { return shipped_[by.id()]; }

 private:
  bool room_ = true;
  std::map<std::uint32_t, std::uint64_t> shipped_;
};

TEST(WaitersFirstTest, ALanesFewWritesGoRound) {
  std::array<Served, 3> all;
  std::vector<Carried*> awake;
  for (Served& one : all) {
    ASSERT_NO_FATAL_FAILURE(Serve(static_cast<std::uint32_t>(awake.size()) + 1, one));
    awake.push_back(one.carried.get());
    DirectionWords& words = *one.channel->Outgoing(Channel::Role::kGuest).words;
    words.ring_bytes = kRing;
    words.gate = Gate::At(kRing);
    words.opens = 1;
  }
  NarrowRoad road;
  constexpr unsigned kWrites = 30;
  for (unsigned i = 0; i < kWrites; ++i) {
    for (Carried* const one : awake) ASSERT_TRUE(one->Look(road, false).ok());
    WaitersFirst(awake);
    road.Completed();
    // All is read over there, and each ring is full again.
    for (Served& one : all) {
      const std::uint64_t shipped = road.shipped(*one.carried);
      ASSERT_TRUE(one.carried->On(Word{.type = Type::kConsumed, .value = shipped}, road).ok());
      one.channel->Outgoing(Channel::Role::kGuest).words->gate = Gate::At(shipped + kRing);
    }
  }
  for (Served& one : all) {
    EXPECT_EQ(road.shipped(*one.carried), std::uint64_t{kWrites} / 3 * kRing);
  }
}

}  // namespace
}  // namespace rdfs::sock::far
