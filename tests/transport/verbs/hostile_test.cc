// A peer that breaks every rule, on a real RDMA stack: what it does ends its own connection only.
//
// One listener, one thread that serves all of its connections (it echoes messages). In each case a
// RawPeer misbehaves, while a well-behaved connection beside it goes on exchanging messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <random>
#include <thread>

#include "tests/transport/verbs/raw_peer.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/private_data.h"
#include "transport/verbs/transport.h"

namespace rdfs::transport::verbs {
namespace {

using std::chrono_literals::operator""s;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kRegionBytes = 64 * 1024;
constexpr std::string_view kToken = "let me in";
constexpr std::byte kOffered{0x11};
constexpr std::byte kStaged{0x22};

bool OnSoftIwarp() {
  const char* driver = std::getenv("RDFS_RDMA_DRIVER");
  return driver != nullptr && std::string_view(driver) == "siw";
}
// A real device may be either; what iWARP lacks is left out there.
bool OnRoce() {
  const char* driver = std::getenv("RDFS_RDMA_DRIVER");
  return driver != nullptr && std::string_view(driver) == "rxe";
}

// Accepts whoever has the token, echoes messages, and counts the connections that have ended.
class Server {
 public:
  Server() {
    const char* address = std::getenv("RDFS_RDMA_ADDRESS");
    auto listener = transport_->Listen(
        {.kind = Kind::kVerbs, .host = address != nullptr ? address : "", .port = 0});
    EXPECT_TRUE(listener.ok()) << listener.status().ToString();
    if (!listener.ok()) return;
    listener_ = *std::move(listener);
    offered_ = Region(SharedMemory::Peers::kReadOnly, Access::kRemoteRead);
    staging_ = Region(SharedMemory::Peers::kMayWrite, Access::kRemoteWrite);
    std::memset(staging_->bytes().data(), static_cast<int>(kStaged), kRegionBytes);
    std::memset(offered_->bytes().data(), static_cast<int>(kOffered), kRegionBytes);
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  [[nodiscard]] Endpoint endpoint() const { return listener_->endpoint(); }
  [[nodiscard]] const MemoryRegion& offered() const { return *offered_; }
  [[nodiscard]] const MemoryRegion& staging() const { return *staging_; }
  // While true, nobody polls the connections: their receives fill up.
  std::atomic<bool> asleep{false};

  // What the peer would be told by message.
  [[nodiscard]] RemoteRegion OfferedToPeers() {
    const std::lock_guard lock(mutex_);
    return *connections_.front()->Share(*offered_);
  }
  [[nodiscard]] RemoteRegion StagingOfPeers() {
    const std::lock_guard lock(mutex_);
    return *connections_.front()->Share(*staging_);
  }
  // Whether a connection has ended since the last call; waits for it.
  [[nodiscard]] Status AwaitEnd() {
    const Deadline deadline = DeadlineAfter(30s);
    while (BootClock::now() < deadline) {
      {
        const std::lock_guard lock(mutex_);
        if (!ends_.empty()) {
          const Status why = ends_.front();
          ends_.clear();
          return why;
        }
      }
      std::this_thread::yield();
    }
    return {};
  }

 private:
  std::unique_ptr<MemoryRegion> Region(SharedMemory::Peers peers, Access access) {
    auto memory = SharedMemory::Create("hostile test", kRegionBytes, peers);
    EXPECT_TRUE(memory.ok());
    auto region = domain_->Register(*std::move(memory), access);
    EXPECT_TRUE(region.ok());
    return *std::move(region);
  }

  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::lock_guard lock(mutex_);
      TakeNew();
      if (!asleep) {
        std::erase_if(connections_, [this](const auto& connection) { return !Serve(*connection); });
      }
      std::this_thread::yield();
    }
    connections_.clear();
  }

  void TakeNew() {
    auto incoming = listener_->Accept();
    ASSERT_TRUE(incoming.ok()) << incoming.status().ToString();
    if (*incoming == nullptr) return;
    if (AsText((*incoming)->token()) != kToken) {
      (*incoming)->Reject({Code::kAuthenticationFailed, "wrong token"});
      return;
    }
    auto connection = (*incoming)->Accept(domain_);
    if (connection.ok()) connections_.push_back(*std::move(connection));
  }

