// Names, patterns, lists and decisions: what needs no file system.
#include <gtest/gtest.h>
#include <strings.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <map>
#include <thread>

#include "tests/tools/stopped_terminal.h"
#include "tools/copy/clones.h"
#include "tools/copy/decide.h"
#include "tools/copy/filter.h"
#include "tools/copy/folded.h"
#include "tools/copy/names.h"
#include "tools/copy/report.h"

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

struct stat Existing(std::int64_t size, timespec mtime, mode_t mode = S_IFREG) {
  struct stat info {};
  info.st_mode = mode;
  info.st_size = size;
  info.st_mtim = mtime;
  return info;
}

TEST(Folded, IsWhatLeadsToTheSame) {
  std::map<std::string, FileId> files{{"README", {1, 1}}, {"b", {1, 2}}, {"2", {1, 3}}};
  int looks = 0;
  const auto folding = [&](std::string name) -> std::optional<FileId> {
    ++looks;
    for (const auto& [each, id] : files) {
      if (strcasecmp(each.c_str(), name.c_str()) == 0) return id;
    }
    return std::nullopt;
  };
  const auto plain = [&](const std::string& name) -> std::optional<FileId> {
    ++looks;
    const auto at = files.find(name);
    return at == files.end() ? std::nullopt : std::optional(at->second);
  };
  const std::unordered_set<std::string> listed{"README", "b", "2"};
  const std::unordered_set<std::string> seen{"Readme", "B", "new"};
  EXPECT_TRUE(IsSpelledOtherwise("README", listed, seen, folding));
  EXPECT_TRUE(IsSpelledOtherwise("b", listed, seen, folding));
  EXPECT_FALSE(IsSpelledOtherwise("b", listed, {"Readme", "new"}, folding));
  EXPECT_FALSE(IsSpelledOtherwise("README", listed, {"README"}, folding));
  // Two links, and nothing is folded.
  files["new"] = {1, 2};
  looks = 0;
  EXPECT_FALSE(IsSpelledOtherwise("b", listed, seen, plain));
  EXPECT_FALSE(IsSpelledOtherwise("2", listed, seen, plain));
  EXPECT_EQ(looks, 1);
  // Replaced between one look and the next.
  const auto replaced = [&](const std::string& name) {
    if (name == "README" && files["README"].inode == 1) files["README"] = {1, 9};
    return folding(name);
  };
  EXPECT_TRUE(IsSpelledOtherwise("README", listed, {"Readme"}, replaced));
}

TEST(Decide, IsBySizeTimeAndKind) {
  Entry entry;
  entry.size = 5;
  entry.mtime = {100, 50};
  constexpr Policy kPlain;
  constexpr Policy kUpdate{.update = true};
  constexpr Policy kSync{.sync = true};
  constexpr Policy kChecksum{.sync = true, .checksum = true};
  const auto same = Existing(5, {100, 50});
  for (const Policy& policy : {kPlain, kUpdate, kSync, kChecksum}) {
    EXPECT_EQ(Decide(entry, std::nullopt, policy), Verdict::kCopy);
  }
  EXPECT_EQ(Decide(entry, same, kPlain), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, same, kUpdate), Verdict::kLeave);
  EXPECT_EQ(Decide(entry, Existing(9, {100, 51}), kUpdate), Verdict::kLeave);
  EXPECT_EQ(Decide(entry, Existing(5, {100, 49}), kUpdate), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(5, {-1, 49}), kUpdate), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, same, kSync), Verdict::kSame);
  EXPECT_EQ(Decide(entry, Existing(5, {100, 0}), kSync), Verdict::kSame);  // coarse times
  EXPECT_EQ(Decide(entry, Existing(5, {100, 51}), kSync), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(6, {100, 50}), kSync), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(5, {100, 50}, S_IFLNK), kSync), Verdict::kCopy);
  EXPECT_EQ(Decide(entry, Existing(5, {7, 7}), kChecksum), Verdict::kCompare);
  EXPECT_EQ(Decide(entry, Existing(6, {7, 7}), kChecksum), Verdict::kCopy);
  entry.kind = Kind::kSymlink;
  EXPECT_EQ(Decide(entry, Existing(5, {7, 7}, S_IFLNK), kSync), Verdict::kCompare);
  EXPECT_EQ(Decide(entry, Existing(5, {7, 7}), kSync), Verdict::kCopy);
}

