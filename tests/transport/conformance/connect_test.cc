// Connecting: accept, reject, tokens, who is not there, and many at once.
#include <algorithm>
#include <thread>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

class Connecting : public Conformance {};
RDFS_CONFORMANCE(Connecting);

TEST_P(Connecting, TheTokenArrivesAndBothEndsKnowWhatTheyCanDo) {
  const Bytes token = Pattern(kMaxTokenBytes, 3);
  auto transport = subject().make();
  auto listener = transport->Listen(subject().listen);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  std::unique_ptr<Connection> server;
  std::jthread acceptor([&] {
    const auto incoming = AcceptNext(**listener);
    ASSERT_NE(incoming, nullptr);
    EXPECT_TRUE(Equal(incoming->token(), token));
    const std::string peer = incoming->peer();
    EXPECT_FALSE(peer.empty());
    auto accepted = incoming->Accept(Domain::Create("server"));
    ASSERT_TRUE(accepted.ok()) << accepted.status().ToString();
    server = *std::move(accepted);
    EXPECT_TRUE(Equal(incoming->token(), token));
    EXPECT_EQ(incoming->peer(), peer);
    EXPECT_EQ(incoming->Accept(Domain::Create("server")).status().code(), Code::kInvalidArgument);
  });
  auto client = transport->Connect((*listener)->endpoint(), Domain::Create("client"), token,
                                   DeadlineAfter(kPatience));
  acceptor.join();
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_NE(server, nullptr);
  for (const Connection* end : {client->get(), server.get()}) {
    EXPECT_EQ(end->capabilities().kind, transport->kind());
    EXPECT_GE(end->capabilities().max_outstanding, 2U);
    EXPECT_GE(end->capabilities().max_transfer_bytes, 1U << 20U);
    EXPECT_EQ(end->capabilities().same_host, transport->kind() != Kind::kVerbs);
    EXPECT_TRUE(end->Describe().starts_with(Name(transport->kind()))) << end->Describe();
    EXPECT_EQ(end->backlog_bytes(), 0U);
    EXPECT_GE(end->fd(), 0);
  }
}

TEST_P(Connecting, AnEmptyTokenIsAToken) {
  auto transport = subject().make();
  auto listener = transport->Listen(subject().listen);
  ASSERT_TRUE(listener.ok());
  std::unique_ptr<Connection> server;
  std::jthread acceptor([&] {
    const auto incoming = AcceptNext(**listener);
    ASSERT_NE(incoming, nullptr);
    EXPECT_TRUE(incoming->token().empty());
    auto accepted = incoming->Accept(Domain::Create("server"));
    if (accepted.ok()) server = *std::move(accepted);
  });
  auto client = transport->Connect((*listener)->endpoint(), Domain::Create("client"), {},
                                   DeadlineAfter(kPatience));
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  acceptor.join();
}

TEST_P(Connecting, ATokenThatIsTooLongIsRefusedHere) {
  auto transport = subject().make();
  auto listener = transport->Listen(subject().listen);
  ASSERT_TRUE(listener.ok());
  auto client = transport->Connect((*listener)->endpoint(), Domain::Create("client"),
                                   Pattern(kMaxTokenBytes + 1, 1), DeadlineAfter(kPatience));
  EXPECT_EQ(client.status().code(), Code::kInvalidArgument);
}

TEST_P(Connecting, ARejectionArrivesWithItsCodeAndWords) {
  auto transport = subject().make();
  auto listener = transport->Listen(subject().listen);
  ASSERT_TRUE(listener.ok());
  std::jthread acceptor([&] {
    const auto incoming = AcceptNext(**listener);
    ASSERT_NE(incoming, nullptr);
    const std::string peer = incoming->peer();
    incoming->Reject(Status(Code::kAuthenticationFailed, "this ticket is not known here"));
    EXPECT_EQ(incoming->peer(), peer);
  });
  auto client = transport->Connect((*listener)->endpoint(), Domain::Create("client"),
                                   AsBytes("token"), DeadlineAfter(kPatience));
  acceptor.join();
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), Code::kAuthenticationFailed) << client.status().ToString();
  EXPECT_NE(client.status().message().find("this ticket is not known here"), std::string::npos)
      << client.status().ToString();
}

