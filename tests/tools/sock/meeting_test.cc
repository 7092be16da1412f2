#include "tools/sock/meeting.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <thread>
#include <vector>

#include "tests/hex.h"
#include "tests/tools/sock/tcp_pair.h"
#include "tools/sock/end.h"
#include "tools/sock/packet.h"

namespace rdfs::sock {
namespace {

using State = Meeting::State;
constexpr std::uint32_t kLargest = 16 * 1024;

// A change here is a change of what travels, and needs another kProtocolVersion.
TEST(MeetingWire, GoldenBytes) {
  const MeetingWire packet{
      .type = MeetingType::kRefused, .cookie = 1, .flags = 2, .largest_ring = 3};
  EXPECT_EQ(ToHex(std::as_bytes(std::span(&packet, 1))),
            "04000000"
            "01000000"
            "0100000000000000"
            "02000000"
            "03000000");
}

TEST(PeerSocket, IsFoundFromBothEnds) {
  Fd client, server;
  MakeTcpPair(client, server);
  for (const auto& [here, there] :
       {std::pair(client.get(), server.get()), std::pair(server.get(), client.get())}) {
    const Result<std::optional<PeerSocket>> found = FindPeerSocket(here);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->cookie, *CookieOf(there));
    EXPECT_EQ((*found)->owner, geteuid());
  }
}

TEST(PeerSocket, IsOverWhenNobodyHasItAnyMore) {
  Fd client, server;
  MakeTcpPair(client, server);
  EXPECT_FALSE((*FindPeerSocket(client.get()))->over);
  shutdown(server.get(), SHUT_WR);
  EXPECT_FALSE((*FindPeerSocket(client.get()))->over) << "it may receive";
  EXPECT_TRUE((*FindPeerSocket(client.get()))->half_closed);
  EXPECT_FALSE((*FindPeerSocket(server.get()))->half_closed);
  server.Reset();
  const auto found = FindPeerSocket(client.get());
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(!found->has_value() || (*found)->over);

  // One that nobody has accepted yet is nobody's, too, and not over.
  const Fd listener = ListenOnLoopback();
  const Fd early = ConnectTo(listener.get());
  EXPECT_FALSE((*FindPeerSocket(early.get()))->over);
}

TEST(PeerSocket, IsFoundAcrossFamilies) {
  const Fd listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  socklen_t size = sizeof(any);
  const int both = 0;
  setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(listen(listener.get(), 2), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = any.sin6_port;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&four), sizeof(four)), 0);
  const Fd server(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ((*FindPeerSocket(client.get()))->cookie, *CookieOf(server.get()));
  EXPECT_EQ((*FindPeerSocket(server.get()))->cookie, *CookieOf(client.get()));
}

