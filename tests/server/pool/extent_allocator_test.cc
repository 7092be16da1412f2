#include "server/pool/extent_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace rdfs::server {
namespace {

struct Held {
  std::uint32_t page;
  unsigned order;
};

TEST(ExtentOrder, IsTheSmallestThatHolds) {
  EXPECT_EQ(ExtentOrderFor(0), 0U);
  EXPECT_EQ(ExtentOrderFor(1), 0U);
  EXPECT_EQ(ExtentOrderFor(4096), 0U);
  EXPECT_EQ(ExtentOrderFor(4097), 1U);
  EXPECT_EQ(ExtentOrderFor(8192), 1U);
  EXPECT_EQ(ExtentOrderFor(8193), 2U);
  EXPECT_EQ(ExtentOrderFor(kMaxExtentBytes), kMaxExtentOrder);
  EXPECT_EQ(ExtentOrderFor(~std::uint64_t{0}), kMaxExtentOrder);
}

class ExtentAllocatorProperty : public testing::TestWithParam<std::uint32_t> {};

// Against a map of pages: blocks never overlap, are aligned, and all memory comes back whole.
TEST_P(ExtentAllocatorProperty, NeverOverlapsAndCoalesces) {
  const std::uint32_t pages = GetParam();
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    ExtentAllocator allocator(pages);
    std::vector<bool> used(pages, false);
    std::vector<Held> held;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 100 < 55) {
        const auto order = static_cast<unsigned>(random() % (kMaxExtentOrder + 1));
        const auto page = allocator.Allocate(order);
        if (!page) continue;
        ASSERT_EQ(*page % (1U << order), 0U);
        ASSERT_LE(*page + (1U << order), pages);
        for (std::uint32_t p = *page; p < *page + (1U << order); ++p) {
          ASSERT_FALSE(used[p]) << "page " << p << " twice, seed " << seed;
          used[p] = true;
        }
        held.push_back({*page, order});
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        const Held block = held.back();
        held.pop_back();
        allocator.Free(block.page, block.order);
        for (std::uint32_t p = block.page; p < block.page + (1U << block.order); ++p) {
          used[p] = false;
        }
      }
      const auto free = static_cast<std::uint32_t>(std::count(used.begin(), used.end(), false));
      ASSERT_EQ(allocator.free_pages(), free);
    }
    for (const Held& block : held) allocator.Free(block.page, block.order);
    for (std::uint32_t i = 0; i < pages / 256; ++i) {
      ASSERT_TRUE(allocator.Allocate(kMaxExtentOrder)) << "fragments were left behind";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ExtentAllocatorProperty, testing::Values(1, 7, 256, 300, 1024));

TEST(ExtentAllocatorDeathTest, RefusesToFreeTwice) {
  ExtentAllocator allocator(16);
  const auto page = allocator.Allocate(2);
  ASSERT_TRUE(page);
  allocator.Free(*page, 2);
  EXPECT_DEATH(allocator.Free(*page, 2), "not in use");
}

}  // namespace
}  // namespace rdfs::server