  bool Serve(Connection& connection) {
    std::array<Completion, 8> completions;
    const auto count = connection.Poll(completions);
    if (!count.ok()) {
      ends_.push_back(count.status());
      return false;
    }
    for (std::size_t i = 0; i < *count; ++i) {
      const Bytes copy(completions[i].message.begin(), completions[i].message.end());
      (void)connection.Send(ByteSpan(copy));
    }
    (void)connection.Flush();
    return true;
  }

  std::unique_ptr<Transport> transport_ = MakeTransport();
  std::shared_ptr<Domain> domain_ = Domain::Create("hostile test");
  std::unique_ptr<MemoryRegion> offered_, staging_;
  std::unique_ptr<Listener> listener_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::vector<Status> ends_;
  std::jthread thread_;  // last: ends first
};

Bytes Frame(FrameType type, std::size_t message_bytes, ByteSpan payload, std::uint16_t credits = 0,
            std::uint8_t flags = 0) {
  FrameHeader header;
  header.type = static_cast<std::uint8_t>(type);
  header.flags = flags;
  header.credits = credits;
  header.message_bytes = static_cast<std::uint32_t>(message_bytes);
  Bytes frame(sizeof header + payload.size());
  std::memcpy(frame.data(), &header, sizeof header);
  std::ranges::copy(payload, frame.begin() + sizeof header);
  return frame;
}

Bytes OpeningFrame(const Opening& opening, std::uint16_t credits = 56) {
  return Frame(FrameType::kOpening, 0, std::as_bytes(std::span<const Opening, 1>(&opening, 1)),
               credits);
}

Opening GoodOpening() {
  Opening opening;
  opening.receive_slots = 64;
  return opening;
}

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    auto connection =
        transport_->Connect(server_.endpoint(), domain_, AsBytes(kToken), DeadlineAfter(10s));
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    bystander_ = *std::move(connection);
    ExpectBystanderServed();
  }
  void TearDown() override { ExpectBystanderServed(); }

  void ExpectBystanderServed() {
    ASSERT_NE(bystander_, nullptr);
    for (int round = 0; round < 20; ++round) {
      const std::string words = "round " + std::to_string(round);
      ASSERT_TRUE(bystander_->Send(AsBytes(words)).ok());
      std::array<Completion, 4> completions;
      const auto count = bystander_->Wait(completions, DeadlineAfter(20s));
      ASSERT_TRUE(count.ok()) << count.status().ToString();
      ASSERT_EQ(*count, 1U);
      EXPECT_EQ(AsText(completions[0].message), words);
    }
  }

  // A raw peer that was let in.
  std::unique_ptr<RawPeer> Enter(std::uint32_t receives = 64) {
    auto peer = RawPeer::Create(server_.endpoint(), receives);
    EXPECT_NE(peer, nullptr);
    const ConnectData data = EncodeConnect(AsBytes(kToken));
    if (peer != nullptr) {
      EXPECT_TRUE(peer->Connect(std::as_bytes(std::span<const ConnectData, 1>(&data, 1))));
    }
    return peer;
  }
  // And has opened in order.
  std::unique_ptr<RawPeer> EnterAndOpen(std::uint32_t receives = 64) {
    auto peer = Enter(receives);
    if (peer == nullptr) return peer;
    EXPECT_EQ(peer->Send(OpeningFrame(GoodOpening())), IBV_WC_SUCCESS);
    if (receives > 0) {
      const auto answer = peer->Receive();
      EXPECT_TRUE(answer && (*answer)[0] == std::byte{1}) << "no opening";
    }
    return peer;
  }
  // A frame after which the server must end this connection.
  void ExpectEnded(RawPeer& peer, ByteSpan frame, const std::string& what) {
    (void)peer.Send(frame);
    const Status why = server_.AwaitEnd();
    EXPECT_FALSE(why.ok()) << what;
    EXPECT_FALSE(why.message().empty()) << what;
    // RoCE tells the other queue pair nothing: that is a message of the connection manager's.
    if (OnRoce()) return;
    while (peer.Receive()) {
    }
    EXPECT_TRUE(peer.ended()) << what;
  }
  void ExpectUntouched() const {
    EXPECT_TRUE(
        std::ranges::all_of(server_.offered().bytes(), [](auto b) { return b == kOffered; }));
  }

  Server server_;
  std::unique_ptr<Transport> transport_ = MakeTransport();
  std::shared_ptr<Domain> domain_ = Domain::Create("bystander");
  std::unique_ptr<Connection> bystander_;
};