TEST(PeerSocket, OfNoConnectionIsAnError) {
  const Fd fresh(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(FindPeerSocket(fresh.get()).ok());
  const Fd not_a_socket(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(FindPeerSocket(not_a_socket.get()).ok());
}

TEST(Meeting, SettlesWhoOpened) {
  EXPECT_EQ(Settle(Opened::kHere, Opened::kThere), Opened::kHere);
  EXPECT_EQ(Settle(Opened::kThere, Opened::kHere), Opened::kThere);
  EXPECT_EQ(Settle(Opened::kUnknown, Opened::kHere), Opened::kThere);
  EXPECT_EQ(Settle(Opened::kUnknown, Opened::kThere), Opened::kHere);
  EXPECT_EQ(Settle(Opened::kHere, Opened::kUnknown), Opened::kHere);
  EXPECT_EQ(Settle(Opened::kHere, Opened::kHere), Opened::kUnknown);
  EXPECT_EQ(Settle(Opened::kThere, Opened::kThere), Opened::kUnknown);
  EXPECT_EQ(Settle(Opened::kUnknown, Opened::kUnknown), Opened::kUnknown);
}

// Users without a number in a user namespace all have the same one there.
TEST(Partner, IsNobodyWhenItMayBeAnybody) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  EXPECT_EQ(PartnerOf(ends[0]), geteuid());
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0) _exit(2);
    _exit(PartnerOf(ends[0]).has_value() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  close(ends[0]);
  close(ends[1]);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(status, 0);
}

TEST(Meeting, LetsInTheOwnerAndRoot) {
  EXPECT_TRUE(MayAttach(1000, 1000));
  EXPECT_TRUE(MayAttach(0, 1000));
  EXPECT_FALSE(MayAttach(1000, 0));
  EXPECT_FALSE(MayAttach(1001, 1000));
}

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

class MeetingTest : public testing::Test {
 protected:
  void SetUp() override { MakeTcpPair(client_, server_); }
  std::unique_ptr<Meeting> Begin(int tcp, Opened opened) {
    const Result<std::optional<PeerSocket>> peer = FindPeerSocket(tcp);
    auto meeting = Meeting::Begin(*CookieOf(tcp), **peer, opened, kLargest, now_);
    EXPECT_TRUE(meeting.ok()) << meeting.status().ToString();
    return meeting.ok() ? *std::move(meeting) : nullptr;
  }
  // The address that both ends find, for somebody who has no business there.
  socklen_t Address(sockaddr_un& address) {
    std::uint64_t one = *CookieOf(client_.get()), other = *CookieOf(server_.get());
    if (one > other) std::swap(one, other);
    address = {};
    address.sun_family = AF_UNIX;
    const int length =
        std::snprintf(address.sun_path + 1, 60, "rdsock1-%016lx-%016lx",
                      static_cast<unsigned long>(one), static_cast<unsigned long>(other));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(length));
  }
  Fd Connect() {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t length = Address(address);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    return fd;
  }

  Fd client_, server_;
  TimePoint now_ = BootClock::now();
};

TEST_F(MeetingTest, GivesBothEndsOneChannel) {
  const auto host = Begin(server_.get(), Opened::kUnknown);
  EXPECT_EQ(host->Go(now_), State::kWaiting);
  const auto guest = Begin(client_.get(), Opened::kHere);
  EXPECT_EQ(host->Go(now_), State::kWaiting);
  EXPECT_EQ(guest->Go(now_), State::kMet) << guest->why().ToString();
  pollfd joined{host->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&joined, 1, 0), 1);
  EXPECT_EQ(host->Go(now_), State::kMet) << host->why().ToString();
  Meeting::Result theirs = host->Take(), mine = guest->Take();
  EXPECT_EQ(theirs.role, Channel::Role::kHost);
  EXPECT_EQ(mine.role, Channel::Role::kGuest);
  EXPECT_FALSE(theirs.opened);
  EXPECT_TRUE(mine.opened);
  mine.channel.Outgoing(mine.role).words->open_at = 4711;
  EXPECT_EQ(theirs.channel.Incoming(theirs.role).words->open_at, 4711U);
  Ring(mine.data.get());
  Ring(theirs.room.get());
  pollfd bells[2] = {{theirs.data.get(), POLLIN, 0}, {mine.room.get(), POLLIN, 0}};
  EXPECT_EQ(poll(bells, 2, 0), 2);
}

TEST_F(MeetingTest, EndsAfterASecond) {
  const auto host = Begin(server_.get(), Opened::kThere);
  EXPECT_EQ(host->Go(now_ + std::chrono::milliseconds(999)), State::kWaiting);
  EXPECT_EQ(host->Go(now_ + kMeetingTimeout), State::kOver);
  EXPECT_EQ(host->why().code(), Code::kDeadlineExceeded);
  // The name is free again.
  EXPECT_EQ(Begin(client_.get(), Opened::kHere)->Go(now_), State::kWaiting);
}

TEST_F(MeetingTest, IsOverWhenTheEndsContradictEachOther) {
  const auto host = Begin(server_.get(), Opened::kHere);
  const auto guest = Begin(client_.get(), Opened::kHere);
  EXPECT_EQ(host->Go(now_), State::kOver);
  EXPECT_EQ(guest->Go(now_), State::kOver);
}

