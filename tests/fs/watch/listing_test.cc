// What differs between two looks at a directory, by inotifywait's names.
#include "fs/watch/listing.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace rdfs::fs::watch {
namespace {

AttrWire File(std::uint64_t ino, std::uint64_t size = 0, std::int64_t mtime = 1,
              std::uint32_t mode = S_IFREG | 0644) {
  AttrWire attr{};
  attr.ino = ino;
  attr.size = size;
  attr.mtime.seconds = mtime;
  attr.ctime.seconds = mtime;
  attr.mode = mode;
  attr.nlink = 1;
  return attr;
}
AttrWire Folder(std::uint64_t ino, std::int64_t mtime = 1, std::uint32_t mode = 0755) {
  return File(ino, 4096, mtime, S_IFDIR | mode);
}

std::string Lines(const Listing& before, const Listing& now) {
  std::string lines;
  for (const Event& event : Compare(before, now)) lines += Format("d", event);
  return lines;
}

TEST(Listing, NothingHappened) {
  const Listing same{{"a", File(1, 5)}, {"b", Folder(2)}};
  EXPECT_EQ(Lines(same, same), "");
  EXPECT_EQ(Lines({}, {}), "");
}

TEST(Listing, ComeAndGone) {
  EXPECT_EQ(Lines({}, {{"a", File(1)}, {"b", Folder(2)}}), "d/ CREATE a\nd/ CREATE,ISDIR b\n");
  EXPECT_EQ(Lines({}, {{"a", File(1, 5)}}), "d/ CREATE a\nd/ MODIFY a\n");
  EXPECT_EQ(Lines({{"a", File(1)}, {"b", Folder(2)}}, {}), "d/ DELETE a\nd/ DELETE,ISDIR b\n");
}

TEST(Listing, Moved) {
  EXPECT_EQ(Lines({{"a", File(1)}}, {{"b", File(1)}}), "d/ MOVED_FROM a\nd/ MOVED_TO b\n");
  // Over another one, which is not told to be deleted.
  EXPECT_EQ(Lines({{"a", File(1)}, {"b", File(2)}}, {{"b", File(1)}}),
            "d/ MOVED_FROM a\nd/ MOVED_TO b\n");
  EXPECT_EQ(Lines({{"a", File(1)}, {"b", File(2)}}, {{"a", File(2)}, {"b", File(1)}}),
            "d/ MOVED_FROM a\nd/ MOVED_TO b\nd/ MOVED_FROM b\nd/ MOVED_TO a\n");
  // From elsewhere: an editor's new version.
  EXPECT_EQ(Lines({{"a", File(1)}}, {{"a", File(9)}}), "d/ MOVED_TO a\n");
}

TEST(Listing, ANumberThatIsUsedAgainIsAnotherFile) {
  const auto born = [](AttrWire attr, std::int64_t at) {
    attr.btime.seconds = at;
    return attr;
  };
  EXPECT_EQ(Lines({{"a", born(File(1), 1)}}, {{"b", born(File(1), 2)}}),
            "d/ DELETE a\nd/ CREATE b\n");
  EXPECT_EQ(Lines({{"a", born(File(1, 1), 1)}}, {{"a", born(File(1, 2), 2)}}), "d/ MOVED_TO a\n");
  EXPECT_EQ(Lines({{"a", File(1)}}, {{"b", Folder(1)}}), "d/ DELETE a\nd/ CREATE,ISDIR b\n");
  EXPECT_EQ(Lines({{"a", born(File(1), 1)}}, {{"b", born(File(1), 1)}}),
            "d/ MOVED_FROM a\nd/ MOVED_TO b\n");
  // Who tells of no birth has moved it, for all that is known.
  EXPECT_EQ(Lines({{"a", born(File(1), 1)}}, {{"b", File(1)}}), "d/ MOVED_FROM a\nd/ MOVED_TO b\n");
}

TEST(Listing, MovedAndWritten) {
  const std::string moved = "d/ MOVED_FROM a\nd/ MOVED_TO b\n";
  EXPECT_EQ(Lines({{"a", File(1, 1)}}, {{"b", File(1, 2)}}), moved + "d/ MODIFY b\n");
  EXPECT_EQ(Lines({{"a", File(1, 1, 1)}}, {{"b", File(1, 1, 2)}}), moved + "d/ MODIFY b\n");
  AttrWire only_moved = File(1);
  only_moved.ctime.seconds = 2;
  EXPECT_EQ(Lines({{"a", File(1)}}, {{"b", only_moved}}), moved);
  EXPECT_EQ(Lines({{"a", Folder(1, 1)}}, {{"b", Folder(1, 2)}}),
            "d/ MOVED_FROM,ISDIR a\nd/ MOVED_TO,ISDIR b\n");
}

TEST(Listing, Changed) {
  EXPECT_EQ(Lines({{"a", File(1, 1)}}, {{"a", File(1, 2)}}), "d/ MODIFY a\n");
  EXPECT_EQ(Lines({{"a", File(1, 1, 1)}}, {{"a", File(1, 1, 2)}}), "d/ MODIFY a\n");
  EXPECT_EQ(Lines({{"a", File(1)}}, {{"a", File(1, 0, 1, S_IFREG | 0600)}}), "d/ ATTRIB a\n");
  AttrWire linked = File(1);
  linked.nlink = 2;
  EXPECT_EQ(Lines({{"a", File(1)}}, {{"a", linked}, {"b", linked}}), "d/ CREATE b\nd/ ATTRIB a\n");
  EXPECT_EQ(Lines({{"a", Folder(1, 1)}}, {{"a", Folder(1, 2)}}), "");
  EXPECT_EQ(Lines({{"a", Folder(1)}}, {{"a", Folder(1, 1, 0700)}}), "d/ ATTRIB,ISDIR a\n");
}

TEST(Listing, ANameIsOneLine) {
  EXPECT_EQ(Lines({}, {{"a\nd/ DELETE b\x1b[2J", File(1)}}), "d/ CREATE a?d/ DELETE b?[2J\n");
  EXPECT_EQ(Format("/", {"DELETE_SELF", false, ""}), "/ DELETE_SELF \n");
}

}  // namespace
}  // namespace rdfs::fs::watch