TEST_F(Hostile, WhoHasNoTokenIsNotLetIn) {
  const std::string lying = "\x30short";
  const ConnectData wrong = EncodeConnect(AsBytes("let me inn"));
  const ByteSpan none, lie = AsBytes(lying),
                       other = std::as_bytes(std::span<const ConnectData, 1>(&wrong, 1));
  for (const ByteSpan data : {none, lie, other, AsBytes(std::string_view("\xff\xff\xff\xff", 4))}) {
    auto peer = RawPeer::Create(server_.endpoint(), 4);
    ASSERT_NE(peer, nullptr);
    EXPECT_FALSE(peer->Connect(data)) << data.size();
    ExpectBystanderServed();
  }
}

TEST_F(Hostile, WhoHasTheTokenAndKeepsTheRulesIsServed) {
  auto peer = EnterAndOpen();
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->Send(Frame(FrameType::kMessage, 5, AsBytes("hello"))), IBV_WC_SUCCESS);
  const auto echo = peer->Receive();
  ASSERT_TRUE(echo);
  EXPECT_EQ(AsText(ByteSpan(*echo).subspan(sizeof(FrameHeader))), "hello");
}

TEST_F(Hostile, FirstFramesThatAreNoOpening) {
  Opening magic = GoodOpening(), version = magic, small = magic, few = magic;
  magic.magic = 1;
  version.version_major = 99;
  small.frame_bytes = 64;
  few.receive_slots = 1;
  const std::vector<Bytes> frames{
      Frame(FrameType::kMessage, 5, AsBytes("hello")),
      OpeningFrame(magic),
      OpeningFrame(version),
      OpeningFrame(small),
      OpeningFrame(few),
      Frame(FrameType::kOpening, 0, AsBytes("short")),
      Bytes(3, std::byte{1}),
      Bytes(4096, std::byte{0xff}),
      Frame(FrameType::kOpening, 0, {}, 0, 1),
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    auto peer = Enter();
    ASSERT_NE(peer, nullptr);
    ExpectEnded(*peer, frames[i], "frame " + std::to_string(i));
    ExpectBystanderServed();
  }
}

TEST_F(Hostile, FramesThatMakeNoSense) {
  const std::vector<Bytes> frames{
      OpeningFrame(GoodOpening()),
      Frame(FrameType{99}, 0, {}),
      Frame(FrameType::kMessage, 5, AsBytes("hello"), 0, kSealedFlag),
      Frame(FrameType::kContinuation, 5, AsBytes("hello")),
      Frame(FrameType::kMessage, 4, AsBytes("hello")),
      Frame(FrameType::kMessage, 0xffffffff, Bytes(kMaxPayloadBytes)),
      Frame(FrameType::kMessage, kMaxMessageBytes, AsBytes("a short first piece")),
      Bytes(7, std::byte{2}),
      Bytes{},
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    auto peer = EnterAndOpen();
    ASSERT_NE(peer, nullptr);
    ExpectEnded(*peer, frames[i], "frame " + std::to_string(i));
    ExpectBystanderServed();
  }
}

TEST_F(Hostile, RandomFrames) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    auto peer = EnterAndOpen();
    ASSERT_NE(peer, nullptr);
    // Until the server has had enough of it.
    for (int i = 0; i < 50; ++i) {
      Bytes frame(random() % 200);
      for (std::byte& byte : frame) byte = static_cast<std::byte>(random() % 256);
      if (!frame.empty()) frame[0] = static_cast<std::byte>(random() % 7);
      if (frame.size() > 1) frame[1] = std::byte{0};
      if (!peer->SendMany(frame, 1)) break;
    }
    EXPECT_FALSE(server_.AwaitEnd().ok());
  }
}

