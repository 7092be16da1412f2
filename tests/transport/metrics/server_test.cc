// A MetricsServer and those who connect to it, over real sockets.
#include "transport/metrics/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace rdfs::metrics {
namespace {

using std::chrono::seconds;

constexpr std::string_view kGet = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

// Who connects; every wait of it has an end.
class Client {
 public:
  explicit Client(const Address& address) {
    sockaddr_storage to{};
    socklen_t size = 0;
    if (!address.path.empty()) {
      auto& at = reinterpret_cast<sockaddr_un&>(to);
      at.sun_family = AF_UNIX;
      std::memcpy(at.sun_path, address.path.c_str(), address.path.size() + 1);
      size = sizeof at;
    } else {
      auto& at = reinterpret_cast<sockaddr_in&>(to);
      at.sin_family = AF_INET;
      at.sin_port = htons(address.port);
      inet_pton(AF_INET, address.host.c_str(), &at.sin_addr);
      size = sizeof at;
    }
    socket_.Reset(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), size), 0);
  }
  Client& Say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;  // it hears no more: that is its right
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return *this;
  }
  bool MaySay(std::string_view bytes) {
    return send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  // Up to the end of the stream, or a reset.
  std::string Hear() {
    std::string out;
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) return out;
      out.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  void HearNothing() {  // a small window, so that an answer does not fit
    const int bytes = 2048;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }

 private:
  Fd socket_;
};

unsigned StatusIn(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ")
             ? static_cast<unsigned>(std::strtoul(answer.c_str() + 9, nullptr, 10))
             : 0;
}

class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "rdfs-metrics-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Server> Listen(const Address& address, std::string text = "rdfs_x 1\n",
                                 std::chrono::milliseconds patience = Server::kPatience) {
    auto server = Server::Listen(
        address, [text = std::move(text)] { return text; }, patience);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return server.ok() ? *std::move(server) : nullptr;
  }
  static Status Refusal(const Address& address) {
    return Server::Listen(address, [] { return std::string(); }).status();
  }

  std::string folder_;
};

TEST_F(MetricsServerTest, AnswersOnAPortOfThisHost) {
  const auto server = Listen(*ParseAddress("0"));
  ASSERT_NE(server->address().port, 0);
  EXPECT_EQ(server->address().host, "127.0.0.1");
  for (int i = 0; i < 3; ++i) {
    const std::string answer = Client(server->address()).Say(kGet).Hear();
    EXPECT_EQ(StatusIn(answer), 200U) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nrdfs_x 1\n")) << answer;
  }
  const std::string page =
      Client(server->address()).Say("GET /metrics HTTP/1.1\r\nHost: page.example\r\n\r\n").Hear();
  EXPECT_EQ(StatusIn(page), 421U) << "a name that a web page has come by";
  EXPECT_EQ(page.find("rdfs_x"), std::string::npos);
  Client slowly(server->address());
  for (const char c : kGet) slowly.Say(std::string_view(&c, 1));
  EXPECT_EQ(StatusIn(slowly.Hear()), 200U) << "byte by byte";
  EXPECT_EQ(
      StatusIn(Client(server->address()).Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").Hear()),
      404U);
}

TEST_F(MetricsServerTest, AnswersOnASocketOfItsUserAlone) {
  const Address address{.path = folder_ + "/socket"};
  {
    const auto server = Listen(address);
    struct stat about {};
    ASSERT_EQ(stat(address.path.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777U, 0600U);
    EXPECT_EQ(StatusIn(Client(address).Say(kGet).Hear()), 200U);
  }
  EXPECT_NE(access(address.path.c_str(), F_OK), 0) << "left behind";
}

// A connection that is closed with bytes unread is reset, which may overtake the answer.
TEST_F(MetricsServerTest, WhoSendsMoreIsNotResetBeforeItHasTheAnswer) {
  const auto server = Listen(*ParseAddress("0"));
  Client client(server->address());
  EXPECT_EQ(StatusIn(client.Say(kGet).Hear()), 200U);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(client.MaySay("more")) << i;
  // Up to a limit.
  int pieces = 0;
  while (client.MaySay(std::string(4096, 'x')) && pieces < 10'000) ++pieces;
  EXPECT_LT(pieces, 10'000);
}

TEST_F(MetricsServerTest, ALongAnswerArrivesWhole) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i) + "\n";
  const auto server = Listen(*ParseAddress("0"), text);
  const std::string answer = Client(server->address()).Say(kGet).Hear();
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + text)) << answer.size();
}

