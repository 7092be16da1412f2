// A peer that follows no rule ends its own connection, and nothing else.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "tests/transport/shm/pair.h"
#include "transport/base/printable.h"
#include "transport/shm/regions.h"

namespace rdfs::transport::shm {
namespace {

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// A raw peer that has been let in, and our end of the connection.
struct Intruder {
  Pair pair;
  RawPeer peer{pair.listener->endpoint()};
  std::unique_ptr<Connection> ours;

  explicit Intruder(std::size_t peer_regions = kMaxRegions) : pair(peer_regions) {}

  void Enter() {
    peer.Send(PrefaceWire{});
    const std::unique_ptr<Incoming> incoming = AcceptNext(*pair.listener);
    ASSERT_NE(incoming, nullptr);
    auto accepted = incoming->Accept(pair.server_domain);
    ASSERT_TRUE(accepted.ok()) << accepted.status().ToString();
    ours = *std::move(accepted);
    peer.TakeChannel();
  }
};

// What our end says after the intruder has done `deed`; it is told by one bell.
Status After(const std::function<void(Intruder&)>& deed) {
  Intruder intruder;
  intruder.Enter();
  deed(intruder);
  return WaitForMessage(*intruder.ours).status;
}

Fd MakeMemfd(std::size_t size, int seals) {
  Fd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// SO_PASSRIGHTS, since Linux 6.16.
bool KernelCanForbidDescriptors() {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(socket.get(), SOL_SOCKET, 83, &value, &size) == 0;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kFutureWrite = 0x0010;

ShareWire ShareOf(Access access, std::uint64_t size) {
  return {.type = PacketType::kShare,
          .access = static_cast<std::uint8_t>(access),
          .slot = 0,
          .key = 42,
          .size = size};
}

TEST(ShmHostile, FirstPacketsThatAreNoPrefaceDelayNobody) {
  Pair pair;
  std::vector<RawPeer> strangers;
  const std::vector<Bytes> nonsense = {Pattern(1, 1), Pattern(11, 1), Pattern(500, 3),
                                       Pattern(4000, 3), Bytes(12)};
  for (const Bytes& packet : nonsense) {
    strangers.emplace_back(pair.listener->endpoint());
    strangers.back().SendBytes(packet);
  }
  strangers.emplace_back(pair.listener->endpoint());
  PrefaceWire lying;
  lying.token_bytes = 200;  // but none follow
  strangers.back().Send(lying);
  strangers.emplace_back(pair.listener->endpoint());  // says nothing at all
  pair.Connect();
  ASSERT_NE(pair.client, nullptr);
  for (std::size_t i = 0; i + 1 < strangers.size(); ++i) {
    EXPECT_EQ(strangers[i].Receive().size, 0U) << "stranger " << i << " was not dropped";
  }
}

// Closing a file may take as long as who made it likes: none of a stranger's comes here.
TEST(ShmHostile, AStrangerSendsNoDescriptor) {
  Pair pair;
  const Fd memory = MakeMemfd(4096, kSeals);
  const RawPeer stranger(pair.listener->endpoint());
  EXPECT_EQ(stranger.TryToSendWithFds(PrefaceWire{}, {memory.get()}),
            KernelCanForbidDescriptors() ? EPERM : 0);
  pair.Connect();
  EXPECT_NE(pair.server, nullptr);
}

TEST(ShmHostile, WhereAStrangersDescriptorTravelsItIsNotTakenIn) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const RawPeer stranger{Fd(ends[0])};
  PacketSocket ours{Fd(ends[1])};
  const Fd memory = MakeMemfd(4096, kSeals);
  const std::size_t before = OpenDescriptors();
  stranger.SendWithFds(PrefaceWire{}, {memory.get()});
  stranger.Send(PrefaceWire{});
  Packet packet;
  EXPECT_EQ(ours.ReceiveBytes(packet).status().code(), Code::kProtocolError);
  EXPECT_FALSE(packet.fd.valid());
  EXPECT_EQ(OpenDescriptors(), before);
  const auto next = ours.ReceiveBytes(packet);
  ASSERT_TRUE(next.ok()) << next.status().ToString();
  EXPECT_EQ(*next, PacketSocket::Event::kPacket);
}

TEST(ShmHostile, APrefaceOfAnotherVersionIsToldSo) {
  Pair pair;
  const RawPeer peer(pair.listener->endpoint());
  PrefaceWire preface;
  preface.version = 77;
  peer.Send(preface);
  const auto incoming = pair.listener->Accept();
  ASSERT_TRUE(incoming.ok());
  EXPECT_EQ(*incoming, nullptr);
  const Packet answer = peer.Receive();
  ByteReader reader(answer.bytes());
  const auto reject = reader.Read<RejectWire>();
  EXPECT_EQ(reject.type, PacketType::kReject);
  EXPECT_EQ(static_cast<Code>(reject.code), Code::kVersionMismatch);
}

TEST(ShmHostile, HundredsOfSilentPeersCostABoundedNumberOfDescriptors) {
  Pair pair;
  const std::size_t before = OpenDescriptors();
  std::vector<RawPeer> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(pair.listener->endpoint());
    ASSERT_TRUE(pair.listener->Accept().ok());
  }
  EXPECT_LE(OpenDescriptors(), before + silent.size() + 64);
  pair.Connect();
  EXPECT_NE(pair.client, nullptr);
}

TEST(ShmHostile, ASilentPeerIsDroppedInTime) {
  Pair pair;
  const RawPeer silent(pair.listener->endpoint());
  ASSERT_TRUE(pair.listener->Accept().ok());
  pollfd listener{.fd = pair.listener->fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&listener, 1, 20'000), 1) << "the listener's descriptor tells when it is time";
  ASSERT_TRUE(pair.listener->Accept().ok());
  EXPECT_EQ(silent.Receive().size, 0U);
  EXPECT_EQ(poll(&listener, 1, 0), 0) << "and is quiet again";
}

TEST(ShmHostile, ImpossiblePositionsEndTheConnection) {
  for (const std::uint64_t bad : {std::uint64_t{3}, std::uint64_t{kRingBytes + 64},
                                  std::uint64_t{1} << 62U, ~std::uint64_t{0}}) {
    const Status status =
        After([bad](Intruder& in) { in.peer.channel().cursors[1].produced.store(bad); });
    EXPECT_EQ(status.code(), Code::kProtocolError) << bad;
  }
  const Status reader_side = After([](Intruder& in) {
    in.peer.channel().cursors[0].consumed.store(kRingBytes);
    const Bytes message = Pattern(kMaxMessageBytes, 1);
    Status sent;
    for (int i = 0; i < 4 && sent.ok(); ++i) sent = in.ours->Send(message);
    EXPECT_EQ(sent.code(), Code::kProtocolError);
  });
  EXPECT_EQ(reader_side.code(), Code::kProtocolError) << "and the connection stays over";
}

TEST(ShmHostile, AMessageAboveTheBoundEndsTheConnection) {
  const Status status = After([](Intruder& in) {
    const RecordHeader header{.length = kMaxMessageBytes + 1, .tag = 0};
    std::memcpy(in.peer.channel().rings[1], &header, sizeof(header));
    in.peer.channel().cursors[1].produced.store(RecordBytes(header.length));
  });
  EXPECT_EQ(status.code(), Code::kProtocolError);
}

TEST(ShmHostile, PacketsThatNoCorrectPeerSendsEndTheConnection) {
  const Fd good = MakeMemfd(4096, kSeals);
  const std::vector<std::function<void(const RawPeer&)>> deeds = {
      [](const RawPeer& p) { p.SendBytes(Pattern(1, 200)); },
      [](const RawPeer& p) { p.SendBytes(Pattern(sizeof(ShareWire), 200)); },
      [](const RawPeer& p) { p.SendBytes(Pattern(5000, 200)); },
      [](const RawPeer& p) { p.Send(PrefaceWire{}); },
      [](const RawPeer& p) { p.Send(ShareOf(Access::kRemoteWrite, 4096)); },  // no descriptor
      [&good](const RawPeer& p) {
        p.SendWithFds(ShareOf(Access::kRemoteWrite, 4096), {good.get(), good.get()});
      },
      [&good](const RawPeer& p) {
        p.SendWithFds(ShareOf(Access::kRemoteWrite, 4096), std::vector<int>(20, good.get()));
      },
      [&good](const RawPeer& p) { p.SendWithFds(ShareOf(Access::kLocal, 4096), {good.get()}); },
      [&good](const RawPeer& p) {
        p.SendWithFds(ShareOf(static_cast<Access>(9), 4096), {good.get()});
      },
      [&good](const RawPeer& p) {  // the same key twice
        p.SendWithFds(ShareOf(Access::kRemoteWrite, 4096), {good.get()});
        p.SendWithFds(ShareOf(Access::kRemoteWrite, 4096), {good.get()});
      },
      [&good](const RawPeer& p) {  // a slot that is not there
        ShareWire wire = ShareOf(Access::kRemoteWrite, 4096);
        wire.slot = kMaxRegions;
        p.SendWithFds(wire, {good.get()});
      },
      [](const RawPeer& p) {  // takes back what it never gave
        p.Send(
            ShareWire{.type = PacketType::kUnshare, .access = 0, .slot = 0, .key = 1, .size = 0});
      },
  };
  const std::size_t before = OpenDescriptors();
  for (std::size_t i = 0; i < deeds.size(); ++i) {
    const Status status = After([&](Intruder& in) { deeds[i](in.peer); });
    EXPECT_EQ(status.code(), Code::kProtocolError) << "deed " << i << ": " << status.ToString();
  }
  EXPECT_EQ(OpenDescriptors(), before) << "a descriptor that came along has leaked";
}

TEST(ShmHostile, MemoryThatCouldFaultOrChangeIsRefused) {
  const auto refused = [](int fd, Access access, std::uint64_t size) {
    const Status status =
        After([&](Intruder& in) { in.peer.SendWithFds(ShareOf(access, size), {fd}); });
    return status.code() == Code::kProtocolError;
  };
  EXPECT_TRUE(refused(MakeMemfd(4096, 0).get(), Access::kRemoteWrite, 4096));
  EXPECT_TRUE(
      refused(MakeMemfd(4096, F_SEAL_SHRINK | F_SEAL_SEAL).get(), Access::kRemoteWrite, 4096));
  EXPECT_TRUE(refused(MakeMemfd(4096, kSeals).get(), Access::kRemoteWrite, 8192));
  EXPECT_TRUE(refused(MakeMemfd(4096, kSeals).get(), Access::kRemoteWrite, 0));
  EXPECT_TRUE(refused(MakeMemfd(4096, kSeals).get(), Access::kRemoteRead, 4096));
  EXPECT_TRUE(
      refused(Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).get(), Access::kRemoteWrite, 4096));
  EXPECT_TRUE(refused(Fd(open("/dev/zero", O_RDWR | O_CLOEXEC)).get(), Access::kRemoteWrite, 4096));
  const Fd huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (huge.valid()) {
    ASSERT_EQ(ftruncate(huge.get(), 2 << 20), 0);
    ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, kSeals), 0);
    EXPECT_TRUE(refused(huge.get(), Access::kRemoteWrite, 2 << 20));
  }
}

