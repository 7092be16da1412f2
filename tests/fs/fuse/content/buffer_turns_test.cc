#include "fs/fuse/content/buffer_turns.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "fs/client/buffer.h"
#include "transport/transport.h"

namespace rdfs::fs::fuse {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kShort = std::size_t{128} << 10U;
constexpr std::size_t kLong = std::size_t{1} << 20U;
constexpr std::size_t kSmall = std::size_t{64} << 10U;
constexpr std::uint64_t kFirst = 2;
constexpr std::uint64_t kSecond = 4;
constexpr std::uint64_t kNew = 6;
constexpr TimePoint kNow{std::chrono::hours(1)};

// A lane's buffers, of 16 MiB.
class Buffers {
 public:
  Buffers() {
    auto memory =
        SharedMemory::Create("test", std::size_t{16} << 20U, SharedMemory::Peers::kMayWrite);
    region_ = *domain_->Register(*std::move(memory), transport::Access::kLocal);
    pool_.emplace(*region_);
  }
  client::BufferPool& operator*() { return *pool_; }

 private:
  const std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("test");
  std::unique_ptr<transport::MemoryRegion> region_;
  std::optional<client::BufferPool> pool_;
};

TEST(BufferTurnsTest, ALongReadIsNotOvertakenByShorterOnesForEver) {
  Buffers buffers;
  client::BufferPool& pool = *buffers;
  BufferTurns turns;
  const std::optional<client::Buffer> requests = pool.Allocate(kLong + 4096);
  std::vector<std::optional<client::Buffer>> taken;
  while (auto buffer = pool.Allocate(kShort)) taken.push_back(std::move(buffer));
  ASSERT_GE(taken.size(), 116U);

  turns.Wait(kFirst, kNow);
  const auto take = [&](TimePoint now) {
    return turns.MayTake(kLong, now, kFirst) ? pool.Allocate(kLong) : std::nullopt;
  };
  // Each is answered, and who reads asks for one more: not in the order of their places.
  const std::size_t count = taken.size();
  std::size_t frees = 0;
  const auto answer = [&](TimePoint now) {
    std::optional<client::Buffer>& buffer = taken[frees++ * 37 % count];
    buffer.reset();
    std::optional<client::Buffer> found = take(now);
    if (!found && turns.MayTake(kShort, now, kNew)) buffer = pool.Allocate(kShort);
    return found;
  };
  for (std::size_t i = 0; i < 3 * count; ++i) {
    ASSERT_FALSE(answer(kNow)) << "has it, and was to show what happens without a turn";
  }
  const TimePoint later = kNow + BufferTurns::kPatience;
  std::optional<client::Buffer> found;
  for (frees = 0; !found && frees < count;) found = answer(later);
  EXPECT_TRUE(found);
  EXPECT_LE(frees, 116U);
  turns.Leave(kFirst);
  EXPECT_TRUE(turns.MayTake(kShort, later, kNew));
}

TEST(BufferTurnsTest, TheLongestWaitingComesFirstAndSmallOnesAlways) {
  BufferTurns turns;
  EXPECT_TRUE(turns.MayTake(kLong, kNow, kNew));
  turns.Wait(kSecond, kNow + milliseconds(1));
  turns.Wait(kFirst, kNow);  // it has waited before
  EXPECT_TRUE(turns.MayTake(kShort, kNow + milliseconds(49), kNew));
  const TimePoint later = kNow + milliseconds(51);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(turns.MayTake(kLong, later, kFirst));
    EXPECT_FALSE(turns.MayTake(kShort, later, kSecond));
    EXPECT_FALSE(turns.MayTake(kShort, later, kNew));
    EXPECT_FALSE(turns.MayTake(kShort, later, 0));
    EXPECT_TRUE(turns.MayTake(kSmall, later, kNew));
  }
  turns.Leave(kFirst);
  EXPECT_FALSE(turns.MayTake(kShort, later, kNew));
  EXPECT_TRUE(turns.MayTake(kShort, later, kSecond));
  turns.Leave(kSecond);
  EXPECT_TRUE(turns.MayTake(kShort, later, kNew));
}

// The server is silent about the reads that have the buffers.
TEST(BufferTurnsTest, ATurnThatBringsNothingEnds) {
  BufferTurns turns;
  turns.Wait(kFirst, kNow);
  const TimePoint begins = kNow + BufferTurns::kPatience;
  EXPECT_FALSE(turns.MayTake(kShort, begins, kNew));
  const TimePoint ends = begins + BufferTurns::kTurn;
  EXPECT_FALSE(turns.MayTake(kShort, ends - milliseconds(1), kNew));
  EXPECT_TRUE(turns.MayTake(kShort, ends, kNew));
  EXPECT_TRUE(turns.MayTake(kLong, ends, kFirst));
  const TimePoint again = ends + BufferTurns::kRest;
  EXPECT_TRUE(turns.MayTake(kShort, again - milliseconds(1), kNew));
  EXPECT_FALSE(turns.MayTake(kShort, again, kNew));
  EXPECT_TRUE(turns.MayTake(kLong, again, kFirst));
}

// It had to ask once more, long after.
TEST(BufferTurnsTest, WhoHadItsTurnAndWaitsAnewHasAnother) {
  BufferTurns turns;
  turns.Wait(kFirst, kNow);
  EXPECT_FALSE(turns.MayTake(kShort, kNow + BufferTurns::kPatience, kNew));
  turns.Leave(kFirst);
  turns.Wait(kFirst, kNow);
  const TimePoint later = kNow + 5 * BufferTurns::kTurn;
  EXPECT_FALSE(turns.MayTake(kShort, later, kNew));
  EXPECT_TRUE(turns.MayTake(kLong, later, kFirst));
}

}  // namespace
}  // namespace rdfs::fs::fuse
