// Peers that mean harm, or are broken: each costs its own connection and nothing else.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/hex.h"
#include "tests/transport/session/server_fixture.h"
#include "transport/session/derive.h"
#include "transport/session/frame_stream.h"
#include "transport/session/handshake.h"
#include "transport/session/lane_token.h"
#include "transport/session/messages.h"
#include "transport/session/peer.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport {
namespace {

using session::FrameStream;
using session::FrameType;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Bytes = std::vector<std::byte>;

Deadline Soon() { return DeadlineAfter(seconds(10)); }

std::size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

FrameStream Connect(const Server& server) {
  auto socket = tcp::ConnectSocket("127.0.0.1", server.port(), Soon());
  EXPECT_TRUE(socket.ok()) << socket.status().ToString();
  return FrameStream(tcp::MakeSocketStream(*std::move(socket), "server"), 16 * 1024);
}

// How long it took.
std::chrono::nanoseconds Admit(const Server& server) {
  const TimePoint start = BootClock::now();
  const auto session = Session::Dial(ClientOptions(server), Domain::Create("client"));
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return BootClock::now() - start;
}

void ExpectAdmitted(const Server& server, milliseconds within) { EXPECT_LT(Admit(server), within); }

// The client's half of the protocol, step by step, so that tests can go astray anywhere.
struct RawClient {
  FrameStream stream;
  session::Agreement agreement;
  session::SessionGrant grant;

  explicit RawClient(const Server& server) : stream(Connect(server)) {}

  // Leaves after our confirmation when `key` is wrong and nobody wants to hear the answer.
  Status Authenticate(std::string_view key, bool hear_answer = true) {
    session::ClientHandshake handshake({Key(key), "", session::EncryptionWish::kNotNeeded},
                                       session::Randomness::Draw());
    RDFS_ASSIGN_OR_RETURN(Bytes next, handshake.Start());
    for (int turn = 0;; ++turn) {
      RDFS_RETURN_IF_ERROR(stream.SendAll(std::move(next), Soon()));
      if (turn == 1 && !hear_answer) return Status::Ok();
      RDFS_RETURN_IF_ERROR(stream.Await(Soon()));
      RDFS_ASSIGN_OR_RETURN(next, handshake.OnFrame(stream.raw()));
      stream.Next();
      if (!handshake.done()) continue;
      agreement = handshake.agreement();
      return Status::Ok();
    }
  }

  Status Open(const session::HostIdentity& host = {}) {
    session::SessionOpen open;
    open.host = host;
    open.service = "echo";
    open.lane_wish = session::EncryptionWish::kPlaintextAsked;
    return Open(open);
  }

  Status Open(const session::SessionOpen& open) {
    RDFS_RETURN_IF_ERROR(Authenticate("sesame"));
    return Ask(FrameType::kSessionOpen, open.Encode(), FrameType::kSessionGrant,
               [&](ByteSpan body) { return session::SessionGrant::Decode(body, grant); });
  }

  Status Ask(FrameType type, ByteSpan body, FrameType expected,
             const std::function<Status(ByteSpan)>& on_answer = nullptr) {
    RDFS_RETURN_IF_ERROR(stream.SendAll(session::EncodeFrame(type, body), Soon()));
    RDFS_RETURN_IF_ERROR(stream.Await(Soon()));
    const session::Frame frame = stream.frame();
    if (frame.type == FrameType::kRefused) {
      session::Refusal refusal;
      RDFS_RETURN_IF_ERROR(session::Refusal::Decode(frame.body, refusal));
      return refusal.why;
    }
    if (frame.type != expected) return {Code::kProtocolError, "another answer"};
    Status status = on_answer ? on_answer(frame.body) : Status::Ok();
    stream.Next();
    return status;
  }

