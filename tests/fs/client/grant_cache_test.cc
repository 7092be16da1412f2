#include "fs/client/grant_cache.h"

#include <gtest/gtest.h>

#include <array>

namespace rdfs::fs::client {
namespace {

using std::chrono::seconds;

constexpr TimePoint kNow{std::chrono::hours(10)};
constexpr TimePoint kLater = kNow + seconds(10);
constexpr std::uint64_t kEverything = UINT64_MAX;

CachedGrant MakeGrant(std::uint64_t offset, std::uint32_t length, TimePoint expires = kLater,
                      std::uint32_t arena = 1) {
  return {.file_offset = offset,
          .length = length,
          .arena = arena,
          .arena_offset = offset,
          .generation_arena = 99,
          .generation_offset = 0,
          .generation = 7,
          .expires = expires};
}

class GrantCacheTest : public testing::Test {
 protected:
  void Insert(std::initializer_list<CachedGrant> grants, std::uint64_t file_size = 1000,
              std::uint64_t change = 1) {
    const std::vector<CachedGrant> all(grants);
    cache_.Insert(inode_, inode_->own_changes.load(), change, file_size, all);
  }
  GrantCache::Cover Find(std::uint64_t offset, std::uint32_t length, TimePoint now = kNow) {
    return cache_.Find(*inode_, offset, length, now, pieces_);
  }

  const std::shared_ptr<InodeState> inode_ =
      std::make_shared<InodeState>(*Handle::FromBytes(AsBytes("file")));
  GrantCache cache_{{.files = 4, .grants_per_file = 8}};
  std::array<GrantPiece, 4> pieces_;
};

TEST_F(GrantCacheTest, CoversAcrossExtentsAndStopsAtGaps) {
  Insert({MakeGrant(0, 100), MakeGrant(100, 100), MakeGrant(300, 100)});
  const GrantCache::Cover cover = Find(50, 100);
  EXPECT_EQ(cover.length, 100U);
  ASSERT_EQ(cover.pieces, 2U);
  EXPECT_EQ(pieces_[0].skip, 50U);
  EXPECT_EQ(pieces_[0].length, 50U);
  EXPECT_EQ(pieces_[1].skip, 0U);
  EXPECT_EQ(pieces_[1].length, 50U);
  EXPECT_EQ(Find(150, 100).length, 50U);
  EXPECT_EQ(Find(250, 10).length, 0U);
  EXPECT_EQ(cache_.ReachFrom(*inode_, 10, kNow).end, 200U);
}

TEST_F(GrantCacheTest, KnowsTheEndOfTheFile) {
  Insert({MakeGrant(0, 100), MakeGrant(100, 50)}, 150);
  const GrantCache::Cover cover = Find(90, 500);
  EXPECT_EQ(cover.length, 60U);
  EXPECT_TRUE(cover.to_end_of_file);
  EXPECT_FALSE(Find(0, 100).to_end_of_file);
  // Beyond it the server is asked: the file may have grown.
  EXPECT_EQ(Find(150, 10).length, 0U);
  EXPECT_TRUE(cache_.ReachFrom(*inode_, 0, kNow).to_end_of_file);
}

TEST_F(GrantCacheTest, LeasesRunOut) {
  Insert({MakeGrant(0, 100, kNow + seconds(1)), MakeGrant(100, 100, kLater)});
  EXPECT_EQ(Find(0, 200).length, 200U);
  EXPECT_EQ(Find(0, 200, kNow + seconds(1)).length, 0U);
  EXPECT_EQ(Find(100, 100, kNow + seconds(1)).length, 100U);
}

TEST_F(GrantCacheTest, NewGrantsReplaceWhatTheyOverlap) {
  Insert({MakeGrant(0, 100), MakeGrant(100, 100), MakeGrant(200, 100)});
  CachedGrant wide = MakeGrant(50, 200);
  wide.generation = 8;
  Insert({wide});
  EXPECT_EQ(cache_.grants(), 1U);
  EXPECT_EQ(Find(50, 200).length, 200U);
  EXPECT_EQ(pieces_[0].grant.generation, 8U);
  EXPECT_EQ(Find(0, 10).length, 0U);
}

TEST_F(GrantCacheTest, OwnWritesDropWhatTheyOverlap) {
  Insert({MakeGrant(0, 100), MakeGrant(100, 100), MakeGrant(200, 100)});
  cache_.OwnChange(*inode_, 150, 160);
  EXPECT_EQ(Find(0, 100).length, 100U);
  EXPECT_EQ(Find(100, 10).length, 0U);
  EXPECT_EQ(Find(200, 100).length, 100U);
}

TEST_F(GrantCacheTest, AWriteBehindTheEndDropsTheKnownEnd) {
  Insert({MakeGrant(0, 100)}, 100);
  ASSERT_TRUE(Find(0, 500).to_end_of_file);
  cache_.OwnChange(*inode_, 400, 410);
  EXPECT_EQ(Find(0, 500).length, 0U);
}

// Another lane of this client wrote: it counted the change in the inode, and knows nothing of us.
TEST_F(GrantCacheTest, WritesOfOtherLanesDropTheFile) {
  Insert({MakeGrant(0, 100)});
  inode_->own_changes.fetch_add(1);
  EXPECT_EQ(Find(0, 100).length, 0U);
  EXPECT_EQ(cache_.files(), 0U);
}

// The grant was asked for before our write and arrives after it: it may be older than the write.
TEST_F(GrantCacheTest, GrantsFromBeforeAWriteAreNotKept) {
  const std::uint64_t asked = inode_->own_changes.load();
  cache_.OwnChange(*inode_, 0, kEverything);
  const std::array grants{MakeGrant(0, 100)};
  cache_.Insert(inode_, asked, 1, 1000, grants);
  EXPECT_EQ(cache_.grants(), 0U);
}

TEST_F(GrantCacheTest, AnotherChangeCookieDropsOlderGrants) {
  Insert({MakeGrant(0, 100)}, 1000, 1);
  Insert({MakeGrant(200, 100)}, 1000, 2);
  EXPECT_EQ(Find(0, 100).length, 0U);
  EXPECT_EQ(Find(200, 100).length, 100U);
}

TEST_F(GrantCacheTest, GoesWithItsArena) {
  Insert({MakeGrant(0, 100, kLater, 1), MakeGrant(100, 100, kLater, 2)});
  cache_.DropArena(1);
  EXPECT_EQ(Find(0, 100).length, 0U);
  EXPECT_EQ(Find(100, 100).length, 100U);
  cache_.DropArena(99);  // of the generation words
  EXPECT_EQ(cache_.grants(), 0U);
}

TEST_F(GrantCacheTest, IsBounded) {
  for (std::uint64_t i = 0; i < 100; ++i) Insert({MakeGrant(i * 100, 100)}, 1 << 20);
  EXPECT_EQ(cache_.grants(), 8U);
  EXPECT_EQ(Find(9900, 100).length, 100U);  // a sequential reader keeps what lies ahead
  std::vector<std::shared_ptr<InodeState>> inodes;
  for (int i = 0; i < 10; ++i) {
    inodes.push_back(std::make_shared<InodeState>(*Handle::FromBytes(AsBytes("other"))));
    const std::array grants{MakeGrant(0, 100)};
    cache_.Insert(inodes.back(), 0, 1, 1000, grants);
  }
  EXPECT_EQ(cache_.files(), 4U);
}

}  // namespace
}  // namespace rdfs::fs::client
