#include "transport/shm/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/transport/shm/pair.h"
#include "transport/shm/regions.h"

namespace rdfs::transport::shm {
namespace {

Bytes WireOf(const RemoteRegion& region) {
  const auto wire = RemoteRegionWire::From(region);
  Bytes out(sizeof(wire));
  std::memcpy(out.data(), &wire, sizeof(wire));
  return out;
}

RemoteRegion RegionIn(ByteSpan message) {
  return ByteReader(message).Read<RemoteRegionWire>().ToRegion();
}

TEST(Shm, TheKernelTellsWhoConnects) {
  Pair pair;
  auto dialling = std::async(std::launch::async, [&pair] {
    return pair.transport->Connect(pair.listener->endpoint(), pair.client_domain, AsBytes("me"),
                                   DeadlineAfter(kPatience));
  });
  const std::unique_ptr<Incoming> incoming = AcceptNext(*pair.listener);
  ASSERT_NE(incoming, nullptr);
  EXPECT_EQ(PeerUid(*incoming), std::optional<uid_t>(getuid()));
  EXPECT_EQ(incoming->peer(), "uid " + std::to_string(getuid()));
  EXPECT_EQ(AsText(incoming->token()), "me");
  incoming->Reject(Status(Code::kNotFound, "no such export 'x'"));
  const auto refused = dialling.get();
  EXPECT_EQ(refused.status().code(), Code::kNotFound);
  EXPECT_EQ(refused.status().message(), "no such export 'x'");
}

TEST(Shm, AnotherUserIsToldApartAsRoot) {
  if (getuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  Pair pair;
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    const auto refused = MakeTransport()->Connect(pair.listener->endpoint(), Domain::Create("d"),
                                                  {}, DeadlineAfter(kPatience));
    _exit(refused.status().code() == Code::kAuthenticationFailed ? 0 : 3);
  }
  const std::unique_ptr<Incoming> incoming = AcceptNext(*pair.listener);
  ASSERT_NE(incoming, nullptr);
  EXPECT_EQ(PeerUid(*incoming), std::optional<uid_t>(65534));
  incoming->Reject(Status(Code::kAuthenticationFailed, "another user"));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Shm, NamesAreTakenOnceAndToldWhenTheyAreWrong) {
  const std::unique_ptr<Transport> transport = MakeTransport();
  EXPECT_TRUE(transport->Probe().viable) << transport->Probe().reason;
  const auto first = transport->Listen({Kind::kShm, "", 0});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(transport->Listen((*first)->endpoint()).status().errno_value(), EADDRINUSE);
  const std::string longest(107, 'n');
  EXPECT_TRUE(transport->Listen({Kind::kShm, longest, 0}).ok());
  EXPECT_EQ(transport->Listen({Kind::kShm, longest + "n", 0}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(transport
                ->Connect({Kind::kShm, "rdfs-nobody-here", 0}, Domain::Create("d"), {},
                          DeadlineAfter(kPatience))
                .status()
                .code(),
            Code::kDisconnected);
}

TEST(Shm, AListenerThatNeverAnswersCostsNoMoreThanTheDeadline) {
  Pair pair;
  const TimePoint start = BootClock::now();
  const auto late = pair.transport->Connect(pair.listener->endpoint(), pair.client_domain, {},
                                            DeadlineAfter(std::chrono::milliseconds(50)));
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
  EXPECT_LT(BootClock::now() - start, std::chrono::seconds(5)) << "not some limit of its own";
}

TEST(Shm, APeerThatMayOnlyReadGetsADescriptorThatCannotWrite) {
  const auto domain = Domain::Create("d");
  const auto region = MakeRegion(domain, 4096, Access::kRemoteRead);
  const auto fd = DescriptorForPeer(*region->memory(), Access::kRemoteRead);
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  EXPECT_EQ(fcntl(fd->get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
}

TEST(Shm, ARegionThatHasEndedIsOutOfReachAtOnce) {
  Pair pair;
  pair.Connect();
  auto region = MakeRegion(pair.server_domain, 4096, Access::kRemoteRead, "ending");
  const auto local = MakeRegion(pair.client_domain, 4096, Access::kLocal);
  const auto shared = pair.server->Share(*region);
  ASSERT_TRUE(shared.ok());
  ASSERT_TRUE(pair.server->Send(WireOf(*shared)).ok());
  ASSERT_TRUE(pair.server->Flush().ok());
  const RemoteRegion remote = RegionIn(WaitForMessage(*pair.client).message);
  const LocalSlice to{local.get(), 0, 4096};
  EXPECT_TRUE(WaitForCompletion(*pair.client, pair.client->Read(to, {remote, 0})).ok());
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    std::size_t count = 0;
    while (std::getline(maps, line)) count += line.find("memfd:ending") != std::string::npos;
    return count;
  };
  EXPECT_EQ(mappings(), 2U);
  region.reset();
  EXPECT_EQ(WaitForCompletion(*pair.client, pair.client->Read(to, {remote, 0})).errno_value(),
            EACCES);
  // The peer lets go of the memory itself with the next message.
  ASSERT_TRUE(pair.server->Send(AsBytes("gone")).ok());
  ASSERT_TRUE(pair.server->Flush().ok());
  EXPECT_EQ(AsText(WaitForMessage(*pair.client).message), "gone");
  EXPECT_EQ(mappings(), 0U);
}

TEST(Shm, MemoryOpenForWritesIsReachedItselfAndStaysMapped) {
  Pair pair;
  pair.Connect();
  auto open = MakeRegion(pair.server_domain, 4096, Access::kRemoteWrite);
  const auto readable = MakeRegion(pair.server_domain, 4096, Access::kRemoteRead);
  std::vector<RemoteRegion> remote;
  for (const MemoryRegion* region : {open.get(), readable.get()}) {
    const auto shared = pair.server->Share(*region);
    ASSERT_TRUE(shared.ok());
    ASSERT_TRUE(pair.server->Send(WireOf(*shared)).ok());
    ASSERT_TRUE(pair.server->Flush().ok());
    remote.push_back(RegionIn(WaitForMessage(*pair.client).message));
  }
  const Connection::PeerMemory reached = pair.client->Reach(remote[0]);
  ASSERT_EQ(reached.bytes.size(), 4096U);
  reached.bytes[4095] = std::byte{7};
  EXPECT_EQ(open->bytes()[4095], std::byte{7});
  EXPECT_TRUE(pair.client->Reach(remote[1]).bytes.empty());
  RemoteRegion longer = remote[0];
  longer.length = 4097;
  EXPECT_TRUE(pair.client->Reach(longer).bytes.empty());
  open.reset();
  EXPECT_TRUE(pair.client->Reach(remote[0]).bytes.empty());
  // The peer has taken it back and let go of it; what is written now is nobody's.
  ASSERT_TRUE(pair.server->Send(AsBytes("gone")).ok());
  ASSERT_TRUE(pair.server->Flush().ok());
  EXPECT_EQ(AsText(WaitForMessage(*pair.client).message), "gone");
  reached.bytes[0] = std::byte{8};
}

TEST(Shm, ASlotThatIsUsedAgainShowsTheNewRegionOnly) {
  Pair pair;
  pair.Connect();
  const auto first = MakeRegion(pair.server_domain, 4096, Access::kRemoteRead);
  const auto second = MakeRegion(pair.server_domain, 4096, Access::kRemoteRead);
  second->bytes()[0] = std::byte{2};
  const auto local = MakeRegion(pair.client_domain, 4096, Access::kLocal);
  const LocalSlice to{local.get(), 0, 4096};
  const RemoteRegion gone = *pair.server->Share(*first);
  ASSERT_TRUE(pair.server->Send(AsBytes("first")).ok());
  ASSERT_TRUE(pair.server->Flush().ok());
  WaitForMessage(*pair.client);
  pair.server->Unshare(*first);
  const RemoteRegion there = *pair.server->Share(*second);
  // The client has heard of neither yet.
  EXPECT_EQ(WaitForCompletion(*pair.client, pair.client->Read(to, {gone, 0})).errno_value(),
            EACCES);
  ASSERT_TRUE(pair.server->Send(AsBytes("second")).ok());
  ASSERT_TRUE(pair.server->Flush().ok());
  WaitForMessage(*pair.client);
  EXPECT_TRUE(WaitForCompletion(*pair.client, pair.client->Read(to, {there, 0})).ok());
  EXPECT_EQ(local->bytes()[0], std::byte{2});
}

TEST(Shm, MoreSharesThanTheSocketHoldsStillArriveBeforeTheMessageBehindThem) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t had = files.rlim_cur;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 4096) GTEST_SKIP() << "needs 4096 descriptors (ulimit -n)";
  Pair pair;
  pair.Connect();
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  RemoteRegion last;
  for (std::size_t i = 0; i < kMaxRegions; ++i) {
    regions.push_back(MakeRegion(pair.server_domain, 4096, Access::kRemoteRead));
    regions.back()->bytes()[0] = static_cast<std::byte>(i % 251);
    const auto shared = pair.server->Share(*regions.back());
    ASSERT_TRUE(shared.ok()) << i << ": " << shared.status().ToString();
    last = *shared;
  }
  const auto extra = MakeRegion(pair.server_domain, 4096, Access::kRemoteRead);
  EXPECT_EQ(pair.server->Share(*extra).status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(pair.server->Send(WireOf(last)).ok());
  // The sender sleeps meanwhile: the reader has to wake it up when there is room again.
  std::jthread sender(
      [&pair] { EXPECT_EQ(AsText(WaitForMessage(*pair.server).message), "thanks"); });
  const RemoteRegion remote = RegionIn(WaitForMessage(*pair.client).message);
  const auto local = MakeRegion(pair.client_domain, 4096, Access::kLocal);
  EXPECT_TRUE(
      WaitForCompletion(*pair.client, pair.client->Read({local.get(), 0, 4096}, {remote, 0})).ok());
  EXPECT_EQ(local->bytes()[0], static_cast<std::byte>((kMaxRegions - 1) % 251));
  ASSERT_TRUE(pair.client->Send(AsBytes("thanks")).ok());
  ASSERT_TRUE(pair.client->Flush().ok());
  sender.join();
  files.rlim_cur = had;
  setrlimit(RLIMIT_NOFILE, &files);
}

TEST(Shm, MessagesBeyondTheRingWaitPrivatelyAndArriveInOrder) {
  Pair pair;
  pair.Connect();
  constexpr std::size_t kCount = 60;
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(pair.server->Send(Pattern(kMaxMessageBytes - i, i)).ok());
  }
  EXPECT_GT(pair.server->backlog_bytes(), (kCount - 4) * (kMaxMessageBytes - kCount));
  std::jthread sender([&pair] {
    EXPECT_EQ(AsText(WaitForMessage(*pair.server).message), "all");
    EXPECT_EQ(pair.server->backlog_bytes(), 0U);
  });
  for (std::size_t i = 0; i < kCount; ++i) {
    const Heard heard = WaitForMessage(*pair.client);
    ASSERT_TRUE(heard.status.ok()) << heard.status.ToString();
    ASSERT_EQ(heard.message, Pattern(kMaxMessageBytes - i, i)) << i;
  }
  ASSERT_TRUE(pair.client->Send(AsBytes("all")).ok());
  ASSERT_TRUE(pair.client->Flush().ok());
  sender.join();
}

TEST(Shm, WhatWasSentBeforeTheEndIsReadBeforeTheEnd) {
  Pair pair;
  pair.Connect();
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_TRUE(pair.server->Send(Pattern(100, i)).ok());
  pair.server.reset();
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(WaitForMessage(*pair.client).message, Pattern(100, i)) << i;
  }
  EXPECT_EQ(WaitForMessage(*pair.client).status.code(), Code::kDisconnected);
  EXPECT_EQ(pair.client->Send(AsBytes("x")).code(), Code::kDisconnected) << "it stays over";
}

TEST(Shm, ACallerWhoSpinsLearnsOfThePeersDeathToo) {
  Pair pair;
  pair.Connect();
  pair.server.reset();
  std::array<Completion, 1> out;
  const Deadline deadline = DeadlineAfter(kPatience);
  Result<std::size_t> polled = std::size_t{0};
  while (polled.ok() && BootClock::now() < deadline) polled = pair.client->Poll(out);
  EXPECT_EQ(polled.status().code(), Code::kDisconnected);
}

TEST(Shm, AnArmedDescriptorIsQuietUntilAMessageComes) {
  Pair pair;
  pair.Connect();
  std::array<Completion, 1> out;
  pollfd entry{.fd = pair.client->fd(), .events = POLLIN, .revents = 0};
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(*pair.client->Arm());
    ASSERT_EQ(poll(&entry, 1, 0), 0) << "round " << i;
    ASSERT_TRUE(pair.server->Send(AsBytes("x")).ok());
    ASSERT_TRUE(pair.server->Send(AsBytes("y")).ok());
    ASSERT_TRUE(pair.server->Flush().ok());
    ASSERT_EQ(poll(&entry, 1, 10'000), 1) << "round " << i;
    for (const char* expected : {"x", "y"}) {
      ASSERT_EQ(*pair.client->Poll(out), 1U);
      ASSERT_EQ(AsText(out[0].message), expected);
    }
    ASSERT_EQ(*pair.client->Poll(out), 0U);
  }
}

// The peer of the next test: shows one region for reading and one for writing, stops itself, and
// when it goes on looks at what was written. Returns its exit status.
int StoppedPeer(const Endpoint& endpoint, std::size_t size) {
  const auto domain = Domain::Create("child");
  auto connected = MakeTransport()->Connect(endpoint, domain, {}, DeadlineAfter(kPatience));
  if (!connected.ok()) return 2;
  Connection& connection = **connected;
  const auto readable = MakeRegion(domain, size, Access::kRemoteRead);
  const auto writable = MakeRegion(domain, size, Access::kRemoteWrite);
  std::ranges::copy(Pattern(size, 1), readable->bytes().begin());
  for (const MemoryRegion* region : {readable.get(), writable.get()}) {
    const auto shared = connection.Share(*region);
    if (!shared.ok() || !connection.Send(WireOf(*shared)).ok()) return 3;
  }
  if (!connection.Flush().ok()) return 4;
  raise(SIGSTOP);
  if (AsText(WaitForMessage(connection).message) != "look") return 5;
  return std::ranges::equal(writable->bytes(), Pattern(size, 2)) ? 0 : 6;
}

TEST(Shm, ReadsAndWritesCompleteWhileThePeerIsStopped) {
  constexpr std::size_t kSize = 4 << 20;
  Pair pair;
  const pid_t child = fork();
  if (child == 0) _exit(StoppedPeer(pair.listener->endpoint(), kSize));
  const std::unique_ptr<Incoming> incoming = AcceptNext(*pair.listener);
  ASSERT_NE(incoming, nullptr);
  auto ours = incoming->Accept(pair.server_domain);
  ASSERT_TRUE(ours.ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;

  const RemoteRegion readable = RegionIn(WaitForMessage(**ours).message);
  const RemoteRegion writable = RegionIn(WaitForMessage(**ours).message);
  const auto local = MakeRegion(pair.server_domain, kSize, Access::kLocal);
  const LocalSlice all{local.get(), 0, kSize};
  EXPECT_TRUE(WaitForCompletion(**ours, (*ours)->Read(all, {readable, 0})).ok());
  EXPECT_TRUE(std::ranges::equal(local->bytes(), Pattern(kSize, 1)));
  std::ranges::copy(Pattern(kSize, 2), local->bytes().begin());
  EXPECT_TRUE(WaitForCompletion(**ours, (*ours)->Write(all, {writable, 0})).ok());
  // Neither is open for the other, and nothing beyond the end.
  EXPECT_FALSE(WaitForCompletion(**ours, (*ours)->Write(all, {readable, 0})).ok());
  EXPECT_FALSE(WaitForCompletion(**ours, (*ours)->Read(all, {writable, 0})).ok());
  EXPECT_FALSE(WaitForCompletion(**ours, (*ours)->Read(all, {readable, 1})).ok());
  EXPECT_FALSE(WaitForCompletion(**ours, (*ours)->Read(all, {readable, ~std::uint64_t{0}})).ok());
  ASSERT_TRUE((*ours)->Send(AsBytes("look")).ok());
  ASSERT_TRUE((*ours)->Flush().ok());
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace rdfs::transport::shm