// What this source's time is to a DST that has that one.
Verdict VerdictOf(timespec source, timespec there, const Policy& policy) {
  Entry entry;
  entry.size = 5;
  entry.mtime = source;
  return Decide(entry, Existing(5, there), policy);
}

TEST(Decide, WhatTheDestinationCutsOffIsNoOtherTime) {
  constexpr Policy kUpdate{.update = true};
  constexpr Policy kSync{.sync = true};
  constexpr timespec kSource{101, 987'654'321};
  for (const timespec there :
       {timespec{101, 987'654'321}, timespec{101, 987'654'300}, timespec{101, 987'654'000},
        timespec{101, 980'000'000}, timespec{101, 0}, timespec{100, 0}}) {
    EXPECT_EQ(VerdictOf(kSource, there, kSync), Verdict::kSame) << there.tv_nsec;
    EXPECT_EQ(VerdictOf(kSource, there, kUpdate), Verdict::kLeave) << there.tv_nsec;
  }
  // On no grain, or more than one away.
  for (const timespec there : {timespec{101, 987'654'320}, timespec{101, 987'654'200},
                               timespec{101, 987'653'000}, timespec{101, 970'000'000},
                               timespec{100, 987'654'321}, timespec{98, 0}, timespec{-101, 0}}) {
    EXPECT_EQ(VerdictOf(kSource, there, kSync), Verdict::kCopy) << there.tv_nsec;
    EXPECT_EQ(VerdictOf(kSource, there, kUpdate), Verdict::kCopy) << there.tv_nsec;
  }
  // A file system that counts nanoseconds, as its own times show, has cut nothing.
  Entry entry;
  entry.size = 5;
  entry.mtime = kSource;
  struct stat fine = Existing(5, {101, 0});
  fine.st_ctim = {200, 1};
  EXPECT_EQ(Decide(entry, fine, kSync), Verdict::kCopy);
  // What is later there is no cut.
  EXPECT_EQ(VerdictOf(kSource, {102, 0}, kSync), Verdict::kCopy);
  EXPECT_EQ(VerdictOf(kSource, {102, 0}, kUpdate), Verdict::kLeave);
  EXPECT_EQ(VerdictOf({-3, 5}, {-4, 0}, kSync), Verdict::kSame);
  constexpr time_t kLast = std::numeric_limits<time_t>::max();
  EXPECT_EQ(VerdictOf({kLast, 0}, {-kLast - 1, 0}, kUpdate), Verdict::kCopy);
}

TEST(Clones, OneOddFileDoesNotEndThem) {
  Clones clones;
  for (const int error : {EINVAL, EPERM, ETXTBSY, ENOSPC, EIO, EINTR, EAGAIN, EBADF}) {
    clones.Failed(1, 2, error);
    EXPECT_TRUE(clones.MayBe(1, 2)) << error;
  }
}

TEST(Clones, WhatTheFileSystemsCannotIsRememberedOfThese) {
  for (const int error : {ENOTTY, EOPNOTSUPP, ENOSYS, EXDEV}) {
    Clones clones;
    clones.Failed(1, 2, error);
    EXPECT_FALSE(clones.MayBe(1, 2)) << error;
    EXPECT_TRUE(clones.MayBe(1, 1)) << error;
    EXPECT_TRUE(clones.MayBe(2, 1)) << error;
    clones.Failed(0, 0, error);
    EXPECT_FALSE(clones.MayBe(1, 2) || clones.MayBe(0, 0)) << error;
  }
}

