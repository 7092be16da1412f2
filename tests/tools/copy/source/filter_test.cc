#include "tools/copy/source/filter.h"

#include <gtest/gtest.h>

namespace rdfs::copy {
namespace {

TEST(Patterns, TheFirstThatMatchesDecides) {
  Rules rules;
  rules.Add(true, "keep.o");
  rules.Add(false, "*.o");
  rules.Add(false, "/build");
  rules.Add(false, "src/*.tmp");
  rules.Add(false, "cache/");
  rules.Add(false, "**/deep/*.log");
  EXPECT_TRUE(rules.Takes("a/keep.o", false));
  EXPECT_FALSE(rules.Takes("a/b.o", false));
  EXPECT_FALSE(rules.Takes("build", true));
  EXPECT_TRUE(rules.Takes("a/build", true));
  EXPECT_FALSE(rules.Takes("src/x.tmp", false));
  EXPECT_TRUE(rules.Takes("src/a/x.tmp", false));
  EXPECT_FALSE(rules.Takes("a/cache", true));
  EXPECT_TRUE(rules.Takes("a/cache", false));
  EXPECT_FALSE(rules.Takes("a/deep/b/c.log", false));
  EXPECT_TRUE(rules.Takes("anything", false));
}

TEST(Lists, TakeWhatIsListedWhatIsBeneathAndTheWayThere) {
  Rules rules;
  rules.Add(false, "*.o");
  Listed list(&rules);
  for (const char* path : {"a/b/c", "./d//e/", "gone"}) ASSERT_TRUE(list.Add(path).ok());
  EXPECT_FALSE(list.Add("a/../../etc").ok());
  EXPECT_TRUE(list.Takes("a", true));
  EXPECT_FALSE(list.Takes("a", false));
  EXPECT_TRUE(list.Takes("a/b", true));
  EXPECT_FALSE(list.Takes("a/b/x", false));
  EXPECT_TRUE(list.Takes("a/b/c", false));
  EXPECT_TRUE(list.Takes("d/e", true));
  EXPECT_TRUE(list.Takes("d/e/f/g", false));
  EXPECT_FALSE(list.Takes("d/e/f/g.o", false));
  EXPECT_EQ(list.Missing(), std::vector<std::string>{"gone"});
}

TEST(Lists, LetGoOnlyWhatIsBeneathWhatIsListed) {
  Rules rules;
  rules.Add(false, "*.o");
  Listed list(&rules);
  for (const char* path : {"a/b", "a/b/c/d", "gone"}) ASSERT_TRUE(list.Add(path).ok());
  for (const char* path : {"gone", "a", "a/b", "a/b/c", "a/b/c/d", "a/x", "x", "a/b/x.o"}) {
    EXPECT_FALSE(list.MayGo(path, true)) << path;
  }
  EXPECT_TRUE(list.MayGo("a/b/x", false));
  EXPECT_TRUE(list.MayGo("a/b/c/x", true));
  EXPECT_EQ(list.Missing(), (std::vector<std::string>{"a/b", "a/b/c/d", "gone"}));
  ASSERT_TRUE(list.Add(".").ok());
  EXPECT_TRUE(list.MayGo("x", false));
  EXPECT_FALSE(list.MayGo("gone", false));
  // Whatever else is listed.
  EXPECT_TRUE(list.Takes("gone", false));
  EXPECT_EQ(list.Missing(), (std::vector<std::string>{"a/b", "a/b/c/d"}));
}

}  // namespace
}  // namespace rdfs::copy
