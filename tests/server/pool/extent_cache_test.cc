// The cache's decisions in virtual time, on a pool of real memory.
#include "server/pool/extent_cache.h"

#include <gtest/gtest.h>

#include <random>

namespace rdfs::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kPool = 4 * kMaxExtentBytes;

class ExtentCacheTest : public testing::Test {
 protected:
  ExtentCacheTest() {
    while (pool_->MayGrow()) {
      auto arena = pool_->MakeArena(pool_->TakeIndex());
      EXPECT_TRUE(arena.ok()) << arena.status().ToString();
      pool_->Add(*std::move(arena));
    }
  }
  CachedFile& File(std::uint64_t inode, std::uint64_t size = 1 << 30) {
    CachedFile& file = cache_.UseFile({.device = 1, .inode = inode, .generation = 0});
    cache_.Observe(file, {.size = size, .ctime = seconds(1), .mtime = {}}, file.changes, now_,
                   seconds(100));
    return file;
  }
  Extent* Fill(CachedFile& file, std::uint64_t offset, unsigned order) {
    Extent* extent = cache_.Begin(file, offset, order, now_);
    if (extent == nullptr) return nullptr;
    std::vector<Waiter> waiters;
    const auto valid = static_cast<std::uint32_t>(extent->block.bytes());
    EXPECT_TRUE(cache_.Finish(*extent, valid, now_, &waiters));
    return extent;
  }
  Extent* FillAndLeave(CachedFile& file, std::uint64_t offset, unsigned order) {
    Extent* extent = Fill(file, offset, order);
    if (extent != nullptr) cache_.Unpin(*extent, now_);
    return extent;
  }
  void Advance(std::chrono::nanoseconds span) { now_ += span; }

  TimePoint now_{seconds(1000)};
  std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("test");
  std::unique_ptr<BlockPool> pool_ = BlockPool::Create(
      domain_, {.pool_bytes = kPool, .arena_bytes = 2 * kMaxExtentBytes, .first_arena_bytes = 0});
  ExtentCache cache_{*pool_, {.session_bytes = kPool, .total_bytes = kPool}};
};

TEST_F(ExtentCacheTest, BumpsTheGenerationOfWhatIsDropped) {
  CachedFile& file = File(1);
  Extent* extent = Fill(file, 0, 3);
  const Block block = extent->block;
  EXPECT_NE(extent->generation, 0U);
  EXPECT_EQ(pool_->Generation(block), extent->generation);
  const std::uint64_t granted = extent->generation;
  cache_.Change(file, 100, 1, nullptr, now_);
  EXPECT_GT(pool_->Generation(block), granted);
  EXPECT_EQ(ExtentCache::Find(file, 0), nullptr);
  EXPECT_GT(pool_->allocated_bytes(), 0U) << "pinned memory must rest";
  cache_.Unpin(*extent, now_);
  EXPECT_EQ(pool_->allocated_bytes(), 0U);
}

// Who has it granted takes its end for the file's.
TEST_F(ExtentCacheTest, WhatReachedToTheEndIsDroppedWhenTheFileGrows) {
  constexpr std::uint64_t kSize = 64 * 1024;
  const auto reaches = [&](CachedFile& file) { return ExtentCache::Find(file, kSize - 1); };
  CachedFile& file = File(1);
  file.version.size = kSize;
  Extent* extent = Fill(file, 0, ExtentCache::ClipOrder(kSize, 0, kMaxExtentOrder));
  ASSERT_EQ(extent->end(), kSize);
  cache_.Unpin(*extent, now_);
  cache_.Change(file, kSize, 0, nullptr, now_);
  EXPECT_NE(reaches(file), nullptr) << "it has not grown";
  cache_.Change(file, 10 * kSize, 1, nullptr, now_);
  EXPECT_EQ(reaches(file), nullptr);
}

TEST_F(ExtentCacheTest, KeepsLeasedMemoryUntilTheLeaseIsOver) {
  CachedFile& file = File(1);
  Extent* extent = Fill(file, 0, kMaxExtentOrder);
  ASSERT_TRUE(cache_.Grant(*extent, 7, now_, milliseconds(500)));
  cache_.Unpin(*extent, now_);
  cache_.Change(file, 0, 1, nullptr, now_);
  Advance(milliseconds(500));
  cache_.Sweep(now_);
  EXPECT_EQ(pool_->allocated_bytes(), kMaxExtentBytes) << "the client's clock may run slow";
  Advance(milliseconds(10));
  cache_.Sweep(now_);
  EXPECT_EQ(pool_->allocated_bytes(), 0U);
}

