#include "fs/fuse/names/directory_listing.h"

#include <gtest/gtest.h>

#include <array>

#include "fs/protocol.h"
#include "transport/base/bytes.h"

namespace rdfs::fs::fuse {
namespace {

using std::chrono_literals::operator""s;

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr TimePoint kLease = kNow + 5s;

// A page of entries named after their cookies, first to last; `ends`: nothing follows.
class Page {
 public:
  Page(std::uint64_t first, std::uint64_t last, bool ends = false) {
    ByteWriter out(bytes_);
    for (std::uint64_t cookie = first; cookie <= last; ++cookie) {
      DirEntryWire wire{};
      wire.ino = 1000 + cookie;
      wire.cookie = cookie;
      out.Write(wire);
      out.WriteSized16(AsBytes("f" + std::to_string(cookie)));
    }
    if (ends) {
      DirEntryWire end{};
      end.type = kDirectoryEnd;
      out.Write(end);
    }
    size_ = out.size();
  }
  client::DirPage Open() { return {std::span(bytes_).first(size_), false, kNow}; }

 private:
  std::array<std::byte, 1 << 17> bytes_{};
  std::size_t size_ = 0;
};

class DirectoryListingTest : public testing::Test {
 protected:
  void First(std::uint64_t first, std::uint64_t last, bool ends = false) {
    Page page(first, last, ends);
    client::DirPage open = page.Open();
    listing_.TakeFirst(kNow, open);
  }
  void More(std::uint64_t behind, std::uint64_t first, std::uint64_t last, bool ends = false,
            std::uint64_t changes = kChanges, TimePoint now = kNow) {
    Page page(first, last, ends);
    client::DirPage open = page.Open();
    listing_.Take(behind, changes, now, open);
  }
  // How many entries follow; -1: not known.
  int Follow(std::uint64_t cookie) {
    const auto entries = listing_.Behind(cookie);
    if (!entries) return -1;
    if (!entries->empty()) {
      EXPECT_EQ(entries->front().name, "f" + std::to_string(entries->front().cookie));
    }
    return static_cast<int>(entries->size());
  }
  static constexpr std::uint64_t kChanges = 7;
  DirectoryListing listing_{kChanges, kLease};
};

TEST_F(DirectoryListingTest, AnyNumberOfProgramsGoOnInOne) {
  First(1, 10, true);
  EXPECT_EQ(Follow(0), 10);
  listing_.Told(listing_.Behind(0)->first(4));
  EXPECT_EQ(Follow(4), 6);
  EXPECT_EQ(Follow(9), 1);
  EXPECT_EQ(Follow(1), 9);
  EXPECT_EQ(Follow(10), 0);
  EXPECT_EQ(Follow(11), -1);
  for (int program = 0; program < 3; ++program) EXPECT_TRUE(listing_.TakeEnd(kChanges, kNow));
}

TEST_F(DirectoryListingTest, IsCurrentUnderItsLeaseWhileNothingChanges) {
  First(1, 10, true);
  EXPECT_TRUE(listing_.IsCurrent(kChanges, kNow));
  EXPECT_TRUE(listing_.IsCurrent(kChanges, kLease - std::chrono::nanoseconds(1)));
  EXPECT_FALSE(listing_.IsCurrent(kChanges, kLease));
  EXPECT_FALSE(listing_.IsCurrent(kChanges + 1, kNow));
}

TEST_F(DirectoryListingTest, TheEndIsToldOnceWhereItMayHaveMoved) {
  First(1, 2, true);
  EXPECT_TRUE(listing_.TakeEnd(kChanges + 1, kNow));
  EXPECT_FALSE(listing_.TakeEnd(kChanges + 1, kNow)) << "who asks again wants to see what has come";
  EXPECT_FALSE(listing_.TakeEnd(kChanges, kLease));
}

TEST_F(DirectoryListingTest, PagesMakeOneListingUnderTheLease) {
  First(1, 10);
  EXPECT_FALSE(listing_.TakeEnd(kChanges, kNow));
  More(10, 11, 20, true);
  EXPECT_TRUE(listing_.IsCurrent(kChanges, kNow));
  EXPECT_EQ(Follow(0), 20);
  EXPECT_EQ(Follow(15), 5);
  EXPECT_TRUE(listing_.TakeEnd(kChanges, kNow));
}

TEST_F(DirectoryListingTest, APageOfAnotherTimeReplacesWhatCameBefore) {
  First(1, 10);
  More(10, 11, 20, true, kChanges + 1);
  EXPECT_FALSE(listing_.IsCurrent(kChanges + 1, kNow));
  EXPECT_EQ(listing_.changes(), kChanges + 1);
  EXPECT_EQ(Follow(0), -1) << "who begins must ask";
  EXPECT_EQ(Follow(10), 10);
  More(20, 21, 22, true, kChanges + 1, kLease);
  EXPECT_EQ(Follow(10), -1);
  EXPECT_EQ(Follow(20), 2);
}

TEST_F(DirectoryListingTest, APageThatDoesNotGoOnReplacesWhatCameBefore) {
  First(1, 10);
  More(5, 6, 8);
  EXPECT_EQ(Follow(0), -1);
  EXPECT_EQ(Follow(5), 3);
  EXPECT_FALSE(listing_.IsCurrent(kChanges, kNow));
}

TEST_F(DirectoryListingTest, APageWithoutEntriesIsTheEnd) {
  First(1, 3);
  More(3, 1, 0);
  EXPECT_EQ(Follow(3), 0);
  EXPECT_TRUE(listing_.TakeEnd(kChanges, kNow));
}

// The server gave no lease: it tells nothing with the open, and that is no end.
TEST_F(DirectoryListingTest, WithoutAFirstPageNothingIsKnown) {
  First(1, 0);
  EXPECT_FALSE(listing_.IsCurrent(kChanges, kNow));
  EXPECT_EQ(Follow(0), 0);
  EXPECT_FALSE(listing_.TakeEnd(kChanges, kNow));
  More(0, 1, 5, true);
  EXPECT_FALSE(listing_.IsCurrent(kChanges, kNow));
  EXPECT_EQ(Follow(0), 5);
}

TEST_F(DirectoryListingTest, KeepsNoMoreThanItsBound) {
  const auto gathered = static_cast<std::uint64_t>(DirectoryListing::kMostGathered);
  First(1, gathered);
  More(gathered, gathered + 1, gathered + 10);
  EXPECT_EQ(Follow(0), -1);
  EXPECT_EQ(Follow(gathered), 10);
  EXPECT_FALSE(listing_.IsCurrent(kChanges, kNow));
}

}  // namespace
}  // namespace rdfs::fs::fuse