TEST_P(Connecting, NobodyThereIsAnErrorBeforeTheDeadline) {
  auto transport = subject().make();
  Endpoint gone;
  {
    auto listener = transport->Listen(subject().listen);
    ASSERT_TRUE(listener.ok());
    gone = (*listener)->endpoint();
  }
  const TimePoint start = BootClock::now();
  auto client = transport->Connect(gone, Domain::Create("client"), AsBytes("token"),
                                   DeadlineAfter(kPatience));
  ASSERT_FALSE(client.ok());
  EXPECT_LT(BootClock::now() - start, kPatience);
  EXPECT_NE(client.status().code(), Code::kDeadlineExceeded) << client.status().ToString();
  EXPECT_FALSE(client.status().message().empty());
}

TEST_P(Connecting, AListenerThatNeverAnswersCostsNoMoreThanTheDeadline) {
  auto transport = subject().make();
  auto listener = transport->Listen(subject().listen);
  ASSERT_TRUE(listener.ok());
  const TimePoint start = BootClock::now();
  auto client = transport->Connect((*listener)->endpoint(), Domain::Create("client"),
                                   AsBytes("token"), DeadlineAfter(std::chrono::milliseconds(200)));
  EXPECT_EQ(client.status().code(), Code::kDeadlineExceeded) << client.status().ToString();
  EXPECT_LT(BootClock::now() - start, kPatience);
  // With TLS a token is read after the handshake, which needs the listener.
  if (subject().name.ends_with("Tls")) return;
  // Whom it answers too late makes no connection, or one that ends.
  const auto late = AcceptNext(**listener);
  ASSERT_NE(late, nullptr);
  const std::string peer = late->peer();
  auto accepted = late->Accept(Domain::Create("server"));
  EXPECT_EQ(late->peer(), peer);
  if (!accepted.ok()) {
    EXPECT_FALSE(accepted.status().message().empty());
    return;
  }
  End server(*std::move(accepted));
  EXPECT_TRUE(DriveUntil({&server}, [&] { return !server.alive(); }));
}

TEST_P(Connecting, AnIncomingThatIsDroppedEndsThePeersWait) {
  auto transport = subject().make();
  auto listener = transport->Listen(subject().listen);
  ASSERT_TRUE(listener.ok());
  std::jthread acceptor([&] { (void)AcceptNext(**listener); });
  auto client = transport->Connect((*listener)->endpoint(), Domain::Create("client"),
                                   AsBytes("token"), DeadlineAfter(kPatience));
  acceptor.join();
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.status().code(), Code::kDeadlineExceeded) << client.status().ToString();
}

TEST_P(Connecting, AHundredConnectionsLiveSideBySide) {
  constexpr std::size_t kCount = 100;
  Pair pair = Connected();
  std::vector<std::unique_ptr<Connection>> servers;
  std::vector<End> ends;
  std::jthread acceptor([&] {
    while (servers.size() < kCount) {
      const auto incoming = AcceptNext(*pair.listener);
      ASSERT_NE(incoming, nullptr);
      auto accepted = incoming->Accept(pair.server_domain);
      ASSERT_TRUE(accepted.ok()) << accepted.status().ToString();
      servers.push_back(*std::move(accepted));
    }
  });
  while (ends.size() < kCount) {
    auto client = pair.transport->Connect(pair.listener->endpoint(), pair.client_domain,
                                          AsBytes("token"), DeadlineAfter(kPatience));
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    ends.emplace_back(*std::move(client));
  }
  acceptor.join();
  ASSERT_EQ(servers.size(), kCount);
  for (auto& server : servers) ends.emplace_back(std::move(server));
  std::vector<End*> all;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    all.push_back(&ends[i]);
    ends[i].Send(Pattern(100 + i, i));
  }
  ASSERT_TRUE(DriveUntil(all, [&] {
    return std::ranges::all_of(ends, [](const End& end) { return end.messages.size() == 1; });
  }));
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(Equal(ends[i].messages[0], Pattern(100 + kCount + i, kCount + i)));
    EXPECT_TRUE(Equal(ends[kCount + i].messages[0], Pattern(100 + i, i)));
  }
}

// One at a time, at the pace of the machine: what may get lost is what arrives while the accepting
// side is still being set up. Its own message waits for it.
TEST_P(Connecting, TheFirstMessageOfTheAcceptingSideArrives) {
  constexpr int kCount = 20;
  Pair pair = Connected();
  for (int i = 0; i < kCount; ++i) {
    End client;
    End server;
    ConnectAgain(pair, client, server);
    ASSERT_TRUE(client.alive() && server.alive());
    server.Send(AsBytes("first"));
    ASSERT_TRUE(DriveUntil({&client, &server}, [&] { return !client.messages.empty(); }))
        << "connection " << i;
  }
}

}  // namespace
}  // namespace rdfs::transport::conformance
