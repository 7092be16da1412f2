// What a connection does with what is queued and what is buffered, seen from the raw other end.
#include <sys/eventfd.h>

#include <thread>
#include <vector>

#include "tests/transport/tcp/raw_peer.h"
#include "transport/tcp/output.h"

namespace rdfs::transport::tcp {
namespace {

class TcpConnectionTest : public RawPeer {
 protected:
  // All that the connection has sent and sends until it ends.
  Bytes PeerReceivesToTheEnd() {
    Bytes all;
    pollfd entry{.fd = raw_.get(), .events = POLLIN, .revents = 0};
    while (poll(&entry, 1, 20'000) > 0) {
      const Bytes some = PeerReceives();
      if (some.empty()) break;
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
};

TEST_F(TcpConnectionTest, WhatIsQueuedOfAWriteOutlivesItsRegion) {
  constexpr std::size_t kWrites = 4;  // more than a socket holds
  for (std::size_t i = 0; i < kWrites; ++i) {
    ASSERT_TRUE(connection_->Write({local_.get(), 0, kRegionBytes}, {}).ok());
  }
  ASSERT_TRUE(connection_->Flush().ok());
  local_.reset();
  Bytes received;
  std::jthread peer([&] { received = PeerReceivesToTheEnd(); });
  connection_.reset();
  peer.join();
  Bytes expected;
  for (std::size_t i = 0; i < kWrites; ++i)
    AddWrite(expected, 0, 0, std::string(kRegionBytes, 'l'));
  AddFrame(expected, Opcode::kBye, 0);
  EXPECT_TRUE(received == expected) << received.size() << " bytes of " << expected.size();
}

TEST_F(TcpConnectionTest, NobodySleepsWhileAnAcknowledgementIsOwed) {
  const Bytes message(kMaxMessageBytes);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(connection_->Send(message).ok());
  Bytes write;
  AddWrite(write, write_key_, 0, "hello");
  PeerSends(write);
  ASSERT_GT(connection_->backlog_bytes(), 0U);
  while (!PeerReceives().empty()) continue;
  const auto armed = connection_->Arm();
  ASSERT_TRUE(armed.ok() && *armed);
  ASSERT_EQ(connection_->backlog_bytes(), 0U);
  Bytes last;
  for (Bytes some = PeerReceives(); !some.empty(); some = PeerReceives()) {
    last.insert(last.end(), some.begin(), some.end());
  }
  Bytes expected;
  AddFrame(expected, Opcode::kAcknowledge, 0, 1);
  ASSERT_GE(last.size(), expected.size());
  EXPECT_TRUE(std::ranges::equal(ByteSpan(last).last(expected.size()), expected));
}

// Fills every read until it has given all of its input.
class FullStream final : public ByteStream {
 public:
  explicit FullStream(Bytes input) : input_(std::move(input)) {}
  [[nodiscard]] bool done() const { return given_ == input_.size(); }
  [[nodiscard]] std::size_t written() const { return written_; }
  Result<std::size_t> Read(MutableByteSpan out) override {
    const std::size_t size = std::min(out.size(), input_.size() - given_);
    std::copy_n(input_.begin() + static_cast<std::ptrdiff_t>(given_), size, out.begin());
    given_ += size;
    return size;
  }
  Result<std::size_t> Write(std::span<const iovec> parts) override {
    std::size_t total = 0;
    for (const iovec& part : parts) total += part.iov_len;
    written_ += total;
    return total;
  }
  [[nodiscard]] bool HasBufferedInput() const override { return false; }
  [[nodiscard]] short read_events() const override { return POLLIN; }
  [[nodiscard]] short write_events() const override { return POLLOUT; }
  [[nodiscard]] int read_fd() const override { return quiet_.get(); }
  [[nodiscard]] int write_fd() const override { return quiet_.get(); }
  [[nodiscard]] bool encrypted() const override { return false; }
  [[nodiscard]] std::string peer() const override { return "full"; }
  void Shutdown() override {}

 private:
  const Bytes input_;
  std::size_t given_ = 0, written_ = 0;
  const Fd quiet_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

// A reader that takes all at once gets a good deal, and then others have their turn.
TEST(OutputQueue, OneWriteIsBoundedWhateverTheWireTakes) {
  constexpr std::size_t kPiece = 700'000;
  const std::vector<std::byte> bytes(kPiece);
  OutputQueue queue;
  for (int i = 0; i < 20; ++i) queue.Refer(bytes, nullptr, OutputQueue::Backlog::kCounts);
  FullStream wire({});
  std::size_t before = 0;
  for (int writes = 0; !queue.empty(); ++writes) {
    ASSERT_LT(writes, 20);
    ASSERT_TRUE(queue.WriteTo(wire).ok());
    EXPECT_LE(wire.written() - before, 2U << 20);
    EXPECT_EQ(queue.sent_bytes(), wire.written());
    before = wire.written();
  }
  EXPECT_EQ(before, 20 * kPiece);
}

// One Poll reads 64 KiB at a time, 64 times at most: the message may be the last that it reads.
TEST_F(TcpConnectionTest, NobodySleepsOverAMessageThatWasRead) {
  for (const std::size_t reads : {1U, 63U, 64U, 65U, 128U}) {
    Bytes input;
    while (input.size() + sizeof(FrameHeader) < reads * 64 * 1024) {
      AddFrame(input, Opcode::kAcknowledge, 0);
    }
    AddMessage(input, "");
    auto stream = std::make_unique<FullStream>(std::move(input));
    const FullStream& wire = *stream;
    auto connection = MakeConnection(std::move(stream), domain_, "full");
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    connection_ = *std::move(connection);
    std::array<Completion, 4> out;
    std::size_t count = 0;
    while (count == 0 && (!wire.done() || !*connection_->Arm())) count = *connection_->Poll(out);
    EXPECT_EQ(count, 1U) << reads;
  }
}

}  // namespace
}  // namespace rdfs::transport::tcp
