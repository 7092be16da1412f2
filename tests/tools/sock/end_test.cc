// Two ends over a real TCP connection and a real channel: threads, processes, killed processes.
#include "tools/sock/end.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/tools/sock/tcp_pair.h"
#include "tools/sock/peer_socket.h"

namespace rdfs::sock {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint32_t kLargest = 64 * 1024;

std::byte Pattern(std::uint64_t index) {
  return static_cast<std::byte>((static_cast<std::uint32_t>(index) * 2654435761U) >> 24U);
}

// One end's descriptors and memory, made before it is switched.
struct Side {
  Fd tcp, data, room;
  EndMemory* memory = nullptr;
  std::unique_ptr<End> end;
  void Close() { tcp.Reset(), data.Reset(), room.Reset(); }
  [[nodiscard]] ssize_t Send(ByteSpan bytes) const {
    const iovec buffer{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return end->Send(tcp.get(), {&buffer, 1}, {});
  }
  [[nodiscard]] ssize_t Receive(MutableByteSpan bytes, bool wait = true) const {
    const iovec buffer{bytes.data(), bytes.size()};
    return end->Receive(tcp.get(), {&buffer, 1}, {.wait = wait});
  }
  int ShutdownSend() const { return end->ShutdownSend(tcp.get()); }
};

class EndTest : public testing::Test {
 protected:
  void SetUp() override {
    MakeTcpPair(host_.tcp, guest_.tcp);
    BellPair(host_.data, guest_.data);
    BellPair(host_.room, guest_.room);
  }
  static void BellPair(Fd& one, Fd& other) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    one.Reset(ends[0]);
    other.Reset(ends[1]);
  }
  // From here on the two ends switch. The host's end opened the TCP connection.
  void Attach() {
    Result<Channel> channel = Channel::Create(kLargest);
    ASSERT_TRUE(channel.ok()) << channel.status().ToString();
    channel_ = std::make_unique<Channel>(*std::move(channel));
    Attach(host_, Channel::Role::kHost);
    Attach(guest_, Channel::Role::kGuest);
  }
  void Attach(Side& side, Channel::Role role) {
    const bool opened = role == Channel::Role::kHost;
    void* const place =
        mmap(nullptr, sizeof(EndMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    const Result<EndMemory*> memory = EndMemory::Create(place, side.tcp.get(), opened, kLargest);
    ASSERT_TRUE(memory.ok()) << memory.status().ToString();
    side.memory = *memory;
    side.end =
        std::make_unique<End>(*side.memory, channel_->Outgoing(role), channel_->Incoming(role),
                              End::Sockets{{side.data.get(), side.room.get()}, opened});
    // Follows the other's direction.
    EXPECT_EQ(side.Receive({}, false), 0);
  }
  void TearDown() override {
    for (Side* side : {&host_, &guest_}) {
      if (side->memory != nullptr) munmap(side->memory, sizeof(EndMemory));
      side->memory = nullptr;
    }
  }

  Side host_, guest_;
  std::unique_ptr<Channel> channel_;
};

// Writes `count` bytes of the pattern from `from` on, now and then another way than before; with
// `words`, on until more than ten phases have gone through the ring, however fast the bytes go.
// Returns how many bytes there were.
std::uint64_t WriteAll(const Side& end, std::uint64_t from, std::uint64_t count, unsigned seed,
                       const DirectionWords* words = nullptr) {
  const Deadline deadline = DeadlineAfter(std::chrono::seconds(60));
  const auto more = [&](std::uint64_t at) {
    return words != nullptr && words->opens <= 10 && BootClock::now() < deadline
               ? std::numeric_limits<std::uint64_t>::max()
               : from + count - std::min(at, from + count);
  };
  std::mt19937 random(seed);
  Bytes chunk;
  std::uint64_t at = from;
  while (const std::uint64_t left = more(at)) {
    chunk.resize(std::min<std::uint64_t>(left, 1 + random() % 20'000));
    for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = Pattern(at + i);
    if (random() % 8 == 0)
      end.end->prefer_ring(random() % 4 != 0, kLeastRingBytes << (random() % 5));
    const ssize_t sent = end.Send(chunk);
    EXPECT_EQ(sent, static_cast<ssize_t>(chunk.size())) << strerror(errno) << " at " << at;
    if (sent != static_cast<ssize_t>(chunk.size())) break;
    at += chunk.size();
  }
  return at - from;
}

// Reads up to the end and returns how many bytes there were, each as it must be.
std::uint64_t ReadToEnd(const Side& end, std::uint64_t from, unsigned seed) {
  std::mt19937 random(seed);
  Bytes chunk(30'000);
  std::uint64_t at = from;
  for (;;) {
    const ssize_t got = end.Receive(MutableByteSpan(chunk).first(1 + random() % chunk.size()));
    if (got <= 0) {
      EXPECT_EQ(got, 0) << strerror(errno);
      return at - from;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i, ++at) {
      if (chunk[i] == Pattern(at)) continue;
      ADD_FAILURE() << "a wrong byte at " << at;
      return 0;
    }
  }
}

TEST_F(EndTest, PositionsCountNeitherSynNorFin) {
  const auto sent = [](const Side& side, bool opened) {
    return *SentPosition(side.tcp.get(), opened);
  };
  EXPECT_EQ(sent(host_, true), 0U);
  EXPECT_EQ(sent(guest_, false), 0U);
  const Bytes bytes(1000);
  ASSERT_EQ(send(host_.tcp.get(), bytes.data(), bytes.size(), 0), 1000);
  EXPECT_EQ(sent(host_, true), 1000U);
  Bytes some(400);
  ASSERT_EQ(recv(guest_.tcp.get(), some.data(), some.size(), MSG_WAITALL), 400);
  EXPECT_EQ(*ReceivedPosition(guest_.tcp.get()), 400U);
  ASSERT_EQ(shutdown(host_.tcp.get(), SHUT_WR), 0);
  pollfd ended{guest_.tcp.get(), POLLRDHUP, 0};
  ASSERT_EQ(poll(&ended, 1, 10'000), 1);
  EXPECT_EQ(*ReceivedPosition(guest_.tcp.get()), 400U);
  EXPECT_EQ(sent(host_, true), 1000U);
  EXPECT_EQ(sent(guest_, false), 0U);
  EXPECT_EQ(*ReceivedPosition(host_.tcp.get()), 0U);
}

TEST_F(EndTest, StreamsBothWaysWhileSwitching) {
  constexpr std::uint64_t kCount = 4 * 1024 * 1024;
  // Bytes from before the switch are still in TCP.
  Bytes before(1000);
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = Pattern(i);
  ASSERT_EQ(send(host_.tcp.get(), before.data(), before.size(), 0), 1000);
  Attach();
  const DirectionWords& from_host = *channel_->Outgoing(Channel::Role::kHost).words;
  const DirectionWords& from_guest = *channel_->Outgoing(Channel::Role::kGuest).words;
  std::uint64_t host_wrote = 0;
  std::uint64_t guest_wrote = 0;
  std::uint64_t host_read = 0;
  std::thread host_writes([&] {
    host_wrote = WriteAll(host_, 1000, kCount, 1, &from_host);
    EXPECT_EQ(host_.ShutdownSend(), 0);
  });
  std::thread guest_writes([&] {
    guest_wrote = WriteAll(guest_, 0, kCount, 2, &from_guest);
    EXPECT_EQ(guest_.ShutdownSend(), 0);
  });
  std::thread host_reads([&] { host_read = ReadToEnd(host_, 0, 3); });
  const std::uint64_t guest_read = ReadToEnd(guest_, 0, 4);
  host_writes.join();
  guest_writes.join();
  host_reads.join();
  EXPECT_EQ(guest_read, 1000 + host_wrote);
  EXPECT_EQ(host_read, guest_wrote);
  EXPECT_GT(from_host.opens, 10U);
  EXPECT_GT(from_guest.opens, 10U);
}

TEST_F(EndTest, AnswersInLockstep) {
  Attach();
  std::thread echo([&] {
    Bytes chunk(64);
    ssize_t got = 0;
    while ((got = guest_.Receive(chunk)) > 0) {
      ASSERT_EQ(guest_.Send(ByteSpan(chunk).first(static_cast<std::size_t>(got))), got);
    }
  });
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::byte sent = Pattern(i);
    std::byte back{};
    ASSERT_EQ(host_.Send(ByteSpan(&sent, 1)), 1);
    ASSERT_EQ(host_.Receive(MutableByteSpan(&back, 1)), 1);
    ASSERT_EQ(back, sent);
  }
  host_.ShutdownSend();
  echo.join();
}

int Wait(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// Runs `body` in a child that holds only the guest's end, and goes on without that here.
template <typename Body>
pid_t ForkGuest(Side& host, Side& guest, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    host.Close();
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  guest.Close();
  return child;
}

TEST_F(EndTest, StreamsBetweenProcesses) {
  constexpr std::uint64_t kCount = 4 * 1024 * 1024;
  Attach();
  const pid_t child = ForkGuest(host_, guest_, [&] {
    EXPECT_EQ(ReadToEnd(guest_, 0, 5), kCount);
    WriteAll(guest_, 0, kCount, 6);
  });
  WriteAll(host_, 0, kCount, 7);
  EXPECT_EQ(host_.ShutdownSend(), 0);
  EXPECT_EQ(ReadToEnd(host_, 0, 8), kCount);
  EXPECT_EQ(Wait(child), 0);
}

TEST_F(EndTest, BytesInTheRingOutliveTheirWriter) {
  Attach();
  const Bytes bytes(3000, std::byte{7});
  const pid_t child = ForkGuest(host_, guest_, [&] {
    if (guest_.Send(bytes) != 3000) _exit(1);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(Wait(child)));
  ASSERT_EQ(channel_->Outgoing(Channel::Role::kGuest).words->opens, 1U) << "not in the ring";
  Bytes got(5000);
  ASSERT_EQ(host_.Receive(got), 3000);
  got.resize(3000);
  EXPECT_EQ(got, bytes);
  EXPECT_EQ(host_.Receive(got), 0);
}

TEST_F(EndTest, AWriterLearnsThatItsReaderWasKilled) {
  Attach();
  const pid_t child = ForkGuest(host_, guest_, [] { raise(SIGKILL); });
  EXPECT_TRUE(WIFSIGNALED(Wait(child)));
  const Bytes bytes(10'000);
  ssize_t sent = 0;
  int calls = 0;
  while (sent >= 0 && ++calls < 1000) sent = host_.Send(bytes);
  EXPECT_EQ(sent, -1);
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << strerror(errno);
}

// Which TCP answers with a reset. But not where it had sent its FIN before, and that was read.
TEST_F(EndTest, AWriterIsToldOnceOfAReaderThatDiedWithBytesUnread) {
  for (const bool shut : {false, true}) {
    SetUp();
    Attach();
    Bytes bytes(1000);
    ASSERT_EQ(host_.Send(bytes), 1000);
    ASSERT_EQ(channel_->Outgoing(Channel::Role::kHost).words->opens, 1U) << "not in the ring";
    if (shut) {
      ASSERT_EQ(guest_.ShutdownSend(), 0);
      ASSERT_EQ(host_.Receive(bytes), 0) << strerror(errno);
    }
    const pid_t child = ForkGuest(host_, guest_, [] { raise(SIGKILL); });
    EXPECT_TRUE(WIFSIGNALED(Wait(child)));
    host_.end->HungUp();
    ssize_t sent = 0;
    for (int calls = 0; sent >= 0 && calls < 1000; ++calls) sent = host_.Send(bytes);
    EXPECT_EQ(sent, -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(host_.memory->receive_error, shut ? 0 : ECONNRESET);
    EXPECT_EQ(host_.Receive(bytes), shut ? 0 : -1);
    EXPECT_EQ(host_.Receive(bytes), 0) << strerror(errno);
    TearDown();
  }
}

TEST_F(EndTest, AnotherProcessOfTheEndGoesOnAfterOneIsKilled) {
  // Killed at any moment of its writing; what it had not sent whole may be missing, no more.
  for (unsigned round = 0; round < 20; ++round) {
    SetUp();
    Attach();
    int started[2];
    ASSERT_EQ(pipe2(started, O_CLOEXEC), 0);
    const pid_t killed = fork();
    if (killed == 0) {
      const Bytes zeros(700);
      for (int i = 0; guest_.Send(zeros) > 0; ++i) {
        if (i == 50 && write(started[1], "x", 1) != 1) _exit(1);
      }
      _exit(1);
    }
    std::thread reader([&] {
      Bytes chunk(5000);
      std::uint64_t marks = 0;
      bool after = false;
      ssize_t got = 0;
      while ((got = host_.Receive(chunk)) > 0) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
          if (chunk[i] == std::byte{1}) ++marks;
          after = after || marks > 0;
          ASSERT_EQ(after, chunk[i] == std::byte{1});
        }
      }
      EXPECT_EQ(got, 0) << strerror(errno);
      EXPECT_EQ(marks, 100'000U);
    });
    char byte;
    EXPECT_EQ(read(started[0], &byte, 1), 1);
    kill(killed, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(Wait(killed)));
    EXPECT_EQ(guest_.Send(Bytes(100'000, std::byte{1})), 100'000);
    guest_.ShutdownSend();
    reader.join();
    close(started[0]);
    close(started[1]);
    TearDown();
  }
}

TEST_F(EndTest, AProgramWithoutTheShimFindsEverythingInTcp) {
  Attach();
  const Bytes bytes(2000, std::byte{9});
  ASSERT_EQ(host_.Send(bytes), 2000);
  ASSERT_EQ(channel_->Outgoing(Channel::Role::kHost).words->opens, 1U) << "not in the ring";
  Bytes some(500);
  ASSERT_EQ(guest_.Receive(some), 500);
  // The host has to be in a call for its part of this: here it waits for an answer.
  std::thread host([&] {
    // The shim's own look at both halves, whatever call the program is in.
    std::byte answer;
    pollfd asked{host_.room.get(), POLLIN, 0};
    EXPECT_EQ(poll(&asked, 1, 10'000), 1);
    EXPECT_EQ(host_.Send({}), 0);
    EXPECT_EQ(host_.Receive(MutableByteSpan(&answer, 1)), 1);
    EXPECT_EQ(answer, std::byte{3});
    EXPECT_EQ(host_.Send(bytes), 2000);
  });
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get()), End::Departure::kDone);
  Bytes rest(1500);
  EXPECT_EQ(recv(guest_.tcp.get(), rest.data(), rest.size(), MSG_WAITALL), 1500);
  EXPECT_EQ(rest, Bytes(1500, std::byte{9}));
  const std::byte answer{3};
  EXPECT_EQ(send(guest_.tcp.get(), &answer, 1, 0), 1);
  Bytes more(2000);
  EXPECT_EQ(recv(guest_.tcp.get(), more.data(), more.size(), MSG_WAITALL), 2000);
  EXPECT_EQ(more, bytes);
  host.join();
}

// Who looks for the whole of a message finds it, also where it lies on both roads.
class Looks : public EndTest {
 protected:
  // The next bytes of the pattern, by the road that is preferred.
  void Send(std::size_t count) {
    Bytes bytes(count);
    for (std::byte& byte : bytes) byte = Pattern(sent_++);
    ASSERT_EQ(host_.Send(bytes), static_cast<ssize_t>(count));
  }
  // How many bytes the look sees that are as they must be, into two pieces of memory.
  std::size_t Look(std::size_t first, std::size_t second) {
    Bytes bytes(first + second);
    const std::array<iovec, 2> pieces = {iovec{bytes.data(), first},
                                         iovec{bytes.data() + first, second}};
    const ssize_t got = guest_.end->Receive(guest_.tcp.get(), pieces, {.wait = false}, true);
    if (got < 0) return 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
      EXPECT_EQ(bytes[i], Pattern(read_ + i)) << i;
    }
    return static_cast<std::size_t>(got);
  }
  void Receive(std::size_t count) {
    Bytes bytes(count);
    while (count > 0) {
      const ssize_t got = guest_.Receive(MutableByteSpan(bytes).first(count));
      ASSERT_GT(got, 0);
      for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i, ++read_) {
        EXPECT_EQ(bytes[i], Pattern(read_));
      }
      count -= static_cast<std::size_t>(got);
    }
  }
  void AwaitTcp() {
    pollfd fd{guest_.tcp.get(), POLLIN, 0};
    ASSERT_EQ(poll(&fd, 1, 10'000), 1);
  }
  std::uint64_t sent_ = 0, read_ = 0;
};

TEST_F(Looks, SeeWhatLiesOnBothRoads) {
  Attach();
  host_.end->prefer_ring(false);
  Send(10);
  AwaitTcp();
  EXPECT_EQ(Look(20, 0), 10U);
  host_.end->prefer_ring(true);
  Send(10);
  EXPECT_EQ(Look(30, 0), 20U);
  EXPECT_EQ(Look(15, 15), 20U);
  EXPECT_EQ(Look(10, 3), 13U);
  EXPECT_EQ(Look(5, 0), 5U);
  EXPECT_EQ(Look(20, 0), 20U);  // it has all stayed
  Receive(13);
  EXPECT_EQ(Look(4, 10), 7U);
  host_.end->prefer_ring(false);
  Send(10);  // the phase is over
  AwaitTcp();
  EXPECT_EQ(Look(30, 0), 17U);
  EXPECT_EQ(Look(7, 30), 17U);
  EXPECT_EQ(host_.ShutdownSend(), 0);
  EXPECT_EQ(Look(30, 0), 17U);
  Receive(17);
  Bytes none(1);
  EXPECT_EQ(guest_.Receive(none), 0);
}

// Who waits for edges takes a short read as a word that there is no more.
TEST_F(Looks, AReadGoesOnWhereTheRoadChanges) {
  Attach();
  host_.end->prefer_ring(true);
  Send(3000);
  host_.end->prefer_ring(false);
  Send(2000);
  AwaitTcp();
  Bytes bytes(6000);
  ASSERT_EQ(guest_.Receive(bytes, false), 5000);
  for (std::size_t i = 0; i < 5000; ++i) ASSERT_EQ(bytes[i], Pattern(i)) << i;
  EXPECT_EQ(guest_.Receive(bytes, false), -1);
  EXPECT_EQ(errno, EAGAIN);
  Send(2000);
  AwaitTcp();
  host_.end->prefer_ring(true);
  Send(1000);
  host_.end->prefer_ring(false);
  Send(500);
  EXPECT_EQ(host_.ShutdownSend(), 0);
  std::size_t got = 0;
  for (int i = 0; i < 500 && got == 0; ++i) {  // the last of it, too, is on its way
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    pollfd fd{guest_.tcp.get(), POLLRDHUP, 0};
    if (poll(&fd, 1, 0) == 1) got = static_cast<std::size_t>(guest_.Receive(bytes, false));
  }
  ASSERT_EQ(got, 3500U);
  for (std::size_t i = 0; i < got; ++i) ASSERT_EQ(bytes[i], Pattern(5000 + i)) << i;
  EXPECT_EQ(guest_.Receive(bytes, false), 0);
}

// A spin says whether to look again: where that finds nothing, who spins would do so for ever.
TEST_F(Looks, ASpinIsNotForWhatALookCannotFind) {
  Attach();
  host_.end->prefer_ring(false);
  Send(10);
  AwaitTcp();
  host_.end->prefer_ring(true);
  Send(10);
  EXPECT_FALSE(guest_.end->SpinForBytes()) << "TCP's bytes come first";
  Receive(20);
  EXPECT_FALSE(guest_.end->SpinForBytes());
  ++channel_->Outgoing(Channel::Role::kHost).words->consumed;  // as the peer can
  EXPECT_FALSE(guest_.end->SpinForBytes());
}

TEST_F(Looks, SeeNoMoreThanARingCanHold) {
  Attach();
  host_.end->prefer_ring(false);
  Send(10);
  AwaitTcp();
  host_.end->prefer_ring(true);
  Send(10);
  DirectionWords& words = *channel_->Outgoing(Channel::Role::kHost).words;
  const std::uint64_t gate = words.gate, bytes = words.ring_bytes;
  words.gate = Gate::At(1'000'000'000);
  EXPECT_EQ(Look(100, 0), 10U);
  words.gate = gate;
  for (const std::uint64_t impossible : {std::uint64_t{0}, bytes + 1, std::uint64_t{1} << 40U}) {
    words.ring_bytes = impossible;
    EXPECT_EQ(Look(100, 0), 10U);
  }
  words.ring_bytes = bytes;
  EXPECT_EQ(Look(100, 0), 20U);
}

TEST_F(EndTest, AShutdownEndsASendThatSleepsForRoom) {
  Attach();
  const Bytes much(kLargest);
  const iovec buffer{const_cast<std::byte*>(much.data()), much.size()};
  while (host_.end->Send(host_.tcp.get(), {&buffer, 1}, {.wait = false}) > 0) continue;
  ASSERT_EQ(errno, EAGAIN);
  std::thread shuts([&] {
    // Armed: it is about to sleep.
    const DirectionWords& words = *channel_->Outgoing(Channel::Role::kHost).words;
    while (words.writer_armed == 0) std::this_thread::yield();
    EXPECT_EQ(host_.ShutdownSend(), 0);
  });
  const iovec byte{const_cast<std::byte*>(much.data()), 1};
  const Patience patience{.deadline = CallDeadlineAfter(std::chrono::seconds(20))};
  EXPECT_EQ(host_.end->Send(host_.tcp.get(), {&byte, 1}, patience), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_LT(CallClock::now(), patience.deadline);
  shuts.join();
}

// Time that a machine sleeps is none of a timeout's.
TEST(CallClock, IsTheOneByWhichTheKernelCountsTimeouts) {
  static_assert(std::is_same_v<decltype(Patience::deadline)::clock, CallClock>);
  const auto kernels = [] {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto before = kernels();
  const auto ours = CallClock::now().time_since_epoch();
  EXPECT_LE(before, ours);
  EXPECT_LE(ours, kernels());
}

TEST_F(EndTest, APeerThatIsStoppedInsideARead) {
  Attach();
  const Bytes bytes(100);
  ASSERT_EQ(host_.Send(bytes), 100);
  DirectionWords& words = *channel_->Outgoing(Channel::Role::kHost).words;
  const std::uint64_t reads = words.tcp_reads;
  words.tcp_reads = reads + 1;
  host_.end->prefer_ring(false);
  const iovec buffer{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const Patience patience{.deadline = CallDeadlineAfter(std::chrono::milliseconds(50))};
  EXPECT_EQ(host_.end->Send(host_.tcp.get(), {&buffer, 1}, patience), -1);
  EXPECT_EQ(errno, EAGAIN);
  words.tcp_reads = reads + 2;
  EXPECT_EQ(host_.Send(bytes), 100);
  Bytes all(200);
  EXPECT_EQ(guest_.Receive(MutableByteSpan(all).first(100)), 100);
  EXPECT_EQ(guest_.Receive(MutableByteSpan(all).first(100)), 100);
}

// What Writable says and what Send does are the same, also where a ring that was found full too
// often is given back for a larger one.
TEST_F(EndTest, APeerInsideAReadIsNotWritableUntilItIsOver) {
  Attach();
  const Bytes much(kLargest);
  const iovec buffer{const_cast<std::byte*>(much.data()), much.size()};
  const auto send = [&] { return host_.end->Send(host_.tcp.get(), {&buffer, 1}, {.wait = false}); };
  const auto writable = [&] { return host_.end->Writable(host_.tcp.get(), true); };
  DirectionWords& words = *channel_->Outgoing(Channel::Role::kHost).words;
  const std::uint64_t reads = words.tcp_reads;
  ASSERT_GT(send(), 0);
  words.tcp_reads = reads + 1;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(send(), -1);
    ASSERT_EQ(errno, EAGAIN);
  }
  for (int i = 0; i < 20; ++i) ASSERT_EQ(writable(), End::Outlet::kSoon);
  EXPECT_EQ(send(), -1);
  words.tcp_reads = reads + 2;
  EXPECT_EQ(writable(), End::Outlet::kTcp);
  EXPECT_GT(send(), 0);
}

// Nobody goes on from there.
TEST_F(EndTest, APeerThatWasKilledInsideARead) {
  Attach();
  const Bytes bytes(100);
  ASSERT_EQ(host_.Send(bytes), 100);
  ++channel_->Outgoing(Channel::Role::kHost).words->tcp_reads;
  host_.end->prefer_ring(false);
  EXPECT_EQ(host_.end->Writable(host_.tcp.get(), true), End::Outlet::kSoon);
  guest_.Close();
  EXPECT_EQ(host_.end->Writable(host_.tcp.get(), true), End::Outlet::kTcp);
}

TEST_F(EndTest, WhoLeavesIsOwedBytesUntilTheOtherEndMakesACall) {
  Attach();
  const Bytes bytes(2000, std::byte{7});
  ASSERT_EQ(host_.Send(bytes), 2000);
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get()), End::Departure::kOwed);
  std::thread host([&] { EXPECT_EQ(host_.Send(bytes), 2000); });
  EXPECT_TRUE(guest_.end->AwaitReturn(guest_.tcp.get()));
  Bytes all(4000);
  EXPECT_EQ(recv(guest_.tcp.get(), all.data(), all.size(), MSG_WAITALL), 4000);
  EXPECT_EQ(all, Bytes(4000, std::byte{7}));
  host.join();
}

// As a program does that leaves many: the others' ends are told before the first is waited for.
TEST_F(EndTest, WhoHasBegunToLeaveFindsLaterWhatHasComeMeanwhile) {
  Attach();
  const Bytes bytes(2000, std::byte{7});
  ASSERT_EQ(host_.Send(bytes), 2000);
  const Deadline past = BootClock::now();
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get(), past), End::Departure::kOwed);
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get(), past), End::Departure::kOwed);
  EXPECT_EQ(host_.Send(bytes), 2000);
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get(), past), End::Departure::kDone);
  Bytes all(4000);
  EXPECT_EQ(recv(guest_.tcp.get(), all.data(), all.size(), MSG_WAITALL), 4000);
  EXPECT_EQ(all, Bytes(4000, std::byte{7}));
}

TEST_F(EndTest, BothEndsLeaveOneAfterTheOther) {
  Attach();
  const Bytes bytes(2000, std::byte{7}), tail(100, std::byte{8});
  ASSERT_EQ(host_.Send(bytes), 2000);
  Bytes some(500);
  ASSERT_EQ(guest_.Receive(some), 500);
  EXPECT_EQ(host_.end->Leave(host_.tcp.get()), End::Departure::kDone);
  EXPECT_EQ(host_.end->UnreadInRing(), 0U);
  EXPECT_EQ(send(host_.tcp.get(), tail.data(), tail.size(), 0), 100);
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get()), End::Departure::kDone);
  Bytes rest(1600);
  EXPECT_EQ(recv(guest_.tcp.get(), rest.data(), rest.size(), MSG_WAITALL), 1600);
  Bytes expected(1500, std::byte{7});
  expected.insert(expected.end(), tail.begin(), tail.end());
  EXPECT_EQ(rest, expected);
}

TEST_F(EndTest, WhoStaysReadsWhatALeaverHasTakenBack) {
  Attach();
  const Bytes bytes(2000, std::byte{7});
  ASSERT_EQ(host_.Send(bytes), 2000);
  Bytes some(500), rest(2000);
  ASSERT_EQ(guest_.Receive(some), 500);
  EXPECT_EQ(host_.end->Leave(host_.tcp.get()), End::Departure::kDone);
  EXPECT_EQ(guest_.end->UnreadInRing(), 0U);
  EXPECT_EQ(guest_.Receive(rest), 1500);
  EXPECT_EQ(guest_.Receive(rest, false), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(EndTest, BothEndsLeaveAtOnce) {
  for (unsigned round = 0; round < 50; ++round) {
    SetUp();
    Attach();
    const Bytes bytes(2000, std::byte{7});
    for (const Side* side : {&host_, &guest_}) ASSERT_EQ(side->Send(bytes), 2000);
    const auto leave = [&](const Side& side) {
      EXPECT_EQ(side.end->Leave(side.tcp.get()), End::Departure::kDone);
      EXPECT_EQ(send(side.tcp.get(), "x", 1, 0), 1);
      Bytes all(2001);
      EXPECT_EQ(recv(side.tcp.get(), all.data(), all.size(), MSG_WAITALL), 2001);
      EXPECT_EQ(all.back(), std::byte{'x'});
    };
    std::thread host([&] { leave(host_); });
    leave(guest_);
    host.join();
    TearDown();
  }
}

// What TCP does not take at once stays in the ring, for who stays; who leaves, too, has lost it.
TEST_F(EndTest, ALeaverWaitsForNobodyToRead) {
  for (const bool stays : {true, false}) {
    SetUp();
    const int least = 1;
    ASSERT_EQ(setsockopt(host_.tcp.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
    Attach();
    host_.end->prefer_ring(true, kLargest);
    Bytes bytes(kLargest, std::byte{7});
    ASSERT_EQ(host_.Send(bytes), ssize_t{kLargest});
    const TimePoint before = BootClock::now();
    EXPECT_EQ(host_.end->Leave(host_.tcp.get()), End::Departure::kDone);
    EXPECT_LT(BootClock::now() - before, kLeaveTimeout);
    EXPECT_EQ(send(host_.tcp.get(), "tail", 4, 0), 4);
    if (stays) {
      bytes.resize(kLargest + 4);
      const iovec buffer{bytes.data(), bytes.size()};
      EXPECT_EQ(guest_.end->Receive(guest_.tcp.get(), {&buffer, 1}, {.all = true}),
                ssize_t{kLargest} + 4);
      EXPECT_EQ(bytes.back(), std::byte{'l'});
    } else {
      EXPECT_EQ(guest_.end->Leave(guest_.tcp.get()), End::Departure::kReset);
      EXPECT_EQ(recv(host_.tcp.get(), bytes.data(), 1, 0), -1);
      EXPECT_EQ(errno, ECONNRESET);
    }
    TearDown();
  }
}

// A sender that has written by TCP since cannot say it in time when it makes no more calls.
TEST_F(EndTest, BytesThatTcpsComeBehindAreAReset) {
  Attach();
  const Bytes bytes(2000);
  ASSERT_EQ(host_.Send(bytes), 2000);
  host_.end->prefer_ring(false);
  ASSERT_EQ(host_.Send(bytes), 2000);
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get()), End::Departure::kReset);
}

// What a system call that the shim does not see has written has no place in the stream.
TEST_F(EndTest, BytesInTcpThatAreNobodysAreAReset) {
  for (const bool wait : {false, true}) {
    SetUp();
    Attach();
    Bytes bytes(100);
    ASSERT_EQ(host_.Send(bytes), 100);
    ASSERT_EQ(guest_.Receive(bytes), 100);
    ASSERT_EQ(guest_.memory->receiver.state(), Receiver::State::kRing);
    ASSERT_EQ(send(host_.tcp.get(), "x", 1, 0), 1);
    pollfd arrives{.fd = guest_.tcp.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&arrives, 1, 10'000), 1);
    const iovec buffer{bytes.data(), bytes.size()};
    const Patience patience{.wait = wait, .deadline = CallDeadlineAfter(std::chrono::seconds(10))};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(guest_.end->Receive(guest_.tcp.get(), {&buffer, 1}, patience), -1);
      EXPECT_EQ(errno, ECONNRESET);
    }
    EXPECT_EQ(recv(host_.tcp.get(), bytes.data(), 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
    TearDown();
  }
}

// Behind FIN nothing can be sent again: what the ring holds is read there.
TEST_F(EndTest, WhoLeavesBehindItsShutdownHasLostNothing) {
  Attach();
  const Bytes bytes(2000, std::byte{7});
  ASSERT_EQ(host_.Send(bytes), 2000);
  ASSERT_EQ(host_.ShutdownSend(), 0);
  EXPECT_EQ(host_.end->Leave(host_.tcp.get()), End::Departure::kDone);
  Bytes all(3000);
  EXPECT_EQ(guest_.Receive(all), 2000) << strerror(errno);
  EXPECT_EQ(guest_.Receive(all), 0) << strerror(errno);
}

// One that has shut its half down may read yet, and nobody waits until it is known to live. (Where
// sock_diag is refused each waits for 10 ms.)
TEST_F(EndTest, TheEndOfWhatOneSaysWhoHasNotReadIsThereAtOnce) {
  std::chrono::nanoseconds spent{};
  for (int i = 0; i < 100; ++i) {
    SetUp();
    const Result<std::optional<PeerSocket>> peer = FindPeerSocket(host_.tcp.get());
    if (!peer.ok()) GTEST_SKIP() << peer.status().ToString();
    Attach();
    Bytes bytes(100);
    ASSERT_EQ(host_.Send(bytes), 100);
    ASSERT_TRUE(guest_.end->RingHasBytes());
    ASSERT_EQ(guest_.ShutdownSend(), 0);
    pollfd ended{host_.tcp.get(), POLLRDHUP, 0};
    ASSERT_EQ(poll(&ended, 1, 10'000), 1);
    const TimePoint before = BootClock::now();
    ASSERT_EQ(host_.Receive(bytes, false), 0);
    spent += BootClock::now() - before;
    TearDown();
  }
  EXPECT_LT(spent, std::chrono::milliseconds(500));
}

// Both have shut their halves down, and one reads the last bytes and closes while the other asks
// for the end: it has read all, and did not die with some unread.
TEST_F(EndTest, WhoReadsTheRestAndClosesHasNotDied) {
  Attach();
  const Bytes bytes(100, std::byte{7});
  ASSERT_EQ(host_.Send(bytes), 100);
  ASSERT_EQ(channel_->Outgoing(Channel::Role::kHost).words->opens, 1U) << "not in the ring";
  ASSERT_EQ(host_.ShutdownSend(), 0);
  ASSERT_EQ(guest_.ShutdownSend(), 0);
  pollfd ended{host_.tcp.get(), POLLRDHUP, 0};
  ASSERT_EQ(poll(&ended, 1, 10'000), 1);
  std::thread peer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Bytes all(200);
    EXPECT_EQ(guest_.Receive(all), 100) << strerror(errno);
    guest_.Close();
  });
  Bytes none(10);
  EXPECT_EQ(host_.Receive(none), 0) << strerror(errno);
  peer.join();
}

// A call that says how much went cannot say why no more did: the next one does.
TEST_F(EndTest, AnErrorBehindASendThatTookSomeIsTold) {
  const int least = 1;
  ASSERT_EQ(setsockopt(host_.tcp.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
  Attach();
  host_.end->prefer_ring(false);
  std::thread peer([&] {
    std::byte byte{};
    ASSERT_EQ(guest_.Receive({&byte, 1}), 1);
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ASSERT_EQ(setsockopt(guest_.tcp.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    guest_.tcp.Reset();
  });
  const Bytes much(64 << 20);
  const ssize_t sent = host_.Send(much);
  peer.join();
  ASSERT_GT(sent, 0);
  ASSERT_LT(sent, static_cast<ssize_t>(much.size()));
  EXPECT_EQ(host_.memory->receive_error, ECONNRESET);
}

// As in the kernel, which answers with a reset: nobody will look into the ring.
TEST_F(EndTest, WhatComesBehindTheLastCloseGoesOverTcp) {
  Attach();
  const Bytes bytes(100);
  ASSERT_EQ(host_.Send(bytes), 100);
  Bytes all(200);
  ASSERT_EQ(guest_.Receive(all), 100);
  guest_.end->RefuseMore();
  EXPECT_EQ(host_.Send(bytes), 100);
  EXPECT_EQ(guest_.end->UnreadInRing(), 0U);
  pollfd arrives{.fd = guest_.tcp.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&arrives, 1, 10'000), 1);
  EXPECT_EQ(recv(guest_.tcp.get(), all.data(), all.size(), MSG_DONTWAIT), 100);
}

// Whose child has left, and writes by TCP what this one's half does not know of.
TEST_F(EndTest, NothingIsSentAgainBehindWhatAnotherProcessWrote) {
  const int least = 1;
  ASSERT_EQ(setsockopt(host_.tcp.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
  Attach();
  host_.end->prefer_ring(true, kLargest);
  const Bytes bytes(kLargest);
  ASSERT_EQ(host_.Send(bytes), ssize_t{kLargest});
  const pid_t child = fork();
  if (child == 0) {
    const bool done = host_.end->Leave(host_.tcp.get()) == End::Departure::kDone &&
                      send(host_.tcp.get(), "tail", 4, 0) == 4;
    _exit(done ? 0 : 1);
  }
  EXPECT_EQ(Wait(child), 0);
  // As the guest leaves, the host's parent makes a call.
  channel_->Outgoing(Channel::Role::kHost).words->abandoned = 1;
  EXPECT_EQ(host_.Send(bytes), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(EndTest, BytesThatNobodyCanSendAgainAreAReset) {
  Attach();
  const Bytes bytes(2000);
  ASSERT_EQ(host_.Send(bytes), 2000);
  EXPECT_EQ(guest_.end->Leave(guest_.tcp.get()), End::Departure::kOwed);
  host_.data.Reset();
  host_.room.Reset();
  EXPECT_FALSE(guest_.end->AwaitReturn(guest_.tcp.get()));
  Bytes some(10);
  EXPECT_EQ(recv(guest_.tcp.get(), some.data(), some.size(), 0), -1);
  EXPECT_EQ(recv(host_.tcp.get(), some.data(), some.size(), 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

}  // namespace
}  // namespace rdfs::sock
