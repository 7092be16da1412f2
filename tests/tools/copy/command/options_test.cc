// The command line of rdcp.
#include "tools/copy/command/options.h"

#include <gtest/gtest.h>

namespace rdfs::copy {
namespace {

struct Parsed {
  std::optional<int> exit;
  CopyOptions options;
};

Parsed Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "rdcp");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  Parsed out;
  out.exit = ParseCopy(static_cast<int>(arguments.size()), arguments.data(), out.options);
  return out;
}

TEST(CopyOptions, TakesSourcesAndDestination) {
  const Parsed parsed = Parse({"-r", "a", "b", "c"});
  ASSERT_FALSE(parsed.exit);
  EXPECT_TRUE(parsed.options.recurse);
  EXPECT_TRUE(parsed.options.IsLocal());
  ASSERT_EQ(parsed.options.sources.size(), 2U);
  EXPECT_EQ(parsed.options.sources[1].path, "b");
  EXPECT_EQ(parsed.options.destination.path, "c");
  EXPECT_FALSE(Parse({"a", "host:b"}).options.IsLocal());
  EXPECT_TRUE(Parse({"rdfs://h/e", "b"}).options.IsLocal());
  EXPECT_FALSE(Parse({"rdfs://h/e", "host:b"}).options.IsLocal());
  EXPECT_EQ(Parse({"--key-file", "k", "a", "rdfs://h/e"}).options.key_file, "k");
  EXPECT_EQ(Parse({"--key-file", "k", "a", "host:b"}).exit, 2);
  EXPECT_EQ(Parse({"--", "-a", "-b"}).options.sources[0].path, "-a");
}

TEST(CopyOptions, KeepsWhatIsAskedFor) {
  EXPECT_FALSE(Parse({"a", "b"}).options.keep.times);
  const Keep some = Parse({"-p", "a", "b"}).options.keep;
  EXPECT_TRUE(some.times && some.mode && some.owner && some.acls);
  EXPECT_FALSE(some.links || some.xattrs || some.specials);
  const Parsed all = Parse({"-a", "a", "b"});
  EXPECT_TRUE(all.options.recurse && all.options.keep.links && all.options.keep.xattrs);
  const Parsed sync = Parse({"--sync", "a", "b"});
  EXPECT_TRUE(sync.options.recurse && sync.options.keep.times);
  EXPECT_FALSE(sync.options.keep.owner);
}

TEST(CopyOptions, WhoGoesOnSkipsWhatIsWhole) {
  const Parsed resume = Parse({"--resume", "a", "b"});
  EXPECT_TRUE(resume.options.resume && resume.options.policy.sync && resume.options.keep.times);
  EXPECT_FALSE(resume.options.recurse || resume.options.progress);
  const Parsed partial = Parse({"-P", "a", "b"});
  EXPECT_TRUE(partial.options.resume && partial.options.progress);
  EXPECT_TRUE(Parse({"--bootstrap", "a", "host:b"}).options.bootstrap);
}

TEST(CopyOptions, KeepsTheOrderOfPatterns) {
  Parsed parsed =
      Parse({"-r", "--include", "a.o", "--exclude", "*.o", "--include", "*.o", "x", "y"});
  ASSERT_FALSE(parsed.exit);
  EXPECT_TRUE(parsed.options.rules.Takes("a.o", false));
  EXPECT_FALSE(parsed.options.rules.Takes("b.o", false));
  parsed = Parse({"-r", "--exclude", "*.o", "--include", "a.o", "x", "y"});
  EXPECT_FALSE(parsed.options.rules.Takes("a.o", false));
}

TEST(CopyOptions, BracketsAreAsGiven) {
  const Parsed parsed = Parse({"-r", "data", "[a,b]", "[]", "[old]"});
  ASSERT_FALSE(parsed.exit);
  ASSERT_EQ(parsed.options.sources.size(), 3U);
  EXPECT_EQ(parsed.options.sources[1].path, "[a,b]");
  EXPECT_EQ(parsed.options.sources[2].path, "[]");
  EXPECT_EQ(parsed.options.destination.path, "[old]");
  EXPECT_EQ(Parse({"--", "[-a]", "[x"}).options.destination.path, "[x");
}

TEST(CopyOptions, BracketsInOptionsAreAsGiven) {
  const Parsed parsed =
      Parse({"-r", "--exclude", "[ab]", "--exclude=[cd]", "--rdcp-path", "[p]", "x", "y"});
  ASSERT_FALSE(parsed.exit);
  EXPECT_EQ(parsed.options.rules.given(), (std::vector<std::string>{"-[ab]", "-[cd]"}));
  EXPECT_EQ(parsed.options.rdcp_path, "[p]");
  EXPECT_EQ(Parse({"-r", "--files-from", "[l]", "x", "y"}).options.files_from, "[l]");
  EXPECT_EQ(Parse({"--require", "[tcp]", "x", "y"}).exit, 2);
}

TEST(CopyOptions, RefusesWhatMakesNoSense) {
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"a"},
      {"a", ""},
      {"", "b"},
      {"--no-such", "a", "b"},
      {"--delete", "a", "b"},
      {"--files-from", "l", "a", "b"},
      {"-r", "--files-from", "l", "a", "b", "c"},
      {"-0", "a", "b"},
      {"-P", "--inplace", "a", "b"},
      {"--resume", "--inplace", "a", "b"},
      {"--require-encryption", "--require", "verbs", "a", "h:b"},
      {"-oX:y", "b"}};
  for (const auto& words : wrong) {
    const Parsed parsed = Parse(words);
    EXPECT_EQ(parsed.exit, 2) << (words.empty() ? "" : words[0]);
  }
  EXPECT_EQ(Parse({"--help"}).exit, 0);
}

}  // namespace
}  // namespace rdfs::copy