TEST_F(MeetingTest, ShowsStrangersOut) {
  // Not root, and not the owner of the socket.
  const bool root = geteuid() == 0;
  PeerSocket peer = **FindPeerSocket(server_.get());
  if (!root) peer.owner = geteuid() + 1;
  auto begun = Meeting::Begin(*CookieOf(server_.get()), peer, Opened::kThere, kLargest, now_);
  ASSERT_TRUE(begun.ok());
  const pid_t stranger = fork();
  if (stranger == 0) {
    if (root && setresuid(65534, 65534, 65534) != 0) _exit(1);
    const Fd fd = Connect();
    char byte;
    _exit(recv(fd.get(), &byte, 1, 0) == 0 ? 0 : 2);  // closed without a word
  }
  pollfd knocked{(*begun)->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&knocked, 1, 10'000), 1);
  EXPECT_EQ((*begun)->Go(now_), State::kWaiting);
  int status = 0;
  waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(MeetingTest, DoesNotGoToAStranger) {
  const bool root = geteuid() == 0;
  int ready[2], done[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(done, O_CLOEXEC), 0);
  const pid_t squatter = fork();
  if (squatter == 0) {
    close(done[1]);
    if (root && setresuid(65534, 65534, 65534) != 0) _exit(1);
    const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t length = Address(address);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) _exit(2);
    if (listen(fd.get(), 1) != 0 || write(ready[1], "x", 1) != 1) _exit(3);
    char byte;
    _exit(read(done[0], &byte, 1) == 0 ? 0 : 4);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  PeerSocket peer = **FindPeerSocket(client_.get());
  if (!root) peer.owner = geteuid() + 1;
  const auto begun = Meeting::Begin(*CookieOf(client_.get()), peer, Opened::kHere, kLargest, now_);
  EXPECT_FALSE(begun.ok());
  EXPECT_EQ(begun.status().code(), Code::kAuthenticationFailed);
  close(done[1]);
  int status = 0;
  waitpid(squatter, &status, 0);
  EXPECT_EQ(status, 0);
  close(done[0]);
  close(ready[0]);
  close(ready[1]);
}

// What a process does that finds itself at one end of a connection.
bool MeetAndTalk(int tcp, Opened opened, unsigned char say, unsigned char hear) {
  constexpr std::size_t kCount = 300'000;
  const Result<std::uint64_t> cookie = CookieOf(tcp);
  const Result<std::optional<PeerSocket>> peer = FindPeerSocket(tcp);
  if (!cookie.ok() || !peer.ok() || !peer->has_value()) return false;
  const Deadline deadline = DeadlineAfter(std::chrono::seconds(10));
  std::unique_ptr<Meeting> meeting;
  while (meeting == nullptr && BootClock::now() < deadline) {
    auto begun = Meeting::Begin(*cookie, **peer, opened, kLargest, BootClock::now());
    if (begun.ok()) meeting = *std::move(begun);  // else bound, and not listening yet
  }
  while (meeting->Go(BootClock::now()) == State::kWaiting) {
    pollfd news{meeting->fd(), POLLIN, 0};
    poll(&news, 1, PollTimeoutMs(meeting->deadline(), BootClock::now()));
  }
  if (meeting->Go(BootClock::now()) != State::kMet) return false;
  Meeting::Result met = meeting->Take();
  void* const place =
      mmap(nullptr, sizeof(EndMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const Result<EndMemory*> memory = EndMemory::Create(place, tcp, met.opened, kLargest);
  if (!memory.ok()) return false;
  End end(**memory, met.channel.Outgoing(met.role), met.channel.Incoming(met.role),
          {{met.data.get(), met.room.get()}, met.opened});
  if (end.Receive(tcp, {}, {.wait = false}) != 0) return false;
  const std::atomic<std::uint64_t>& opens = met.channel.Outgoing(met.role).words->opens;
  std::thread writer([&] {
    std::vector<std::byte> bytes(1000, std::byte{say});
    const iovec buffer{bytes.data(), bytes.size()};
    // On until the ring carries some, however long the other end takes to follow.
    for (std::size_t i = 0;
         i < kCount / bytes.size() || (opens == 0 && BootClock::now() < deadline); ++i) {
      if (end.Send(tcp, {&buffer, 1}, {}) != 1000) return;
    }
    end.ShutdownSend(tcp);
  });
  std::vector<std::byte> bytes(7000);
  const iovec buffer{bytes.data(), bytes.size()};
  std::size_t heard = 0;
  std::size_t wrong = 0;
  for (ssize_t got = 0; (got = end.Receive(tcp, {&buffer, 1}, {})) > 0;) {
    for (ssize_t i = 0; i < got; ++i) {
      ++(bytes[static_cast<std::size_t>(i)] == std::byte{hear} ? heard : wrong);
    }
  }
  writer.join();
  return heard >= kCount && wrong == 0 && opens > 0;
}

// As behind nginx: root listens, and a worker without rights accepts, after the client has begun.
TEST_F(MeetingTest, KnowsWhoAcceptedBehindItsBegin) {
  const Fd listener = ListenOnLoopback();
  const Fd client = ConnectTo(listener.get());
  const PeerSocket unaccepted = **FindPeerSocket(client.get());
  EXPECT_EQ(unaccepted.owner, std::nullopt);
  auto begun = Meeting::Begin(*CookieOf(client.get()), unaccepted, Opened::kHere, kLargest, now_);
  ASSERT_TRUE(begun.ok());
  const pid_t worker = fork();
  if (worker == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(1);
    const Fd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto peer = FindPeerSocket(accepted.get());
    auto joins = Meeting::Begin(*CookieOf(accepted.get()), **peer, Opened::kThere, kLargest, now_);
    if (!joins.ok()) _exit(2);
    pollfd answer{(*joins)->fd(), POLLIN, 0};
    poll(&answer, 1, 10'000);
    _exit((*joins)->Go(now_) == State::kMet ? 0 : 3);
  }
  for (int packets = 0; packets < 3 && (*begun)->Go(now_) == State::kWaiting; ++packets) {
    pollfd news{(*begun)->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&news, 1, 10'000), 1);
  }
  EXPECT_EQ((*begun)->Go(now_), State::kMet) << (*begun)->why().ToString();
  int status = 0;
  waitpid(worker, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(MeetingTest, TwoProcessesMeetAndTalk) {
  const pid_t child = fork();
  if (child == 0) {
    server_.Reset();
    _exit(MeetAndTalk(client_.get(), Opened::kHere, 'c', 's') ? 0 : 1);
  }
  client_.Reset();
  EXPECT_TRUE(MeetAndTalk(server_.get(), Opened::kThere, 's', 'c'));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(MeetingTest, EndsAtNonsenseAndKeepsNoDescriptor) {
  const std::size_t before = OpenDescriptors();
  const std::vector<std::vector<unsigned char>> packets = {{1},
                                                           {9, 9, 9},
                                                           std::vector<unsigned char>(20, 0),
                                                           std::vector<unsigned char>(24, 1),
                                                           std::vector<unsigned char>(4000, 1),
                                                           {3, 0, 0, 0},
                                                           {2, 0, 0, 0}};
  for (const std::vector<unsigned char>& packet : packets) {
    const auto host = Begin(server_.get(), Opened::kThere);
    const Fd partner = Connect();
    // With more descriptors than anybody asked for.
    iovec vector{const_cast<unsigned char*>(packet.data()), packet.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(5 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(5 * sizeof(int));
    for (std::size_t i = 0; i < 5; ++i) std::memcpy(CMSG_DATA(c) + 4 * i, &message.msg_flags, 4);
    ASSERT_GT(sendmsg(partner.get(), &message, 0), 0);
    EXPECT_EQ(host->Go(now_), State::kOver);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(MeetingTest, TakesNoMemoryThatCouldShrink) {
  const Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = Address(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const auto guest = Begin(client_.get(), Opened::kHere);
  ASSERT_NE(guest, nullptr);
  const Fd host(accept(listener.get(), nullptr, nullptr));
  const Fd memory(memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), kRingsAt + 2 * kLargest), 0);
  unsigned char packet[24] = {2, 0, 0, 0, 1};
  const std::uint64_t cookie = *CookieOf(server_.get());
  std::memcpy(packet + 8, &cookie, 8);
  std::memcpy(packet + 20, &kLargest, 4);
  iovec vector{packet, sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int fds[2] = {memory.get(), host.get()};
  std::memcpy(CMSG_DATA(c), fds, sizeof(fds));
  ASSERT_EQ(sendmsg(host.get(), &message, 0), 24);
  EXPECT_EQ(guest->Go(now_), State::kOver);
  EXPECT_EQ(guest->why().code(), Code::kProtocolError);
}

}  // namespace
}  // namespace rdfs::sock