TEST_F(ExtentCacheTest, NeverEvictsWhatIsLeasedOrPinned) {
  CachedFile& file = File(1);
  Extent* pinned = Fill(file, 0, kMaxExtentOrder);
  for (std::uint64_t i = 1; i < 4; ++i) {
    Extent* leased = Fill(file, i * kMaxExtentBytes, kMaxExtentOrder);
    ASSERT_NE(leased, nullptr);
    ASSERT_TRUE(cache_.Grant(*leased, 7, now_, milliseconds(500)));
    cache_.Unpin(*leased, now_);
  }
  EXPECT_EQ(cache_.Begin(file, 9 * kMaxExtentBytes, kMaxExtentOrder, now_), nullptr);
  EXPECT_EQ(ExtentCache::Find(file, 0), pinned);
  Advance(seconds(1));
  EXPECT_NE(Fill(file, 9 * kMaxExtentBytes, kMaxExtentOrder), nullptr);
  EXPECT_EQ(ExtentCache::Find(file, 0), pinned);
}

TEST_F(ExtentCacheTest, AScanDoesNotFlushWhatIsUsedAgain) {
  CachedFile& hot = File(1);
  for (std::uint64_t i = 0; i < 2; ++i) FillAndLeave(hot, i * kMaxExtentBytes, kMaxExtentOrder);
  Advance(seconds(2));
  for (std::uint64_t i = 0; i < 2; ++i) {
    ExtentCache::Touch(*ExtentCache::Find(hot, i * kMaxExtentBytes), now_);
  }
  CachedFile& scanned = File(2);
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_NE(FillAndLeave(scanned, i * kMaxExtentBytes, kMaxExtentOrder), nullptr);
    // A scan in pieces touches each extent several times, in a short while.
    ExtentCache::Touch(*ExtentCache::Find(scanned, i * kMaxExtentBytes), now_);
    Advance(milliseconds(1));
  }
  for (std::uint64_t i = 0; i < 2; ++i) {
    EXPECT_NE(ExtentCache::Find(hot, i * kMaxExtentBytes), nullptr) << i;
  }
}

TEST_F(ExtentCacheTest, AFillThatTheFileOvertookIsNobodys) {
  CachedFile& file = File(1);
  Extent* extent = cache_.Begin(file, 0, 3, now_);
  bool woken = false;
  extent->waiters.push_back([&](const void*) { woken = true; });
  cache_.Change(file, 0, 1, nullptr, now_);
  EXPECT_EQ(ExtentCache::Find(file, 0), nullptr) << "later reads must not join it";
  EXPECT_NE(pool_->allocated_bytes(), 0U) << "somebody still writes to the memory";
  std::vector<Waiter> waiters;
  EXPECT_FALSE(cache_.Finish(*extent, 100, now_, &waiters));
  ASSERT_EQ(waiters.size(), 1U);
  waiters[0](nullptr);
  EXPECT_TRUE(woken);
  cache_.Unpin(*extent, now_);
  EXPECT_EQ(pool_->allocated_bytes(), 0U);
}

TEST_F(ExtentCacheTest, BelievesAVersionOnlyWhenItProvesSomething) {
  const FileVersion version{.size = 1 << 20, .ctime = seconds(50), .mtime = seconds(50)};
  CachedFile& file = cache_.UseFile({.device = 1, .inode = 5, .generation = 0});
  // Seen within the tick of its last change: the same version later proves nothing.
  cache_.Observe(file, version, file.changes, now_, seconds(50) + milliseconds(1));
  FillAndLeave(file, 0, 3);
  Advance(seconds(2));
  EXPECT_FALSE(ExtentCache::Fresh(file, now_, seconds(1)));
  cache_.Observe(file, version, file.changes, now_, seconds(52));
  EXPECT_EQ(ExtentCache::Find(file, 0), nullptr);
  // Now it does.
  FillAndLeave(file, 0, 3);
  Advance(seconds(2));
  cache_.Observe(file, version, file.changes, now_, seconds(54));
  EXPECT_NE(ExtentCache::Find(file, 0), nullptr);
  FileVersion other = version;
  other.ctime += milliseconds(1);
  cache_.Observe(file, other, file.changes, now_, seconds(54));
  EXPECT_EQ(ExtentCache::Find(file, 0), nullptr);
}

// What was changed before the server's clock was set back is not read anew each second.
TEST_F(ExtentCacheTest, AClockThatWentBackProvesAsMuch) {
  const FileVersion version{.size = 1 << 20, .ctime = hours(50), .mtime = hours(50)};
  CachedFile& file = cache_.UseFile({.device = 1, .inode = 5, .generation = 0});
  cache_.Observe(file, version, file.changes, now_, seconds(1000));
  FillAndLeave(file, 0, 3);
  Advance(seconds(2));
  cache_.Observe(file, version, file.changes, now_, seconds(1002));
  EXPECT_NE(ExtentCache::Find(file, 0), nullptr);
  // The file system's own clock may be ahead.
  EXPECT_FALSE(version.RacyAt(version.ctime - FileVersion::kClockAhead - seconds(1)));
  EXPECT_TRUE(version.RacyAt(version.ctime - seconds(1)));
  EXPECT_TRUE(version.RacyAt(version.ctime));
  EXPECT_TRUE(version.RacyAt(version.ctime + FileVersion::kRacyWindow));
  EXPECT_FALSE(version.RacyAt(version.ctime + FileVersion::kRacyWindow + milliseconds(1)));
}

