// Sessions over real sockets: Dial against an acceptor on its own thread.
#include "transport/session/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/hex.h"
#include "tests/transport/session/server_fixture.h"
#include "transport/session/frame.h"
#include "transport/session/messages.h"
#include "transport/session/probe.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport {
namespace {

using std::chrono::seconds;

std::shared_ptr<Domain> ClientDomain() { return Domain::Create("client"); }

std::unique_ptr<Session> MustDial(DialOptions options) {
  auto session = Session::Dial(std::move(options), ClientDomain());
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return session.ok() ? *std::move(session) : nullptr;
}

Status DialStatus(DialOptions options) {
  return Session::Dial(std::move(options), ClientDomain()).status();
}

TEST(Session, RightKeyIsAdmittedAndALaneMovesBytes) {
  Server server(ServerOptions());
  const auto session = MustDial(ClientOptions(server));
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(AsText(session->grant()), "hi");
  EXPECT_NE(session->id(), 0U);
  EXPECT_TRUE(session->legs().empty());
  auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  ExpectEcho(**lane, "over the best leg");
  EXPECT_EQ((*lane)->capabilities().kind, Kind::kShm) << session->ExplainChoice();
  EXPECT_EQ(session->ExplainChoice(), "shm");
  const SessionRequest request = server.host().LastRequest();
  EXPECT_EQ(request.key_name, "default");
  EXPECT_TRUE(request.same_host);
  EXPECT_EQ(request.session_id, session->id());
  EXPECT_EQ(request.peer.find("127.0.0.1:"), 0U) << request.peer;
}

TEST(Session, EveryTransportThatIsHereMovesBytes) {
  Server server(ServerOptions());
  const auto session = MustDial(ClientOptions(server));
  ASSERT_NE(session, nullptr);
  for (const Kind kind : {Kind::kShm, Kind::kTcp}) {
    auto lane = session->OpenLaneOver(kind, DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << lane.status().ToString();
    EXPECT_EQ((*lane)->capabilities().kind, kind);
    ExpectEcho(**lane, "hello");
    EXPECT_FALSE((*lane)->capabilities().encrypted) << "the same host";
  }
  EXPECT_TRUE(session->legs().empty()) << "OpenLaneOver leaves the choice alone";
}

// The time that this process has had from its processors.
std::chrono::nanoseconds ProcessorTime() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

TEST(Session, WithoutADescriptorForALaneTheAcceptorSleeps) {
  Server server(ServerOptions());
  const auto session = MustDial(ClientOptions(server));
  ASSERT_NE(session, nullptr);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = dup(0);  // the lowest: the client's socket
  ASSERT_GE(free, 0);
  close(free);
  const rlimit one_more{static_cast<rlim_t>(free) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  auto opening = std::async(std::launch::async, [&session] {
    return session->OpenLaneOver(Kind::kShm, DeadlineAfter(seconds(10)));
  });
  const auto spent = ProcessorTime();
  const auto opened = opening.wait_for(std::chrono::milliseconds(500));
  const auto since = ProcessorTime() - spent;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(opened, std::future_status::timeout) << "the server had a descriptor after all";
  EXPECT_LT(since, std::chrono::milliseconds(150)) << "it tried all the time";
  auto lane = opening.get();
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  ExpectEcho(**lane, "late");
}

// A change here is a change of the wire.
TEST(Session, WhatAProbeIsAnsweredHasGoldenBytes) {
  const session::ProbeGrant grant{.wall_clock_ns = 0x0102030405060708};
  EXPECT_EQ(ToHex(std::as_bytes(std::span(&grant, 1))), "0807060504030201");
  const session::ProbeAnswer answer{.readable = {.address = 1, .length = 2, .key = 3}};
  EXPECT_EQ(ToHex(std::as_bytes(std::span(&answer, 1))),
            "010000000000000002000000000000000300000000000000");
}

TEST(Session, ProbesAreAnsweredAndNotMoreThanAFew) {
  Server server(ServerOptions());
  const auto probe = [&server] {
    DialOptions options = ClientOptions(server);
    options.service = kProbeService;
    return Session::Dial(std::move(options), ClientDomain());
  };
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::size_t i = 0; i < session::ProbeService::kMaxSessions; ++i) {
    auto session = probe();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    sessions.push_back(*std::move(session));
  }
  EXPECT_EQ(sessions.front()->grant().size(), sizeof(session::ProbeGrant));
  EXPECT_EQ(probe().status().code(), Code::kResourceExhausted);
  auto lane = sessions.front()->OpenLaneOver(Kind::kTcp, DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  ASSERT_TRUE((*lane)->Send(AsBytes("first")).ok());
  std::array<Completion, 1> answer;
  const auto count = (*lane)->Wait(answer, DeadlineAfter(seconds(10)));
  ASSERT_TRUE(count.ok() && *count == 1);
  EXPECT_EQ(answer[0].message.size(), sizeof(session::ProbeAnswer));
  ExpectEcho(**lane, "second");
}

TEST(Session, VerbsWorksOrSaysWhyNot) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.require = Kind::kVerbs;
  const auto session = MustDial(std::move(options));
  ASSERT_NE(session, nullptr);
  auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  if (lane.ok()) {
    ExpectEcho(**lane, "one-sided");
    return;
  }
  EXPECT_EQ(lane.status().message().find("verbs is required and does not work: "), 0U)
      << lane.status().message();
  ASSERT_EQ(session->legs().size(), 1U);
  EXPECT_FALSE(session->legs()[0].status.message().empty());
}

TEST(Session, RequireTcpUsesTcpAndSaysSo) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.require = Kind::kTcp;
  const auto session = MustDial(std::move(options));
  auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  ExpectEcho(**lane, "tcp");
  EXPECT_EQ(session->ExplainChoice(), "tcp (plaintext, same host)");
  EXPECT_FALSE(session->OpenLaneOver(Kind::kShm, DeadlineAfter(seconds(1))).ok());
}

TEST(Session, SwitchedOffTransportsAreFallenBackFrom) {
  AcceptorOptions options = ServerOptions();
  options.offer = {Kind::kTcp};
  Server server(std::move(options));
  const auto session = MustDial(ClientOptions(server));
  auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok());
  EXPECT_EQ((*lane)->capabilities().kind, Kind::kTcp);
  const std::string text = session->ExplainChoice();
  EXPECT_EQ(text.find("tcp (plaintext, same host); not verbs: "), 0U) << text;
  EXPECT_NE(text.find("; not shm: the server says: it is switched off there"), std::string::npos)
      << text;
}

