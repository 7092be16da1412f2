#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "fs/client/types.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;

class PageBuilder {
 public:
  PageBuilder& Add(std::uint64_t ino, std::string_view name) {
    writer_.Write(DirEntryWire{.ino = ino, .cookie = ino * 10, .type = 8});
    writer_.WriteSized16(AsBytes(name));
    return *this;
  }
  PageBuilder& With(const Entry& entry) {
    writer_.Write(Le16(1));
    WriteEntry(writer_, entry);
    return *this;
  }
  PageBuilder& Without() {
    writer_.Write(Le16(0));
    return *this;
  }
  PageBuilder& End(std::uint32_t type = kDirectoryEnd) {
    writer_.Write(DirEntryWire{.ino = 0, .cookie = 0, .type = type});
    return *this;
  }
  [[nodiscard]] ByteSpan bytes() const { return writer_.written(); }

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(4096);
  ByteWriter writer_{buffer_};
};

Entry MakeEntry(std::uint32_t lease_ms) {
  Entry entry{};
  entry.handle = *Handle::FromBytes(AsBytes("handle"));
  entry.attr.lease_ms = lease_ms;
  entry.entry_lease_ms = 2 * lease_ms;
  return entry;
}

TEST(DirPage, GivesItsEntriesInOrder) {
  PageBuilder builder;
  builder.Add(1, ".").Add(2, "..").Add(3, "\xff name");
  DirPage page(builder.bytes(), false, TimePoint());
  ASSERT_TRUE(page.Check());
  EXPECT_EQ(page.Next()->name, ".");
  EXPECT_EQ(page.Next()->name, "..");
  const std::optional<DirEntry> entry = page.Next();
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->name, "\xff name");
  EXPECT_EQ(entry->cookie, 30U);
  EXPECT_FALSE(page.Next());
}

TEST(DirPage, MayTellThatNothingFollows) {
  for (const bool told : {false, true}) {
    PageBuilder builder;
    builder.Add(1, "a");
    if (told) builder.End();
    DirPage page(builder.bytes(), false, TimePoint());
    ASSERT_TRUE(page.Check());
    EXPECT_EQ(page.Next()->name, "a");
    EXPECT_FALSE(page.Next());
    EXPECT_EQ(page.ends_directory(), told);
  }
  PageBuilder other, early;
  EXPECT_FALSE(DirPage(other.Add(1, "a").End(8).bytes(), false, TimePoint()).Check());
  EXPECT_FALSE(DirPage(early.End().Add(1, "a").bytes(), false, TimePoint()).Check());
}

TEST(DirPage, CountsLeasesFromWhenItWasAskedFor) {
  PageBuilder builder;
  builder.Add(1, "a").With(MakeEntry(1000)).Add(2, "b").Without();
  const TimePoint asked{std::chrono::hours(5)};
  DirPage page(builder.bytes(), true, asked);
  ASSERT_TRUE(page.Check());
  const std::optional<DirEntry> entry = page.Next();
  ASSERT_TRUE(entry && entry->file);
  EXPECT_EQ(entry->file->attr_expires, asked + milliseconds(990));
  EXPECT_EQ(entry->file->name_expires, asked + milliseconds(1980));
  EXPECT_FALSE(page.Next()->file);
}

TEST(DirPage, RefusesNamesThatAreNone) {
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a\0b", 3),
                                  std::string(kMaxNameBytes + 1, 'x')}) {
    PageBuilder builder;
    builder.Add(1, "good").Add(2, name);
    EXPECT_FALSE(DirPage(builder.bytes(), false, TimePoint()).Check()) << name;
  }
  PageBuilder odd;
  odd.Add(1, "a");
  std::vector<std::byte> bytes(odd.bytes().begin(), odd.bytes().end());
  bytes.push_back(std::byte{2});  // neither an entry nor none
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(DirPage(bytes, true, TimePoint()).Check());
}

// Whatever the bytes: it ends, and touches nothing outside (the sanitizers look).
TEST(DirPage, EndsOnAnyBytes) {
  std::mt19937 random(7);
  PageBuilder builder;
  builder.Add(1, "first").With(MakeEntry(1)).Add(2, "second").Without();
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(builder.bytes().begin(), builder.bytes().end());
    for (unsigned flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    DirPage page(bytes, round % 2 == 0, TimePoint());
    const bool sound = page.Check();
    int entries = 0;
    while (page.Next()) ++entries;
    EXPECT_LE(entries, 8);
    if (bytes.empty()) {
      EXPECT_TRUE(sound);
    }
  }
}

}  // namespace
}  // namespace rdfs::fs::client
