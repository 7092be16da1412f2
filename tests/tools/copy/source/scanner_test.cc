// What a walk tells of a tree, in which order, and what it survives.
#include "tools/copy/source/scanner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <set>
#include <thread>

#include "tests/tools/copy/as_ordinary.h"
#include "tests/tools/copy/temp_tree.h"

namespace rdfs::copy {
namespace {

using What = Scanned::What;

struct Seen {
  std::vector<std::string> order;  // "+a", "-a", "a", "!a"
  std::vector<Scanned> all;
  [[nodiscard]] std::set<std::string> Set() const { return {order.begin(), order.end()}; }
  [[nodiscard]] std::size_t At(const std::string& what) const {
    return static_cast<std::size_t>(std::find(order.begin(), order.end(), what) - order.begin());
  }
};

Seen Walk(
    const std::string& path, const ScanOptions& options,
    const std::function<void(const Scanned&)>& each = [](const Scanned&) {}) {
  Seen out;
  auto scanner = Scanner::Open(3, path, options);
  EXPECT_TRUE(scanner.ok()) << scanner.status().message();
  if (!scanner.ok()) return out;
  Scanned scanned;
  while ((*scanner)->Next(scanned)) {
    EXPECT_EQ(scanned.entry.source, 3U);
    const char* mark = scanned.what == What::kEnter     ? "+"
                       : scanned.what == What::kLeave   ? "-"
                       : scanned.what == What::kProblem ? "!"
                                                        : "";
    out.order.push_back(mark + scanned.entry.path);
    each(scanned);
    out.all.push_back(std::move(scanned));
  }
  return out;
}

constexpr ScanOptions kRecurse{.recurse = true};

TEST(Scanner, TellsADirectoryBeforeItsContentAndItsEndBehind) {
  const TempTree tree;
  tree.MakeDirectory("a/b");
  tree.MakeDirectory("a/empty");
  tree.Write("a/b/file", "12345");
  ASSERT_EQ(symlink("nowhere", (tree / "a/link").c_str()), 0);
  const Seen seen = Walk(tree / "a", kRecurse);
  EXPECT_EQ(seen.Set(),
            (std::set<std::string>{"+", "-", "+b", "-b", "b/file", "+empty", "-empty", "link"}));
  EXPECT_EQ(seen.order.front(), "+");
  EXPECT_EQ(seen.order.back(), "-");
  EXPECT_LT(seen.At("+b"), seen.At("b/file"));
  EXPECT_LT(seen.At("b/file"), seen.At("-b"));
  const Entry& file = seen.all[seen.At("b/file")].entry;
  EXPECT_EQ(file.size, 5U);
  EXPECT_EQ(file.kind, Kind::kFile);
  EXPECT_EQ(seen.all[seen.At("link")].entry.kind, Kind::kSymlink);
}

TEST(Scanner, ReadsWhatItFound) {
  const TempTree tree;
  tree.MakeDirectory("a");
  tree.Write("a/file", "content");
  ASSERT_EQ(symlink("some\nwhere", (tree / "a/link").c_str()), 0);
  Walk(tree / "a", kRecurse, [&](const Scanned& scanned) {
    if (scanned.what == What::kLeave) return;
    Scanned mine = scanned;
    if (mine.entry.kind == Kind::kFile) {
      const auto file = OpenSource(mine);
      ASSERT_TRUE(file.ok());
      EXPECT_TRUE(ReadRest(mine, *file, Keep::All()).ok());
    } else {
      EXPECT_TRUE(ReadRest(mine, nullptr, Keep::All()).ok());
    }
    EXPECT_EQ(mine.entry.target, mine.entry.kind == Kind::kSymlink ? "some\nwhere" : "");
  });
}

TEST(Scanner, SkipsWhatItIsToldTo) {
  const TempTree tree;
  tree.MakeDirectory("a/b/c");
  tree.MakeDirectory("a/d");
  auto scanner = Scanner::Open(0, tree / "a", kRecurse);
  ASSERT_TRUE(scanner.ok());
  Scanned scanned;
  std::set<std::string> paths;
  while ((*scanner)->Next(scanned)) {
    paths.insert(scanned.entry.path);
    if (scanned.what == What::kEnter && scanned.entry.path == "b") (*scanner)->Skip();
  }
  EXPECT_EQ(paths, (std::set<std::string>{"", "b", "d"}));
}

TEST(Scanner, FollowsSymlinksOnlyWhenAsked) {
  const TempTree tree;
  tree.MakeDirectory("a/b");
  tree.Write("a/b/file", "x");
  ASSERT_EQ(symlink("b", (tree / "a/link").c_str()), 0);
  ASSERT_EQ(symlink("..", (tree / "a/b/up").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", (tree / "a/dangling").c_str()), 0);
  ASSERT_EQ(symlink("a", (tree / "to_a").c_str()), 0);
  const Seen seen = Walk(tree / "a", {.recurse = true, .follow = true});
  EXPECT_EQ(seen.Set(), (std::set<std::string>{"+", "-", "+b", "-b", "b/file", "!b/up", "+link",
                                               "-link", "link/file", "!link/up", "!dangling"}));
  EXPECT_EQ(Walk(tree / "to_a", kRecurse).order, std::vector<std::string>{""});
  EXPECT_EQ(Walk(tree / "to_a/", kRecurse).order.size(), 8U);
  EXPECT_EQ(Walk(tree / "to_a", {.recurse = true, .follow_source = true}).order.size(), 8U);
}

TEST(Scanner, TellsOfADirectoryThatWasNotAskedFor) {
  const TempTree tree;
  EXPECT_EQ(Walk(tree.path(), {}).order, std::vector<std::string>{"!"});
  EXPECT_FALSE(Scanner::Open(0, tree / "nothing", kRecurse).ok());
}

TEST(Scanner, GoesBeyondPathMaxWithFewDescriptors) {
  const TempTree tree;
  Fd at(open(tree.path().c_str(), O_RDONLY | O_DIRECTORY));
  constexpr int kLevels = 300;
  const std::string name(100, 'd');
  for (int i = 0; i < kLevels; ++i) {
    ASSERT_EQ(mkdirat(at.get(), name.c_str(), 0700), 0);
    ASSERT_EQ(mkdirat(at.get(), "z", 0700), 0);
    at = Fd(openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(at.valid());
  }
  at.Reset();
  int open_now = 0;
  std::size_t longest = 0;
  std::size_t problems = 0;
  std::size_t directories = 0;
  auto scanner = Scanner::Open(0, tree.path(), kRecurse);
  ASSERT_TRUE(scanner.ok());
  Scanned scanned;
  while ((*scanner)->Next(scanned)) {
    longest = std::max(longest, scanned.entry.path.size());
    problems += scanned.what == What::kProblem ? 1 : 0;
    directories += scanned.what == What::kEnter ? 1 : 0;
    if (scanned.directory) open_now = std::max(open_now, scanned.directory->descriptor());
  }
  EXPECT_EQ(problems, 0U);
  EXPECT_EQ(directories, 1U + 2 * kLevels);
  EXPECT_GT(longest, 30000U);
  EXPECT_LT(open_now, 120);
}

// So deep that the outer levels are closed: none of them is found again, and each is told of.
TEST(Scanner, ADirectoryThatIsMovedAwayFromUnderADeepWalk) {
  const TempTree tree;
  constexpr int kLevels = 70;
  std::string path = "root/1/2";
  for (int level = 3; level <= kLevels; ++level) path += "/" + std::to_string(level);
  tree.MakeDirectory(path);
  tree.MakeDirectory("elsewhere");
  const std::string deepest = path.substr(sizeof("root"));
  const Seen seen = Walk(tree / "root", kRecurse, [&](const Scanned& scanned) {
    if (scanned.what != What::kEnter || scanned.entry.path != deepest) return;
    ASSERT_EQ(rename((tree / "root/1/2/3").c_str(), (tree / "elsewhere/3").c_str()), 0);
  });
  EXPECT_EQ(seen.order.back(), "-");
  for (const char* lost : {"!1/2", "!1", "!"}) EXPECT_LT(seen.At(lost), seen.order.size()) << lost;
  EXPECT_EQ(std::ranges::count(seen.all, What::kProblem, &Scanned::what), 3);
}

// One that has not gone, and cannot be opened: that is no less than a failure.
TEST(Scanner, ADirectoryThatIsClosedToADeepWalkHasNotVanished) {
  const TempTree tree;
  constexpr int kLevels = 70;
  std::string path = "root/1/2";
  for (int level = 3; level <= kLevels; ++level) path += "/" + std::to_string(level);
  tree.MakeDirectory(path);
  GiveAway(tree);
  const AsOrdinary user;
  const std::string deepest = path.substr(sizeof("root"));
  const Seen seen = Walk(tree / "root", kRecurse, [&](const Scanned& scanned) {
    if (scanned.what != What::kEnter || scanned.entry.path != deepest) return;
    ASSERT_EQ(chmod((tree / "root/1/2/3").c_str(), 0), 0);
  });
  ASSERT_EQ(chmod((tree / "root/1/2/3").c_str(), 0700), 0);
  std::set<std::string> failed;
  for (const Scanned& scanned : seen.all) {
    if (scanned.what != What::kProblem) continue;
    EXPECT_EQ(scanned.problem.errno_value(), EACCES) << scanned.entry.path;
    failed.insert(scanned.entry.path);
  }
  EXPECT_EQ(failed, (std::set<std::string>{"", "1", "1/2", "1/2/3"}));
}

TEST(Scanner, TellsWhatVanishesAndGoesOn) {
  const TempTree tree;
  tree.MakeDirectory("a/b");
  tree.Write("a/b/file", "x");
  tree.Write("a/b/other", "x");
  // The names are read when the directory is first looked into: then one of them goes.
  bool removed = false;
  const Seen seen = Walk(tree / "a/b", kRecurse, [&](const Scanned& scanned) {
    if (removed || scanned.what != What::kEntry) return;
    const bool first = scanned.entry.path == "file";
    ASSERT_EQ(unlink((tree / (first ? "a/b/other" : "a/b/file")).c_str()), 0);
    removed = true;
    // What was found and has gone since cannot be opened.
    ASSERT_EQ(unlink((tree / ("a/b/" + scanned.entry.path)).c_str()), 0);
    Scanned mine = scanned;
    EXPECT_EQ(OpenSource(mine).status().errno_value(), ENOENT);
  });
  ASSERT_EQ(seen.order.size(), 4U);
  const Scanned& gone = seen.all[2];
  EXPECT_EQ(gone.what, What::kProblem);
  EXPECT_EQ(gone.problem.errno_value(), ENOENT);
}

// Who has the lease is asked to give it back, and waited for.
TEST(Scanner, OpensAFileThatSomebodyHasALeaseOf) {
  const TempTree tree;
  tree.Write("file", "x");
  Scanned scanned;
  auto scanner = Scanner::Open(0, tree / "file", {});
  ASSERT_TRUE(scanner.ok() && (*scanner)->Next(scanned));
  const auto before = std::signal(SIGIO, SIG_IGN);
  const Fd leased(open((tree / "file").c_str(), O_RDWR | O_CLOEXEC));
  if (fcntl(leased.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  std::atomic<bool> over{false};
  std::thread holder([&] {
    while (!over && fcntl(leased.get(), F_GETLEASE) == F_WRLCK) std::this_thread::yield();
    EXPECT_EQ(fcntl(leased.get(), F_SETLEASE, F_UNLCK), 0);
  });
  const auto file = OpenSource(scanned);
  EXPECT_TRUE(file.ok()) << file.status().message();
  over = true;
  holder.join();
  std::signal(SIGIO, before);
}

TEST(Scanner, DoesNotOpenWhatTookTheNameOfAFile) {
  const TempTree tree;
  tree.MakeDirectory("a");
  tree.Write("a/file", "x");
  tree.Write("secret", "s");
  Walk(tree / "a", kRecurse, [&](const Scanned& scanned) {
    if (scanned.what != What::kEntry) return;
    ASSERT_EQ(unlink((tree / "a/file").c_str()), 0);
    ASSERT_EQ(symlink("../secret", (tree / "a/file").c_str()), 0);
    Scanned mine = scanned;
    EXPECT_EQ(OpenSource(mine).status().errno_value(), ENOENT);
    ASSERT_EQ(unlink((tree / "a/file").c_str()), 0);
    ASSERT_EQ(mkfifo((tree / "a/file").c_str(), 0600), 0);
    EXPECT_EQ(OpenSource(mine).status().errno_value(), ENOENT);  // and does not wait for a writer
  });
}

class NoB final : public Filter {
 public:
  [[nodiscard]] bool Takes(std::string_view path, bool) override { return path != "b"; }
  [[nodiscard]] bool WouldTake(std::string_view path, bool) const override { return path != "b"; }
  [[nodiscard]] bool MayGo(std::string_view, bool) const override { return false; }
};

TEST(Scanner, LeavesOutWhatIsFiltered) {
  const TempTree tree;
  tree.MakeDirectory("a/b/c");
  tree.Write("a/file", "x");
  NoB filter;
  EXPECT_EQ(Walk(tree / "a", {.recurse = true, .filter = &filter}).Set(),
            (std::set<std::string>{"+", "file", "-"}));
}

}  // namespace
}  // namespace rdfs::copy
