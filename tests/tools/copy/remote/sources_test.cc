// What was asked for and what a far end may call it; and where names of the command line lead.
#include "tools/copy/remote/sources.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/tools/pipe/temp_dir.h"
#include "tools/copy/remote/errand.h"
#include "tools/copy/source/filter.h"

namespace rdfs::copy {
namespace {

Begin BeginOf(const std::vector<std::pair<std::uint32_t, std::string>>& sources) {
  Begin out;
  for (const auto& [asked, name] : sources) {
    out.sources.push_back({.asked = asked, .is_directory = false, .name = name});
  }
  return out;
}

TEST(CopySources, NamesAtTheDestination) {
  for (const auto& [path, name] : std::map<std::string, std::string>{{"a/b", "b"},
                                                                     {"a/b///", "b"},
                                                                     {"b", "b"},
                                                                     {"", ""},
                                                                     {"/", ""},
                                                                     {"~", ""},
                                                                     {".", ""},
                                                                     {"a/.", ""},
                                                                     {"a/../", ""},
                                                                     {"~/x", "x"},
                                                                     {"...", "..."}}) {
    EXPECT_EQ(NameAtDestination(path), name) << path;
  }
}

TEST(CopySources, WhatWasAskedForIsTaken) {
  EXPECT_TRUE(CheckSources({"dir/file"}, BeginOf({{0, "file"}}), 0).ok());
  EXPECT_TRUE(CheckSources({"dir/"}, BeginOf({{0, "dir"}}), 0).ok());
  EXPECT_TRUE(CheckSources({""}, BeginOf({{0, ""}}), 0).ok());
  Begin missing = BeginOf({{1, "b"}});
  missing.problems = 1;
  EXPECT_TRUE(CheckSources({"a", "b"}, missing, 1).ok());
  EXPECT_TRUE(CheckSources({"*.c"}, BeginOf({{0, "x.c"}, {0, "y.c"}}), 0).ok());
  EXPECT_TRUE(CheckSources({"*.c"}, BeginOf({{0, "*.c"}}), 0).ok()) << "a file of that very name";
  EXPECT_TRUE(CheckSources({"d*/f"}, BeginOf({{0, "f"}, {0, "f"}}), 0).ok());
  EXPECT_TRUE(CheckSources({"[ab]"}, BeginOf({{0, "a"}, {0, "b"}}), 0).ok());
}

// CVE-2019-6111: a server that answers with names of its own choosing.
TEST(CopySources, WhatWasNotAskedForIsRefused) {
  EXPECT_FALSE(CheckSources({"dir/file"}, BeginOf({{0, ".ssh"}}), 0).ok());
  EXPECT_FALSE(CheckSources({"dir/file"}, BeginOf({{0, ""}}), 0).ok());
  EXPECT_FALSE(CheckSources({"dir/file"}, BeginOf({{1, "file"}}), 0).ok());
  EXPECT_FALSE(CheckSources({"file"}, BeginOf({{0, "file"}, {0, "file"}}), 0).ok());
  EXPECT_FALSE(CheckSources({"*.c"}, BeginOf({{0, ".bashrc"}}), 0).ok());
  EXPECT_FALSE(CheckSources({"*"}, BeginOf({{0, ".bashrc"}}), 0).ok()) << "as a shell has it";
  EXPECT_FALSE(CheckSources({"*"}, BeginOf({{0, ""}}), 0).ok());
  EXPECT_FALSE(CheckSources({"d*/f"}, BeginOf({{0, "g"}}), 0).ok());
  EXPECT_FALSE(CheckSources({}, BeginOf({{0, "f"}}), 0).ok());
}

TEST(CopySources, NoMachineReplacesWhatAnotherBrought) {
  NamesTaken taken;
  Begin directory = BeginOf({{0, "d"}, {1, ""}});
  directory.sources[0].is_directory = true;
  EXPECT_TRUE(taken.Take(BeginOf({{0, "a"}, {1, "b"}})).ok());
  EXPECT_TRUE(taken.Take(directory).ok());
  EXPECT_TRUE(taken.Take(directory).ok()) << "directories become one";
  EXPECT_FALSE(taken.Take(BeginOf({{0, "c"}, {1, "b"}})).ok());
  EXPECT_TRUE(taken.Take(BeginOf({{0, "c"}})).ok()) << "nothing of that machine came";
  EXPECT_FALSE(taken.Take(BeginOf({{0, "d"}})).ok()) << "a file, and a directory";
}

Entry At(const std::string& path, Kind kind) {
  Entry entry;
  entry.path = path;
  entry.kind = kind;
  return entry;
}

TEST(CopySources, WhatIsLeftOutIsToldOf) {
  Begin begin = BeginOf({{1, "b"}});
  EXPECT_FALSE(CheckSources({"a", "b"}, begin, 0).ok());
  EXPECT_FALSE(CheckSources({"a", "b"}, begin, 1).ok()) << "of another one";
  EXPECT_FALSE(CheckSources({"*.c", "b"}, begin, 0).ok()) << "a pattern that leads to nothing";
  begin.problems = 1;
  EXPECT_FALSE(CheckSources({"a", "b"}, begin, 0).ok()) << "it only says that it told";
  EXPECT_TRUE(CheckSources({"a", "b"}, begin, 1).ok());
  EXPECT_FALSE(CheckSources({"a", "b", "c"}, begin, 1).ok());
}

// CVE-2022-29154: a server that sends other files than those that the options leave.
TEST(CopySources, OnlyWhatTheOptionsLeaveMayCome) {
  const ScanOptions tree{.recurse = true};
  const ScanOptions alone{.follow_source = true};
  const ScanOptions followed{.recurse = true, .follow = true};
  EXPECT_TRUE(WasAskedFor(At("", Kind::kFile), alone, {}));
  EXPECT_TRUE(WasAskedFor(At("d/l", Kind::kSymlink), tree, {}));
  EXPECT_TRUE(WasAskedFor(At("", Kind::kSymlink), tree, {}));
  EXPECT_FALSE(WasAskedFor(At("", Kind::kDirectory), alone, {}));
  EXPECT_FALSE(WasAskedFor(At("f", Kind::kFile), alone, {}));
  EXPECT_FALSE(WasAskedFor(At("", Kind::kSymlink), alone, {}));
  EXPECT_FALSE(WasAskedFor(At("d/l", Kind::kSymlink), followed, {}));
  for (const Kind kind : {Kind::kFifo, Kind::kSocket, Kind::kCharDevice, Kind::kBlockDevice}) {
    EXPECT_FALSE(WasAskedFor(At("f", kind), tree, {}));
    EXPECT_TRUE(WasAskedFor(At("f", kind), tree, Keep::All()));
  }
}

TEST(CopySources, OnlyWhatTheFilterTakesMayCome) {
  Rules rules;
  rules.Add(false, "secret");
  rules.Add(false, "*.o/");
  const ScanOptions asked{.recurse = true, .filter = &rules};
  EXPECT_TRUE(WasAskedFor(At("", Kind::kDirectory), asked, {}));
  EXPECT_TRUE(WasAskedFor(At("d/f", Kind::kFile), asked, {}));
  EXPECT_TRUE(WasAskedFor(At("a.o", Kind::kFile), asked, {})) << "directories only";
  EXPECT_FALSE(WasAskedFor(At("a.o", Kind::kDirectory), asked, {}));
  EXPECT_FALSE(WasAskedFor(At("a.o/f", Kind::kFile), asked, {}));
  EXPECT_FALSE(WasAskedFor(At("d/secret", Kind::kFile), asked, {}));
  EXPECT_FALSE(WasAskedFor(At("secret/d/f", Kind::kFile), asked, {})) << "beneath what is left out";
  Listed list(&rules);
  ASSERT_TRUE(list.Add("d/e").ok());
  const ScanOptions listed{.recurse = true, .filter = &list};
  EXPECT_TRUE(WasAskedFor(At("", Kind::kDirectory), listed, {}));
  EXPECT_TRUE(WasAskedFor(At("d", Kind::kDirectory), listed, {})) << "on the way";
  EXPECT_TRUE(WasAskedFor(At("d/e/f", Kind::kFile), listed, {}));
  EXPECT_FALSE(WasAskedFor(At("d/f", Kind::kFile), listed, {}));
  EXPECT_FALSE(WasAskedFor(At("d/e/secret", Kind::kFile), listed, {}));
}

class CopyFindSources : public testing::Test {
 protected:
  void SetUp() override {
    dir_.Write("a.c", "a");
    dir_.Write("b.c", "b");
    dir_.Write("*.c", "a name like a pattern");
    std::filesystem::create_directory(dir_ / "folder");
    std::filesystem::create_symlink("folder", dir_ / "link");
  }
  Found Find(const std::vector<std::string>& asked, bool expand = true, bool follow = false) {
    problems_.clear();
    return FindSources(asked, follow, expand, [this](const std::string& path, const Status&) {
      problems_.push_back(path);
    });
  }
  std::vector<std::string> problems_;
  pipe::TempDir dir_;
};

TEST_F(CopyFindSources, PatternsAreExpandedWithoutAShell) {
  const Found found = Find({dir_ / "?.c"});
  ASSERT_EQ(found.paths.size(), 3U) << "also the file that is called *.c";
  EXPECT_TRUE(CheckSources({dir_ / "?.c"}, found.begin, 0).ok());
  const Found injected = Find({dir_ / "a.c; touch x", dir_ / "$(id)"});
  EXPECT_TRUE(injected.paths.empty());
  EXPECT_EQ(problems_.size(), 2U);
  EXPECT_EQ(injected.begin.problems, 2U);
}

TEST_F(CopyFindSources, ANameThatIsThereIsTakenAsItStands) {
  const Found found = Find({dir_ / "*.c"});
  ASSERT_EQ(found.paths.size(), 1U);
  EXPECT_EQ(found.begin.sources[0].name, "*.c");
}

TEST_F(CopyFindSources, OfHereNothingIsExpanded) {
  EXPECT_TRUE(Find({dir_ / "?.c"}, false).paths.empty());
  EXPECT_EQ(problems_.size(), 1U);
  EXPECT_EQ(Find({dir_ / "a.c"}, false).paths.size(), 1U);
}

TEST_F(CopyFindSources, KindsAndLinks) {
  const auto is_directory = [&](const std::string& name, bool follow) {
    return Find({dir_ / name}, true, follow).begin.sources.at(0).is_directory;
  };
  EXPECT_TRUE(is_directory("folder", false));
  EXPECT_FALSE(is_directory("link", false));
  EXPECT_TRUE(is_directory("link", true));
  EXPECT_FALSE(is_directory("a.c", true));
}

TEST_F(CopyFindSources, TheHomeDirectory) {
  const std::string home = dir_ / "folder";
  const char* before = getenv("HOME");
  const std::string saved = before == nullptr ? "" : before;
  setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(ExpandHome("~"), home);
  EXPECT_EQ(ExpandHome("~/x"), home + "/x");
  EXPECT_EQ(ExpandHome(""), ".");
  EXPECT_EQ(ExpandHome("~other/x"), "~other/x");
  EXPECT_EQ(Find({"~"}).paths, std::vector<std::string>{home});
  setenv("HOME", saved.c_str(), 1);
}

TEST(CopyPorts, Ranges) {
  const auto parse = [](std::string_view text) { return PortRange::Parse(text); };
  EXPECT_EQ(*parse("any"), PortRange{});
  EXPECT_EQ(*parse("7000-7010"), (PortRange{7000, 7010}));
  EXPECT_EQ(*parse("7000"), (PortRange{7000, 7000}));
  for (const PortRange range : {PortRange{}, PortRange{1, 65535}}) {
    EXPECT_EQ(*parse(range.ToString()), range);
  }
  for (const std::string_view bad :
       {"", "-", "0", "0-5", "7-5", "70000", "5-70000", "a", "5-", "-5", "5-6-7", "5 6", "any "}) {
    EXPECT_FALSE(parse(bad).ok()) << bad;
  }
}

TEST(CopyErrand, FirstLines) {
  EXPECT_FALSE(FirstLine::Parse("any")->meeting);
  FirstLine line;
  line.ports = {7000, 7010};
  line.meeting = Meeting{"fe80::1%eth0", 7001, transport::Key::Random()};
  const auto parsed = FirstLine::Parse(line.ToString());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->ports, line.ports);
  EXPECT_EQ(parsed->meeting->host, line.meeting->host);
  EXPECT_EQ(parsed->meeting->port, 7001);
  EXPECT_EQ(parsed->meeting->key.text(), line.meeting->key.text());
  for (const std::string_view bad :
       {"", "any host", "any host 1", "any host x key", "x", "any host 1 key more",
        // found by fuzz_copy_messages
        "any host any key", "any host 1-2 key", "any 'a b' 1 key", "any host 1 \"k y\"",
        "any h\x01 1 key"}) {
    EXPECT_FALSE(FirstLine::Parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace rdfs::copy
