// Sessions that were admitted and cannot stand, and lanes of probes that cannot be served.
#include "transport/session/session_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "transport/tcp/transport.h"

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
  Code Open(const std::string& service, TimePoint now = BootClock::now()) {
    SessionOpen open;
    open.service = service;
    return server_.Open(open, Agreement{}, PeerFacts{}, now).status().code();
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

// Who stays connected keeps the others from probing for kProbeTime only.
TEST_F(SessionServerTest, AProbeThatIsOverMakesRoomForTheNext) {
  const std::string probe(kProbeService);
  for (std::size_t i = 0; i < ProbeService::kMaxSessions; ++i) {
    ASSERT_EQ(Open(probe), Code::kOk) << i;
  }
  EXPECT_EQ(Open(probe), Code::kResourceExhausted);
  const TimePoint later = BootClock::now() + kProbeTime + std::chrono::seconds(1);
  EXPECT_EQ(Open(probe, later), Code::kOk);
  EXPECT_EQ(host_.ended, 0U) << "probes are none of the host's";
}

// From here on no thread can be started: none has room for such a stack.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t attributes;
    EXPECT_EQ(pthread_attr_init(&attributes), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{1} << 48U), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

TEST(ProbeServiceTest, ALaneThatGetsNoThreadEnds) {
  CountingHost host;
  ProbeService probes(host);
  SessionRequest request;
  request.service = kProbeService;
  const auto admission = probes.Admit(request);
  ASSERT_TRUE(admission.ok()) << admission.status().ToString();
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd peer(ends[1]);
  auto lane = tcp::MakeConnection(tcp::MakeSocketStream(Fd(ends[0]), "peer"), admission->domain,
                                  "tcp peer");
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  {
    const NoThreads none;
    probes.OnLane(1, admission->context, *std::move(lane));
  }
  pollfd entry{.fd = peer.get(), .events = POLLIN | POLLRDHUP, .revents = 0};
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_NE(entry.revents & POLLRDHUP, 0);
  probes.OnSessionEnd(1, admission->context);
}

}  // namespace
}  // namespace rdfs::transport::session