TEST(Session, OfAServerForOneUserOthersGetNoSharedMemoryAsRoot) {
  if (getuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  AcceptorOptions options = ServerOptions();
  options.same_user_only = true;
  Server server(std::move(options));
  const auto dial = [&server] {
    DialOptions shm = ClientOptions(server);
    shm.require = Kind::kShm;
    return MustDial(std::move(shm));
  };
  const auto as_another = [](const auto& act) {
    std::thread([&act] {
      // Of this thread alone, where setresuid(2) of the library's changes all.
      ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
      act();
    }).join();
  };
  const auto refused = [&as_another](Session& session) {
    Status status;
    as_another([&] { status = session.OpenLane(DeadlineAfter(seconds(10))).status(); });
    EXPECT_NE(status.message().find("started by another user and serves only that one"),
              std::string::npos)
        << status.ToString();
  };
  const auto session = dial();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->OpenLane(DeadlineAfter(seconds(10))).ok());
  // Whoever has said that it is this user: the kernel says who it is.
  refused(*session);
  // Who says the truth does not learn where the memory is.
  std::unique_ptr<Session> of_another;
  as_another([&] { of_another = dial(); });
  ASSERT_NE(of_another, nullptr);
  refused(*of_another);
}

TEST(Session, TlsCoversVestibuleAndLanes) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.encrypt_always = true;
  options.require = Kind::kTcp;
  options.request.resize(4096, std::byte{'x'});
  const auto session = MustDial(std::move(options));
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->grant().size(), 4096U);
  for (int i = 0; i < 3; ++i) {
    auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << lane.status().ToString();
    EXPECT_TRUE((*lane)->capabilities().encrypted);
    ExpectEcho(**lane, std::string(100'000, 'e'));
  }
  EXPECT_EQ(session->ExplainChoice(), "tcp with TLS");
}

// Takes lanes and leaves them alone.
class IdleHost final : public SessionHost {
 public:
  Result<Admission> Admit(const SessionRequest&) override {
    return Admission{Domain::Create("idle"), {}, nullptr};
  }
  void OnLane(std::uint64_t, const std::shared_ptr<void>&,
              std::unique_ptr<Connection> lane) override {
    lanes_.push_back(std::move(lane));
  }
  void OnSessionEnd(std::uint64_t, const std::shared_ptr<void>&) override {}

 private:
  std::vector<std::unique_ptr<Connection>> lanes_;
};

TEST(Session, ALaneStandsThoughItsOwnerAtTheServerDoesNotPollIt) {
  IdleHost host;
  auto acceptor = *Acceptor::Create(ServerOptions(), host);
  std::thread thread([&] { EXPECT_TRUE(acceptor->Run().ok()); });
  DialOptions options;
  options.host = "127.0.0.1";
  options.port = acceptor->port();
  options.key = Key("sesame");
  options.encrypt_always = true;
  options.deadline = DeadlineAfter(seconds(10));
  const auto session = MustDial(std::move(options));
  for (const Kind kind : {Kind::kTcp, Kind::kShm}) {
    const auto lane = session->OpenLaneOver(kind, DeadlineAfter(seconds(10)));
    EXPECT_TRUE(lane.ok()) << lane.status().ToString();
  }
  acceptor->Stop();
  thread.join();
}

TEST(Session, RequiredEncryptionNeedsNoTlsOnTheSameHostAndRulesVerbsOut) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.require_encryption = true;
  const auto session = MustDial(std::move(options));
  ASSERT_TRUE(session->OpenLane(DeadlineAfter(seconds(10))).ok());
  EXPECT_EQ(session->OpenLaneOver(Kind::kVerbs, DeadlineAfter(seconds(1)))
                .status()
                .message()
                .find("RDMA payload is not encrypted"),
            0U);
}