TEST(ShmHostile, ARegionTooManyEndsTheConnection) {
  Intruder in;
  in.Enter();
  const Fd memory = MakeMemfd(4096, kSeals | kFutureWrite);
  Status status;
  std::array<Completion, 1> out;
  for (std::uint64_t i = 0; i <= kMaxRegions; ++i) {
    ShareWire wire = ShareOf(Access::kRemoteRead, 4096);
    wire.key = i;
    in.peer.SendWithFds(wire, {memory.get()});
    ASSERT_TRUE(*in.ours->Arm());  // so that Poll looks at the socket
    status = in.ours->Poll(out).status();
    ASSERT_EQ(status.ok(), i < kMaxRegions) << i << ": " << status.ToString();
  }
  EXPECT_EQ(status.code(), Code::kProtocolError);
}

TEST(ShmHostile, WhatAPeerSharesCostsNoDescriptor) {
  Intruder in;
  in.Enter();
  const Fd memory = MakeMemfd(4096, kSeals | kFutureWrite);
  const std::size_t before = OpenDescriptors();
  std::array<Completion, 1> out;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ShareWire wire = ShareOf(Access::kRemoteRead, 4096);
    wire.key = i + 1;
    in.peer.SendWithFds(wire, {memory.get()});
    ASSERT_TRUE(*in.ours->Arm());  // so that Poll looks at the socket
    ASSERT_TRUE(in.ours->Poll(out).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(ShmHostile, WhereNothingMayBeSharedOneRegionEndsTheConnection) {
  Intruder in(0);
  in.Enter();
  const Fd memory = MakeMemfd(4096, kSeals);
  const int refused = in.peer.TryToSendWithFds(ShareOf(Access::kRemoteWrite, 4096), {memory.get()});
  if (KernelCanForbidDescriptors()) {
    EXPECT_EQ(refused, EPERM) << "it does not even travel";
    in.peer.Send(ShareOf(Access::kRemoteWrite, 4096));
  } else {
    EXPECT_EQ(refused, 0);
  }
  EXPECT_EQ(WaitForMessage(*in.ours).status.code(), Code::kProtocolError);
}

TEST(ShmHostile, AScribblingPeerNeverGetsUsOutOfOurMemory) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Intruder in;
    in.Enter();
    std::atomic<bool> stop{false};
    std::jthread scribbling([&in, &stop, seed] {
      std::minstd_rand random(seed);
      ChannelLayout& channel = in.peer.channel();
      while (!stop.load()) {
        auto* const state = reinterpret_cast<std::byte*>(&channel);
        // Plausible positions most of the time, so that records are looked at as well.
        channel.cursors[1].produced.store(random() % 64 * kCacheLine);
        channel.cursors[0].consumed.store(random() % 8 * kCacheLine);
        const RecordHeader header{.length = static_cast<std::uint32_t>(random() % 3000),
                                  .tag = static_cast<std::uint32_t>(random() % 2)};
        std::memcpy(channel.rings[1] + random() % 64 * kCacheLine, &header, sizeof(header));
        if (random() % 8 == 0) state[random() % 4096] = static_cast<std::byte>(random());
      }
    });
    std::array<Completion, 8> out;
    const Bytes message = Pattern(3000, seed);
    Status status;
    for (int i = 0; i < 3000 && status.ok(); ++i) {
      const auto count = in.ours->Poll(out);
      status = count.status();
      for (std::size_t k = 0; count.ok() && k < *count; ++k) {
        ASSERT_LE(out[k].message.size(), kMaxMessageBytes);
      }
      if (status.ok() && i % 4 == 0) status = in.ours->Send(message);
      if (status.ok() && i % 16 == 0) status = in.ours->Arm().status();
    }
    EXPECT_TRUE(status.ok() || status.code() == Code::kProtocolError) << status.ToString();
    stop.store(true);
    scribbling.join();
  }
}