TEST_F(Hostile, AFrameLargerThanAReceiveBuffer) {
  auto peer = EnterAndOpen();
  ASSERT_NE(peer, nullptr);
  ExpectEnded(*peer, Bytes(2 * kFrameBytes, std::byte{2}), "8 KiB");
}

TEST_F(Hostile, MoreSendsThanCredits) {
  auto peer = EnterAndOpen();
  ASSERT_NE(peer, nullptr);
  server_.asleep = true;
  (void)peer->SendMany(Frame(FrameType::kMessage, 5, AsBytes("hello")), 300);
  // iWARP ends the connection; InfiniBand repeats for a while. Either is this peer's affair.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server_.asleep = false;
  ExpectBystanderServed();
}

TEST_F(Hostile, CreditsOutOfThinAir) {
  auto peer = EnterAndOpen();
  ASSERT_NE(peer, nullptr);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(peer->Send(Frame(FrameType::kMessage, 5, AsBytes("hello"), 0xffff)), IBV_WC_SUCCESS);
    ASSERT_TRUE(peer->Receive()) << i;
  }
}

TEST_F(Hostile, AnOpeningThatPromisesReceivesThatAreNotThere) {
  auto peer = EnterAndOpen(0);
  ASSERT_NE(peer, nullptr);
  const Bytes frame = Frame(FrameType::kMessage, 5, AsBytes("hello"));
  for (int i = 0; i < 10; ++i) (void)peer->SendMany(frame, 1);
  EXPECT_FALSE(server_.AwaitEnd().ok());
}

TEST_F(Hostile, KeysAndPlacesThatNobodyGaveOut) {
  const RemoteRegion offered = server_.OfferedToPeers(), staging = server_.StagingOfPeers();
  RemoteRegion stale = offered;
  stale.key ^= 0x5a5a00;
  const auto expect_refused = [&](ibv_wr_opcode opcode, const RemoteRegion& region,
                                  std::uint64_t offset, std::uint32_t length, const char* what) {
    auto peer = EnterAndOpen();
    ASSERT_NE(peer, nullptr);
    std::ranges::fill(peer->buffer(), std::byte{0x33});
    (void)peer->Access(opcode, region, offset, length);  // on iWARP a WRITE has been taken already
    EXPECT_FALSE(server_.AwaitEnd().ok()) << what;
    while (peer->Receive()) {
    }
    EXPECT_TRUE(peer->ended()) << what;
    if (opcode == IBV_WR_RDMA_READ) {
      EXPECT_TRUE(std::ranges::all_of(peer->buffer(), [](auto b) { return b == std::byte{0x33}; }))
          << what;
    }
    ExpectUntouched();
    ExpectBystanderServed();
  };
  expect_refused(IBV_WR_RDMA_READ, stale, 0, 4096, "READ with a stale key");
  expect_refused(IBV_WR_RDMA_WRITE, stale, 0, 4096, "WRITE with a stale key");
  expect_refused(IBV_WR_RDMA_READ, offered, kRegionBytes, 16, "READ behind the end");
  expect_refused(IBV_WR_RDMA_READ, offered, 0, kRegionBytes + 4096, "READ of too much");
  expect_refused(IBV_WR_RDMA_READ, offered, ~std::uint64_t{0} - 4095, 16, "READ before the start");
  expect_refused(IBV_WR_RDMA_WRITE, offered, 0, 4096, "WRITE to what is only readable");
  expect_refused(IBV_WR_RDMA_WRITE, staging, kRegionBytes, 16, "WRITE behind the end");
  // Soft-iWARP does not look at what a region was registered for.
  if (!OnSoftIwarp()) {
    expect_refused(IBV_WR_RDMA_READ, staging, 0, 4096, "READ of what is only writable");
  }
  if (OnRoce()) {
    expect_refused(IBV_WR_ATOMIC_FETCH_AND_ADD, staging, 0, 8, "an atomic operation");
  }
}