TEST(Session, HostNamesAndIpv6Work) {
  AcceptorOptions server_options = ServerOptions();
  server_options.addresses = {};
  Server server(std::move(server_options));
  for (const char* host : {"localhost", "::1", "127.0.0.1"}) {
    DialOptions options = ClientOptions(server);
    options.host = host;
    options.require = Kind::kTcp;
    const auto session = MustDial(std::move(options));
    ASSERT_NE(session, nullptr) << host;
    auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << host << ": " << lane.status().ToString();
    ExpectEcho(**lane, host);
  }
}

// Of an address where nobody listens, and two where the server does.
TEST(Session, LanesGoOverAllAddressesThatAnswer) {
  AcceptorOptions server_options = ServerOptions();
  server_options.addresses = {"127.0.0.1", "127.0.0.3"};
  Server server(std::move(server_options));
  DialOptions options = ClientOptions(server);
  options.host = "127.0.0.2";
  options.other_hosts = {"127.0.0.1", "127.0.0.3"};
  options.require = Kind::kTcp;
  const auto session = MustDial(std::move(options));
  ASSERT_NE(session, nullptr);
  const std::string port = ":" + std::to_string(server.port());
  for (const char* host : {"127.0.0.1", "127.0.0.3", "127.0.0.1", "127.0.0.1", "127.0.0.3"}) {
    auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << lane.status().ToString();
    EXPECT_EQ((*lane)->Describe(), "tcp " + (host + port));
    ExpectEcho(**lane, host);
  }
}

TEST(Session, WrongKeyGetsOneSentence) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.key = Key("sesamf");
  const Status status = DialStatus(std::move(options));
  EXPECT_EQ(status.code(), Code::kAuthenticationFailed);
  EXPECT_NE(status.message().find("wrong key: "), std::string::npos) << status.message();
}

