// What patterns match: all that glob(3) would, here.
#include "tools/copy/source/pattern.h"

#include <glob.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools/copy/temp_tree.h"

namespace rdfs::copy {
namespace {

using Paths = std::vector<std::string>;

TEST(Matches, OneName) {
  EXPECT_TRUE(Matches("*.tar", "a.tar"));
  EXPECT_TRUE(Matches("?[b-d]\\*", "xc*"));
  EXPECT_TRUE(Matches(".*", ".hidden"));
  EXPECT_FALSE(Matches("*", ".hidden"));
  EXPECT_FALSE(Matches("[.]x", ".x"));
  EXPECT_FALSE(Matches("\\*", "x"));
}

class Expanding : public testing::Test {
 protected:
  Expanding() {
    for (const char* folder : {"one", "two", "two/deep", ".hidden", "emp[ty"}) {
      std::filesystem::create_directory(tree_ / folder);
    }
    for (const char* file :
         {"a.tar", "b.tar", "c.tgz", "*.c", "x.c", "one/a.tar", "one/x", "two/b.tar", "two/deep/x",
          ".hidden/a.tar", ".a.tar", "one/.x", "back\\slash", "emp[ty/x"}) {
      tree_.Write(file, "x");
    }
    std::filesystem::create_symlink("one", tree_ / "link");
    std::filesystem::create_symlink("nowhere", tree_ / "dangling");
    from_ = Here()->Open(tree_.path(), O_RDONLY | O_DIRECTORY);
  }
  // What glob(3) makes of it in the tree.
  Paths Globbed(const std::string& pattern) {
    glob_t found{};
    Paths out;
    const std::string base = tree_.path() + "/";
    if (glob((base + pattern).c_str(), 0, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) {
        out.push_back(std::string(found.gl_pathv[i]).substr(base.size()));
      }
    }
    globfree(&found);
    return out;
  }
  TempTree tree_;
  FilePtr from_;
};

TEST_F(Expanding, MatchesWhatGlobMatches) {
  std::size_t matched = 0;
  for (const char* pattern :
       {"*",         "*.tar",      "?.tar",  "[ab].tar", "[!a].tar",     "*/*.tar",
        "*/x",       "o*/",        "*/",     "link/*",   "*/*/x",        "two/*/x",
        "two//*//x", ".h*/a.tar",  ".a*",    "dang*",    "\\*.c",        "*\\slash",
        "back\\\\*", "emp[[]ty/*", "emp[ty", "emp[ty/*", "none*",        "one/x/*",
        "*.tar/",    "one/none",   "[",      "**",       "two/../*.tar", "./*.tgz"}) {
    const Paths found = Expand(*from_, pattern);
    EXPECT_EQ(found, Globbed(pattern)) << pattern;
    matched += found.size();
  }
  EXPECT_GT(matched, 40U);
}

TEST_F(Expanding, ANameThatIsThereLeadsToItself) {
  EXPECT_EQ(Lead(*from_, "*.c"), Paths{"*.c"});
  EXPECT_EQ(Lead(*from_, "?.c"), (Paths{"*.c", "x.c"}));
  EXPECT_EQ(Lead(*from_, "dangling"), Paths{"dangling"});
  EXPECT_EQ(Lead(*from_, "none"), Paths{});
  EXPECT_EQ(Lead(*from_, "none*"), Paths{});
  EXPECT_EQ(Lead(*Here(), tree_ / "?.tgz"), Paths{tree_ / "c.tgz"});
}

// Nobody copies a directory into itself, or what is above it, because he asked for what is hidden.
TEST_F(Expanding, ThePointsAreNoNames) {
  EXPECT_EQ(Expand(*from_, ".*"), (Paths{".a.tar", ".hidden"}));
  EXPECT_EQ(Expand(*from_, "one/.*"), Paths{"one/.x"});
}

}  // namespace
}  // namespace rdfs::copy
