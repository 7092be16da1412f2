#include "tools/sock/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace rdfs::sock {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint32_t kLargest = 16 * 1024;

Channel MakeChannel() {
  Result<Channel> channel = Channel::Create(kLargest);
  EXPECT_TRUE(channel.ok()) << channel.status().ToString();
  return *std::move(channel);
}

struct BellPair {
  BellPair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0); }
  ~BellPair() {
    if (ends[0] >= 0) close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
  }
  int ends[2] = {-1, -1};
};

TEST(Channel, LiesInMemoryAsThePageSays) {
  const Channel channel = MakeChannel();
  const Direction out = channel.Outgoing(Channel::Role::kHost);
  const Direction in = channel.Outgoing(Channel::Role::kGuest);
  const auto* base = out.ring.data() - 4096;
  EXPECT_EQ(std::memcmp(base, "rdsock1\0\1\0\0\0\0\x40\0\0", 16), 0);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(out.words), base + 64);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(in.words), base + 256);
  EXPECT_EQ(in.ring.data(), base + 4096 + kLargest);
  EXPECT_EQ(out.words->gate, 3U);
  EXPECT_EQ(channel.Incoming(Channel::Role::kGuest).words, out.words);
  EXPECT_EQ(channel.Incoming(Channel::Role::kHost).words, in.words);
}

TEST(Bells, AFloodIsNotTakenAtOnce) {
  const BellPair pair;
  for (int i = 0; i <= kMostRings; ++i) Ring(pair.ends[0]);
  EXPECT_TRUE(Empty(pair.ends[1]));
  char packet[8];
  EXPECT_EQ(recv(pair.ends[1], packet, sizeof(packet), MSG_DONTWAIT), 4);
  EXPECT_EQ(recv(pair.ends[1], packet, sizeof(packet), MSG_DONTWAIT), -1);
}

TEST(Channel, TakesOnlySizesOfTheProtocol) {
  for (const std::uint32_t bytes : {0U, 1U, 2048U, 5000U, 8U * 1024 * 1024, ~0U}) {
    EXPECT_FALSE(Channel::Create(bytes).ok()) << bytes;
    EXPECT_FALSE(Channel::Adopt(Fd(), bytes).ok()) << bytes;
  }
}

// Memory as a hostile host could send it.
Fd Memory(std::size_t size, int seals, const ChannelHeader& header) {
  Fd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(pwrite(fd.get(), &header, sizeof(header), 0), ssize_t{sizeof(header)});
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(Channel, RefusesMemoryThatIsNone) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  constexpr std::size_t kSize = kRingsAt + 2 * kLargest;
  ChannelHeader right;
  right.largest_ring = kLargest;
  EXPECT_TRUE(Channel::Adopt(Memory(kSize, kSeals, right), kLargest).ok());
  EXPECT_FALSE(Channel::Adopt(Memory(kSize, kSeals, right), kLargest * 2).ok());
  EXPECT_FALSE(Channel::Adopt(Memory(kSize - 4096, kSeals, right), kLargest).ok());
  EXPECT_FALSE(Channel::Adopt(Memory(kSize + 4096, kSeals, right), kLargest).ok());
  for (const int seal : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    EXPECT_FALSE(Channel::Adopt(Memory(kSize, kSeals & ~seal, right), kLargest).ok()) << seal;
  }
  ChannelHeader wrong = right;
  wrong.magic[7] = '!';
  EXPECT_FALSE(Channel::Adopt(Memory(kSize, kSeals, wrong), kLargest).ok());
  wrong = right;
  wrong.version = 2;
  EXPECT_FALSE(Channel::Adopt(Memory(kSize, kSeals, wrong), kLargest).ok());
  wrong = right;
  wrong.largest_ring = kLargest / 2;
  EXPECT_FALSE(Channel::Adopt(Memory(kSize, kSeals, wrong), kLargest).ok());
}

TEST(Bells, WakeAndAreNeverInTheWay) {
  BellPair bell;
  EXPECT_TRUE(Empty(bell.ends[1]));
  for (int i = 0; i < 10'000; ++i) Ring(bell.ends[0]);  // a full socket is no obstacle
  char packet[16];
  EXPECT_EQ(recv(bell.ends[1], packet, sizeof(packet), MSG_DONTWAIT), 4);
  EXPECT_EQ(packet[0], 5);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Empty(bell.ends[1]));
  EXPECT_EQ(recv(bell.ends[1], packet, sizeof(packet), MSG_DONTWAIT), -1);
  errno = 0;
  close(std::exchange(bell.ends[1], -1));
  Ring(bell.ends[0]);  // no SIGPIPE
  EXPECT_EQ(errno, 0);
  EXPECT_FALSE(Empty(bell.ends[0]));
}

