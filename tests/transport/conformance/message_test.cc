// Messages: sizes, parts, order, and both directions.
#include <algorithm>
#include <thread>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

class Messages : public Conformance {};
RDFS_CONFORMANCE(Messages);

TEST_P(Messages, OfEverySizeArriveWhole) {
  Pair pair = Connected();
  std::vector<std::size_t> sizes{0,    1,    2,     3,     7,     8,     9,      63,
                                 64,   65,   255,   256,   257,   1023,  1500,   4095,
                                 4096, 4097, 16384, 65535, 65536, 65537, 100'003};
  sizes.push_back(kMaxMessageBytes - 1);
  sizes.push_back(kMaxMessageBytes);
  for (End* from : {&pair.client, &pair.server}) {
    End& to = from == &pair.client ? pair.server : pair.client;
    for (const std::size_t size : sizes) from->Send(Pattern(size, size));
    ASSERT_TRUE(pair.Drive([&] { return to.messages.size() == sizes.size(); }));
    for (const std::size_t size : sizes) {
      EXPECT_TRUE(Equal(to.messages.front(), Pattern(size, size))) << size;
      to.messages.pop_front();
    }
  }
}

TEST_P(Messages, ThatAreTooLargeAreRefusedAndTheConnectionGoesOn) {
  Pair pair = Connected();
  EXPECT_EQ(pair.client->Send(Pattern(kMaxMessageBytes + 1, 1)).code(), Code::kInvalidArgument);
  const Bytes half = Pattern(kMaxMessageBytes / 2 + 1, 2);
  const std::array<ByteSpan, 2> parts{half, half};
  EXPECT_EQ(pair.client->Send(parts).code(), Code::kInvalidArgument);
  pair.client.Send(AsBytes("still here"));
  ASSERT_TRUE(pair.Drive([&] { return pair.server.messages.size() == 1; }));
  EXPECT_EQ(AsText(pair.server.messages[0]), "still here");
}

TEST_P(Messages, OfManyPartsArriveAsOneAndThePartsMayBeReusedAtOnce) {
  Pair pair = Connected();
  Bytes whole = Pattern(10'007, 5);
  std::vector<ByteSpan> parts;
  for (std::size_t at = 0, size = 0; at < whole.size(); at += size, size = (size + 3) % 97) {
    size = std::min(size, whole.size() - at);
    parts.push_back(ByteSpan(whole).subspan(at, size));  // empty ones too
  }
  ASSERT_TRUE(pair.client->Send(parts).ok());
  std::ranges::fill(whole, std::byte{0xee});
  ASSERT_TRUE(pair.Drive([&] { return pair.server.messages.size() == 1; }));
  EXPECT_TRUE(Equal(pair.server.messages[0], Pattern(10'007, 5)));
}

TEST_P(Messages, TenThousandArriveInOrderThoughNobodyPollsAtFirst) {
  constexpr std::uint64_t kCount = 10'000;
  Pair pair = Connected();
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const Le64 number(i);
    pair.client.Send(std::as_bytes(std::span(&number, 1)));
  }
  ASSERT_TRUE(pair.Drive([&] { return pair.server.messages.size() == kCount; }));
  for (std::uint64_t i = 0; i < kCount; ++i) {
    ByteReader reader(pair.server.messages[i]);
    ASSERT_EQ(reader.Read<Le64>(), i);
  }
  EXPECT_EQ(pair.client->backlog_bytes(), 0U);
}

TEST_P(Messages, BacklogTellsWhatThePeerHasNotTaken) {
  Pair pair = Connected();
  const Bytes message = Pattern(kMaxMessageBytes, 1);
  constexpr std::size_t kCount = 256;  // 32 MiB: more than any wire holds
  for (std::size_t i = 0; i < kCount; ++i) pair.client.Send(message);
  ASSERT_TRUE(pair.client->Flush().ok());
  EXPECT_GT(pair.client->backlog_bytes(), Connection::kBacklogLimit);
  ASSERT_TRUE(pair.Drive([&] {
    while (pair.server.messages.size() > 1) pair.server.messages.pop_front();
    return pair.client->backlog_bytes() == 0;
  }));
}

TEST_P(Messages, PingPongBetweenTwoThreads) {
  constexpr int kRounds = 2'000;
  Pair pair = Connected();
  std::jthread echo([&] {
    std::array<Completion, 4> out;
    for (int rounds = 0; rounds < kRounds;) {
      const auto count = pair.server->Wait(out, DeadlineAfter(kPatience));
      ASSERT_TRUE(count.ok()) << count.status().ToString();
      ASSERT_GT(*count, 0U);
      for (std::size_t i = 0; i < *count; ++i, ++rounds) {
        ASSERT_TRUE(pair.server->Send(out[i].message).ok());
      }
      ASSERT_TRUE(pair.server->Flush().ok());
    }
  });
  std::array<Completion, 4> out;
  for (int i = 0; i < kRounds; ++i) {
    const Bytes ping = Pattern(static_cast<std::size_t>(i % 300), static_cast<std::uint64_t>(i));
    ASSERT_TRUE(pair.client->Send(ping).ok());
    const auto count = pair.client->Wait(out, DeadlineAfter(kPatience));
    ASSERT_TRUE(count.ok()) << count.status().ToString();
    ASSERT_EQ(*count, 1U);
    ASSERT_TRUE(Equal(out[0].message, ping)) << i;
  }
}

TEST_P(Messages, ThatAreLeftForTheNextPollStayWhole) {
  Pair pair = Connected();
  constexpr std::size_t kCount = 100;
  for (std::size_t i = 0; i < kCount; ++i) pair.client.Send(Pattern(1000 + i, i));
  ASSERT_TRUE(pair.client->Flush().ok());
  // One at a time: whatever the transport holds back must make Arm or the descriptor say so.
  for (std::size_t i = 0; i < kCount; ++i) {
    Completion one;
    Result<std::size_t> count = std::size_t{0};
    // The sender goes on polling meanwhile: its last messages wait for credits to come back.
    const Deadline deadline = DeadlineAfter(kPatience);
    while (count.ok() && *count == 0 && BootClock::now() < deadline) {
      (void)pair.client.Step();
      count = pair.server->Wait({&one, 1}, DeadlineAfter(std::chrono::milliseconds(20)));
    }
    ASSERT_TRUE(count.ok()) << count.status().ToString();
    ASSERT_EQ(*count, 1U);
    ASSERT_TRUE(Equal(one.message, Pattern(1000 + i, i))) << i;
  }
}

}  // namespace
}  // namespace rdfs::transport::conformance
