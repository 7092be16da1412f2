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

}  // namespace
}  // namespace rdfs::transport::tcp