// Both machines over one channel with nothing in TCP.
class RingTest : public testing::Test {
 protected:
  // Puts as much of `bytes` as goes at once.
  std::size_t Put(ByteSpan bytes, std::uint64_t ring_bytes) {
    std::size_t put = 0;
    for (;;) {
      const Sender::Wish wish{
          .bytes = bytes.size() - put, .ring = true, .sleep = false, .ring_bytes = ring_bytes};
      const Sender::Action action = sender_.Next(LookAsSender(direction_, {}), wish);
      std::size_t moved = 0;
      if (!Carry(direction_, sender_, action, bytes.subspan(put), {}, moved)) {
        last_send_ = action.step;
        return put;
      }
      put += moved;
    }
  }
  Bytes Take(std::size_t most) {
    Bytes out(most);
    std::size_t took = 0;
    for (;;) {
      const Receiver::Wish wish{.bytes = most - took, .follow = true, .sleep = false};
      const Receiver::Action action =
          receiver_.Next(LookAsReceiver(direction_, {}), wish, TimePoint());
      std::size_t moved = 0;
      if (action.step == Receiver::Step::kReadTcp) {
        receiver_.Done(0, TimePoint());
      } else if (!Carry(direction_, receiver_, action, MutableByteSpan(out).subspan(took), {},
                        TimePoint(), moved)) {
        last_receive_ = action.step;
        out.resize(took);
        return out;
      }
      took += moved;
    }
  }
  Bytes Pattern(std::size_t size) {
    Bytes out(size);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random_());
    return out;
  }

  const Channel channel_ = MakeChannel();
  const Direction direction_ = channel_.Outgoing(Channel::Role::kHost);
  Sender sender_{0, kLargest};
  Receiver receiver_{0, kLargest};
  Sender::Step last_send_{};
  Receiver::Step last_receive_{};
  std::mt19937 random_{1};
};

TEST_F(RingTest, CarriesEverySizeAcrossTheEdge) {
  EXPECT_EQ(Take(1), Bytes());  // follows
  for (std::size_t size = 1; size <= kLeastRingBytes; size = size * 3 / 2 + 1) {
    for (int i = 0; i < 20; ++i) {
      const Bytes sent = Pattern(size);
      ASSERT_EQ(Put(sent, kLeastRingBytes), size);
      ASSERT_EQ(Take(size), sent);
    }
  }
}

TEST_F(RingTest, IsFullWhenItIsFull) {
  EXPECT_EQ(Take(1), Bytes());
  const Bytes sent = Pattern(3 * kLeastRingBytes);
  ASSERT_EQ(Put(sent, kLeastRingBytes), kLeastRingBytes);
  EXPECT_EQ(last_send_, Sender::Step::kSleep);
  EXPECT_EQ(Take(10), Bytes(sent.begin(), sent.begin() + 10));
  EXPECT_EQ(Put(ByteSpan(sent).subspan(kLeastRingBytes), kLeastRingBytes), 10U);
}

TEST_F(RingTest, GrowsByAPhase) {
  EXPECT_EQ(Take(1), Bytes());
  ASSERT_EQ(Put(Pattern(100), kLeastRingBytes), 100U);
  ASSERT_EQ(Take(100).size(), 100U);
  // The gate is shut; TCP would carry what comes before the receiver has passed.
  ASSERT_EQ(Put(Pattern(100), kLargest), 0U);
  ASSERT_EQ(last_send_, Sender::Step::kSendTcp);
  sender_.Done(0);
  ASSERT_EQ(Take(1), Bytes());
  const Bytes sent = Pattern(kLargest);
  ASSERT_EQ(Put(sent, kLargest), kLargest);
  ASSERT_EQ(Take(kLargest), sent);
}

// A process that forked has a smaller ring in mind than its parent, whose larger one is full.
TEST_F(RingTest, AHostileReceiverPassesWhatItHasNotRead) {
  EXPECT_EQ(Take(1), Bytes());
  ASSERT_EQ(Put(Pattern(kLargest), kLargest), kLargest);
  DirectionWords& words = *direction_.words;
  words.gate.fetch_or(Gate::kReceiverShut);
  words.passed = words.opens.load();
  ASSERT_EQ(Put(Pattern(10), kLeastRingBytes), 0U);  // the gate is shut
  sender_.Done(0);
  words.gate.fetch_and(~Gate::kReceiverShut);
  EXPECT_EQ(Put(Pattern(10), kLeastRingBytes), 0U);
}