TEST(Report, ExitsAsTheWorstThatHappened) {
  Report report({.name = "test"}, TimePoint{});
  EXPECT_EQ(report.ExitCode(), 0);
  report.Vanished("x");
  EXPECT_EQ(report.ExitCode(), kExitVanished);
  report.Failed("y", Status(Code::kErrno, EIO, "broken"));
  EXPECT_EQ(report.ExitCode(), kExitFailed);
}

TEST(Report, DrawsForNoTerminalThatIsStopped) {
  StoppedTerminal terminal;
  Report report({.name = "test", .progress = true}, TimePoint{});
  const auto draw = [&] {
    report.Draw({}, TimePoint(std::chrono::seconds(1)));
    report.Clear();
  };
  EXPECT_TRUE(StoppedTerminal::Ends(draw, [&] { terminal.GoOn(); }));
}

// A name is waited with until somebody reads it.
TEST(Report, DrawsNothingWhileANameWaits) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const int size = fcntl(writer.get(), F_GETPIPE_SZ);
  ASSERT_GT(size, 0);
  std::fflush(stdout);
  Fd before(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  ASSERT_GE(dup2(writer.get(), STDOUT_FILENO), 0);
  writer.Reset();
  Report report({.name = "test", .lists = true, .progress = true}, TimePoint{});
  std::thread names([&] { report.Done(std::string(2 * static_cast<std::size_t>(size), 'n')); });
  const auto read_some = [&] {
    std::array<char, 4096> bytes{};
    return read(reader.get(), bytes.data(), bytes.size());
  };
  EXPECT_GT(read_some(), 0);  // it has begun to print, and waits
  const auto draw = [&] {
    report.Draw({}, TimePoint(std::chrono::seconds(1)));
    report.Clear();
  };
  std::thread drain;
  const auto release = [&] {
    drain = std::thread([&] {
      while (read_some() > 0) {
      }
    });
  };
  const bool ended = StoppedTerminal::Ends(draw, release);
  if (ended) release();
  names.join();
  (void)dup2(before.get(), STDOUT_FILENO);  // the last writer: end of file
  drain.join();
  EXPECT_TRUE(ended);
}

TEST(Report, SaysHowFarItIs) {
  Report report({.name = "test"}, TimePoint{});
  for (int i = 0; i < 5; ++i) report.Copied();
  report.bytes() = 1 << 20;
  EXPECT_EQ(report.Line({}, 2e9, 10), "test: 5 files, 1.00 MiB  2.00 GB/s  10 files/s");
  const std::string line =
      "test: [############............]  50 %  5 of 20 files, 1.00 MiB of 2.00 MiB  1.05 MB/s  ";
  EXPECT_EQ(report.Line({20, 2 << 20}, 1 << 20, 3), line + "3 files/s  5 s left");
  EXPECT_EQ(report.Line({155, 2 << 20}, 1 << 20, 1),
            "test: [############............]  50 %  5 of 155 files, 1.00 MiB of 2.00 MiB  "
            "1.05 MB/s  1 files/s  2:30 min left");
  // A large one is under way.
  EXPECT_EQ(report.Line({20, 2 << 20}, 1 << 20, 1e-30), line + "0 files/s  1 s left");
  EXPECT_NE(report.Line({20, 2 << 20}, 1e-30, 0).find("1000:00 h left"), std::string::npos);
  EXPECT_EQ(report.Summary(TimePoint(std::chrono::seconds(2))),
            "5 files, 1.00 MiB in 2.00 s (524.29 kB/s, 2 files/s)");
  // What needs no copying is done, and not copied.
  report.Passed(14, (1 << 20) - 1024);
  EXPECT_EQ(report.Line({20, 2 << 20}, 1 << 20, 3),
            "test: [#######################.] 100 %  19 of 20 files, 2.00 MiB of 2.00 MiB  "
            "1.05 MB/s  3 files/s  0 s left");
  EXPECT_EQ(report.Summary(TimePoint(std::chrono::seconds(2))),
            "5 files, 1.00 MiB in 2.00 s (524.29 kB/s, 2 files/s)");
}

}  // namespace
}  // namespace rdfs::copy
