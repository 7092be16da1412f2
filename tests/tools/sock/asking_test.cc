// Asking against what a carrier, or somebody in its place, may answer.
#include "tools/sock/asking.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "tools/sock/packet.h"

namespace rdfs::sock {
namespace {

using std::chrono_literals::operator""s;

constexpr std::uint32_t kLargest = 16 * 1024;
constexpr far::Ask kAsk{.cookie = 77, .flags = kFlagOpened, .places = {}};

// Somebody at a name of its own.
class Answerer {
 public:
  Answerer() : name_("rdsock-test-" + std::to_string(getpid()) + "-" + std::to_string(++made_)) {
    sockaddr_un address;
    const socklen_t length = AbstractAddress(name_, address);
    listener_ = *MakePacketSocket();
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_.get(), 4), 0);
    int room[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, room), 0);
    room_.Reset(room[0]);
    theirs_.Reset(room[1]);
  }
  [[nodiscard]] const std::string& name() const { return name_; }
  // What was asked, by who came last.
  std::optional<far::Ask> Accept() {
    socket_.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    std::array<std::byte, 128> bytes;
    std::array<Fd, 2> fds;
    const auto size = ReceivePacket(socket_.get(), bytes, fds);
    if (!size.ok()) return std::nullopt;
    return far::DecodeAsk(ByteSpan(bytes).first(*size));
  }
  template <typename Wire>
  void Send(const Wire& wire, int first = -1, int second = -1) {
    EXPECT_TRUE(SendPacket(socket_.get(), std::as_bytes(std::span(&wire, 1)), first, second).ok());
  }
  void Close() { socket_.Reset(); }
  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] int room() const { return room_.get(); }
  [[nodiscard]] int theirs() const { return theirs_.get(); }

 private:
  static inline int made_ = 0;
  std::string name_;
  Fd listener_, socket_, room_, theirs_;
};

MeetingWire Offer() {
  MeetingWire wire;
  wire.type = MeetingType::kChannel;
  wire.cookie = kAsk.cookie;
  wire.largest_ring = kLargest;
  return wire;
}

std::unique_ptr<Asking> Begin(const Answerer& carrier) {
  auto begun = Asking::Begin(carrier.name(), geteuid(), kAsk, TimePoint());
  EXPECT_TRUE(begun.ok()) << begun.status().ToString();
  return *std::move(begun);
}

TEST(Asking, FindsNoCarrierWhereNoneListens) {
  const auto begun = Asking::Begin("rdsock-test-nobody", geteuid(), kAsk, TimePoint());
  EXPECT_EQ(begun.status().code(), Code::kNotFound);
}

TEST(Asking, AsksNobodyElsesCarrier) {
  Answerer carrier;
  const auto begun = Asking::Begin(carrier.name(), geteuid() + 1, kAsk, TimePoint());
  EXPECT_EQ(begun.status().code(), Code::kNotFound);
  EXPECT_FALSE(carrier.Accept().has_value());
}

TEST(Asking, TakesAChannel) {
  Answerer carrier;
  const auto asking = Begin(carrier);
  const auto asked = carrier.Accept();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->cookie, kAsk.cookie);
  EXPECT_EQ(asking->Go(TimePoint()), Meeting::State::kWaiting);
  const auto channel = Channel::Create(kLargest);
  ASSERT_TRUE(channel.ok());
  carrier.Send(Offer(), channel->fd(), carrier.theirs());
  ASSERT_EQ(asking->Go(TimePoint()), Meeting::State::kMet);
  const Meeting::Result met = asking->Take();
  EXPECT_TRUE(met.opened);
  EXPECT_EQ(met.far, Far::kCarrier);
  EXPECT_EQ(met.role, Channel::Role::kGuest);
  // The same memory and bells.
  met.channel.Outgoing(met.role).words->open_at = 5;
  EXPECT_EQ(channel->Incoming(Channel::Role::kHost).words->open_at, 5U);
  std::array<std::byte, 64> bytes;
  std::array<Fd, 2> fds;
  const auto joined = ReceivePacket(carrier.socket(), bytes, fds);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(*joined, kJoinedBytes);
  EXPECT_EQ(bytes[0], std::byte{3});
  Ring(met.room.get());
  const auto rung = ReceivePacket(carrier.room(), bytes, fds);
  ASSERT_TRUE(rung.ok());
  EXPECT_GT(*rung, 0U);
}

TEST(Asking, SaysWhyItWasRefused) {
  Answerer carrier;
  const auto asking = Begin(carrier);
  ASSERT_TRUE(carrier.Accept().has_value());
  far::RefusedWire refused;
  refused.reason = static_cast<std::uint32_t>(far::Refusal::kNotPaired);
  carrier.Send(refused);
  EXPECT_EQ(asking->Go(TimePoint()), Meeting::State::kOver);
  EXPECT_EQ(asking->refusal(), far::Refusal::kNotPaired);
}

TEST(Asking, GivesUpOnSilenceAndDeath) {
  Answerer carrier;
  const auto asking = Begin(carrier);
  ASSERT_TRUE(carrier.Accept().has_value());
  EXPECT_EQ(asking->Go(TimePoint(far::kAskTimeout) - 1s), Meeting::State::kWaiting);
  EXPECT_EQ(asking->Go(TimePoint(far::kAskTimeout)), Meeting::State::kOver);
  const auto second = Begin(carrier);
  ASSERT_TRUE(carrier.Accept().has_value());
  carrier.Close();
  EXPECT_EQ(second->Go(TimePoint()), Meeting::State::kOver);
  EXPECT_FALSE(second->refusal().has_value());
}

TEST(Asking, BelievesNothing) {
  const auto channel = Channel::Create(kLargest);
  ASSERT_TRUE(channel.ok());
  const Fd file(memfd_create("none", MFD_CLOEXEC));
  MeetingWire other_version = Offer();
  other_version.version = 2;
  MeetingWire other_cookie = Offer();
  other_cookie.cookie = 78;
  MeetingWire other_size = Offer();
  other_size.largest_ring = 2 * kLargest;
  MeetingWire both_opened = Offer();
  both_opened.flags = kFlagOpened;
  MeetingWire hello = Offer();
  hello.type = MeetingType::kHello;
  for (const MeetingWire& wire : {other_version, other_cookie, other_size, both_opened, hello}) {
    Answerer carrier;
    const auto asking = Begin(carrier);
    ASSERT_TRUE(carrier.Accept().has_value());
    carrier.Send(wire, channel->fd(), carrier.theirs());
    EXPECT_EQ(asking->Go(TimePoint()), Meeting::State::kOver);
  }
  // Without descriptors, with memory that could be shrunk, with a bell that is none.
  for (const auto& [first, second] : {std::pair(-1, -1), std::pair(file.get(), channel->fd()),
                                      std::pair(channel->fd(), file.get())}) {
    Answerer carrier;
    const auto asking = Begin(carrier);
    ASSERT_TRUE(carrier.Accept().has_value());
    carrier.Send(Offer(), first, second);
    EXPECT_EQ(asking->Go(TimePoint()), Meeting::State::kOver);
  }
}

}  // namespace
}  // namespace rdfs::sock