  [[nodiscard]] session::LaneTokenBytes Token(Kind kind, std::uint64_t counter) const {
    return session::IssueLaneToken({kind, grant.session_id, counter}, agreement.session_secret);
  }
};

Status TryToken(const Server& server, ByteSpan token) {
  RawClient lane(server);
  return lane.Ask(FrameType::kLaneHello, token, FrameType::kLaneAccepted);
}

TEST(Hostile, AThousandWrongKeysDelayNobody) {
  Server server(ServerOptions());
  const std::size_t before = OpenDescriptors();
  const TimePoint start = BootClock::now();
  for (int i = 0; i < 1000; ++i) {
    RawClient client(server);
    ASSERT_TRUE(client.Authenticate("wrong " + std::to_string(i), false).ok());
  }
  EXPECT_LT(BootClock::now() - start, seconds(20));
  ExpectAdmitted(server, seconds(1));
  // The held ones are bounded too: 16 for one address.
  EXPECT_LE(OpenDescriptors(), before + 32);
}

TEST(Hostile, AnswersToWrongKeysAreHeldAndTheRightOneIsNot) {
  Server server(ServerOptions());
  milliseconds longest{0};
  for (int i = 0; i < 13; ++i) {
    const TimePoint start = BootClock::now();
    RawClient client(server);
    EXPECT_EQ(client.Authenticate("wrong").code(), Code::kAuthenticationFailed);
    longest = std::max(longest, std::chrono::duration_cast<milliseconds>(BootClock::now() - start));
  }
  EXPECT_GE(longest, milliseconds(100));
  // Held like the wrong ones it would take 800 ms each time.
  std::chrono::nanoseconds took = Admit(server);
  for (int i = 0; i < 2 && took >= milliseconds(500); ++i) took = Admit(server);
  EXPECT_LT(took, milliseconds(500));
}

TEST(Hostile, AFloodOfSilentConnectionsKeepsNobodyOut) {
  Server server(ServerOptions());
  const std::size_t before = OpenDescriptors();
  std::vector<FrameStream> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(Connect(server));
  ExpectAdmitted(server, seconds(1));
  // Ours stay open until we let go; the server keeps at most 16 of them.
  EXPECT_LE(OpenDescriptors(), before + silent.size() + 32);
  std::size_t dropped = 0;
  for (FrameStream& stream : silent) {
    if (!stream.Receive().ok()) ++dropped;
  }
  EXPECT_GE(dropped, 300U - 17);
}

TEST(Hostile, FortyEightClientsOfOneAddressAreAllAdmittedAtOnce) {
  Server server(ServerOptions());
  std::vector<Status> ends(48);
  {
    std::vector<std::jthread> clients;
    for (Status& end : ends) {
      clients.emplace_back([&server, &end] {
        DialOptions options = ClientOptions(server);
        options.deadline = DeadlineAfter(seconds(30));
        end = Session::Dial(std::move(options), Domain::Create("client")).status();
      });
    }
  }
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.ToString();
}

// Who is let go before a word was said comes again, a bounded number of times.
TEST(Hostile, AServerThatLetsUsGoIsConnectedToAgain) {
  const Fd listening = *tcp::ListenSocket("127.0.0.1", 0);
  DialOptions options;
  options.host = "127.0.0.1";
  options.port = *tcp::LocalPort(listening.get());
  options.deadline = DeadlineAfter(seconds(30));
  std::atomic<bool> done{false};
  std::size_t came = 0;
  std::jthread server([&] {
    while (!done.load()) {
      pollfd entry{.fd = listening.get(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 10) != 1) continue;
      const Fd let_go(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (let_go.valid()) ++came;
    }
  });
  const auto session = Session::Dial(std::move(options), Domain::Create("client"));
  done.store(true);
  server.join();
  EXPECT_EQ(session.status().code(), Code::kDisconnected) << session.status().ToString();
  EXPECT_GE(came, 2U);
  EXPECT_LE(came, 10U);
}

TEST(Hostile, ASilentConnectionIsDroppedInTime) {
  Server server(ServerOptions());
  FrameStream stream = Connect(server);
  const TimePoint start = BootClock::now();
  EXPECT_EQ(stream.Await(DeadlineAfter(seconds(9))).code(), Code::kDisconnected);
  EXPECT_GE(BootClock::now() - start, milliseconds(4500));
}

TEST(Hostile, CutAndGarbledHellosCostTheirConnectionOnly) {
  Server server(ServerOptions());
  session::ClientHandshake handshake({Key("sesame"), "", session::EncryptionWish::kNotNeeded},
                                     session::Randomness::Draw());
  const Bytes hello = *handshake.Start();
  const std::size_t before = OpenDescriptors();
  for (std::size_t at = 0; at < hello.size(); ++at) {
    FrameStream cut = Connect(server);
    ASSERT_TRUE(
        cut.SendAll(Bytes(hello.begin(), hello.begin() + static_cast<std::ptrdiff_t>(at)), Soon())
            .ok());
    FrameStream garbled = Connect(server);
    Bytes changed = hello;
    changed[at] ^= std::byte{0xff};
    ASSERT_TRUE(garbled.SendAll(changed, Soon()).ok());
  }
  for (const char* hex : {"474554202f20485454502f312e310d0a0d0a",  // a browser
                          "5353482d322e302d4f70656e5353480d0a",    // ssh
                          "16030102000100010001fc0303"}) {         // TLS
    FrameStream stranger = Connect(server);
    ASSERT_TRUE(stranger.SendAll(FromHex(hex), Soon()).ok());
    const Status answer = stranger.Await(Soon());
    EXPECT_TRUE(answer.ok() || answer.code() == Code::kDisconnected) << answer.ToString();
  }
  ExpectAdmitted(server, seconds(1));
  EXPECT_LE(OpenDescriptors(), before + 32);
}

TEST(Hostile, GarbledMessagesBehindAuthenticationEndTheSessionOnly) {
  Server server(ServerOptions());
  session::SessionOpen open;
  open.service = "echo";
  const Bytes frame = session::EncodeFrame(FrameType::kSessionOpen, open.Encode());
  for (std::size_t at = 0; at < frame.size(); ++at) {
    RawClient client(server);
    ASSERT_TRUE(client.Authenticate("sesame").ok());
    Bytes changed = frame;
    changed[at] ^= std::byte{0x80};
    ASSERT_TRUE(client.stream.SendAll(changed, Soon()).ok());
  }
  ExpectAdmitted(server, seconds(1));
}

TEST(Hostile, MessagesOutOfTurnAreRefused) {
  Server server(ServerOptions());
  RawClient early(server);
  EXPECT_EQ(
      early.Ask(FrameType::kSessionOpen, session::SessionOpen{}.Encode(), FrameType::kSessionGrant)
          .code(),
      Code::kProtocolError)
      << "before authentication";
  RawClient twice(server);
  ASSERT_TRUE(twice.Open().ok());
  EXPECT_EQ(
      twice.Ask(FrameType::kSessionOpen, session::SessionOpen{}.Encode(), FrameType::kSessionGrant)
          .code(),
      Code::kProtocolError);
  EXPECT_TRUE(server.host().AwaitEnds(1));
  EXPECT_EQ(TryToken(server, twice.Token(Kind::kTcp, 1)).code(), Code::kAuthenticationFailed);
}

TEST(Hostile, LaneTokensOpenOneLaneOfTheirSessionOnly) {
  Server server(ServerOptions());
  RawClient first(server);
  RawClient second(server);
  ASSERT_TRUE(first.Open().ok());
  ASSERT_TRUE(second.Open().ok());

  const auto token = first.Token(Kind::kTcp, 1);
  EXPECT_TRUE(TryToken(server, token).ok());
  EXPECT_EQ(TryToken(server, token).code(), Code::kAuthenticationFailed) << "a replay";

  const auto forged = session::IssueLaneToken({Kind::kTcp, second.grant.session_id, 1},
                                              first.agreement.session_secret);
  EXPECT_EQ(TryToken(server, forged).code(), Code::kAuthenticationFailed) << "another session's";
  EXPECT_EQ(TryToken(server, first.Token(Kind::kShm, 2)).code(), Code::kAuthenticationFailed)
      << "another transport's";
  EXPECT_EQ(TryToken(server, Bytes(48)).code(), Code::kProtocolError);
  EXPECT_EQ(TryToken(server, {}).code(), Code::kProtocolError);
  EXPECT_TRUE(TryToken(server, second.Token(Kind::kTcp, 1)).ok());
}

// The lane has had its answer when its session ends, and then its TLS comes to stand.
TEST(Hostile, ALaneWhoseSessionEndsBeforeItsTlsStandsComesToNobody) {
  Server server(ServerOptions());
  for (const std::string_view service : {std::string_view("echo"), kProbeService}) {
    std::optional<RawClient> client(std::in_place, server);
    session::SessionOpen open;
    open.service = service;
    open.lane_wish = session::EncryptionWish::kWanted;
    ASSERT_TRUE(client->Open(open).ok());
    ASSERT_TRUE(client->grant.encrypt_lanes);
    RawClient lane(server);
    ASSERT_TRUE(
        lane.Ask(FrameType::kLaneHello, client->Token(Kind::kTcp, 1), FrameType::kLaneAccepted)
            .ok());
    const session::LaneClaim claim{Kind::kTcp, client->grant.session_id, 1};
    const session::Secret32 secret = client->agreement.session_secret;
    client.reset();
    // Until the server has seen that: another lane is refused then.
    const Deadline deadline = Soon();
    Status other;
    for (std::uint64_t counter = 2;
         other.code() != Code::kAuthenticationFailed && BootClock::now() < deadline; ++counter) {
      std::this_thread::sleep_for(milliseconds(20));
      other = TryToken(server,
                       session::IssueLaneToken({Kind::kTcp, claim.session_id, counter}, secret));
    }
    ASSERT_EQ(other.code(), Code::kAuthenticationFailed) << other.ToString();

    auto tls = tcp::WrapInTls(lane.stream.TakeStream(), tcp::TlsRole::kClient,
                              claim.TlsKey(secret).bytes(), Soon());
    Status end = tls.status();
    if (tls.ok()) end = FrameStream(*std::move(tls), 16 * 1024).Await(Soon());
    EXPECT_EQ(end.code(), Code::kDisconnected) << end.ToString();
    EXPECT_EQ(server.host().lanes(), 0U);
  }
}

std::string SharedMemoryName(const session::SessionGrant& grant) {
  for (const session::Offer& offer : grant.offers) {
    if (offer.kind == Kind::kShm) return offer.name;
  }
  return "";
}

TEST(Hostile, SharedMemoryLanesNeedAToken) {
  Server server(ServerOptions());
  RawClient stranger(server);
  ASSERT_TRUE(stranger.Open().ok());
  EXPECT_EQ(SharedMemoryName(stranger.grant), "")
      << "who did not say on which host it is learns no name";
  RawClient insider(server);
  ASSERT_TRUE(insider.Open(session::ReadHostIdentity()).ok());
  const Endpoint endpoint{Kind::kShm, SharedMemoryName(insider.grant), 0};
  const auto transport = shm::MakeTransport();
  const auto domain = Domain::Create("client");
  const auto connect = [&](ByteSpan token) {
    return transport->Connect(endpoint, domain, token, Soon());
  };
  EXPECT_EQ(connect({}).status().code(), Code::kProtocolError);
  EXPECT_EQ(connect(insider.Token(Kind::kTcp, 1)).status().code(), Code::kAuthenticationFailed);
  auto lane = connect(insider.Token(Kind::kShm, 1));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  ExpectEcho(**lane, "with a token");
  EXPECT_EQ(connect(insider.Token(Kind::kShm, 1)).status().code(), Code::kAuthenticationFailed);
}

TEST(Hostile, ASessionOpensABoundedNumberOfLanesAtOnce) {
  Server server(ServerOptions());
  RawClient client(server);
  ASSERT_TRUE(client.Open().ok());
  Status last;
  std::uint64_t counter = 0;
  while (last.ok() && counter < 200) last = TryToken(server, client.Token(Kind::kTcp, ++counter));
  EXPECT_EQ(last.code(), Code::kBusy) << last.ToString();
  EXPECT_GE(counter, 64U);
  EXPECT_LT(counter, 100U);
}

// Somebody between the two ends: flips one bit of what the client writes.
class TamperingStream final : public tcp::ByteStream {
 public:
  TamperingStream(std::unique_ptr<ByteStream> inner, std::size_t at, std::byte mask)
      : inner_(std::move(inner)), at_(at), mask_(mask) {}

  Result<std::size_t> Read(MutableByteSpan out) override { return inner_->Read(out); }
  Result<std::size_t> Write(std::span<const iovec> parts) override {
    const auto* bytes = static_cast<const std::byte*>(parts[0].iov_base);
    Bytes copy(bytes, bytes + parts[0].iov_len);
    if (at_ >= written_ && at_ - written_ < copy.size()) copy[at_ - written_] ^= mask_;
    const iovec part{copy.data(), copy.size()};
    auto count = inner_->Write({&part, 1});
    if (count.ok()) written_ += *count;
    return count;
  }
  [[nodiscard]] bool HasBufferedInput() const override { return inner_->HasBufferedInput(); }
  [[nodiscard]] short read_events() const override { return inner_->read_events(); }
  [[nodiscard]] short write_events() const override { return inner_->write_events(); }
  [[nodiscard]] int read_fd() const override { return inner_->read_fd(); }
  [[nodiscard]] int write_fd() const override { return inner_->write_fd(); }
  [[nodiscard]] bool encrypted() const override { return inner_->encrypted(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  void Shutdown() override { inner_->Shutdown(); }

 private:
  std::unique_ptr<ByteStream> inner_;
  std::size_t at_;
  std::byte mask_;
  std::size_t written_ = 0;
};

TEST(Hostile, EveryBitOfTheHelloThatIsFlippedOnTheWayIsDetected) {
  constexpr std::size_t kHelloBytes = 8 + 96 + 2 + 2;
  for (std::size_t at = 0; at < kHelloBytes; ++at) {
    Server server(ServerOptions());  // a new one each: answers to wrong keys would be held
    auto socket = tcp::ConnectSocket("127.0.0.1", server.port(), Soon());
    ASSERT_TRUE(socket.ok());
    DialOptions options = ClientOptions(server);
    options.deadline = DeadlineAfter(seconds(5));
    options.stream =
        std::make_unique<TamperingStream>(tcp::MakeSocketStream(*std::move(socket), "server"), at,
                                          static_cast<std::byte>(1U << (at % 8)));
    // The length of the first frame cannot be told from a longer message that is still coming.
    if (at < 2) options.deadline = DeadlineAfter(milliseconds(200));
    const auto session = Session::Dial(std::move(options), Domain::Create("client"));
    EXPECT_FALSE(session.ok()) << "byte " << at;
  }
}

// Opens a session with these offers and takes its stream for a lane, as a server does.
void GiveStreamAsLane(FrameStream& stream, std::vector<session::Offer> offers,
                      milliseconds ready_after) {
  const session::ServerPolicy policy{{{"default", Key("sesame")}}, true};
  session::ServerHandshake handshake(policy, true, session::Randomness::Draw());
  while (!handshake.done()) {
    ASSERT_TRUE(stream.Await(Soon()).ok());
    auto answer = handshake.OnFrame(stream.raw());
    ASSERT_TRUE(answer.ok());
    stream.Next();
    ASSERT_TRUE(stream.SendAll(*std::move(answer), Soon()).ok());
  }
  ASSERT_TRUE(stream.Await(Soon()).ok());
  stream.Next();
  session::SessionGrant grant;
  grant.session_id = 1;
  grant.offers = std::move(offers);
  ASSERT_TRUE(
      stream.SendAll(session::EncodeFrame(FrameType::kSessionGrant, grant.Encode()), Soon()).ok());
  ASSERT_TRUE(stream.Await(Soon()).ok());
  EXPECT_EQ(stream.frame().type, FrameType::kUseStream);
  stream.Next();
  std::this_thread::sleep_for(ready_after);
  (void)stream.SendAll(session::EncodeFrame(FrameType::kStreamReady, {}), Soon());
}

// A session over one end of a socket pair; `server` has the other.
class OwnStream : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    server_.emplace(tcp::MakeSocketStream(Fd(ends_[1]), "client"), 16 * 1024);
  }
  std::unique_ptr<Session> Dial() {
    DialOptions options;
    options.host = "127.0.0.1";
    options.stream = tcp::MakeSocketStream(Fd(ends_[0]), "ssh");
    options.key = Key("sesame");
    options.deadline = Soon();
    auto session = Session::Dial(std::move(options), Domain::Create("client"));
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return session.ok() ? *std::move(session) : nullptr;
  }

  int ends_[2] = {-1, -1};
  std::optional<FrameStream> server_;
};

TEST_F(OwnStream, IsWaitedForLongerThanALegThatAnotherFollows) {
  const std::jthread server([this] { GiveStreamAsLane(*server_, {}, milliseconds(3500)); });
  const auto session = Dial();
  ASSERT_NE(session, nullptr);
  const auto lane = session->OpenLane(DeadlineAfter(seconds(20)));
  EXPECT_TRUE(lane.ok()) << lane.status().ToString();
}

// The server may take whatever comes behind the first request for a lane's bytes.
TEST_F(OwnStream, IsAskedToBecomeALaneOnce) {
  std::jthread server([this] {
    GiveStreamAsLane(*server_, {}, milliseconds(500));
    EXPECT_EQ(server_->Await(Soon()).code(), Code::kDisconnected);
  });
  const auto session = Dial();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->OpenLane(DeadlineAfter(milliseconds(100))).status().code(),
            Code::kDeadlineExceeded);
  EXPECT_FALSE(session->OpenLane(DeadlineAfter(milliseconds(100))).ok());
  EXPECT_FALSE(session->OpenStreamLane(DeadlineAfter(milliseconds(100))).ok());
  server.join();
}

// A server whose tcp port takes connections and never says a word.
TEST_F(OwnStream, FollowsALegThatHangsWhichCostsThreeSecondsOnce) {
  const Fd silent = *tcp::ListenSocket("127.0.0.1", 0);
  const std::uint16_t silent_port = *tcp::LocalPort(silent.get());
  const std::jthread server([&] {
    GiveStreamAsLane(*server_, {{Kind::kTcp, true, silent_port, "", ""}}, milliseconds(0));
  });
  const auto session = Dial();
  ASSERT_NE(session, nullptr);
  TimePoint start = BootClock::now();
  const auto lane = session->OpenLane(DeadlineAfter(seconds(20)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  EXPECT_GE(BootClock::now() - start, milliseconds(2900));
  EXPECT_LT(BootClock::now() - start, milliseconds(5900));
  EXPECT_NE(session->ExplainChoice().find("not tcp: 127.0.0.1:"), std::string::npos)
      << session->ExplainChoice();
  start = BootClock::now();
  EXPECT_EQ(session->OpenLane(DeadlineAfter(seconds(20))).status().code(), Code::kBusy);
  EXPECT_LT(BootClock::now() - start, milliseconds(2500)) << "the leg that hung is remembered";
}

}  // namespace
}  // namespace rdfs::transport