TEST(ShmHostile, AListenerThatIsNotRdfsIsToldApart) {
  const std::string name = "rdfs-test-" + std::to_string(getpid());
  const auto address = MakeAbstractAddress(name);
  const Fd fake(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(fake.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length),
            0);
  ASSERT_EQ(listen(fake.get(), 8), 0);
  const Fd unsealed = MakeMemfd(sizeof(ChannelLayout), 0);
  const AcceptWire accept_wire{.channel_bytes = sizeof(ChannelLayout)};
  Bytes accept_packet(sizeof(accept_wire));
  std::memcpy(accept_packet.data(), &accept_wire, sizeof(accept_wire));
  Bytes reject_packet(sizeof(RejectWire), std::byte{0});
  reject_packet[0] = static_cast<std::byte>(PacketType::kReject);
  // Its words are for a person's terminal or a log.
  constexpr std::string_view kWords = "no\n<3>forged\x1b[2J";
  const RejectWire reject_wire{.code = static_cast<std::uint8_t>(Code::kProtocolError),
                               .message_bytes = static_cast<std::uint16_t>(kWords.size()),
                               .errno_value = 0U};
  Bytes steering_packet(sizeof(reject_wire) + kWords.size());
  std::memcpy(steering_packet.data(), &reject_wire, sizeof(reject_wire));
  std::memcpy(steering_packet.data() + sizeof(reject_wire), kWords.data(), kWords.size());
  struct Case {
    Bytes answer;
    int fd;
  };
  for (const Case& c :
       {Case{Pattern(5, 9), -1}, Case{accept_packet, -1}, Case{accept_packet, unsealed.get()},
        Case{reject_packet, -1}, Case{steering_packet, -1}}) {
    auto dialling = std::async(std::launch::async, [&name] {
      return MakeTransport()->Connect({Kind::kShm, name, 0}, Domain::Create("d"), {},
                                      DeadlineAfter(kPatience));
    });
    PacketSocket ours{Fd(accept4(fake.get(), nullptr, nullptr, SOCK_CLOEXEC))};
    ASSERT_TRUE(ours.Send(c.answer, c.fd).ok());
    const Status told = dialling.get().status();
    EXPECT_EQ(told.code(), Code::kProtocolError);
    EXPECT_TRUE(std::ranges::none_of(told.message(), IsControl)) << told.message();
  }
}

}  // namespace
}  // namespace rdfs::transport::shm
