#include "server/pool/pool.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "server/write/staging.h"

namespace rdfs::server {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(PoolOptions, AreSizedToTheMachine) {
  EXPECT_GE(DefaultPoolBytes(), 16 * kMiB);
  EXPECT_LE(DefaultPoolBytes(), 4096 * kMiB);
}

TEST(PoolOptions, WhereMemoryMayBeLockedAllArenasAreAlike) {
  for (const std::size_t lockable : {SIZE_MAX, 512 * kMiB}) {
    const PoolOptions options = PoolOptionsFor(300 * kMiB, lockable);
    EXPECT_EQ(options.pool_bytes, 300 * kMiB);
    EXPECT_EQ(options.arena_bytes, 64 * kMiB);
    EXPECT_EQ(options.first_arena_bytes, 0U);
  }
}

TEST(PoolOptions, TheFirstArenaTakesAQuarterOfWhatMayBeLocked) {
  EXPECT_EQ(PoolOptionsFor(0, 512 * kMiB - 1).first_arena_bytes, 127 * kMiB);
  EXPECT_EQ(PoolOptionsFor(0, 8 * kMiB).first_arena_bytes, 2 * kMiB);
  // One extent at least: with less no lane of verbs could read from it.
  EXPECT_EQ(PoolOptionsFor(0, 64 * 1024).first_arena_bytes, kMaxExtentBytes);
  EXPECT_EQ(PoolOptionsFor(0, 0).first_arena_bytes, kMaxExtentBytes);
}

TEST(DefaultStagingBytes, AreHalfOfWhatMayBeLocked) {
  EXPECT_EQ(DefaultStagingBytes(8 * kMiB), 4 * kMiB);
  EXPECT_EQ(DefaultStagingBytes(SIZE_MAX), 1024 * kMiB);
}

}  // namespace
}  // namespace rdfs::server
