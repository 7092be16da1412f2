// What the upper layer is told of sessions that it has admitted and that cannot stand.
#include "transport/session/session_server.h"

#include <gtest/gtest.h>

namespace rdfs::transport::session {
namespace {

class CountingHost final : public SessionHost {
 public:
  Result<Admission> Admit(const SessionRequest&) override {
    ++admitted;
    return Admission{Domain::Create("counted"), std::vector<std::byte>(grant_bytes),
                     std::make_shared<int>()};
  }
  void OnLane(std::uint64_t, const std::shared_ptr<void>&, std::unique_ptr<Connection>) override {}
  void OnSessionEnd(std::uint64_t, const std::shared_ptr<void>& context) override {
    EXPECT_NE(context, nullptr);
    ++ended;
  }

  std::size_t grant_bytes = 0;
  std::size_t admitted = 0, ended = 0;
};

class SessionServerTest : public testing::Test {
 protected:
  Code Open(const std::string& service) {
    SessionOpen open;
    open.service = service;
    return server_.Open(open, Agreement{}, PeerFacts{}, BootClock::now()).status().code();
  }

  CountingHost host_;
  SessionServer server_{AcceptorOptions{}, host_};
};

TEST_F(SessionServerTest, WhatCannotTravelHasEnded) {
  host_.grant_bytes = kMaxOpening + 1;
  EXPECT_EQ(Open("counted"), Code::kInternal);
  EXPECT_EQ(host_.admitted, 1U);
  EXPECT_EQ(host_.ended, 1U);
}

TEST_F(SessionServerTest, WhatHasNoRoomHasEnded) {
  for (std::size_t i = 0; i < SessionTable::kMaxSessions; ++i) {
    ASSERT_EQ(Open("counted"), Code::kOk) << i;
  }
  EXPECT_EQ(Open("counted"), Code::kBusy);
  EXPECT_EQ(host_.ended, 1U);
  // Probes as well, of which there may be few.
  for (std::size_t i = 0; i <= ProbeService::kMaxSessions; ++i) {
    EXPECT_EQ(Open(std::string(kProbeService)), Code::kBusy) << i;
  }
}

}  // namespace
}  // namespace rdfs::transport::session