// However it is written: who may ask depends on it.
TEST_F(MetricsServerTest, ALoopbackAddressIsKnownInEverySpelling) {
  for (const char* host : {"2130706433", "127.1", "0x7f.0.0.1", "0:0:0:0:0:0:0:1", "0::1"}) {
    const auto server = Listen({.path = {}, .host = host, .port = 0});
    ASSERT_NE(server, nullptr) << host;
    EXPECT_TRUE(IsLoopback(server->address())) << ToString(server->address());
  }
}

TEST_F(MetricsServerTest, HostilePeersAreTurnedAwayAndTheNextIsServed) {
  const auto server = Listen(*ParseAddress("0"), std::string(8 << 20, 'x'));
  const Address& at = server->address();
  EXPECT_EQ(StatusIn(Client(at).Say(std::string(20'000, 'x')).Hear()), 431U);
  EXPECT_EQ(StatusIn(Client(at).Say(std::string("\x16\x03\x01\0\xff", 5)).Hear()), 400U);
  // More than is read of it: the answer is there all the same, or the connection is reset.
  const unsigned status = StatusIn(Client(at).Say(std::string(4 << 20, 'x')).Hear());
  EXPECT_TRUE(status == 431 || status == 0) << status;
  Client(at).Say("GET /metr");  // and gone
  Client deaf(at);
  deaf.HearNothing();
  deaf.Say(kGet);  // and takes nothing
  EXPECT_EQ(StatusIn(Client(at).Say(kGet).Hear()), 200U);
}

TEST_F(MetricsServerTest, WhoIsSilentIsToldSoAndKeepsNobodyOut) {
  constexpr seconds kShort{4};
  const auto server = Listen(*ParseAddress("0"), "rdfs_x 1\n", kShort);
  const TimePoint begin = BootClock::now();
  std::vector<std::unique_ptr<Client>> silent;
  for (std::size_t i = 0; i + 1 < Server::kMostPeers; ++i) {
    silent.push_back(std::make_unique<Client>(server->address()));
  }
  EXPECT_EQ(StatusIn(Client(server->address()).Say(kGet).Hear()), 200U);
  EXPECT_LT(BootClock::now() - begin, kShort) << "beside those that are silent";
  // One more than may be served waits until one of these is out of time.
  silent.push_back(std::make_unique<Client>(server->address()));
  Client waits(server->address());
  EXPECT_EQ(StatusIn(waits.Say(kGet).Hear()), 200U);
  EXPECT_GE(BootClock::now() - begin, kShort) << "more than kMostPeers are served";
  EXPECT_EQ(StatusIn(silent.front()->Hear()), 408U);
}

TEST_F(MetricsServerTest, AnEndWaitsForNobody) {
  auto server = Listen(*ParseAddress("0"));
  Client silent(server->address());
  silent.Say("GET /metrics HTTP/1.1\r\n");
  const TimePoint begin = BootClock::now();
  server.reset();
  EXPECT_LT(BootClock::now() - begin, Server::kPatience);
  EXPECT_EQ(silent.Hear(), "");
}

TEST_F(MetricsServerTest, APlaceThatIsAnothersIsRefusedInOneSentence) {
  const auto server = Listen(*ParseAddress("0"));
  const Status in_use = Refusal(server->address());
  EXPECT_EQ(in_use.code(), Code::kUnavailable);
  EXPECT_NE(in_use.message().find("another program does"), std::string::npos) << in_use.message();

  const Address path{.path = folder_ + "/socket"};
  const auto other = Listen(path);
  EXPECT_EQ(Refusal(path).message(), "cannot listen for metrics on " + path.path +
                                         ": another program does; name another place");
  EXPECT_EQ(StatusIn(Client(path).Say(kGet).Hear()), 200U) << "and it still does";

  const Address file{.path = folder_ + "/file"};
  std::ofstream(file.path) << "kept";
  EXPECT_NE(Refusal(file).message().find("no socket"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(file.path), 4U);

  EXPECT_NE(Refusal(*ParseAddress("192.0.2.1:9")).message().find("no address of this host"),
            std::string::npos);
  EXPECT_NE(Refusal(*ParseAddress("nowhere.example:9")).message().find("not an IP address"),
            std::string::npos);
  EXPECT_NE(Refusal({.path = folder_ + "/" + std::string(200, 'x')}).message().find("longer"),
            std::string::npos);
  EXPECT_NE(Refusal({.path = folder_ + "/none/socket"}).message().find("No such file"),
            std::string::npos);
}

TEST_F(MetricsServerTest, WhatAKilledProgramLeftIsReplaced) {
  const Address address{.path = folder_ + "/socket"};
  {
    const Fd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, address.path.c_str(), address.path.size() + 1);
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  }
  const auto server = Listen(address);
  EXPECT_EQ(StatusIn(Client(address).Say(kGet).Hear()), 200U);
}

}  // namespace
}  // namespace rdfs::metrics
