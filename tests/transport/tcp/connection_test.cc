// What a connection does with what is queued and what is buffered, seen from the raw other end.
#include <thread>

#include "tests/transport/tcp/raw_peer.h"

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

}  // namespace
}  // namespace rdfs::transport::tcp