// The peer writes what it likes, wherever it likes, between any two steps.
class HostilePeer {
 public:
  explicit HostilePeer(unsigned seed) : random_(seed) {}
  unsigned Below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }
  void Write(const Direction& direction) {
    DirectionWords& words = *direction.words;
    std::atomic<std::uint64_t>* const all[] = {&words.gate,      &words.opens,  &words.open_at,
                                               &words.consumed,  &words.passed, &words.tcp_reads,
                                               &words.ring_bytes};
    std::atomic<std::uint64_t>& word = *all[Below(std::size(all))];
    switch (Below(5)) {
      case 0:
        word = (std::uint64_t{random_()} << 32U) | random_();
        break;
      case 1:
        word += Below(9);
        break;
      case 2:
        word -= Below(9);
        break;
      case 3:
        word = std::uint64_t{1} << Below(64);
        break;
      default:
        words.abandoned = Below(50) == 0 ? 1 : 0;
        words.returned = Below(2);
        words.reader_armed = Below(2);
        words.writer_armed = Below(2);
        std::ranges::fill(direction.ring.first(Below(4096)), static_cast<std::byte>(random_()));
    }
  }

 private:
  std::mt19937 random_;
};

TEST_F(RingTest, AHostileReceiverLeadsTheSenderNowhere) {
  const Bytes bytes = Pattern(kLargest * 2);
  unsigned broken = 0, put = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    HostilePeer peer(seed);
    const Channel channel = MakeChannel();
    const Direction direction = channel.Outgoing(Channel::Role::kHost);
    Sender sender(seed, kLargest);
    direction.words->gate.fetch_and(~Gate::kReceiverShut);
    const unsigned every = 1 + peer.Below(40);
    for (int step = 0; step < 200; ++step) {
      if (peer.Below(every) == 0) peer.Write(direction);
      const Sender::Wish wish{.bytes = 1 + peer.Below(kLargest),
                              .ring = peer.Below(9) != 0,
                              .leave = peer.Below(100) == 0,
                              .ring_bytes = random_()};
      const Sender::Action action = sender.Next(LookAsSender(direction, {}), wish);
      ASSERT_LE(sender.ring_bytes(), kLargest);
      std::size_t moved = 0;
      if (action.step == Sender::Step::kResend) {
        const auto pieces = Pieces(direction, sender.ring_bytes(), action.at, action.count);
        ASSERT_LE(pieces[0].size() + pieces[1].size(), sender.ring_bytes());
        sender.Done(peer.Below(static_cast<unsigned>(action.count + 1)));
      } else if (action.step == Sender::Step::kPut) {
        ASSERT_LE(action.count, std::min<std::uint64_t>(sender.ring_bytes(), wish.bytes));
      }
      if (Carry(direction, sender, action, bytes, {}, moved)) put += moved > 0 ? 1U : 0U;
    }
    broken += sender.state() == Sender::State::kBroken ? 1U : 0U;
  }
  EXPECT_GT(broken, 1000U);
  EXPECT_GT(put, 1000U);
}

TEST_F(RingTest, AHostileSenderLeadsTheReceiverNowhere) {
  Bytes out(kLargest * 2);
  unsigned broken = 0, took = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    HostilePeer peer(seed);
    const Channel channel = MakeChannel();
    const Direction direction = channel.Outgoing(Channel::Role::kHost);
    Receiver receiver(seed, kLargest);
    direction.words->ring_bytes = kLargest;
    direction.words->open_at = seed;
    direction.words->gate = Gate::At(1000);
    direction.words->opens = 1;
    const unsigned every = 1 + peer.Below(40);
    for (int step = 0; step < 200; ++step) {
      if (peer.Below(every) == 0) peer.Write(direction);
      const Receiver::Wish wish{.bytes = 1 + peer.Below(kLargest),
                                .follow = peer.Below(9) != 0,
                                .leave = peer.Below(100) == 0};
      const TimePoint now(std::chrono::milliseconds(step * 20));
      const Receiver::Action action = receiver.Next(
          LookAsReceiver(direction,
                         {.hung_up = peer.Below(60) == 0, .tcp_ended = peer.Below(60) == 0}),
          wish, now);
      ASSERT_LE(receiver.ring_bytes(), kLargest);
      std::size_t moved = 0;
      if (action.step == Receiver::Step::kReadTcp) {
        ASSERT_LE(action.count, wish.bytes);
        receiver.Done(peer.Below(2) == 0 ? 0 : peer.Below(1 + static_cast<unsigned>(action.count)),
                      now);
      } else if (action.step == Receiver::Step::kTake) {
        ASSERT_LE(action.count, std::min<std::uint64_t>(receiver.ring_bytes(), wish.bytes));
      }
      if (Carry(direction, receiver, action, out, {}, now, moved)) took += moved > 0 ? 1U : 0U;
    }
    broken += receiver.state() == Receiver::State::kBroken ? 1U : 0U;
  }
  EXPECT_GT(broken, 1000U);
  EXPECT_GT(took, 1000U);
}

}  // namespace
}  // namespace rdfs::sock
