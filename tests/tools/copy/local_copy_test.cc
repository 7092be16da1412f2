// Whole copies from here to here, through the parts and without the command.
#include "tools/copy/local_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "tests/tools/copy/as_ordinary.h"
#include "tests/tools/copy/temp_tree.h"
#include "tools/copy/source/filter.h"
#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {
namespace {

std::string Noise(std::size_t size) {
  std::mt19937_64 random(size);
  std::string out(size, '\0');
  for (char& byte : out) byte = static_cast<char>(random());
  return out;
}

class LocalCopyTest : public testing::Test {
 protected:
  LocalCopyTest() {
    tree_.MakeDirectory("from");
    tree_.MakeDirectory("to");
  }
  int Copy(LocalOptions options = {}, bool in_place = false) {
    options.scan.recurse = true;
    Report report({.name = "test"}, BootClock::now());
    {
      DestinationOptions to{.keep = options.keep, .in_place = in_place, .same_machine = true};
      to.report = [&](const std::string& path, const Status& status) {
        report.Failed(path, status);
      };
      auto destination = Destination::Open(tree_ / "to", to);
      EXPECT_TRUE(destination.ok() && (*destination)->AddTarget(0, "").ok());
      LocalCopy copy(options, {{"from", tree_ / "from"}}, **destination, report, stop_);
      copy.Add(0);
      copy.Finish();
    }
    bytes_ = report.bytes();
    if (!stop_) ExpectAllCounted(options.scan, report);
    return report.ExitCode();
  }
  // What progress calls done is what it has counted, whatever became of each file.
  void ExpectAllCounted(const ScanOptions& scan, Report& report) {
    std::atomic<std::uint64_t> files{0};
    std::atomic<std::uint64_t> bytes{0};
    CountTree({"from", tree_ / "from"}, scan, stop_, files, bytes);
    EXPECT_EQ(report.files() + report.passed().files, files);
    EXPECT_EQ(report.bytes() + report.kept() + report.passed().bytes, bytes);
  }
  TempTree tree_;
  std::atomic<bool> stop_{false};
  std::uint64_t bytes_ = 0;
};

TEST_F(LocalCopyTest, CopiesEverySizeAroundItsBuffers) {
  for (const std::size_t size :
       {0U, 1U, 4095U, 4096U, 4097U, 65535U, 65536U, 65537U, 131072U, (1U << 20U) - 1,
        (1U << 20U) + 1, (16U << 20U) - 1, 16U << 20U, (16U << 20U) + 1}) {
    tree_.Write("from/" + std::to_string(size), Noise(size));
  }
  EXPECT_EQ(Copy({.verify = true}), 0);
  EXPECT_EQ(tree_.Entries("to"), 14U);
  for (const auto& each : std::filesystem::directory_iterator(tree_ / "from")) {
    const std::string name = each.path().filename();
    EXPECT_TRUE(tree_.Read("from/" + name) == tree_.Read("to/" + name)) << name;
  }
}

TEST_F(LocalCopyTest, OverwritesInPlace) {
  tree_.Write("from/shorter", Noise(70000));
  tree_.Write("to/shorter", Noise(300000));
  tree_.Write("from/sparse", "");
  ASSERT_EQ(truncate((tree_ / "from/sparse").c_str(), 1 << 20), 0);
  tree_.Write("to/sparse", Noise(2 << 20));
  const ino_t inode = tree_.Stat("to/shorter").st_ino;
  EXPECT_EQ(Copy({}, true), 0);
  EXPECT_TRUE(tree_.Read("to/shorter") == Noise(70000));
  EXPECT_TRUE(tree_.Read("to/sparse") == std::string(1 << 20, '\0'));
  EXPECT_EQ(tree_.Stat("to/shorter").st_ino, inode);
}

TEST_F(LocalCopyTest, SparseStaysSparse) {
  tree_.Write("from/file", "begin");
  Fd fd(open((tree_ / "from/file").c_str(), O_WRONLY));
  ASSERT_EQ(pwrite(fd.get(), "middle", 6, 3 << 20), 6);
  ASSERT_EQ(ftruncate(fd.get(), 10 << 20), 0);
  EXPECT_EQ(Copy({.verify = true}), 0);
  EXPECT_TRUE(tree_.Read("to/file") == tree_.Read("from/file"));
  EXPECT_EQ(tree_.Stat("to/file").st_blocks, tree_.Stat("from/file").st_blocks);
}

TEST_F(LocalCopyTest, LargeStretchesOfDataAndHolesStayWhatTheyAre) {
  tree_.Write("from/file", Noise(9 << 20));
  Fd fd(open((tree_ / "from/file").c_str(), O_WRONLY));
  const std::string more = Noise(10 << 20);
  ASSERT_EQ(pwrite(fd.get(), more.data(), more.size(), 40 << 20), ssize_t{10 << 20});
  ASSERT_EQ(ftruncate(fd.get(), 100 << 20), 0);
  EXPECT_EQ(Copy(), 0);
  EXPECT_TRUE(tree_.Read("to/file") == tree_.Read("from/file"));
  EXPECT_EQ(bytes_, 100U << 20U);
  // Half of a megabyte for what the file system itself needs.
  EXPECT_LE(tree_.Stat("to/file").st_blocks, tree_.Stat("from/file").st_blocks + 1024);
}

TEST_F(LocalCopyTest, SyncCopiesOnlyWhatDiffers) {
  tree_.Write("from/same", "same");
  tree_.Write("from/newer", "newer");
  tree_.Write("to/old", "old");
  tree_.MakeDirectory("to/tree/deep");
  LocalOptions options;
  options.keep.times = true;
  options.policy.sync = true;
  options.remove = true;
  EXPECT_EQ(Copy(options), 0);
  EXPECT_EQ(bytes_, 9U);
  EXPECT_EQ(tree_.Entries("to"), 2U);
  const ino_t same = tree_.Stat("to/same").st_ino;
  tree_.Write("from/newer", "other");
  const timespec later[2] = {{0, UTIME_OMIT}, {4'000'000'000, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, (tree_ / "from/newer").c_str(), &later[0], 0), 0);
  EXPECT_EQ(Copy(options), 0);
  EXPECT_EQ(bytes_, 5U);
  EXPECT_EQ(tree_.Stat("to/same").st_ino, same);
  EXPECT_EQ(tree_.Read("to/newer"), "other");
  // The same size and time, and other content: only --checksum looks.
  const timespec before[2] = {{0, UTIME_OMIT}, tree_.Stat("from/same").st_mtim};
  tree_.Write("to/same", "damn");
  ASSERT_EQ(utimensat(AT_FDCWD, (tree_ / "to/same").c_str(), &before[0], 0), 0);
  EXPECT_EQ(Copy(options), 0);
  EXPECT_EQ(bytes_, 0U);
  options.policy.checksum = true;
  EXPECT_EQ(Copy(options), 0);
  EXPECT_EQ(bytes_, 4U);
  EXPECT_EQ(tree_.Read("to/same"), "same");
}

// What is the same is not touched: others see no change of it, and it may be somebody else's.
TEST_F(LocalCopyTest, SyncLeavesWhatIsTheSameAsItIs) {
  const std::vector<std::string> names{"", "/file", "/read_only", "/folder", "/link"};
  tree_.Write("from/file", "same");
  tree_.Write("from/read_only", "same");
  ASSERT_EQ(chmod((tree_ / "from/read_only").c_str(), 0444), 0);
  tree_.MakeDirectory("from/folder");
  ASSERT_EQ(symlink("file", (tree_ / "from/link").c_str()), 0);
  GiveAway(tree_);
  LocalOptions options{.keep = Keep::Attributes()};
  options.policy.sync = true;
  EXPECT_EQ(Copy(options), 0);
  if (geteuid() == 0) {
    for (const std::string& name : names) {
      ASSERT_EQ(lchown((tree_ / ("to" + name)).c_str(), 0, 0), 0);
    }
  }
  const AsOrdinary user;
  std::vector<timespec> before;
  for (const std::string& name : names) before.push_back(tree_.Stat("to" + name).st_ctim);
  // A change is seen from the next tick of the kernel's clock on.
  const auto now = [&] {
    tree_.Write("tick", "x");
    return tree_.Stat("tick").st_mtim;
  };
  const timespec begun = now();
  while (now().tv_nsec == begun.tv_nsec) {
  }
  EXPECT_EQ(Copy(options), 0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const timespec after = tree_.Stat("to" + names[i]).st_ctim;
    EXPECT_TRUE(after.tv_sec == before[i].tv_sec && after.tv_nsec == before[i].tv_nsec) << names[i];
  }
}

// One thread, which is busy with a large file while the small one waits.
class LocalCopyWaits : public LocalCopyTest {
 protected:
  LocalCopyWaits() {
    tree_.Write("from/large", Noise(2 << 20));
    tree_.Write("from/small", "before");
    Run({.sync = true}, [] {});
    EXPECT_EQ(unlink((tree_ / "to/large").c_str()), 0);
  }
  void Run(const Policy& policy, const std::function<void()>& meanwhile) {
    LocalOptions options{.keep = Keep::Attributes(), .policy = policy, .threads = 1};
    options.limit = 2 << 20;
    Report report({.name = "test"}, BootClock::now());
    DestinationOptions to{.keep = options.keep, .same_machine = true};
    to.report = [&](const std::string& path, const Status& status) { report.Failed(path, status); };
    auto destination = Destination::Open(tree_ / "to", to);
    EXPECT_TRUE((*destination)->AddTarget(0, "large").ok());
    EXPECT_TRUE((*destination)->AddTarget(1, "small").ok());
    LocalCopy run(options, {{"large", tree_ / "from/large"}, {"small", tree_ / "from/small"}},
                  **destination, report, stop_);
    run.Add(0);
    run.Add(1);
    meanwhile();
    run.Finish();
    EXPECT_EQ(report.ExitCode(), 0);
  }
};

// While it waits for its turn a file is written to: the next run has to see that.
TEST_F(LocalCopyWaits, SyncMissesNoChange) {
  Run({.sync = true}, [&] { tree_.Write("from/small", "behind"); });
  EXPECT_EQ(tree_.Read("to/small"), "before") << "it was judged before: this tests nothing";
  Run({.sync = true}, [] {});
  EXPECT_EQ(tree_.Read("to/small"), "behind");
}

TEST_F(LocalCopyWaits, ChecksumTakesNoBeginningForTheWhole) {
  Run({.checksum = true}, [&] { tree_.Write("from/small", "be"); });
  EXPECT_EQ(tree_.Read("to/small"), "be");
}

// An existing file keeps its access, but not what it let others do as its owner: that was for what
// was in it.
TEST_F(LocalCopyTest, SetuidIsNotPassedOnToOtherContent) {
  tree_.Write("from/file", "new");
  tree_.Write("to/file", "old");
  ASSERT_EQ(chmod((tree_ / "to/file").c_str(), 06751), 0);
  EXPECT_EQ(Copy(), 0);
  EXPECT_EQ(tree_.Read("to/file"), "new");
  EXPECT_EQ(tree_.Stat("to/file").st_mode & 07777U, 0751U);
}

// Which of two names comes first is the file system's choice: of ten pairs some come either way.
TEST_F(LocalCopyTest, UpdateReplacesNothingNewerByALink) {
  const timespec before[2] = {{0, UTIME_OMIT}, {1'000'000'000, 0}};
  for (int i = 0; i < 10; ++i) {
    const std::string one = "from/" + std::to_string(i);
    tree_.Write(one, "older");
    ASSERT_EQ(utimensat(AT_FDCWD, (tree_ / one).c_str(), &before[0], 0), 0);
    ASSERT_EQ(link((tree_ / one).c_str(), (tree_ / (one + "too")).c_str()), 0);
    tree_.Write("to/" + std::to_string(i) + "too", "newer");
  }
  LocalOptions options;
  options.keep.links = options.keep.times = true;
  options.policy.update = true;
  EXPECT_EQ(Copy(options), 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tree_.Read("to/" + std::to_string(i) + "too"), "newer");
}

// Takes everything, and gives the first name that it hears another file: the scanner has looked at
// it by then.
class Replacing final : public Filter {
 public:
  explicit Replacing(const TempTree& tree) : tree_(tree) {}
  bool Takes(std::string_view path, bool is_directory) override {
    if (!is_directory && replaced.empty()) {
      replaced = path;
      EXPECT_EQ(rename((tree_ / "new").c_str(), (tree_ / ("from/" + replaced)).c_str()), 0);
    }
    return true;
  }
  [[nodiscard]] bool WouldTake(std::string_view /*path*/, bool /*is_directory*/) const override {
    return true;
  }
  [[nodiscard]] bool MayGo(std::string_view /*path*/, bool /*is_directory*/) const override {
    return true;
  }
  std::string replaced;

 private:
  const TempTree& tree_;
};

TEST_F(LocalCopyTest, OtherNamesOfAFileAreNoLinksToWhatHasReplacedIt) {
  tree_.Write("new", "new");
  tree_.Write("from/a", "old");
  for (const char* other : {"from/b", "from/c"}) {
    ASSERT_EQ(link((tree_ / "from/a").c_str(), (tree_ / other).c_str()), 0);
  }
  Replacing filter(tree_);
  LocalOptions options{.keep = Keep::All(), .threads = 1};
  options.scan.filter = &filter;
  EXPECT_EQ(Copy(options), 0);
  for (const std::string name : {"a", "b", "c"}) {
    const bool is_new = name == filter.replaced;
    EXPECT_EQ(tree_.Read("to/" + name), is_new ? "new" : "old") << name;
    EXPECT_EQ(tree_.Stat("to/" + name).st_nlink, is_new ? 1U : 2U) << name;
  }
}

// The name that a file was linked to may be another one's by then. Which of two names of a source
// comes first is the file system's choice: of ten pairs some come either way.
TEST_F(LocalCopyTest, ALinkLeadsToNothingThatALaterSourceHasPutThere) {
  for (const std::string source : {"from/a", "from/b", "to"}) tree_.MakeDirectory(source);
  for (int i = 0; i < 10; ++i) {
    const std::string name = std::to_string(i);
    tree_.Write("from/a/" + name, "of a");
    for (const std::string other : {"x", "y"}) {
      ASSERT_EQ(
          link((tree_ / ("from/a/" + name)).c_str(), (tree_ / ("from/b/" + name + other)).c_str()),
          0);
    }
    tree_.Write("from/b/" + name, "of b");
    tree_.Write("from/a/same" + name, "same");
    ASSERT_EQ(
        link((tree_ / ("from/a/same" + name)).c_str(), (tree_ / ("from/b/linked" + name)).c_str()),
        0);
  }
  for (const bool in_place : {false, true}) {
    LocalOptions options{.scan = {.recurse = true}, .keep = Keep::All(), .in_turn = true};
    Report report({.name = "test"}, BootClock::now());
    DestinationOptions to{
        .keep = options.keep, .in_place = in_place, .meet = true, .same_machine = true};
    to.report = [&](const std::string& path, const Status& status) { report.Failed(path, status); };
    {
      auto destination = Destination::Open(tree_ / "to", to);
      ASSERT_TRUE((*destination)->AddTarget(0, "").ok() && (*destination)->AddTarget(1, "").ok());
      LocalCopy copy(options, {{"a", tree_ / "from/a"}, {"b", tree_ / "from/b"}}, **destination,
                     report, stop_);
      copy.Add(0);
      copy.Add(1);
      copy.Finish();
    }
    EXPECT_EQ(report.ExitCode(), 0);
    for (int i = 0; i < 10; ++i) {
      const std::string name = "to/" + std::to_string(i);
      EXPECT_EQ(tree_.Read(name), "of b");
      EXPECT_EQ(tree_.Read(name + "x"), "of a");
      EXPECT_EQ(tree_.Read(name + "y"), "of a");
      EXPECT_EQ(tree_.Stat("to/same" + std::to_string(i)).st_nlink, in_place ? 1U : 2U);
    }
    for (const auto& each : std::filesystem::directory_iterator(tree_ / "to")) {
      std::filesystem::remove(each.path());
    }
  }
}

// Links, what is there already, and what patterns or a list leave out.
TEST_F(LocalCopyTest, ProgressCountsWhatNeedsNoCopying) {
  tree_.MakeDirectory("from/d");
  for (const std::string name : {"a", "b", "d/a", "d/b", "d/c.o"}) {
    tree_.Write("from/" + name, Noise(1000 + name.size()));
  }
  ASSERT_EQ(link((tree_ / "from/a").c_str(), (tree_ / "from/d/linked").c_str()), 0);
  ASSERT_EQ(symlink("a", (tree_ / "from/symlink").c_str()), 0);
  LocalOptions options{.keep = Keep::All()};
  EXPECT_EQ(Copy(options), 0);
  EXPECT_EQ(bytes_, 2 * 1001U + 2 * 1003U + 1005U);
  tree_.Write("from/b", "changed");
  for (const bool checksum : {false, true}) {
    options.policy = {.sync = true, .checksum = checksum};
    EXPECT_EQ(Copy(options), 0);
    EXPECT_EQ(bytes_, checksum ? 0U : 7U);
  }
  options.policy = {.update = true};
  EXPECT_EQ(Copy(options), 0);
  Rules rules;
  rules.Add(false, "*.o");
  Listed list(&rules);
  ASSERT_TRUE(list.Add("d").ok());
  ASSERT_TRUE(list.Add("none").ok());
  for (Filter* const filter : std::initializer_list<Filter*>{&rules, &list}) {
    options = {.scan = {.filter = filter}};
    EXPECT_EQ(Copy(options), 0);
    EXPECT_LT(bytes_, 5 * 1000U);
  }
  EXPECT_EQ(list.Missing(), std::vector<std::string>{"none"});
}

// Counting runs ahead, and what is not there is told all the same.
TEST_F(LocalCopyTest, CountingNotesNothingOfWhatIsListed) {
  tree_.Write("from/a", "x");
  Listed list(nullptr);
  ASSERT_TRUE(list.Add("a").ok());
  std::atomic<std::uint64_t> files{0};
  std::atomic<std::uint64_t> bytes{0};
  CountTree({"from", tree_ / "from"}, {.recurse = true, .filter = &list}, stop_, files, bytes);
  EXPECT_EQ(files, 1U);
  EXPECT_EQ(list.Missing(), std::vector<std::string>{"a"});
}

TEST_F(LocalCopyTest, ADryRunChangesNothing) {
  tree_.MakeDirectory("from/folder");
  tree_.Write("from/folder/file", "x");
  tree_.Write("to/other", "x");
  LocalOptions options;
  options.dry_run = true;
  options.remove = true;
  EXPECT_EQ(Copy(options), 0);
  EXPECT_EQ(tree_.Entries("to"), 1U);
}

TEST_F(LocalCopyTest, WhatCannotBeCopiedIsCountedAndTheRestGoesOn) {
  tree_.Write("from/good", "x");
  ASSERT_EQ(mkfifo((tree_ / "from/fifo").c_str(), 0600), 0);
  tree_.Write("from/in_the_way", "x");
  tree_.MakeDirectory("to/in_the_way");
  EXPECT_EQ(Copy(), kExitFailed);
  EXPECT_EQ(tree_.Read("to/good"), "x");
  EXPECT_EQ(tree_.Entries("to"), 2U);
}

// In a process of its own, of a user who may have no further thread.
TEST_F(LocalCopyTest, WithoutAThreadItCopiesAllTheSame) {
  for (int i = 0; i < 300; ++i) tree_.Write("from/" + std::to_string(i), "x");
  GiveAway(tree_);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  // What is thrown there ends it.
  const auto run = [&]() noexcept {
    const rlimit none{0, 0};
    if (geteuid() == 0 && (setgid(kOrdinary) != 0 || setuid(kOrdinary) != 0)) _exit(2);
    if (setrlimit(RLIMIT_NPROC, &none) != 0) _exit(3);
    std::thread thread;
    if (pipe::StartThread(thread, [] {})) _exit(4);
    _exit(Copy());
  };
  if (child == 0) run();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(tree_.Entries("to"), 300U);
}

TEST_F(LocalCopyTest, AStoppedCopyLeavesNothingHalf) {
  for (int i = 0; i < 50; ++i) tree_.Write("from/" + std::to_string(i), Noise(100000));
  stop_ = true;
  (void)Copy();
  EXPECT_EQ(tree_.Entries("to"), 0U);
}

}  // namespace
}  // namespace rdfs::copy