TEST(Session, AKeyAtOneEndOnlyIsRefused) {
  Server keyed(ServerOptions());
  DialOptions keyless_client = ClientOptions(keyed);
  keyless_client.key = Key();
  Status status = DialStatus(std::move(keyless_client));
  EXPECT_EQ(status.code(), Code::kAuthenticationFailed);
  EXPECT_NE(status.message().find("asks for a key"), std::string::npos) << status.message();

  AcceptorOptions options = ServerOptions();
  options.keys.clear();
  options.no_auth = true;
  Server open(std::move(options));
  status = DialStatus(ClientOptions(open));
  EXPECT_EQ(status.code(), Code::kAuthenticationFailed);
  EXPECT_NE(status.message().find("asks for no key"), std::string::npos) << status.message();
}

TEST(Session, NoKeyAtAllWorksWhereTheServerSaysSo) {
  AcceptorOptions server_options = ServerOptions();
  server_options.keys.clear();
  server_options.no_auth = true;
  Server server(std::move(server_options));
  for (const bool tls : {false, true}) {
    DialOptions options = ClientOptions(server);
    options.key = Key();
    options.encrypt_always = tls;
    options.require = Kind::kTcp;
    const auto session = MustDial(std::move(options));
    ASSERT_NE(session, nullptr);
    auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok());
    ExpectEcho(**lane, "open");
    EXPECT_EQ(server.host().LastRequest().key_name, "");
  }
}

TEST(Session, NamesChooseAmongTheServersKeys) {
  AcceptorOptions server_options = ServerOptions();
  server_options.keys.push_back({"guests", Key("welcome")});
  Server server(std::move(server_options));
  DialOptions options = ClientOptions(server);
  options.key = Key("welcome");
  options.key_name = "guests";
  ASSERT_NE(MustDial(std::move(options)), nullptr);
  EXPECT_EQ(server.host().LastRequest().key_name, "guests");
}

TEST(Session, RefusalsOfTheUpperLayerReachTheUser) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.service = "fsx";
  Status status = DialStatus(std::move(options));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("no service 'fsx'"), std::string::npos) << status.message();

  options = ClientOptions(server);
  const std::string_view too_much = "too much";
  options.request.assign(AsBytes(too_much).begin(), AsBytes(too_much).end());
  status = DialStatus(std::move(options));
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_TRUE(server.host().AwaitEnds(1));
}

TEST(Session, UnreachableServersGetOneSentence) {
  std::uint16_t free_port = 0;
  {
    const Fd socket = *tcp::ListenSocket("127.0.0.1", 0);
    free_port = *tcp::LocalPort(socket.get());
  }
  DialOptions options;
  options.host = "127.0.0.1";
  options.port = free_port;
  options.deadline = DeadlineAfter(seconds(10));
  const Status refused = DialStatus(std::move(options));
  EXPECT_EQ(refused.code(), Code::kDisconnected);
  EXPECT_NE(refused.message().find(std::to_string(free_port)), std::string::npos);

  options = DialOptions();
  // A label of 64 letters cannot be looked up anywhere (RFC 1035, 2.3.4).
  options.host = std::string(64, 'a');
  options.deadline = DeadlineAfter(seconds(10));
  EXPECT_EQ(DialStatus(std::move(options)).code(), Code::kNotFound);
}

TEST(Session, AServerThatSaysNothingCostsTheDeadline) {
  const Fd listening = *tcp::ListenSocket("127.0.0.1", 0);
  DialOptions options;
  options.host = "127.0.0.1";
  options.port = *tcp::LocalPort(listening.get());
  options.deadline = DeadlineAfter(std::chrono::milliseconds(200));
  const Status status = DialStatus(std::move(options));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("does not answer"), std::string::npos) << status.message();
}

TEST(Session, ContradictoryOptionsAreRefusedBeforeAnythingIsSent) {
  DialOptions options;
  options.plaintext = options.require_encryption = true;
  EXPECT_EQ(DialStatus(std::move(options)).code(), Code::kInvalidArgument);
  options = DialOptions();
  options.require_encryption = true;
  options.require = Kind::kVerbs;
  EXPECT_EQ(DialStatus(std::move(options)).code(), Code::kInvalidArgument);
}

TEST(Session, TheServerEndsTheSessionWhenTheVestibuleCloses) {
  Server server(ServerOptions());
  auto session = MustDial(ClientOptions(server));
  auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok());
  session.reset();
  EXPECT_TRUE(server.host().AwaitEnds(1));
  ExpectEcho(**lane, "lanes that are open go on");
}

