// What words of the command line mean, as a table.
#include "tools/copy/command/operand.h"

#include <gtest/gtest.h>

namespace rdfs::copy {
namespace {

using Where = Operand::Where;

struct Word {
  const char* word;
  Operand means;
};

TEST(Operand, IsAFileHereOrOnAHost) {
  const std::vector<Word> words{
      {"file", {Where::kHere, "", "", "file", ""}},
      {"./a:b", {Where::kHere, "", "", "./a:b", ""}},
      {"/x/a:b@c", {Where::kHere, "", "", "/x/a:b@c", ""}},
      {"a@b", {Where::kHere, "", "", "a@b", ""}},
      {"[a]", {Where::kHere, "", "", "[a]", ""}},
      {"host:", {Where::kHost, "", "host", "", ""}},
      {"host:file", {Where::kHost, "", "host", "file", ""}},
      {"host:/a/b:c", {Where::kHost, "", "host", "/a/b:c", ""}},
      {"me@host:a@b", {Where::kHost, "me", "host", "a@b", ""}},
      {"host:a@b", {Where::kHost, "", "host", "a@b", ""}},
      {"[::1]:file", {Where::kHost, "", "::1", "file", ""}},
      {"me@[fe80::1%eth0]:/x", {Where::kHost, "me", "fe80::1%eth0", "/x", ""}},
      {"192.0.2.1:x", {Where::kHost, "", "192.0.2.1", "x", ""}},
      {"rdfs://host/e/x", {Where::kExport, "", "host", "x", "rdfs://host/e/x", "e"}},
      {"rdfs://host:1//e//x/y/",
       {Where::kExport, "", "host", "x/y/", "rdfs://host:1//e//x/y/", "e", 1}},
      {"rdfs://[::1]:7/e", {Where::kExport, "", "::1", "", "rdfs://[::1]:7/e", "e", 7}},
  };
  for (const Word& each : words) {
    const auto operand = ParseOperand(each.word);
    ASSERT_TRUE(operand.ok()) << each.word << ": " << operand.status().message();
    EXPECT_EQ(operand->where, each.means.where) << each.word;
    EXPECT_EQ(operand->user, each.means.user) << each.word;
    EXPECT_EQ(operand->host, each.means.host) << each.word;
    EXPECT_EQ(operand->url, each.means.url) << each.word;
    EXPECT_EQ(operand->path, each.means.path) << each.word;
    EXPECT_EQ(operand->export_name, each.means.export_name) << each.word;
    EXPECT_EQ(operand->port, each.means.port) << each.word;
  }
}

TEST(Operand, OfAnExportIsRefusedWithoutOne) {
  for (const char* word :
       {"rdfs://", "rdfs://host", "rdfs://host/", "rdfs:///e", "rdfs://host:/e", "rdfs://host:0/e",
        "rdfs://host:65536/e", "rdfs://host:x/e", "rdfs://[::1/e", "rdfs://-host/e",
        "rdfs://ho st/e", "rdfs://[::1]x/e"}) {
    EXPECT_FALSE(ParseOperand(word).ok()) << word;
  }
  EXPECT_EQ(ParseOperand("rdfs://[::1]:7//e/x")->base(), "rdfs://[::1]:7/e");
  EXPECT_EQ(ParseOperand("rdfs://host/e")->base(), "rdfs://host/e");
}

TEST(Operand, IsRefusedWhereSshWouldTakeItForAnOption) {
  for (const char* word : {":x", "-oProxyCommand=id:x", "me@:x", "@host:x", "-l@host:x", "[::1:x",
                           "[]:x", "ho st:x", "a\nb:x", "me@-F:x", "[::1]x:y"}) {
    EXPECT_FALSE(ParseOperand(word).ok()) << word;
  }
}

TEST(Operand, AnotherSchemeIsNoHost) {
  for (const char* word : {"http://node/data", "RDFS://node/data", "file:///x"}) {
    const Status refused = ParseOperand(word).status();
    EXPECT_NE(refused.message().find("write rdfs://HOST"), std::string::npos) << word;
  }
  EXPECT_EQ(ParseOperand("./http://x")->where, Operand::Where::kHere);
  EXPECT_EQ(ParseOperand("me@node://x")->path, "//x");
  EXPECT_EQ(ParseOperand("node://x")->path, "//x");
}

struct Case {
  std::vector<SourceFacts> sources;
  const char* destination;
  DestinationFacts facts;
  std::optional<Targets> targets;  // none: refused
};

constexpr DestinationFacts kNothing{false, false};
constexpr DestinationFacts kFile{true, false};
constexpr DestinationFacts kDirectory{true, true};

TEST(PlaceTargets, FollowsTheRulesOfCp) {
  const SourceFacts file{"x/file", false};
  const SourceFacts folder{"x/folder", true};
  const std::vector<Case> cases{
      {{file}, "dst", kDirectory, Targets{"dst", {"file"}}},
      {{folder}, "dst", kDirectory, Targets{"dst", {"folder"}}},
      {{{"x/folder/", true}}, "dst", kDirectory, Targets{"dst", {"folder"}}},
      {{{"x/folder/.", true}}, "dst", kDirectory, Targets{"dst", {""}}},
      {{{".", true}}, "dst", kDirectory, Targets{"dst", {""}}},
      {{{"..", true}}, "dst", kDirectory, Targets{"dst", {""}}},
      {{{"/", true}}, "dst", kDirectory, Targets{"dst", {""}}},
      {{file, folder}, "dst", kDirectory, Targets{"dst", {"file", "folder"}}},
      {{file}, "new", kNothing, Targets{".", {"new"}}},
      {{file}, "some/new", kNothing, Targets{"some", {"new"}}},
      {{file}, "/new", kNothing, Targets{"/", {"new"}}},
      {{file}, "new/", kNothing, std::nullopt},
      {{folder}, "new/", kNothing, Targets{".", {"new"}}},
      {{folder}, "some/new//", kNothing, Targets{"some", {"new"}}},
      {{folder}, "new/.", kNothing, std::nullopt},
      {{file, folder}, "new", kNothing, std::nullopt},
      {{file}, "old", kFile, Targets{".", {"old"}}},
      {{file}, "old/", kFile, std::nullopt},
      {{folder}, "old", kFile, std::nullopt},
      {{file, file}, "old", kFile, std::nullopt},
      {{file}, "", kNothing, std::nullopt},
      // One name for two: files would be lost, directories grow together.
      {{file, {"y/file", false}}, "dst", kDirectory, std::nullopt},
      {{{"x/same", true}, {"y/same", true}}, "dst", kDirectory, Targets{"dst", {"same", "same"}}},
  };
  for (const Case& each : cases) {
    const auto targets = PlaceTargets(each.sources, each.destination, each.facts);
    EXPECT_EQ(targets.ok(), each.targets.has_value())
        << each.sources[0].path << " to " << each.destination;
    if (targets.ok() && each.targets) {
      EXPECT_EQ(targets->root, each.targets->root) << each.destination;
      EXPECT_EQ(targets->names, each.targets->names) << each.destination;
    }
  }
}

TEST(CheckApart, RefusesSourcesThatMayBringOnePath) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{""}, {"a"}, {"a", "b"}, {"a", "a.b", "b"}}) {
    EXPECT_FALSE(Meet(names)) << names[0];
    EXPECT_TRUE(CheckApart(names).ok()) << names[0];
  }
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"", ""}, {"a", ""}, {"", "a"}, {"a", "b", "a"}}) {
    EXPECT_TRUE(Meet(names)) << names[0];
    EXPECT_FALSE(CheckApart(names).ok()) << names[0];
  }
}

TEST(Operand, SourcesThatBringOnePathTakeTurns) {
  using Names = std::vector<std::string>;
  using Ends = std::vector<std::size_t>;
  const std::vector<std::pair<Names, Ends>> turns{
      {{}, {}},
      {{"a"}, {1}},
      {{""}, {1}},
      {{"a", "b", "c"}, {3}},
      {{"a", "b", "a"}, {2, 3}},
      {{"a", "a", "a"}, {1, 2, 3}},
      {{"a", "b", "a", "b", "c"}, {2, 5}},
      {{"a", "b", ""}, {2, 3}},
      {{"", "a", "b", "c"}, {1, 4}},
      {{"", ""}, {1, 2}},
      {{"a", "", "a"}, {1, 2, 3}},
  };
  for (const auto& [names, ends] : turns) {
    EXPECT_EQ(Turns(names), ends) << testing::PrintToString(names);
    EXPECT_EQ(Meet(names), ends.size() > 1);
  }
}

}  // namespace
}  // namespace rdfs::copy
