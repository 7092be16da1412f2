// A connection under test and the raw other end of its stream, where a test plays the peer byte by
// byte.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::tcp {

using Bytes = std::vector<std::byte>;

template <WireStruct T>
void Add(Bytes& bytes, const T& value) {
  const auto raw = std::as_bytes(std::span<const T, 1>(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}
inline void AddText(Bytes& bytes, std::string_view text) {
  const ByteSpan raw = AsBytes(text);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}
inline void AddFrame(Bytes& bytes, Opcode opcode, std::size_t body_bytes,
                     std::uint16_t acknowledged = 0) {
  Add(bytes, EncodeHeader(opcode, acknowledged, body_bytes));
}
inline void AddMessage(Bytes& bytes, std::string_view text) {
  AddFrame(bytes, Opcode::kMessage, text.size());
  AddText(bytes, text);
}
inline void AddRead(Bytes& bytes, std::uint64_t key, std::uint64_t position, std::uint32_t length) {
  AddFrame(bytes, Opcode::kReadRequest, sizeof(ReadRequest));
  Add(bytes, ReadRequest{.key = key, .position = position, .length = length, .reserved = 0});
}
inline void AddWrite(Bytes& bytes, std::uint64_t key, std::uint64_t position,
                     std::string_view text) {
  AddFrame(bytes, Opcode::kWrite, sizeof(WriteHead) + text.size());
  Add(bytes, WriteHead{.key = key, .position = position});
  AddText(bytes, text);
}

// Two connected UNIX sockets, non-blocking.
inline std::array<Fd, 2> SocketPair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

class RawPeer : public testing::Test {
 protected:
  void SetUp() override { Restart(); }

  // A fresh connection and regions whose bytes are all 'r' and 'w'.
  void Restart() {
    auto ends = SocketPair();
    raw_ = std::move(ends[1]);
    auto connection =
        MakeConnection(MakeSocketStream(std::move(ends[0]), "raw"), domain_, "tcp raw");
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    connection_ = *std::move(connection);
    messages_.clear();
    over_ = Status();
    readable_ = Region(Access::kRemoteRead, 'r');
    writable_ = Region(Access::kRemoteWrite, 'w');
    local_ = Region(Access::kLocal, 'l');
    read_key_ = connection_->Share(*readable_)->key;
    write_key_ = connection_->Share(*writable_)->key;
  }

  std::unique_ptr<MemoryRegion> Region(Access access, char fill) {
    const auto peers = access == Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                     : SharedMemory::Peers::kMayWrite;
    auto memory = *SharedMemory::Create("raw", kRegionBytes, peers);
    std::ranges::fill(memory->bytes(), static_cast<std::byte>(fill));
    return *domain_->Register(memory, access);
  }
  static bool IsAll(const MemoryRegion& region, char fill) {
    return std::ranges::all_of(region.bytes(),
                               [&](std::byte b) { return b == static_cast<std::byte>(fill); });
  }

  // The peer writes `bytes`; the connection polls as they go.
  void PeerSends(ByteSpan bytes) {
    while (!bytes.empty()) {
      const ssize_t count = send(raw_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
      Poll();
      if (!over_.ok()) return;
    }
    Poll();
  }
  // Polls until nothing is left to do.
  void Poll() {
    std::array<Completion, 4> out;
    while (over_.ok()) {
      const auto count = connection_->Poll(out);
      if (!count.ok()) {
        over_ = count.status();
        return;
      }
      if (*count == 0) return;
      for (std::size_t i = 0; i < *count; ++i) {
        if (out[i].kind == Completion::Kind::kMessage) {
          messages_.emplace_back(AsText(out[i].message));
        } else {
          completions_.push_back(out[i].status);
        }
      }
    }
  }
  // What the connection has sent.
  Bytes PeerReceives() {
    Bytes out(1 << 16);
    const ssize_t count = recv(raw_.get(), out.data(), out.size(), 0);
    out.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return out;
  }
  void PeerCloses() {
    raw_.Reset();
    Poll();
  }

  static constexpr std::size_t kRegionBytes = 256 * 1024;
  std::shared_ptr<Domain> domain_ = Domain::Create("raw");
  std::unique_ptr<MemoryRegion> readable_, writable_, local_;
  std::uint64_t read_key_ = 0, write_key_ = 0;
  Fd raw_;
  std::unique_ptr<Connection> connection_;  // ends before its regions do
  std::vector<std::string> messages_;
  std::vector<Status> completions_;
  Status over_;
};

}  // namespace rdfs::transport::tcp
