#include "tools/copy/file/names.h"

#include <gtest/gtest.h>

namespace rdfs::copy {
namespace {

TEST(Names, AreOneComponent) {
  for (const std::string_view good : {"a", "...", " ", "-rf", "\xff", "a\nb", ".a"}) {
    EXPECT_TRUE(CheckName(good).ok()) << good;
  }
  EXPECT_TRUE(CheckName(std::string(255, 'n')).ok());
  EXPECT_FALSE(CheckName(std::string(256, 'n')).ok());
  for (const std::string_view bad : {"", ".", "..", "/", "a/b", "a/", "/a"}) {
    EXPECT_FALSE(CheckName(bad).ok()) << bad;
  }
  EXPECT_FALSE(CheckName(std::string_view("a\0b", 3)).ok());
}

TEST(Names, MakePathsThatStayBeneath) {
  for (const std::string_view good : {"", "a", "a/b", "a/b.c/..d"}) {
    EXPECT_TRUE(CheckPath(good).ok()) << good;
  }
  for (const std::string_view bad : {"/", "/a", "a/", "a//b", "../a", "a/..", "a/../../b", "./a"}) {
    EXPECT_FALSE(CheckPath(bad).ok()) << bad;
  }
}

TEST(Names, AreJoinedAndTakenApart) {
  EXPECT_EQ(Joined("", ""), "");
  EXPECT_EQ(Joined("a", ""), "a");
  EXPECT_EQ(Joined("", "b"), "b");
  EXPECT_EQ(Joined("a/c", "b"), "a/c/b");
  EXPECT_EQ(FolderOf("a/c/b"), "a/c");
  EXPECT_EQ(FolderOf("a"), "");
  EXPECT_EQ(NameOf("a/c/b"), "b");
  EXPECT_EQ(NameOf("a"), "a");
}

TEST(Names, DoNothingToATerminal) {
  EXPECT_EQ(Shown("plain name"), "plain name");
  EXPECT_EQ(Shown("\u00e4\u20ac\U0001f600"), "\u00e4\u20ac\U0001f600");
  EXPECT_EQ(Shown("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(Shown("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(Shown("\\"), "\\\\");
  EXPECT_EQ(Shown("\x7f"), "\\x7f");
  EXPECT_EQ(Shown("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Shown("\xc2\x9b"), "\\xc2\\x9b");           // CSI as one character
  EXPECT_EQ(Shown("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(Shown("\xc0\xaf"), "\\xc0\\xaf");           // an overlong slash
  EXPECT_EQ(Shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
}

}  // namespace
}  // namespace rdfs::copy