TEST_F(Hostile, OpcodesThatTakeAReceiveAndBringNoFrame) {
  if (!OnRoce()) return;  // iWARP has no operation with immediate
  {
    auto peer = EnterAndOpen();
    ASSERT_NE(peer, nullptr);
    ExpectEnded(*peer, {}, "nothing at all");
  }
  {
    auto peer = EnterAndOpen();
    ASSERT_NE(peer, nullptr);
    EXPECT_TRUE(peer->Send(Frame(FrameType::kMessage, 5, AsBytes("hello")), IBV_WR_SEND_WITH_IMM));
    EXPECT_EQ(server_.AwaitEnd().code(), Code::kProtocolError);
  }
  // Its completion tells a length far above that of the receive it takes.
  auto peer = EnterAndOpen();
  ASSERT_NE(peer, nullptr);
  EXPECT_TRUE(peer->Access(IBV_WR_RDMA_WRITE_WITH_IMM, server_.StagingOfPeers(), 0, kRegionBytes));
  EXPECT_EQ(server_.AwaitEnd().code(), Code::kProtocolError);
}

TEST_F(Hostile, WhatFollowsAGoodbyeIsNotHeard) {
  auto peer = EnterAndOpen();
  ASSERT_NE(peer, nullptr);
  ExpectEnded(*peer, Frame(FrameType::kBye, 0, {}), "goodbye");
  (void)peer->SendMany(Frame(FrameType::kMessage, 5, AsBytes("hello")), 1);
  EXPECT_FALSE(peer->Receive());
}

TEST_F(Hostile, PeersThatVanish) {
  for (int round = 0; round < 10; ++round) {
    {
      auto peer = round % 2 == 0 ? Enter() : EnterAndOpen();
      ASSERT_NE(peer, nullptr);
      // In the middle of a message, with answers and an access under way.
      (void)peer->SendMany(Frame(FrameType::kMessage, kMaxMessageBytes, Bytes(kMaxPayloadBytes)),
                           1);
    }
    EXPECT_FALSE(server_.AwaitEnd().ok());
  }
}

// What soft-iWARP's accepting side leaves lying it finds when something else comes. (A peer that
// answers is sent nothing more: every other test would see frames that it did not expect.)
TEST(QuietPeer, OverSoftIwarpIsSentFramesUntilItAnswers) {
  if (!OnSoftIwarp()) return;
  const auto listener = RawListener::Create(std::getenv("RDFS_RDMA_ADDRESS"));
  ASSERT_NE(listener, nullptr);
  std::unique_ptr<RawPeer> peer;
  std::jthread acceptor([&] { peer = listener->Accept(8); });
  const std::unique_ptr<Transport> transport = MakeTransport();
  auto connected =
      transport->Connect({Kind::kVerbs, std::getenv("RDFS_RDMA_ADDRESS"), listener->port()},
                         Domain::Create("quiet"), AsBytes(kToken), DeadlineAfter(20s));
  acceptor.join();
  ASSERT_TRUE(connected.ok()) << connected.status().ToString();
  ASSERT_NE(peer, nullptr);
  std::jthread sleeper([&](const std::stop_token& stop) {
    std::array<Completion, 4> completions;
    while (!stop.stop_requested()) {
      ASSERT_TRUE(
          (*connected)->Wait(completions, DeadlineAfter(std::chrono::milliseconds(100))).ok());
    }
  });
  const auto opening = peer->Receive();
  ASSERT_TRUE(opening);
  EXPECT_EQ(FrameType{std::to_integer<std::uint8_t>((*opening)[0])}, FrameType::kOpening);
  int nudges = 0;
  while (const auto frame = peer->Receive()) {
    EXPECT_EQ(FrameType{std::to_integer<std::uint8_t>((*frame)[0])}, FrameType::kCredits);
    ++nudges;
  }
  EXPECT_EQ(nudges, 3);
}

}  // namespace
}  // namespace rdfs::transport::verbs
