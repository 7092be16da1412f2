// Two carriers in one process, each with a name and pairings of its own, and ends that ask them: a
// connection over the loopback interface whose bytes go by way of both.
#include "tools/sock/far/carrier.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/tools/sock/tcp_pair.h"
#include "tools/sock/asking.h"
#include "tools/sock/end.h"
#include "tools/sock/far/pairs.h"

namespace rdfs::sock::far {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kManyBytes = 24 << 20;

std::vector<std::byte> Pattern(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Pair PairOf(const std::string& name, const char* address, std::uint16_t port) {
  return {.name = name,
          .key = transport::Key(std::string_view("a-key-of-some-length")),
          .port = port,
          .addresses = {*ParseAddress(address)}};
}

// One carrier on a thread of its own.
class Host {
 public:
  Host(const std::string& folder, const std::string& name)
      : path_(folder + "/" + name), name_("rdsock-test-" + std::to_string(getpid()) + "-" + name) {
    Write(1);
    const auto stamp = [home = home_](const std::string& path) {
      const std::lock_guard lock(*home);
      return StampOf(path);
    };
    auto created = Carrier::Create({.name = name_, .pairs = path_, .idle = 60s, .stamp = stamp});
    EXPECT_TRUE(created.ok()) << created.status().message();
    if (!created.ok()) return;
    carrier_ = *std::move(created);
    thread_ = std::thread([this] { EXPECT_TRUE(carrier_->Run().ok()); });
  }
  ~Host() { End(); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void End() {
    if (!thread_.joinable()) return;
    carrier_->Stop();
    thread_.join();
    carrier_.reset();
  }
  void Write(std::uint16_t peers_port, std::uint16_t listen = 0) {
    Write({PairOf("test", "127.0.0.1", peers_port)}, listen);
  }
  void Write(std::vector<Pair> with, std::uint16_t listen = 0) {
    Pairs pairs;
    pairs.listen = listen;
    pairs.over_tcp = true;
    pairs.pairs = std::move(with);
    ASSERT_TRUE(WritePairs(path_, pairs).ok());
  }
  // Nobody is paired any more.
  void Forget() { Write(std::vector<Pair>()); }
  // While somebody has it, the pairings' folder does not answer.
  std::mutex& home() { return *home_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint16_t port() const { return carrier_->port(); }

 private:
  const std::shared_ptr<std::mutex> home_ = std::make_shared<std::mutex>();
  std::string path_;
  std::string name_;
  std::unique_ptr<Carrier> carrier_;
  std::thread thread_;
};

class CarrierTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rdsock-carrier.XXXXXX";
    folder_ = mkdtemp(name);
    a_ = std::make_unique<Host>(folder_, "a");
    b_ = std::make_unique<Host>(folder_, "b");
    a_->Write(b_->port());
    b_->Write(a_->port());
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  std::unique_ptr<Host> a_, b_;
};

Ask AskFor(int tcp, bool opened) {
  return {.cookie = *CookieOf(tcp), .flags = opened ? kFlagOpened : 0, .places = *PlacesOf(tcp)};
}

std::unique_ptr<Asking> Begin(const Host& host, int tcp, bool opened) {
  auto begun = Asking::Begin(host.name(), geteuid(), AskFor(tcp, opened), BootClock::now());
  EXPECT_TRUE(begun.ok()) << begun.status().message();
  return begun.ok() ? *std::move(begun) : nullptr;
}

Meeting::State Await(Asking& asking) {
  for (;;) {
    const Meeting::State state = asking.Go(BootClock::now());
    if (state != Meeting::State::kWaiting) return state;
    pollfd fd{asking.fd(), POLLIN, 0};
    (void)poll(&fd, 1, 100);
  }
}

// A process's end with what it met at.
class Party {
 public:
  Party(int tcp, Meeting::Result met) : tcp_(tcp), met_(std::move(met)) {
    place_ =
        mmap(nullptr, sizeof(EndMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const auto memory =
        EndMemory::Create(place_, tcp, met_.opened, met_.channel.largest_ring(), met_.far);
    EXPECT_TRUE(memory.ok());
    end_ = std::make_unique<End>(
        **memory, met_.channel.Outgoing(met_.role), met_.channel.Incoming(met_.role),
        End::Sockets{{met_.data.get(), met_.room.get()}, met_.opened, met_.far});
    end_->prefer_ring(true, 64 * 1024);
    (void)end_->Receive(tcp, {}, {.wait = false});
  }
  ~Party() {
    end_.reset();
    munmap(place_, sizeof(EndMemory));
  }
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  // Everything, or false.
  bool Send(ByteSpan bytes) {
    while (!bytes.empty()) {
      const iovec buffer{const_cast<std::byte*>(bytes.data()),
                         std::min<std::size_t>(bytes.size(), 100'000)};
      const ssize_t went =
          end_->Send(tcp_, Buffers(&buffer, 1), {.deadline = CallDeadlineAfter(20s)});
      if (went <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(went));
    }
    return true;
  }
  // Up to the end of the stream; errno else.
  std::vector<std::byte> ReceiveAll(int& error, std::size_t most = SIZE_MAX) {
    std::vector<std::byte> all;
    std::vector<std::byte> part(150'000);
    error = 0;
    while (all.size() < most) {
      const iovec buffer{part.data(), std::min(part.size(), most - all.size())};
      const ssize_t came =
          end_->Receive(tcp_, Buffers(&buffer, 1), {.deadline = CallDeadlineAfter(20s)});
      if (came < 0) error = errno;
      if (came <= 0) break;
      all.insert(all.end(), part.begin(), part.begin() + came);
    }
    return all;
  }
  // Until the other end takes bytes by the ring, so that the first ones go there.
  [[nodiscard]] bool AwaitRing() const {
    const DirectionWords& words = *met_.channel.Outgoing(met_.role).words;
    const Deadline deadline = DeadlineAfter(20s);
    while (Gate{words.gate.load()}.receiver_shut()) {
      if (BootClock::now() >= deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void Shutdown() { EXPECT_EQ(end_->ShutdownSend(tcp_), 0); }
  [[nodiscard]] std::uint64_t RingBytesSent() const {
    return Gate{met_.channel.Outgoing(met_.role).words->gate.load()}.cursor();
  }
  [[nodiscard]] Far far() const { return met_.far; }
  [[nodiscard]] const End& end() const { return *end_; }

 private:
  int tcp_;
  Meeting::Result met_;
  void* place_ = nullptr;
  std::unique_ptr<End> end_;
};

struct Pair2 {
  Fd client, server;
  std::unique_ptr<Party> p, q;
};

void Meet(const Host& a, const Host& b, Pair2& pair) {
  MakeTcpPair(pair.client, pair.server);
  const auto one = Begin(a, pair.client.get(), true);
  const auto other = Begin(b, pair.server.get(), false);
  ASSERT_NE(one, nullptr);
  ASSERT_NE(other, nullptr);
  ASSERT_EQ(Await(*one), Meeting::State::kMet);
  ASSERT_EQ(Await(*other), Meeting::State::kMet);
  pair.p = std::make_unique<Party>(pair.client.get(), one->Take());
  pair.q = std::make_unique<Party>(pair.server.get(), other->Take());
  ASSERT_TRUE(pair.p->AwaitRing());
  ASSERT_TRUE(pair.q->AwaitRing());
}

TEST_F(CarrierTest, BytesOfBothDirectionsGoThroughTheRings) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const auto up = Pattern(kManyBytes, 1);
  const auto down = Pattern(kManyBytes / 2, 2);
  std::thread writer([&] {
    EXPECT_TRUE(pair.p->Send(up));
    pair.p->Shutdown();
  });
  std::thread other([&] {
    EXPECT_TRUE(pair.q->Send(down));
    pair.q->Shutdown();
  });
  int error_p = 0;
  std::vector<std::byte> came_p;
  std::thread reader([&] { came_p = pair.p->ReceiveAll(error_p); });
  int error = 0;
  const auto came = pair.q->ReceiveAll(error);
  writer.join();
  other.join();
  reader.join();
  EXPECT_EQ(error, 0);
  EXPECT_EQ(error_p, 0);
  EXPECT_TRUE(came == up);
  EXPECT_TRUE(came_p == down);
  EXPECT_GE(pair.p->RingBytesSent(), 64U * 1024);
  EXPECT_GE(pair.q->RingBytesSent(), 64U * 1024);
}

TEST_F(CarrierTest, AnswersComeOneByOne) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  std::thread echo([&] {
    for (int i = 0; i < 200; ++i) {
      int error = 0;
      const auto came = pair.q->ReceiveAll(error, 64);
      if (came.size() != 64 || !pair.q->Send(came)) return;
    }
  });
  for (unsigned i = 0; i < 200; ++i) {
    const auto question = Pattern(64, i);
    ASSERT_TRUE(pair.p->Send(question));
    int error = 0;
    ASSERT_TRUE(pair.p->ReceiveAll(error, 64) == question) << error;
  }
  echo.join();
  EXPECT_GT(pair.p->RingBytesSent(), 64U * 100);
}

// While bytes lie unread in both rings: the network's time is none that a program has not read for.
TEST_F(CarrierTest, AFullRingIsWaitedForLongerThanOnOneHost) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const std::chrono::nanoseconds empty = pair.p->end().PatienceForRoom();
  ASSERT_TRUE(pair.q->Send(Pattern(64, 1)));
  const Deadline deadline = DeadlineAfter(20s);
  while (!pair.p->end().RingHasBytes() && BootClock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(pair.p->end().RingHasBytes());
  EXPECT_GE(pair.p->end().PatienceForRoom(), 30ms);
  EXPECT_LT(pair.p->end().PatienceForRoom(), empty);
}

TEST_F(CarrierTest, ManyConnectionsShareALane) {
  std::vector<Pair2> pairs(12);
  for (Pair2& pair : pairs) ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const auto bytes = Pattern(300'000, 7);
  std::vector<std::thread> threads;
  for (Pair2& pair : pairs) {
    threads.emplace_back([&] {
      EXPECT_TRUE(pair.p->Send(bytes));
      pair.p->Shutdown();
    });
    threads.emplace_back([&] {
      int error = 0;
      EXPECT_TRUE(pair.q->ReceiveAll(error) == bytes);
      EXPECT_EQ(error, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What P has put before it is gone reaches Q, who asks for the end.
// Of which the other end hears nothing: it sends on.
TEST_F(CarrierTest, AReaderThatShutsItsHalfDownDisturbsNobody) {
  Pair2 shut, other;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, shut));
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, other));
  ASSERT_EQ(shutdown(shut.server.get(), SHUT_RD), 0);
  int error = 0;
  EXPECT_EQ(shut.q->ReceiveAll(error).size(), 0U);
  EXPECT_EQ(error, 0);
  const std::vector<std::byte> bytes(100'000, std::byte{7});
  EXPECT_TRUE(shut.p->Send(bytes)) << strerror(errno);
  EXPECT_TRUE(other.p->Send(bytes)) << strerror(errno);
  EXPECT_EQ(other.q->ReceiveAll(error, bytes.size()), bytes);
  EXPECT_EQ(error, 0);
  EXPECT_GT(other.p->RingBytesSent(), 0U);
}

// A port that somebody else has: what is carried goes on, and the next end that comes tries again.
TEST_F(CarrierTest, PairingsThatCannotBeListenedForEndNothing) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const Fd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof(any);
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
  a_->Write(b_->port(), ntohs(any.sin_port));
  Fd client, server;
  ASSERT_NO_FATAL_FAILURE(MakeTcpPair(client, server));
  const auto asking = Begin(*a_, client.get(), true);
  ASSERT_NE(asking, nullptr);
  EXPECT_EQ(Await(*asking), Meeting::State::kOver);
  int error = 0;
  const std::vector<std::byte> bytes(100'000, std::byte{7});
  EXPECT_TRUE(pair.p->Send(bytes)) << strerror(errno);
  EXPECT_EQ(pair.q->ReceiveAll(error, bytes.size()), bytes);
  a_->Write(b_->port());
  Pair2 again;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, again));
}

bool Listens(std::uint16_t port) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// Without an end of this host's that would make it look.
TEST_F(CarrierTest, WhoWasForgottenLastCannotComeAnyMore) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const std::uint16_t port = a_->port();
  ASSERT_TRUE(Listens(port));
  ASSERT_NO_FATAL_FAILURE(a_->Forget());
  const Deadline deadline = DeadlineAfter(20s);
  while (Listens(port) && BootClock::now() < deadline) (void)poll(nullptr, 0, 20);
  EXPECT_FALSE(Listens(port));
  // What is carried goes on.
  int error = 0;
  const std::vector<std::byte> bytes(100'000, std::byte{7});
  EXPECT_TRUE(pair.p->Send(bytes)) << strerror(errno);
  EXPECT_EQ(pair.q->ReceiveAll(error, bytes.size()), bytes);
  Fd client, server;
  ASSERT_NO_FATAL_FAILURE(MakeTcpPair(client, server));
  const auto asking = Begin(*a_, client.get(), true);
  ASSERT_NE(asking, nullptr);
  EXPECT_EQ(Await(*asking), Meeting::State::kOver);
  EXPECT_EQ(asking->refusal(), Refusal::kNotPaired);
}

// A home folder whose server is away.
TEST_F(CarrierTest, PairingsThatCannotBeLookedAtKeepNobodyWaiting) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const std::lock_guard away(a_->home());
  Fd client, server;
  ASSERT_NO_FATAL_FAILURE(MakeTcpPair(client, server));
  const auto asking = Begin(*a_, client.get(), true);
  ASSERT_NE(asking, nullptr);
  EXPECT_EQ(Await(*asking), Meeting::State::kOver);  // nobody asks at the other end
  int error = 0;
  const std::vector<std::byte> bytes(100'000, std::byte{7});
  EXPECT_TRUE(pair.p->Send(bytes)) << strerror(errno);
  EXPECT_EQ(pair.q->ReceiveAll(error, bytes.size()), bytes);
  EXPECT_EQ(error, 0);
  // Nor those who come now: what was known before counts.
  Pair2 again;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, again));
}

TEST_F(CarrierTest, WhatADeadProgramHasSentArrives) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const auto bytes = Pattern(40'000, 3);
  ASSERT_TRUE(pair.p->Send(bytes));
  pair.p.reset();
  pair.client.Reset();
  int error = 0;
  EXPECT_TRUE(pair.q->ReceiveAll(error) == bytes);
  EXPECT_EQ(error, 0);
}

TEST_F(CarrierTest, ADeadCarrierIsNeverSilentLoss) {
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
  const auto bytes = Pattern(kManyBytes, 4);
  std::thread writer([&] {
    if (pair.p->Send(bytes)) pair.p->Shutdown();
  });
  int error = 0;
  const auto first = pair.q->ReceiveAll(error, 1'000'000);
  b_->End();
  auto came = first;
  const auto rest = pair.q->ReceiveAll(error);
  came.insert(came.end(), rest.begin(), rest.end());
  writer.join();
  ASSERT_LE(came.size(), bytes.size());
  EXPECT_TRUE(std::equal(came.begin(), came.end(), bytes.begin()));
  EXPECT_TRUE(came.size() == bytes.size() || error == ECONNRESET) << error;
}

TEST_F(CarrierTest, SaysWhyNot) {
  Fd client, server;
  ASSERT_NO_FATAL_FAILURE(MakeTcpPair(client, server));
  // Nobody asks at the other end.
  const auto alone = Begin(*a_, client.get(), true);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(Await(*alone), Meeting::State::kOver);
  EXPECT_EQ(alone->refusal(), Refusal::kAlone);
  // A socket that is somebody else's.
  Ask ask = AskFor(client.get(), true);
  ask.cookie ^= 1;
  auto other = Asking::Begin(a_->name(), geteuid(), ask, BootClock::now());
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(Await(**other), Meeting::State::kOver);
  EXPECT_EQ((*other)->refusal(), Refusal::kNotYours);
}

TEST_F(CarrierTest, SaysThatTheOtherCarrierIsAway) {
  b_->End();
  Fd client, server;
  ASSERT_NO_FATAL_FAILURE(MakeTcpPair(client, server));
  const auto asking = Begin(*a_, client.get(), true);
  ASSERT_NE(asking, nullptr);
  EXPECT_EQ(Await(*asking), Meeting::State::kOver);
  EXPECT_EQ(asking->refusal(), Refusal::kUnreachable);
}

// Listens, and never answers.
struct SilentHost {
  explicit SilentHost(in_addr_t address)
      : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(address);
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(socket.get(), 16), 0);
    EXPECT_EQ(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  }
  [[nodiscard]] std::uint16_t port() const { return ntohs(at.sin_port); }

  Fd socket;
  sockaddr_in at{};
};

TEST_F(CarrierTest, AHostThatDoesNotAnswerKeepsNoOtherWaiting) {
  const SilentHost silent(INADDR_LOOPBACK + 1);
  a_->Write(
      {PairOf("silent", "127.0.0.2", silent.port()), PairOf("test", "127.0.0.1", b_->port())});
  // The lane is to be A's: B dials in vain.
  const SilentHost not_a(INADDR_LOOPBACK);
  b_->Write(not_a.port());
  const Fd vain(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(vain.get(), reinterpret_cast<const sockaddr*>(&silent.at), sizeof(silent.at)),
            0);
  const auto asking = Begin(*a_, vain.get(), true);
  ASSERT_NE(asking, nullptr);
  Pair2 pair;
  ASSERT_NO_FATAL_FAILURE(Meet(*a_, *b_, pair));
}

TEST_F(CarrierTest, OneForAName) {
  const auto second = Carrier::Create({.name = a_->name(), .pairs = folder_ + "/a"});
  EXPECT_EQ(second.status().code(), Code::kBusy);
}

TEST_F(CarrierTest, EndsWhenNothingIsToBeCarried) {
  const std::string name = a_->name() + "-idle";
  auto idle = Carrier::Create({.name = name, .pairs = folder_ + "/a", .idle = 0s});
  ASSERT_TRUE(idle.ok()) << idle.status().message();
  EXPECT_TRUE((*idle)->Run().ok());
}

}  // namespace
}  // namespace rdfs::sock::far