TEST(Session, StoppingTheServerEndsItsSessions) {
  Server server(ServerOptions());
  const auto session = MustDial(ClientOptions(server));
  ASSERT_TRUE(session->OpenLane(DeadlineAfter(seconds(10))).ok());
  server.Stop();
  EXPECT_TRUE(server.host().AwaitEnds(1));
  const auto lane = session->OpenLaneOver(Kind::kTcp, DeadlineAfter(seconds(10)));
  EXPECT_FALSE(lane.ok());
}

TEST(Session, LanesOfAnEndedSessionAreRefusedWithASentence) {
  Server server(ServerOptions());
  DialOptions options = ClientOptions(server);
  options.require = Kind::kTcp;
  const auto session = MustDial(std::move(options));
  const auto other = MustDial(ClientOptions(server));
  server.Stop();
  const auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_FALSE(lane.ok());
  EXPECT_EQ(lane.status().message().find("tcp is required and does not work: "), 0U);
  EXPECT_EQ(session->ExplainChoice(), "no transport in use yet");
}

// On one host no lane proves its server: whoever has its port once it has died is none.
TEST(Session, WhoTakesThePlaceOfADeadServerGetsNoLane) {
  Server server(ServerOptions());
  const auto session = MustDial(ClientOptions(server));
  const std::uint16_t port = server.port();
  server.Stop();
  const Fd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ASSERT_EQ(setsockopt(taken.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  std::thread other([&] {
    const Fd peer(accept4(taken.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto accepted = session::EncodeFrame(session::FrameType::kLaneAccepted, {});
    EXPECT_EQ(send(peer.get(), accepted.data(), accepted.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(accepted.size()));
    std::array<char, 64> said{};
    (void)recv(peer.get(), said.data(), said.size(), 0);
  });
  const auto lane = session->OpenLaneOver(Kind::kTcp, DeadlineAfter(seconds(10)));
  EXPECT_EQ(lane.status().message(), "the server has ended this session");
  (void)shutdown(taken.get(), SHUT_RDWR);  // where nobody came
  other.join();
}

// A pair of streams as ssh gives them to the two ends.
struct Pair {
  std::unique_ptr<tcp::ByteStream> client, server;
};

Pair SocketPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {tcp::MakeSocketStream(Fd(ends[0]), "ssh"), tcp::MakeSocketStream(Fd(ends[1]), "ssh")};
}

Pair PipePair() {
  int up[2] = {-1, -1};
  int down[2] = {-1, -1};
  EXPECT_EQ(pipe2(up, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(down, O_CLOEXEC), 0);
  return {tcp::MakePipeStream(Fd(down[0]), Fd(up[1]), "ssh"),
          tcp::MakePipeStream(Fd(up[0]), Fd(down[1]), "ssh")};
}

// What ssh has connected is the vestibule.
std::unique_ptr<Session> DialOver(Server& server, Pair pair) {
  server.acceptor().Serve(std::move(pair.server));
  DialOptions options = ClientOptions(server);
  options.stream = std::move(pair.client);
  return MustDial(std::move(options));
}

TEST(StreamSession, StdioIsTheVestibuleAndBetterLegsAreStillUsed) {
  Server server(ServerOptions());
  for (Pair (*const make)() : {SocketPair, PipePair}) {
    const auto session = DialOver(server, make());
    ASSERT_NE(session, nullptr);
    auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok());
    EXPECT_EQ((*lane)->capabilities().kind, Kind::kShm);
    ExpectEcho(**lane, "shm beside ssh");
  }
}

TEST(StreamSession, TheStreamIsTheLastLeg) {
  AcceptorOptions server_options = ServerOptions();
  server_options.listen_tcp = false;
  server_options.offer = {};
  Server server(std::move(server_options));
  EXPECT_EQ(server.port(), 0);
  std::size_t ends = 0;
  for (Pair (*const make)() : {SocketPair, PipePair}) {
    const auto session = DialOver(server, make());
    ASSERT_NE(session, nullptr);
    auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << lane.status().ToString();
    ExpectEcho(**lane, std::string(70'000, 's'));
    const std::string text = session->ExplainChoice();
    EXPECT_EQ(text.find("tcp over the session's own stream (ssh); not tcp: the server says: it "
                        "serves only the stream it was started on; not verbs: "),
              0U)
        << text;
    EXPECT_TRUE(server.host().AwaitEnds(++ends)) << "the ticket ends when its stream is a lane";
    EXPECT_EQ(session->OpenLane(DeadlineAfter(seconds(10))).status().code(), Code::kBusy);
    ExpectEcho(**lane, "and the lane goes on");
  }
}

TEST(StreamSession, TheStreamAtOnceAndABetterLaneMeanwhile) {
  Server server(ServerOptions());
  for (Pair (*const make)() : {SocketPair, PipePair}) {
    const auto session = DialOver(server, make());
    ASSERT_NE(session, nullptr);
    Result<std::unique_ptr<Connection>> better = Status(Code::kInternal, "not dialled");
    std::thread dialling([&] { better = session->OpenDirectLane(DeadlineAfter(seconds(10))); });
    auto stream = session->OpenStreamLane(DeadlineAfter(seconds(10)));
    dialling.join();
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    ASSERT_TRUE(better.ok()) << better.status().ToString();
    ExpectEcho(**stream, "at once");
    ExpectEcho(**better, "better");
    EXPECT_EQ((*better)->capabilities().kind, Kind::kShm);
    EXPECT_EQ(session->ExplainChoice().find("shm"), 0U);
    auto later = session->OpenDirectLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(later.ok()) << "the ticket holds behind the stream: " << later.status().ToString();
    ExpectEcho(**later, "later");
    EXPECT_EQ(session->OpenStreamLane(DeadlineAfter(seconds(10))).status().code(), Code::kBusy);
  }
}

TEST(StreamSession, NoDirectLaneLeavesTheStream) {
  AcceptorOptions server_options = ServerOptions();
  server_options.listen_tcp = false;
  server_options.offer = {};
  Server server(std::move(server_options));
  const auto session = DialOver(server, SocketPair());
  ASSERT_NE(session, nullptr);
  EXPECT_FALSE(session->OpenDirectLane(DeadlineAfter(seconds(10))).ok());
  EXPECT_EQ(session->ExplainChoice().find("tcp over the session's own stream (ssh); not tcp: "),
            0U);
  auto stream = session->OpenStreamLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  ExpectEcho(**stream, "what remains");
}

TEST(StreamSession, LanesBesideTheStreamAreEncryptedWhereAsked) {
  Server server(ServerOptions());
  Pair pair = SocketPair();
  server.acceptor().Serve(std::move(pair.server));
  DialOptions options = ClientOptions(server);
  options.stream = std::move(pair.client);
  options.encrypt_always = true;
  options.require = Kind::kTcp;
  const auto session = MustDial(std::move(options));
  auto lane = session->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  EXPECT_TRUE((*lane)->capabilities().encrypted);
  ExpectEcho(**lane, "beside");
  EXPECT_EQ(server.host().LastRequest().uid, geteuid()) << "the kernel knows a UNIX socket's peer";
}

TEST(Acceptor, RefusesContradictoryOptions) {
  EchoHost host;
  AcceptorOptions options = ServerOptions();
  options.no_auth = true;
  EXPECT_EQ(Acceptor::Create(options, host).status().code(), Code::kInvalidArgument);
  options = ServerOptions();
  options.keys.clear();
  EXPECT_EQ(Acceptor::Create(options, host).status().code(), Code::kInvalidArgument);
  options = ServerOptions();
  options.keys.push_back({"empty", Key()});
  EXPECT_EQ(Acceptor::Create(options, host).status().code(), Code::kInvalidArgument);
}

TEST(Acceptor, NamesThePortThatIsTaken) {
  Server first(ServerOptions());
  EchoHost host;
  AcceptorOptions options = ServerOptions();
  options.port = first.port();
  const auto second = Acceptor::Create(options, host);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string(first.port())), std::string::npos)
      << second.status().message();
}

}  // namespace
}  // namespace rdfs::transport
