#include "server/inode/inode_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "server/inode/open_file.h"
#include "server/ops/attr.h"
#include "tests/server/temp_dir.h"

namespace rdfs::server {
namespace {

class InodeTableTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto proc = ProcFd::Open();
    ASSERT_TRUE(proc.ok());
    proc_ = std::make_unique<ProcFd>(*std::move(proc));
    Make({.descriptors = 4, .entries = 64, .by_handle = GetParam()});
  }
  void Make(InodeLimits limits) {
    auto exported = Export::Create({.name = "x", .directory = dir_.path()});
    ASSERT_TRUE(exported.ok());
    auto table = InodeTable::Create(*exported, secret_, *proc_, limits);
    ASSERT_TRUE(table.ok());
    table_ = *std::move(table);
  }
  void Touch(const std::string& name) { std::ofstream(dir_ / name) << name; }
  InodeRef Look(const InodeRef& parent, const std::string& name) {
    struct statx stat {};
    return table_->Lookup(parent, name, stat);
  }

  TempDir dir_;
  HandleSecret secret_ = HandleSecret::Random();
  std::unique_ptr<ProcFd> proc_;
  ThreadIdentity identity_{false};
  std::unique_ptr<InodeTable> table_;
};

TEST_P(InodeTableTest, HandlesResolveAfterTheirDescriptorsWereEvicted) {
  ASSERT_EQ(::mkdir((dir_ / "sub").c_str(), 0755), 0);
  const InodeRef sub = Look(table_->root(), "sub");
  ASSERT_TRUE(sub.ok());
  const fs::Handle sub_handle = sub.inode->handle;
  std::vector<fs::Handle> handles;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "f" + std::to_string(i);
    Touch("sub/" + name);
    const InodeRef parent = table_->Find(sub_handle, identity_);
    ASSERT_TRUE(parent.ok());
    const InodeRef file = Look(parent, name);
    ASSERT_TRUE(file.ok());
    handles.push_back(file.inode->handle);
    EXPECT_LE(table_->descriptors(), 5U);
  }
  for (int i = 0; i < 20; ++i) {
    const InodeRef found = table_->Find(handles[static_cast<std::size_t>(i)], identity_);
    ASSERT_TRUE(found.ok()) << i;
    struct statx stat {};
    ASSERT_EQ(StatFd(found.fd(), stat), 0);
    EXPECT_EQ(stat.stx_size, ("sub/f" + std::to_string(i)).size());
  }
  EXPECT_TRUE(table_->Find(table_->root().inode->handle, identity_).ok());
}

// FUSE file systems give a number again while we hold what had it before. None is at hand.
TEST_P(InodeTableTest, ANumberThatIsGivenAgainToAnotherTypeIsAnotherInode) {
  ASSERT_EQ(::mkdir((dir_ / "d").c_str(), 0755), 0);
  Touch("f");
  struct statx directory {};
  const InodeRef held = table_->Lookup(table_->root(), "d", directory);
  ASSERT_TRUE(held.ok());
  Fd fd(::open((dir_ / "f").c_str(), O_PATH | O_CLOEXEC));
  struct statx stat {};
  ASSERT_EQ(StatFd(fd.get(), stat), 0);
  stat.stx_ino = directory.stx_ino;
  const InodeRef file = table_->Adopt(table_->root().inode, "f", std::move(fd), stat);
  ASSERT_TRUE(file.ok());
  EXPECT_NE(file.inode, held.inode);
  EXPECT_EQ(file.inode->type, static_cast<unsigned>(S_IFREG));
  ASSERT_EQ(StatFd(file.fd(), stat), 0);
  EXPECT_TRUE(S_ISREG(stat.stx_mode));
}

// With room for all that there is to be closed.
std::size_t Age(InodeTable& table) {
  std::size_t room = 1'000'000;
  return table.Age(room).value();
}

constexpr int kCannotTry = 77;