TEST_F(ExtentCacheTest, RefusesAStatThatAChangeOvertook) {
  CachedFile& file = File(1);
  const std::uint64_t changes = file.changes;
  cache_.Change(file, 0, 10, nullptr, now_);
  EXPECT_FALSE(cache_.Observe(file, {}, changes, now_, seconds(100)));
}

TEST_F(ExtentCacheTest, ALateAnswerDoesNotTakeTheVersionBack) {
  CachedFile& file = File(1);
  const FileVersion first{.size = 100, .ctime = seconds(60), .mtime = {}};
  const FileVersion second{.size = 200, .ctime = seconds(61), .mtime = {}};
  cache_.Change(file, 100, 100, &second, now_);
  cache_.Change(file, 0, 100, &first, now_);
  EXPECT_FALSE(file.known) << "the order of two writers is not known: ask";
}

TEST_F(ExtentCacheTest, ALargeExtentTakesThePlaceOfSmallOnes) {
  CachedFile& file = File(1);
  for (std::uint64_t i = 0; i < 40; i += 2) FillAndLeave(file, i * kExtentPageBytes, 0);
  const unsigned order = ExtentCache::ChooseOrder(file, kExtentPageBytes, kExtentPageBytes, 0);
  EXPECT_EQ(order, kMaxExtentOrder) << "this megabyte is dense";
  Extent* large = Fill(file, kExtentPageBytes, order);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(large->block.order, kMaxExtentOrder);
  EXPECT_EQ(ExtentCache::Find(file, 0), large);
}

TEST_F(ExtentCacheTest, SmallFilesGetSmallExtents) {
  EXPECT_EQ(ExtentCache::ClipOrder(1, 0, kMaxExtentOrder), 0U);
  EXPECT_EQ(ExtentCache::ClipOrder(4097, 0, kMaxExtentOrder), 1U);
  EXPECT_EQ(ExtentCache::ClipOrder(600 << 10, 0, kMaxExtentOrder), kMaxExtentOrder);
  EXPECT_EQ(ExtentCache::ClipOrder(kMaxExtentBytes + 5000, kMaxExtentBytes, kMaxExtentOrder), 1U);
  EXPECT_EQ(ExtentCache::ClipOrder(1 << 30, 5 << 20, kMaxExtentOrder), kMaxExtentOrder);
}

// Extents of a file never overlap, memory is never in two of them, and all of it comes back.
TEST_F(ExtentCacheTest, HoldsItsInvariantsUnderRandomEvents) {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    CachedFile& one = File(100 + seed, 3 << 20);
    CachedFile& two = File(200 + seed, 8 << 20);
    for (int step = 0; step < 3000; ++step) {
      CachedFile& file = random() % 2 == 0 ? one : two;
      const std::uint64_t offset = random() % (4 << 20);
      Extent* there = ExtentCache::Find(file, offset);
      switch (random() % 6) {
        case 0:
          cache_.Change(file, offset, random() % 50000, nullptr, now_);
          break;
        case 1:
          Advance(milliseconds(random() % 200));
          break;
        case 2:
          if (there != nullptr) {
            ExtentCache::Touch(*there, now_);
            (void)cache_.Grant(*there, random() % 3, now_, milliseconds(random() % 500 + 1));
          }
          break;
        default:
          if (there == nullptr) {
            const auto order = static_cast<unsigned>(random() % (kMaxExtentOrder + 1));
            Extent* made = FillAndLeave(file, offset, order);
            if (made != nullptr) {
              ASSERT_EQ(ExtentCache::Find(file, offset), made);
            }
          }
      }
      for (const CachedFile* checked : {&one, &two}) {
        std::size_t count = 0;
        for (const auto& [key, group] : checked->groups) {
          count += group.size();
          for (std::size_t i = 1; i < group.size(); ++i) {
            ASSERT_LE(group[i - 1]->end(), group[i]->start) << "seed " << seed;
          }
        }
        ASSERT_EQ(count, checked->extents);
      }
      ASSERT_LE(pool_->allocated_bytes(), kPool);
    }
    cache_.Change(one, 0, ~std::uint64_t{0}, nullptr, now_);
    cache_.Change(two, 0, ~std::uint64_t{0}, nullptr, now_);
    Advance(seconds(10));
    cache_.Sweep(now_);
    ASSERT_EQ(pool_->allocated_bytes(), 0U) << "seed " << seed;
    cache_.LeaveFile(one);
    cache_.LeaveFile(two);
  }
}

}  // namespace
}  // namespace rdfs::server
