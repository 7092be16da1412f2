// Streams and sockets: pipes, sockets, what is said when they end, and where peers are.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>

#include "tests/transport/tcp/raw_peer.h"

namespace rdfs::transport::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct StreamPair {
  std::unique_ptr<ByteStream> a, b;
};

StreamPair OverSockets() {
  auto ends = SocketPair();
  return {MakeSocketStream(std::move(ends[0]), "b"), MakeSocketStream(std::move(ends[1]), "a")};
}

StreamPair OverPipes() {
  std::array<int, 2> there{};
  std::array<int, 2> back{};
  EXPECT_EQ(pipe2(there.data(), O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(back.data(), O_CLOEXEC), 0);
  return {MakePipeStream(Fd(back[0]), Fd(there[1]), "b"),
          MakePipeStream(Fd(there[0]), Fd(back[1]), "a")};
}

class Streams : public testing::TestWithParam<StreamPair (*)()> {};
INSTANTIATE_TEST_SUITE_P(Over, Streams, testing::Values(OverSockets, OverPipes),
                         [](const auto& param) { return param.index == 0 ? "Sockets" : "Pipes"; });

TEST_P(Streams, CarryBytesUntilTheyAreFullAndGoOn) {
  const StreamPair pair = GetParam()();
  Bytes sent(3 << 20);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
  Bytes received(sent.size());
  std::size_t written = 0;
  std::size_t read = 0;
  while (read < sent.size()) {
    const std::size_t half = (sent.size() - written) / 2;
    const std::array<iovec, 2> parts{
        iovec{sent.data() + written, half},
        iovec{sent.data() + written + half, sent.size() - written - half}};
    if (written < sent.size()) {
      const auto count = pair.a->Write(parts);
      ASSERT_TRUE(count.ok()) << count.status().ToString();
      written += *count;
    }
    const std::array<iovec, 2> into{iovec{received.data() + read, 1},
                                    iovec{received.data() + read + 1, sent.size() - read - 1}};
    const auto count = pair.b->ReadParts(std::span(into).first(sent.size() - read > 1 ? 2 : 1));
    ASSERT_TRUE(count.ok()) << count.status().ToString();
    read += *count;
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(*pair.b->Read(received), 0U);  // nothing now, and no end either
}

TEST_P(Streams, SayWhenTheOtherEndIsGoneAndRaiseNoSignal) {
  // SIGPIPE at its default would end this process.
  struct sigaction before {};
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  ASSERT_EQ(sigaction(SIGPIPE, &fatal, &before), 0);
  StreamPair pair = GetParam()();
  pair.b.reset();
  std::byte byte{};
  EXPECT_EQ(pair.a->Read({&byte, 1}).status().code(), Code::kDisconnected);
  const iovec part{&byte, 1};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(pair.a->Write(std::span(&part, 1)).status().code(), Code::kDisconnected);
  }
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  sigaction(SIGPIPE, &before, nullptr);
}

TEST_P(Streams, ShutdownEndsOneDirectionOnly) {
  const StreamPair pair = GetParam()();
  std::byte byte{7};
  const iovec part{&byte, 1};
  EXPECT_EQ(*pair.a->Write(std::span(&part, 1)), 1U);
  pair.a->Shutdown();
  std::array<std::byte, 4> out;
  EXPECT_EQ(*pair.b->Read(out), 1U);
  EXPECT_EQ(pair.b->Read(out).status().code(), Code::kDisconnected);
  EXPECT_EQ(*pair.b->Write(std::span(&part, 1)), 1U);
  EXPECT_EQ(*pair.a->Read(out), 1U);
}

TEST_P(Streams, CarryAWholeConnection) {
  StreamPair pair = GetParam()();
  const auto domain = Domain::Create("both");
  auto a = *MakeConnection(std::move(pair.a), domain, "tcp a");
  auto b = *MakeConnection(std::move(pair.b), domain, "tcp b");
  constexpr std::size_t kBytes = 8 << 20;
  auto source = *domain->Register(
      *SharedMemory::Create("s", kBytes, SharedMemory::Peers::kReadOnly), Access::kRemoteRead);
  auto sink = *domain->Register(*SharedMemory::Create("d", kBytes, SharedMemory::Peers::kMayWrite),
                                Access::kRemoteWrite);
  auto local = *domain->Register(*SharedMemory::Create("l", kBytes, SharedMemory::Peers::kMayWrite),
                                 Access::kLocal);
  for (std::size_t i = 0; i < kBytes; ++i) {
    source->bytes()[i] = static_cast<std::byte>(i * 131 >> 5);
    local->bytes()[i] = static_cast<std::byte>(i * 17 >> 4);
  }
  ASSERT_TRUE(a->Write({local.get(), 0, kBytes}, {*b->Share(*sink), 0}).ok());
  ASSERT_TRUE(b->Write({source.get(), 0, kBytes / 2}, {*a->Share(*sink), 0}).status().ok());
  int completed = 0;
  const Deadline deadline = DeadlineAfter(seconds(20));
  std::array<Completion, 4> out;
  const auto wait_for = [&](int wanted) {
    while (completed < wanted && BootClock::now() < deadline) {
      for (Connection* end : {a.get(), b.get()}) {
        const auto count = end->Poll(out);
        ASSERT_TRUE(count.ok()) << count.status().ToString();
        for (std::size_t i = 0; i < *count; ++i) EXPECT_TRUE(out[i].status.ok());
        completed += static_cast<int>(*count);
      }
      if (completed >= wanted || !*a->Arm() || !*b->Arm()) continue;
      std::array<pollfd, 2> entries{pollfd{a->fd(), POLLIN, 0}, pollfd{b->fd(), POLLIN, 0}};
      ASSERT_GT(poll(entries.data(), 2, 20'000), 0);
    }
  };
  wait_for(2);
  ASSERT_EQ(completed, 2);
  // b's half came after or before a's: either way the second half is a's.
  EXPECT_TRUE(
      std::ranges::equal(sink->bytes().subspan(kBytes / 2), local->bytes().subspan(kBytes / 2)));
  ASSERT_TRUE(a->Read({local.get(), 0, kBytes}, {*b->Share(*source), 0}).ok());
  wait_for(3);
  EXPECT_TRUE(std::ranges::equal(source->bytes(), local->bytes()));
}

TEST(Sockets, RefusedUnknownAndSilentHostsAreToldApart) {
  std::uint16_t closed_port = 0;
  {
    const Fd listener = *ListenSocket("127.0.0.1", 0);
    closed_port = *LocalPort(listener.get());
  }
  const auto refused = ConnectSocket("127.0.0.1", closed_port, DeadlineAfter(seconds(10)));
  EXPECT_EQ(refused.status().code(), Code::kDisconnected) << refused.status().ToString();
  EXPECT_NE(refused.status().message().find(std::to_string(closed_port)), std::string::npos);

  // A label of 64 letters cannot be looked up anywhere (RFC 1035, 2.3.4).
  const auto unknown = ConnectSocket(std::string(64, 'a'), 1, DeadlineAfter(seconds(10)));
  EXPECT_EQ(unknown.status().code(), Code::kNotFound) << unknown.status().ToString();

  // A listener whose queue is full drops what comes: nobody answers.
  const Fd full = *ListenSocket("127.0.0.1", 0);
  ASSERT_EQ(listen(full.get(), 0), 0);
  const std::uint16_t port = *LocalPort(full.get());
  std::vector<Fd> queue;
  Status silent;
  for (int i = 0; i < 10 && silent.ok(); ++i) {
    auto socket = ConnectSocket("127.0.0.1", port, DeadlineAfter(milliseconds(200)));
    silent = socket.status();
    if (socket.ok()) queue.push_back(*std::move(socket));
  }
  EXPECT_EQ(silent.code(), Code::kDeadlineExceeded) << silent.ToString();
}

TEST(Sockets, TheWildcardTakesBothFamiliesAndAHeldPortSaysSo) {
  const Fd listener = *ListenSocket("", 0);
  const std::uint16_t port = *LocalPort(listener.get());
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    auto socket = ConnectSocket(host, port, DeadlineAfter(seconds(10)));
    ASSERT_TRUE(socket.ok()) << host << ": " << socket.status().ToString();
    EXPECT_TRUE(IsLocalPeer(socket->get())) << host;
    const Fd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(IsLocalPeer(accepted.get())) << host;
  }
  const auto taken = ListenSocket("", port);
  EXPECT_EQ(taken.status().errno_value(), EADDRINUSE);
  EXPECT_NE(taken.status().message().find(std::to_string(port)), std::string::npos);
  const auto pair = SocketPair();
  EXPECT_TRUE(IsLocalPeer(pair[0].get()));
  EXPECT_FALSE(LocalPort(pair[0].get()).ok());
}

TEST(Sockets, WhatCannotBePolledIsRefused) {
  const auto domain = Domain::Create("d");
  Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  EXPECT_FALSE(
      MakeConnection(MakePipeStream(std::move(file), std::move(null), "file"), domain, "tcp").ok());
}

}  // namespace
}  // namespace rdfs::transport::tcp
