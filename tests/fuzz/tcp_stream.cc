// A tcp connection with a READ and a WRITE under way and memory that it shares, and a peer that
// sends any bytes: it reaches what is shared for it and nothing else.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tests/transport/tcp/raw_peer.h"

namespace rdfs::fuzz {
namespace {

using namespace transport;

constexpr std::size_t kRegionBytes = 4096;

std::unique_ptr<MemoryRegion> Region(const std::shared_ptr<Domain>& domain, Access access) {
  const auto peers = access == Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                   : SharedMemory::Peers::kMayWrite;
  return *domain->Register(*SharedMemory::Create("fuzz", kRegionBytes, peers), access);
}

bool IsZero(const MemoryRegion& region) {
  return std::ranges::all_of(region.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

// What outlives an input: regions cost system calls.
struct Memory {
  std::shared_ptr<Domain> domain = Domain::Create("fuzz");
  std::unique_ptr<MemoryRegion> readable = Region(domain, Access::kRemoteRead);
  std::unique_ptr<MemoryRegion> writable = Region(domain, Access::kRemoteWrite);
  std::unique_ptr<MemoryRegion> sink = Region(domain, Access::kLocal);
};

}  // namespace

void Run(ByteSpan input) {
  static Memory memory;
  auto ends = tcp::SocketPair();
  auto connection = *tcp::MakeConnection(tcp::MakeSocketStream(std::move(ends[0]), "fuzz"),
                                         memory.domain, "fuzz");
  const std::uint64_t read_key = connection->Share(*memory.readable)->key;
  const std::uint64_t write_key = connection->Share(*memory.writable)->key;
  // Keys are random: an input says 1 and 2, at the place of a request's key.
  Bytes bytes(input.begin(), input.end());
  for (std::size_t at = 0; at + 16 <= bytes.size(); ++at) {
    if (std::to_integer<std::uint8_t>(bytes[at]) != tcp::kFrameMagic) continue;
    const Le64 key = ByteReader(ByteSpan(bytes).subspan(at + 8)).Read<Le64>();
    if (key != 1 && key != 2) continue;
    const Le64 real = key == 1 ? read_key : write_key;
    std::memcpy(bytes.data() + at + 8, &real, sizeof(real));
  }
  (void)connection->Read({memory.sink.get(), 0, 100}, {});
  (void)connection->Write({memory.readable.get(), 0, 100}, {});
  std::size_t sent = 0;
  std::array<Completion, 4> out;
  for (int turns = 0; turns < 64; ++turns) {
    if (sent < bytes.size()) {
      const ssize_t count =
          send(ends[1].get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<std::size_t>(count);
    } else {
      ends[1].Reset();
    }
    const auto count = connection->Poll(out);
    if (!count.ok()) {
      Require(count.status().scope() == Scope::kConnection, "only this connection is over");
      break;
    }
  }
  connection.reset();
  Require(IsZero(*memory.readable), "a peer writes only what it may");
  std::ranges::fill(memory.sink->bytes().first(100), std::byte{0});
  Require(IsZero(*memory.sink), "an answer goes where it was asked for");
  std::ranges::fill(memory.writable->bytes(), std::byte{0});
}

std::vector<Bytes> Seeds() {
  Bytes mixed, answers;
  tcp::AddMessage(mixed, "one");
  tcp::AddRead(mixed, 1, 100, 1000);
  tcp::AddWrite(mixed, 2, 7, "bytes");
  tcp::AddWrite(mixed, 1, 0, "not there");
  tcp::AddFrame(mixed, tcp::Opcode::kBye, 0);
  tcp::AddFrame(answers, tcp::Opcode::kReadReply, 100);
  tcp::AddText(answers, std::string(100, 'x'));
  tcp::AddFrame(answers, tcp::Opcode::kAcknowledge, 0, 1);
  tcp::AddMessage(answers, "");
  Bytes refused;
  tcp::AddFrame(refused, tcp::Opcode::kReadRefused, 2);
  tcp::Add(refused, tcp::Refusal{.reason = 2});
  tcp::AddFrame(refused, tcp::Opcode::kWriteRefused, 2);
  tcp::Add(refused, tcp::Refusal{.reason = 3});
  return {mixed, answers, refused};
}

}  // namespace rdfs::fuzz
