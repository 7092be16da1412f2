#include "fs/client/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/fs/client/with_buffers.h"

namespace rdfs::fs::client {
namespace {

constexpr std::size_t kPage = Buffer::kPageBytes;

using BufferTest = WithBuffers;

TEST_F(BufferTest, PiecesAreDisjointAndComeBack) {
  std::optional<Buffer> small = pool_->Allocate(1);
  std::optional<Buffer> large = pool_->Allocate(32 * kPage);
  ASSERT_TRUE(small && large);
  EXPECT_EQ(small->size(), kPage);
  EXPECT_EQ(pool_->free_bytes(), 31 * kPage);
  EXPECT_LE(small->bytes().data() + small->size(), large->bytes().data());
  EXPECT_FALSE(pool_->Allocate(32 * kPage));
  small->Reset();
  large->Reset();
  EXPECT_EQ(pool_->free_bytes(), 64 * kPage);
  EXPECT_TRUE(pool_->Allocate(64 * kPage));
}

TEST_F(BufferTest, ShrinkingGivesTheTailBack) {
  std::optional<Buffer> buffer = pool_->Allocate(64 * kPage);
  ASSERT_TRUE(buffer);
  buffer->ShrinkTo(kPage + 1);
  EXPECT_EQ(buffer->size(), 2 * kPage);
  EXPECT_EQ(pool_->free_bytes(), 62 * kPage);
  EXPECT_TRUE(pool_->Allocate(62 * kPage));
}

TEST_F(BufferTest, LittleThatIsHeldLeavesTheRoomForLargeOnesWhole) {
  constexpr std::size_t kLarge = 33 * kPage;
  std::vector<Buffer> held;
  Buffer receive;
  for (int i = 0; i < 10; ++i) {
    if (!receive.valid()) {
      std::optional<Buffer> large = pool_->Allocate(kLarge);
      ASSERT_TRUE(large) << i;
      receive = std::move(*large);
    }
    std::memset(receive.bytes().data(), i, kPage + 80);
    held.push_back(pool_->TakeFront(receive, kPage + 80));
    EXPECT_EQ(held.back().size(), 2 * kPage);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(held[i].bytes()[0], static_cast<std::byte>(i));
    EXPECT_EQ(held[i].bytes()[kPage + 79], static_cast<std::byte>(i));
  }
}

TEST_F(BufferTest, WhatIsLargeOrHasNoOtherPlaceStaysWhereItIs) {
  std::optional<Buffer> large = pool_->Allocate(33 * kPage);
  ASSERT_TRUE(large);
  const std::byte* start = large->bytes().data();
  Buffer front = pool_->TakeFront(*large, 20 * kPage);
  EXPECT_FALSE(large->valid());
  EXPECT_EQ(front.bytes().data(), start);
  EXPECT_EQ(front.size(), 20 * kPage);
  front.Reset();

  std::optional<Buffer> all = pool_->Allocate(64 * kPage);
  ASSERT_TRUE(all);
  start = all->bytes().data();
  front = pool_->TakeFront(*all, 2 * kPage);
  EXPECT_FALSE(all->valid());
  EXPECT_EQ(front.bytes().data(), start);
  EXPECT_EQ(pool_->free_bytes(), 62 * kPage);
}

TEST_F(BufferTest, PagesThatADeviceMayTouchAreNotGivenOut) {
  std::optional<Buffer> buffer = pool_->Allocate(64 * kPage);
  ASSERT_TRUE(buffer);
  const transport::LocalSlice slice = buffer->Slice(kPage / 2, kPage);  // lies on two pages
  EXPECT_TRUE(pool_->Contains(slice));
  pool_->BeginOperation(slice);
  const std::byte* start = buffer->bytes().data();
  buffer->Reset();
  EXPECT_EQ(pool_->free_bytes(), 62 * kPage);
  std::optional<Buffer> next = pool_->Allocate(kPage);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->bytes().data(), start + 2 * kPage);
  pool_->EndOperation(slice);
  EXPECT_EQ(pool_->free_bytes(), 63 * kPage);
}

TEST_F(BufferTest, SlicesOutsideAreNotItsOwn) {
  EXPECT_FALSE(pool_->Contains({.region = nullptr, .offset = 0, .length = 1}));
  EXPECT_FALSE(pool_->Contains({.region = region_.get(), .offset = 64 * kPage, .length = 1}));
  EXPECT_FALSE(pool_->Contains({.region = region_.get(), .offset = 1, .length = UINT64_MAX}));
  EXPECT_TRUE(pool_->Contains({.region = region_.get(), .offset = 0, .length = 64 * kPage}));
}

TEST(LaneBufferBytes, OverVerbsTheyFitTheMemlockLimit) {
  constexpr std::size_t kMiB = 1 << 20;
  using transport::Kind;
  EXPECT_EQ(LaneBufferBytes(Kind::kVerbs, std::numeric_limits<std::uint64_t>::max(), 2), 16 * kMiB);
  EXPECT_EQ(LaneBufferBytes(Kind::kVerbs, 8 * kMiB, 2), 2 * kMiB);
  EXPECT_EQ(LaneBufferBytes(Kind::kVerbs, 64 * 1024, 2), kMiB);
  EXPECT_EQ(LaneBufferBytes(Kind::kVerbs, 1024 * kMiB, 2), 16 * kMiB);
  EXPECT_EQ(LaneBufferBytes(Kind::kShm, 64 * 1024, 2), 16 * kMiB);
  EXPECT_EQ(LaneBufferBytes(Kind::kTcp, 64 * 1024, 2), 16 * kMiB);
}

}  // namespace
}  // namespace rdfs::fs::client