bool EnterMountNamespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// Runs in a child; its result, which is 0 where all was right.
template <typename Steps>
int InMountNamespace(const Steps& steps) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(EnterMountNamespace() ? steps() : kCannotTry);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

// 0 where the file system can be unmounted in the end.
int UnmountedWhenUnused(const std::string& directory, InodeLimits limits) {
  const std::string below = directory + "/below";
  if (::mkdir(below.c_str(), 0755) != 0) return 1;
  if (::mount("none", below.c_str(), "tmpfs", 0, nullptr) != 0) return kCannotTry;
  std::ofstream(below + "/file") << "content";
  auto proc = ProcFd::Open();
  auto exported = Export::Create({.name = "x", .directory = directory});
  if (!proc.ok() || !exported.ok()) return 2;
  auto table = InodeTable::Create(*exported, HandleSecret::Random(), *proc, limits);
  if (!table.ok()) return 3;
  fs::Handle handle;
  {
    struct statx stat {};
    const InodeRef mounted = (*table)->Lookup((*table)->root(), "below", stat);
    if (!mounted.ok()) return 4;
    const InodeRef file = (*table)->Lookup(mounted, "file", stat);
    if (!file.ok()) return 5;
    handle = file.inode->handle;
  }
  if (::umount(below.c_str()) == 0 || errno != EBUSY) return 6;
  ThreadIdentity identity{false};
  for (int turn = 0; turn < 3; ++turn) Age(**table);
  if (!(*table)->Find(handle, identity).ok()) return 7;
  std::size_t left = 1;
  for (int turn = 0; turn < 4 && left > 0; ++turn) left = Age(**table);
  if (left > 0) return 8;
  return ::umount(below.c_str()) == 0 ? 0 : 9;
}

TEST_P(InodeTableTest, WhatIsMountedBelowCanBeUnmountedWhenNobodyUsesIt) {
  const int result =
      InMountNamespace([&] { return UnmountedWhenUnused(dir_.path(), {.by_handle = GetParam()}); });
  if (result == kCannotTry) GTEST_SKIP() << "no mount namespace may be made here";
  EXPECT_EQ(result, 0);
}

