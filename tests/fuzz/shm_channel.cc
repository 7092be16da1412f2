// A shm connection whose peer sends any packets, hands over any memory, and stores anything into
// the memory of the channel, between any two calls.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "tests/fuzz/fuzz.h"
#include "transport/shm/connection.h"

namespace rdfs::fuzz {
namespace {

using namespace transport;
using namespace transport::shm;

constexpr std::size_t kRegionBytes = 4096;

struct Memory {
  std::shared_ptr<Domain> domain = Domain::Create("fuzz");
  std::shared_ptr<SharedMemory> channel =
      *SharedMemory::Create("fuzz", sizeof(ChannelLayout), SharedMemory::Peers::kMayWrite);
  std::unique_ptr<MemoryRegion> readable =
      *domain->Register(*SharedMemory::Create("fuzz", kRegionBytes, SharedMemory::Peers::kReadOnly),
                        Access::kRemoteRead);
  std::unique_ptr<MemoryRegion> local = *domain->Register(
      *SharedMemory::Create("fuzz", kRegionBytes, SharedMemory::Peers::kMayWrite), Access::kLocal);
};

class Peer {
 public:
  Peer(Fd socket, ChannelLayout& channel) : socket_(std::move(socket)), channel_(channel) {}

  void Do(Pieces& pieces, Connection& connection, const Memory& memory) {
    switch (pieces.Byte() % 8) {
      case 0:
        return Send(pieces.Next(), -1);
      case 1:
        return ShareMemory(pieces);
      case 2:
        return Store(pieces);
      case 3:
        return PutRecord(pieces);
      case 4: {
        const RemoteRegion remote{0, pieces.Read<Le64>(), pieces.Byte()};
        (void)connection.Read({memory.local.get(), 0, pieces.Read<Le16>() % kRegionBytes},
                              {remote, pieces.Read<Le64>()});
        return;
      }
      case 5: {
        const RemoteRegion remote{0, pieces.Read<Le64>(), pieces.Byte()};
        (void)connection.Write({memory.local.get(), 0, pieces.Read<Le16>() % kRegionBytes},
                               {remote, pieces.Read<Le64>()});
        return;
      }
      case 6:
        (void)connection.Send(pieces.Next());
        return;
      default:
        socket_.reset();
    }
  }

 private:
  void Send(ByteSpan packet, int fd) {
    if (socket_) (void)socket_->Send(packet, fd);
  }
  // Memory of the size that it says or of another, with some seals or all.
  void ShareMemory(Pieces& pieces) {
    const Fd memory(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::uint8_t how = pieces.Byte();
    ShareWire wire;
    wire.type = PacketType::kShare;
    wire.access = pieces.Byte();
    wire.slot = pieces.Read<Le16>();
    wire.key = pieces.Byte();
    wire.size = (how & 1U) != 0 ? std::uint64_t{pieces.Read<Le64>()} : kRegionBytes;
    (void)!ftruncate(memory.get(), kRegionBytes);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if ((how & 2U) != 0) seals = pieces.Byte() & 0x1f;
    (void)fcntl(memory.get(), F_ADD_SEALS, seals);
    // A correct peer marks the place as alive.
    if ((how & 4U) == 0) channel_.live[1][wire.slot % kMaxRegions] = wire.key;
    Send(std::as_bytes(std::span(&wire, 1)), memory.get());
  }
  void Store(Pieces& pieces) const {
    auto* const base = reinterpret_cast<std::byte*>(&channel_);
    // Mostly where the cursors are.
    const std::uint8_t place = pieces.Byte();
    std::size_t at = place < 128 ? place % 48 * 8 : pieces.Read<Le32>() % sizeof(ChannelLayout);
    at -= at % sizeof(std::uint64_t);
    const std::uint64_t value =
        place % 2 == 0 ? pieces.Byte() * std::uint64_t{64} : std::uint64_t{pieces.Read<Le64>()};
    std::memcpy(base + at, &value, sizeof(value));
  }
  // A record where the next one is expected, with the length that it says.
  void PutRecord(Pieces& pieces) {
    const std::size_t room = kRingBytes - produced_ % kRingBytes;
    std::byte* const at = channel_.rings[1] + produced_ % kRingBytes;
    const RecordHeader header{pieces.Read<Le16>(), pieces.Byte()};
    std::memcpy(at, &header, sizeof(header));
    const ByteSpan bytes = pieces.Next();
    const std::size_t count = std::min(bytes.size(), room - sizeof(header));
    if (count > 0) std::memcpy(at + sizeof(header), bytes.data(), count);
    produced_ += RecordBytes(header.length);
    channel_.cursors[1].produced = produced_;
  }

  std::optional<PacketSocket> socket_;  // none: it has gone
  ChannelLayout& channel_;
  std::uint64_t produced_ = 0;
};

}  // namespace

void Run(ByteSpan input) {
  static Memory memory;
  auto& layout = *reinterpret_cast<ChannelLayout*>(memory.channel->bytes().data());
  std::memset(memory.channel->bytes().data(), 0, memory.channel->bytes().size());
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return;
  }
  Peer peer(Fd(ends[1]), layout);
  auto connection = *ShmConnection::Create(Role::kAcceptor, memory.domain,
                                           PacketSocket(Fd(ends[0])), memory.channel, "fuzz");
  (void)connection->Share(*memory.readable);
  Pieces pieces(input);
  std::array<Completion, 4> out;
  for (int turns = 0; turns < 200 && !pieces.empty(); ++turns) {
    peer.Do(pieces, *connection, memory);
    (void)connection->Arm();
    const auto count = connection->Poll(out);
    if (!count.ok()) break;
    for (std::size_t i = 0; i < *count; ++i) {
      Require(out[i].message.size() <= kMaxMessageBytes, "a message is bounded");
    }
  }
  connection.reset();
  Require(
      std::ranges::all_of(memory.readable->bytes(), [](std::byte b) { return b == std::byte{0}; }),
      "a peer writes only what it may");
}

std::vector<Bytes> Seeds() {
  Bytes messages, regions;
  for (const std::string_view text : {"one", "", "three"}) {
    messages.push_back(std::byte{3});
    Put(messages, Le16(static_cast<std::uint16_t>(text.size())));
    messages.push_back(std::byte{0});
    PutSized16(messages, AsBytes(text));
  }
  messages.push_back(std::byte{6});
  PutSized16(messages, AsBytes("an answer"));
  // Region 7, READ and WRITten, and taken back.
  for (const Access access : {Access::kRemoteRead, Access::kRemoteWrite}) {
    Put(regions,
        std::array<std::byte, 3>{std::byte{1}, std::byte{0}, static_cast<std::byte>(access)});
    Put(regions, Le16(0));
    regions.push_back(std::byte{7});
    for (const std::byte what : {std::byte{4}, std::byte{5}}) {
      regions.push_back(what);
      Put(regions, Le64(kRegionBytes));
      regions.push_back(std::byte{7});
      Put(regions, Le16(100));
      Put(regions, Le64(10));
    }
    regions.push_back(std::byte{0});
    ShareWire gone;
    gone.type = PacketType::kUnshare;
    gone.key = 7;
    PutSized16(regions, std::as_bytes(std::span(&gone, 1)));
  }
  return {messages, regions};
}

}  // namespace rdfs::fuzz