bool BindReadOnly(const std::string& from, const std::string& to) {
  return ::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         ::mount("none", to.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
}

// Of two disks: the first has the export, with a directory of its own mounted read-only below it;
// of the second one directory is mounted read-only and another one is not. 0 where no file of a
// read-only mount can be opened to be written, with its descriptor or when it is found again.
int ReadOnlyBelowStaysSo(const std::string& directory, InodeLimits limits) {
  const std::string disk = directory + "/disk", other = directory + "/other",
                    exported_at = disk + "/export";
  for (const std::string& at : {disk, other}) {
    if (::mkdir(at.c_str(), 0755) != 0) return 1;
    if (::mount("none", at.c_str(), "tmpfs", 0, nullptr) != 0) return kCannotTry;
  }
  for (const std::string& at :
       {exported_at, exported_at + "/own", exported_at + "/fixed", exported_at + "/writable",
        disk + "/source", other + "/fixed", other + "/writable"}) {
    if (::mkdir(at.c_str(), 0755) != 0) return 2;
  }
  std::ofstream(disk + "/source/file") << "content";
  std::ofstream(other + "/fixed/file") << "content";
  if (!BindReadOnly(disk + "/source", exported_at + "/own") ||
      !BindReadOnly(other + "/fixed", exported_at + "/fixed") ||
      ::mount((other + "/writable").c_str(), (exported_at + "/writable").c_str(), nullptr, MS_BIND,
              nullptr) != 0) {
    return kCannotTry;
  }
  auto proc = ProcFd::Open();
  auto exported = Export::Create({.name = "x", .directory = exported_at});
  if (!proc.ok() || !exported.ok()) return 3;
  const HandleSecret secret = HandleSecret::Random();
  auto table = InodeTable::Create(*exported, secret, *proc, limits);
  if (!table.ok()) return 4;
  const auto can_be_written = [&](const InodeRef& file) {
    return proc->Reopen(file.fd(), O_WRONLY).fd.valid();
  };
  std::vector<fs::Handle> handles;
  struct statx stat {};
  for (const char* name : {"own", "fixed"}) {
    const InodeRef mounted = (*table)->Lookup((*table)->root(), name, stat);
    if (!mounted.ok()) return 5;
    const InodeRef file = (*table)->Lookup(mounted, "file", stat);
    if (!file.ok() || can_be_written(file)) return 6;
    handles.push_back(file.inode->handle);
  }
  for (int turn = 0; turn < 3; ++turn) Age(**table);
  // From here on handles of the second disk can be opened, where they may be.
  if (!(*table)->Lookup((*table)->root(), "writable", stat).ok()) return 7;
  ThreadIdentity identity{false};
  for (const fs::Handle& handle : handles) {
    const InodeRef file = (*table)->Find(handle, identity);
    if (!file.ok()) return 8;
    if (can_be_written(file)) return 9;
    if (file.inode->handle != handle) return 10;
  }
  // A server that is started anew knows no names of them.
  auto later = InodeTable::Create(*exported, secret, *proc, limits);
  if (!later.ok() || !(*later)->Lookup((*later)->root(), "writable", stat).ok()) return 11;
  for (const fs::Handle& handle : handles) {
    if ((*later)->Find(handle, identity).ok()) return 12;
  }
  return 0;
}

// Its clients are told of changes by the handles that they know.
TEST_P(InodeTableTest, WhatAnotherExportReachedByAnotherMountHasItsHandleHere) {
  Touch("a");
  const InodeRef file = Look(table_->root(), "a");
  ASSERT_TRUE(file.ok());
  NativeHandle native = file.inode->native;
  native.kind = NativeHandle::Kind::kOtherMount;
  const HandleCodec other(secret_, "other", {});
  if (file.inode->native.kind == NativeHandle::Kind::kFileHandle) {
    EXPECT_EQ(table_->Own(file.inode->key, other.Encode(native)), file.inode->handle);
  }
  EXPECT_EQ(table_->Own(file.inode->key, other.Encode(file.inode->native)), file.inode->handle);
}

TEST_P(InodeTableTest, WhatIsMountedReadOnlyBelowStaysSo) {
  const int result = InMountNamespace(
      [&] { return ReadOnlyBelowStaysSo(dir_.path(), {.by_handle = GetParam()}); });
  if (result == kCannotTry) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_P(InodeTableTest, AnotherFileUnderTheNameIsStale) {
  Touch("a");
  const fs::Handle handle = Look(table_->root(), "a").inode->handle;
  for (int i = 0; i < 8; ++i) {  // push the descriptor out
    Touch("x" + std::to_string(i));
    ASSERT_TRUE(Look(table_->root(), "x" + std::to_string(i)).ok());
  }
  ASSERT_EQ(::unlink((dir_ / "a").c_str()), 0);
  Touch("a");
  EXPECT_EQ(table_->Find(handle, identity_).error, ESTALE);
}

TEST_P(InodeTableTest, WhatCannotBeOpenedNowIsNotStale) {
  Touch("a");
  const fs::Handle handle = Look(table_->root(), "a").inode->handle;
  for (int turn = 0; turn < 3; ++turn) (void)Age(*table_);
  ASSERT_EQ(table_->descriptors(), 1U);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit full = before;
  {
    const Fd next(::dup(STDERR_FILENO));
    ASSERT_TRUE(next.valid());
    full.rlim_cur = static_cast<rlim_t>(next.get());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
  const InodeRef refused = table_->Find(handle, identity_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.error, EMFILE);
  EXPECT_TRUE(table_->Find(handle, identity_).ok());
}

TEST_P(InodeTableTest, FollowsARenameItIsToldOf) {
  Touch("old");
  const InodeRef file = Look(table_->root(), "old");
  const fs::Handle handle = file.inode->handle;
  struct statx stat {};
  ASSERT_EQ(StatFd(file.fd(), stat), 0);
  ASSERT_EQ(::rename((dir_ / "old").c_str(), (dir_ / "new").c_str()), 0);
  table_->Renamed(stat, table_->root().inode, "new");
  for (int i = 0; i < 8; ++i) {
    Touch("x" + std::to_string(i));
    ASSERT_TRUE(Look(table_->root(), "x" + std::to_string(i)).ok());
  }
  EXPECT_TRUE(table_->Find(handle, identity_).ok());
}

TEST_P(InodeTableTest, ForgetsOnlyTheOldestBeyondItsEntries) {
  Make({.descriptors = 4, .entries = 10, .by_handle = GetParam()});
  for (int i = 0; i < 40; ++i) {
    Touch("f" + std::to_string(i));
    ASSERT_TRUE(Look(table_->root(), "f" + std::to_string(i)).ok());
  }
  EXPECT_LE(table_->entries(), 10U);
}

TEST_P(InodeTableTest, AnUnlinkedFileHoldsNoDescriptor) {
  Touch("gone");
  struct statx stat {};
  ASSERT_TRUE(table_->Lookup(table_->root(), "gone", stat).ok());
  ASSERT_EQ(::unlink((dir_ / "gone").c_str()), 0);
  const UnlinkedInode gone = table_->Unlinked(stat);
  EXPECT_TRUE(gone.users.empty());
  EXPECT_EQ(table_->descriptors(), 1U);
  // Not closed yet, since that may take long.
  ASSERT_TRUE(gone.descriptor);
  EXPECT_EQ(gone.descriptor.use_count(), 1);
}

TEST_P(InodeTableTest, AFileWithoutANameGoesWithTheLastThatHasItOpen) {
  Touch("gone");
  struct statx stat {};
  const InodePtr inode = table_->Lookup(table_->root(), "gone", stat).inode;
  const auto first = std::make_shared<OpenFile>();
  const auto last = std::make_shared<OpenFile>();
  const auto before = std::make_shared<OpenFile>();
  for (const auto& open : {first, last, before}) table_->Opened(inode, open);
  table_->Closed(inode, before.get());
  ASSERT_EQ(::unlink((dir_ / "gone").c_str()), 0);
  const UnlinkedInode gone = table_->Unlinked(stat);
  EXPECT_EQ(gone.users.size(), 2U);
  EXPECT_FALSE(gone.descriptor);
  table_->Closed(inode, first.get());
  EXPECT_EQ(table_->descriptors(), 2U);
  table_->Closed(inode, last.get());
  EXPECT_EQ(table_->descriptors(), 1U);
}

TEST_P(InodeTableTest, DescriptorsThatNobodyUsesAreClosed) {
  Touch("a");
  Touch("b");
  const fs::Handle handle = Look(table_->root(), "a").inode->handle;
  (void)Look(table_->root(), "b");
  EXPECT_EQ(Age(*table_), 3U);
  EXPECT_TRUE(table_->Find(handle, identity_).ok());
  (void)Age(*table_);
  EXPECT_EQ(table_->descriptors(), 2U) << "the root and the one that was used";
  EXPECT_EQ(Age(*table_), 0U);
  EXPECT_EQ(table_->descriptors(), 1U);
  EXPECT_TRUE(table_->Find(handle, identity_).ok());
}

TEST_P(InodeTableTest, ManyDescriptorsThatNobodyUsesAreClosedInParts) {
  constexpr std::size_t kFiles = 25;
  Make({.descriptors = 64, .entries = 64, .by_handle = GetParam()});
  for (std::size_t i = 0; i < kFiles; ++i) {
    const std::string name = "f" + std::to_string(i);
    Touch(name);
    ASSERT_TRUE(Look(table_->root(), name).ok());
  }
  EXPECT_EQ(Age(*table_), 1 + kFiles);
  std::size_t room = 10;
  EXPECT_FALSE(table_->Age(room)) << "there are more";
  EXPECT_EQ(room, 0U);
  EXPECT_EQ(table_->descriptors(), 1 + kFiles - 10);
  const InodeRef used = Look(table_->root(), "f24");
  ASSERT_TRUE(used.ok());
  room = 10;
  EXPECT_FALSE(table_->Age(room));
  room = 10;
  EXPECT_EQ(table_->Age(room), std::optional<std::size_t>(1)) << "the one that was used since";
  EXPECT_EQ(room, 6U);
  EXPECT_EQ(table_->descriptors(), 2U);
  EXPECT_EQ(Age(*table_), 1U) << "all parts were of one turn";
  EXPECT_EQ(Age(*table_), 0U);
  EXPECT_EQ(table_->descriptors(), 1U);
}

TEST_P(InodeTableTest, ManyOpenFilesDoNotKeepTheDescriptorsOfOthers) {
  std::vector<InodePtr> files;
  std::vector<std::shared_ptr<OpenFile>> opens;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "open" + std::to_string(i);
    Touch(name);
    files.push_back(Look(table_->root(), name).inode);
    opens.push_back(std::make_shared<OpenFile>());
    table_->Opened(files.back(), opens.back());
  }
  for (int i = 0; i < 400; ++i) {
    const std::string name = "other" + std::to_string(i);
    Touch(name);
    ASSERT_TRUE(Look(table_->root(), name).ok());
  }
  // The root, the open ones, and those that are let in between two evictions.
  EXPECT_LE(table_->descriptors(), 1 + opens.size() + 8);
}

TEST_P(InodeTableTest, KnowsTheOpenFilesOfAnInodeInWhateverOrderTheyAreClosed) {
  Touch("file");
  const InodePtr inode = Look(table_->root(), "file").inode;
  std::vector<std::shared_ptr<OpenFile>> opens;
  for (int i = 0; i < 7; ++i) {
    opens.push_back(std::make_shared<OpenFile>());
    table_->Opened(inode, opens.back());
  }
  while (!opens.empty()) {
    const auto closed = opens.begin() + static_cast<std::ptrdiff_t>(opens.size() / 2);
    table_->Closed(inode, closed->get());
    table_->Closed(inode, closed->get());  // a second time is none
    opens.erase(closed);
    std::vector<std::shared_ptr<OpenFile>> users = table_->UsersOf(inode);
    std::ranges::sort(users);
    std::vector<std::shared_ptr<OpenFile>> left = opens;
    std::ranges::sort(left);
    EXPECT_EQ(users, left);
  }
}

TEST_P(InodeTableTest, HandlesSurviveANewTableOnlyWithOpenByHandle) {
  Touch("a");
  const fs::Handle handle = Look(table_->root(), "a").inode->handle;
  Make({.descriptors = 4, .entries = 64, .by_handle = GetParam()});
  EXPECT_EQ(table_->Find(handle, identity_).ok(), table_->persistent());
  // A root handle is the same, and always resolves.
  EXPECT_TRUE(table_->Find(table_->root().inode->handle, identity_).ok());
}

TEST_P(InodeTableTest, ForgedHandlesOfTheSameFileSystemAreStale) {
  // A true handle of a file beside the export, with a tag that is not the server's.
  const TempDir outside;
  std::ofstream(outside / "secret") << "x";
  const Fd fd(::open((outside / "secret").c_str(), O_PATH));
  struct statx stat {};
  ASSERT_EQ(StatFd(fd.get(), stat), 0);
  const HandleCodec forger(HandleSecret::Random(), "x", {});
  const fs::Handle forged = forger.Encode(NativeHandle::Of(fd.get(), stat));
  EXPECT_EQ(table_->Find(forged, identity_).error, ESTALE);
}

INSTANTIATE_TEST_SUITE_P(Ways, InodeTableTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "ByHandle" : "ByName"; });

}  // namespace
}  // namespace rdfs::server
