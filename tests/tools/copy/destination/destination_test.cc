// What is made beneath a directory, under which names, and what is left when it is not finished.
#include "tools/copy/destination/destination.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "tests/tools/copy/as_ordinary.h"
#include "tests/tools/copy/temp_tree.h"
#include "tools/copy/file/data.h"
#include "tools/copy/file/metadata.h"
#include "transport/base/fd.h"

namespace rdfs::copy {
namespace {

class DestinationTest : public testing::Test {
 protected:
  DestinationTest() { dst_.MakeDirectory("root"); }

  void Open(DestinationOptions options = {}) {
    options.report = [this](const std::string& path, const Status& status) {
      const std::lock_guard lock(mutex_);
      reported_.push_back(path + ": " + status.message());
    };
    auto opened = Destination::Open(dst_ / "root", options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    to_ = *std::move(opened);
    ASSERT_TRUE(to_->AddTarget(0, "").ok());
    ASSERT_TRUE(to_->AddTarget(1, "asked").ok());
  }

  static Entry Of(Kind kind, const std::string& path, std::uint32_t source = 0) {
    Entry entry;
    entry.source = source;
    entry.path = path;
    entry.kind = kind;
    entry.mode = kind == Kind::kDirectory ? 0755 : 0644;
    entry.uid = geteuid();
    entry.gid = getegid();
    return entry;
  }

  Status MakeFile(Entry entry, const std::string& text) {
    entry.size = text.size();
    RDFS_ASSIGN_OR_RETURN(const auto file, to_->Begin(entry));
    RDFS_RETURN_IF_ERROR(file->Write(0, AsBytes(text)));
    return file->Finish(entry);
  }
  Status MakeFile(const std::string& path, const std::string& text) {
    return MakeFile(Of(Kind::kFile, path), text);
  }

  TempTree dst_;
  std::mutex mutex_;
  std::vector<std::string> reported_;
  std::unique_ptr<Destination> to_;
};

TEST_F(DestinationTest, MakesNothingOutside) {
  Open();
  const std::string nul("a\0b", 3);
  for (const std::string& path :
       {std::string(".."), std::string("../x"), std::string("/etc/x"), std::string("a/../../x"),
        std::string("."), std::string("a//b"), std::string("a/"), nul, std::string(256, 'n')}) {
    EXPECT_FALSE(MakeFile(path, "evil").ok()) << path;
    EXPECT_FALSE(to_->Enter(Of(Kind::kDirectory, path)).ok()) << path;
    Entry link = Of(Kind::kSymlink, path);
    link.target = "x";
    EXPECT_FALSE(to_->Make(link).ok()) << path;
    EXPECT_FALSE(to_->Touch(Of(Kind::kFile, path)).ok()) << path;
    EXPECT_FALSE(to_->Look(Of(Kind::kFile, path)).ok()) << path;
    EXPECT_FALSE(to_->OpenExisting(Of(Kind::kFile, path)).ok()) << path;
    EXPECT_FALSE(to_->AddTarget(7, path).ok()) << path;
  }
  EXPECT_FALSE(MakeFile("", "the root itself").ok());
  // A source that nobody asked for, and a directory that nobody announced.
  EXPECT_FALSE(MakeFile(Of(Kind::kFile, "x", 9), "evil").ok());
  EXPECT_FALSE(MakeFile("unannounced/x", "evil").ok());
  to_.reset();
  EXPECT_EQ(dst_.Entries("root"), 0U);
  EXPECT_EQ(dst_.Entries(), 1U);
}

TEST_F(DestinationTest, FollowsNoSymlink) {
  dst_.MakeDirectory("outside");
  dst_.Write("outside/file", "mine");
  ASSERT_EQ(symlink("../outside", (dst_ / "root/way").c_str()), 0);
  ASSERT_EQ(symlink("../outside/file", (dst_ / "root/file").c_str()), 0);
  Open();
  EXPECT_FALSE(to_->Enter(Of(Kind::kDirectory, "way")).ok());
  EXPECT_FALSE(MakeFile("way/x", "evil").ok());
  EXPECT_TRUE(MakeFile("file", "new").ok());  // it replaces the symlink
  EXPECT_EQ(dst_.Read("outside/file"), "mine");
  EXPECT_EQ(dst_.Read("root/file"), "new");
  EXPECT_TRUE(S_ISREG(dst_.Stat("root/file").st_mode));
  EXPECT_EQ(dst_.Stat("root/file").st_mode & 07777U, 0644U);
  // A far end that makes the symlink itself, and then goes through it.
  Entry link = Of(Kind::kSymlink, "trap");
  link.target = "../outside";
  ASSERT_TRUE(to_->Make(link).ok());
  EXPECT_FALSE(to_->Enter(Of(Kind::kDirectory, "trap")).ok());
  EXPECT_FALSE(MakeFile("trap/x", "evil").ok());
  EXPECT_EQ(dst_.Entries("outside"), 1U);
}

TEST_F(DestinationTest, InPlaceFollowsNoSymlinkEither) {
  dst_.Write("victim", "mine");
  ASSERT_EQ(symlink("../victim", (dst_ / "root/file").c_str()), 0);
  Open({.in_place = true});
  EXPECT_TRUE(MakeFile("file", "new").ok());
  EXPECT_EQ(dst_.Read("victim"), "mine");
  EXPECT_EQ(dst_.Read("root/file"), "new");
}

TEST_F(DestinationTest, ModesAreOfNoSymlinksTarget) {
  dst_.Write("victim", "mine");
  ASSERT_EQ(chmod((dst_ / "victim").c_str(), 0640), 0);
  ASSERT_EQ(symlink("../victim", (dst_ / "root/link").c_str()), 0);
  ASSERT_EQ(mkfifo((dst_ / "root/fifo").c_str(), 0), 0);
  dst_.MakeDirectory("root/folder");
  const FilePtr root = Here()->Open(dst_ / "root", O_RDONLY | O_DIRECTORY);
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(root->SetMode("link", 0666), -1);
  EXPECT_EQ(dst_.Stat("victim").st_mode & 07777U, 0640U);
  for (const char* name : {"fifo", "folder"}) {
    EXPECT_EQ(root->SetMode(name, 04705), 0) << name;
    EXPECT_EQ(dst_.Stat(std::string("root/") + name).st_mode & 07777U, 04705U) << name;
  }
}

TEST_F(DestinationTest, ASwappedDirectoryLeadsNowhereElse) {
  dst_.MakeDirectory("outside");
  Open();
  ASSERT_TRUE(to_->Enter(Of(Kind::kDirectory, "a")).ok());
  ASSERT_EQ(rename((dst_ / "root/a").c_str(), (dst_ / "root/moved").c_str()), 0);
  ASSERT_EQ(symlink("../outside", (dst_ / "root/a").c_str()), 0);
  EXPECT_TRUE(MakeFile("a/file", "x").ok());  // in the one that was opened
  EXPECT_EQ(dst_.Entries("outside"), 0U);
  EXPECT_EQ(dst_.Read("root/moved/file"), "x");
}

TEST_F(DestinationTest, AFileAppearsWhenItIsWhole) {
  Open();
  Entry entry = Of(Kind::kFile, std::string(255, 'n'));
  entry.size = 10;
  auto file = to_->Begin(entry);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(0, AsBytes("12345")).ok());
  EXPECT_FALSE(dst_.Has("root/" + entry.path));
  ASSERT_TRUE((*file)->Write(5, AsBytes("67890")).ok());
  ASSERT_TRUE((*file)->Finish(entry).ok());
  EXPECT_EQ(dst_.Read("root/" + entry.path), "1234567890");
  EXPECT_EQ(dst_.Entries("root"), 1U);
}

TEST_F(DestinationTest, NothingIsLeftOfWhatWasNotFinished) {
  dst_.Write("root/file", "old");
  Open();
  {
    Entry entry = Of(Kind::kFile, "file");
    entry.size = 3;
    auto file = to_->Begin(entry);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(0, AsBytes("new")).ok());
    EXPECT_EQ(dst_.Entries("root"), 2U);
  }
  EXPECT_EQ(dst_.Read("root/file"), "old");
  EXPECT_EQ(dst_.Entries("root"), 1U);
}

TEST_F(DestinationTest, WhatIsNotWrittenIsAHole) {
  Open();
  Entry entry = Of(Kind::kFile, "sparse");
  entry.size = 10 << 20;
  auto file = to_->Begin(entry);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(1 << 20, AsBytes("x")).ok());
  ASSERT_TRUE((*file)->Hole(2 << 20, 8 << 20).ok());
  ASSERT_TRUE((*file)->Finish(entry).ok());
  EXPECT_EQ(dst_.Stat("root/sparse").st_size, 10 << 20);
  EXPECT_LT(dst_.Stat("root/sparse").st_blocks, 512);
}

TEST_F(DestinationTest, ASourceThatBecameShorterIsNoCopy) {
  dst_.Write("dense", std::string(300000, 'x'));
  dst_.Write("sparse", "x");
  ASSERT_EQ(truncate((dst_ / "sparse").c_str(), 300000), 0);
  dst_.Write("small", "x");
  Open();
  const std::atomic<bool> stop{false};
  for (const char* name : {"dense", "sparse", "small"}) {
    const FilePtr source = Here()->Open(dst_ / name, O_RDONLY);
    Entry entry = Of(Kind::kFile, name);
    const auto size = static_cast<std::uint64_t>(dst_.Stat(name).st_size);
    std::atomic<std::uint64_t> moved{0};
    auto file = to_->Begin(entry);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE((*file)->CopyFrom(*source, size, {moved, stop}).ok()) << name;
    EXPECT_EQ(moved, size);
    entry.path += "2";
    file = to_->Begin(entry);
    ASSERT_TRUE(file.ok());
    const Status status = (*file)->CopyFrom(*source, size + 1000, {moved, stop});
    EXPECT_EQ(status.errno_value(), ENODATA) << name;
  }
  EXPECT_EQ(dst_.Entries("root"), 0U);
}

TEST_F(DestinationTest, InPlaceKeepsInodeAndPunchesHoles) {
  dst_.Write("root/file", std::string(300000, 'o'));
  ASSERT_EQ(link((dst_ / "root/file").c_str(), (dst_ / "other").c_str()), 0);
  const ino_t inode = dst_.Stat("root/file").st_ino;
  Open({.in_place = true});
  Entry entry = Of(Kind::kFile, "file");
  entry.size = 200000;
  auto file = to_->Begin(entry);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(0, AsBytes("new")).ok());
  ASSERT_TRUE((*file)->Hole(3, 199997).ok());
  ASSERT_TRUE((*file)->Finish(entry).ok());
  EXPECT_EQ(dst_.Stat("root/file").st_ino, inode);
  EXPECT_EQ(dst_.Read("other"), "new" + std::string(199997, '\0'));
  EXPECT_TRUE(MakeFile("fresh", "x").ok());
}

// Both at once, as threads do it.
TEST_F(DestinationTest, InPlaceTwoFilesAreNotWrittenIntoOne) {
  dst_.Write("root/one", "old");
  ASSERT_EQ(link((dst_ / "root/one").c_str(), (dst_ / "root/two").c_str()), 0);
  const ino_t inode = dst_.Stat("root/one").st_ino;
  Open({.in_place = true});
  std::vector<std::pair<Entry, std::unique_ptr<OutputFile>>> files;
  for (const char* name : {"one", "two"}) {
    Entry entry = Of(Kind::kFile, name);
    entry.id = {1, files.size()};
    entry.size = 3;
    auto file = to_->Begin(entry);
    ASSERT_TRUE(file.ok());
    files.emplace_back(entry, *std::move(file));
  }
  for (const auto& [entry, file] : files) {
    ASSERT_TRUE(file->Write(0, AsBytes(entry.path)).ok());
    ASSERT_TRUE(file->Finish(entry).ok());
  }
  EXPECT_EQ(dst_.Read("root/one"), "one");
  EXPECT_EQ(dst_.Read("root/two"), "two");
  EXPECT_EQ(dst_.Stat("root/one").st_ino, inode);
  EXPECT_EQ(dst_.Entries("root"), 2U);
}

TEST_F(DestinationTest, DirectoriesGetTheirTimesLast) {
  Open({.keep = Keep::Attributes()});
  Entry outer = Of(Kind::kDirectory, "a");
  outer.mode = 0500;
  outer.mtime = outer.atime = {1000, 5};
  Entry inner = Of(Kind::kDirectory, "a/b");
  inner.mode = 0555;
  inner.mtime = inner.atime = {-2000, 7};
  ASSERT_TRUE(to_->Enter(outer).ok());
  ASSERT_TRUE(to_->Enter(inner).ok());
  Entry entry = Of(Kind::kFile, "a/b/file");
  entry.mode = 0400;
  entry.size = 1;
  auto file = to_->Begin(entry);
  ASSERT_TRUE(file.ok());
  // Left while a file in it is still coming.
  ASSERT_TRUE(to_->Leave(inner).ok());
  ASSERT_TRUE(to_->Leave(outer).ok());
  EXPECT_NE(dst_.Stat("root/a/b").st_mtim.tv_sec, -2000);
  ASSERT_TRUE((*file)->Write(0, AsBytes("x")).ok());
  ASSERT_TRUE((*file)->Finish(entry).ok());
  *file = nullptr;
  EXPECT_EQ(dst_.Stat("root/a/b").st_mtim.tv_sec, -2000);
  EXPECT_EQ(dst_.Stat("root/a/b").st_mtim.tv_nsec, 7);
  EXPECT_EQ(dst_.Stat("root/a").st_mtim.tv_sec, 1000);
  EXPECT_EQ(dst_.Stat("root/a").st_mode & 07777U, 0500U);
  EXPECT_EQ(dst_.Stat("root/a/b/file").st_mode & 07777U, 0400U);
  EXPECT_TRUE(reported_.empty());
  EXPECT_FALSE(MakeFile("a/b/late", "x").ok());
  ASSERT_EQ(chmod((dst_ / "root/a").c_str(), 0700), 0);
  ASSERT_EQ(chmod((dst_ / "root/a/b").c_str(), 0700), 0);
}

TEST_F(DestinationTest, AHeldDirectoryIsNotFinished) {
  Open({.keep = Keep::Attributes()});
  Entry folder = Of(Kind::kDirectory, "a");
  folder.mtime = {1000, 5};
  ASSERT_TRUE(to_->Enter(folder).ok());
  auto pin = to_->Hold(Of(Kind::kFile, "a/file"));
  ASSERT_TRUE(pin.ok());
  ASSERT_TRUE(to_->Leave(folder).ok());
  EXPECT_TRUE(MakeFile("a/file", "x").ok());
  EXPECT_NE(dst_.Stat("root/a").st_mtim.tv_sec, 1000);
  *pin = nullptr;
  EXPECT_EQ(dst_.Stat("root/a").st_mtim.tv_sec, 1000);
  EXPECT_FALSE(MakeFile("a/other", "x").ok());
}

TEST_F(DestinationTest, TheRootWaitsForWhatIsHeldAsWell) {
  Open({.keep = Keep::All()});
  Entry root = Of(Kind::kDirectory, "");
  root.mtime = {1000, 5};
  ASSERT_TRUE(to_->Enter(root).ok());
  auto pin = to_->Hold(Of(Kind::kFile, "file"));
  ASSERT_TRUE(pin.ok());
  ASSERT_TRUE(to_->Leave(root).ok());
  {
    Entry entry = Of(Kind::kFile, "file");
    auto file = to_->Begin(entry);
    ASSERT_TRUE(file.ok()) << file.status().message();
    *pin = nullptr;
    EXPECT_NE(dst_.Stat("root").st_mtim.tv_sec, 1000);
    ASSERT_TRUE((*file)->Finish(entry).ok());
  }
  EXPECT_EQ(dst_.Stat("root").st_mtim.tv_sec, 1000);
  EXPECT_TRUE(MakeFile("other", "x").ok()) << "of the next SRC";
}

TEST_F(DestinationTest, LinksWaitForTheFirstName) {
  Open({.keep = Keep::All()});
  Entry first = Of(Kind::kFile, "first");
  first.links = 3;
  first.id = {1, 42};
  first.size = 1;
  Entry second = first;
  second.path = "second";
  Entry third = first;
  third.path = "third";
  using Turn = Destination::Turn;
  EXPECT_EQ(*to_->TakeTurn(first), Turn::kFirst);
  auto file = to_->Begin(first);
  ASSERT_TRUE(file.ok());
  int made = 0;
  EXPECT_EQ(*to_->TakeTurn(second, false, [&] { ++made; }), Turn::kWaits);
  EXPECT_FALSE(dst_.Has("root/second"));
  ASSERT_TRUE((*file)->Write(0, AsBytes("x")).ok());
  EXPECT_EQ(made, 0);
  ASSERT_TRUE((*file)->Finish(first).ok());
  EXPECT_EQ(made, 1);
  EXPECT_EQ(*to_->TakeTurn(third), Turn::kLink);
  EXPECT_EQ(dst_.Stat("root/first").st_nlink, 3U);
  EXPECT_EQ(dst_.Stat("root/third").st_ino, dst_.Stat("root/second").st_ino);
  EXPECT_TRUE(reported_.empty());
}

TEST_F(DestinationTest, LinksToWhatFailedAreReportedAndTheNextNameIsTried) {
  Open({.keep = Keep::All()});
  Entry first = Of(Kind::kFile, "first");
  first.links = 3;
  first.id = {1, 42};
  Entry second = first;
  second.path = "second";
  Entry third = first;
  third.path = "third";
  EXPECT_EQ(*to_->TakeTurn(first), Destination::Turn::kFirst);
  EXPECT_EQ(*to_->TakeTurn(second), Destination::Turn::kWaits);
  to_->Settle(first, false);
  ASSERT_EQ(reported_.size(), 1U);
  EXPECT_TRUE(reported_[0].starts_with("second: "));
  EXPECT_EQ(*to_->TakeTurn(third), Destination::Turn::kFirst);
}

TEST_F(DestinationTest, ALinkThatWaitedAndIsThereAlreadyIsNotMade) {
  dst_.Write("root/first", "x");
  ASSERT_EQ(link((dst_.path() + "/root/first").c_str(), (dst_.path() + "/root/second").c_str()), 0);
  Open({.keep = Keep::All()});
  Entry first = Of(Kind::kFile, "first");
  first.links = 2;
  first.id = {1, 42};
  Entry second = first;
  second.path = "second";
  EXPECT_EQ(*to_->TakeTurn(first), Destination::Turn::kFirst);
  int made = 0;
  EXPECT_EQ(*to_->TakeTurn(second, false, [&] { ++made; }), Destination::Turn::kWaits);
  to_->Settle(first, true);  // its content was compared, and is the same
  EXPECT_EQ(made, 0);
  EXPECT_EQ(dst_.Stat("root/first").st_nlink, 2U);
}

TEST_F(DestinationTest, ALinkReplacesWhatIsThere) {
  dst_.Write("root/second", "old");
  Open({.keep = Keep::All()});
  Entry first = Of(Kind::kFile, "first");
  first.links = 2;
  first.id = {1, 42};
  EXPECT_EQ(*to_->TakeTurn(first), Destination::Turn::kFirst);
  ASSERT_TRUE(MakeFile(first, "new").ok());
  first.path = "second";
  EXPECT_EQ(*to_->TakeTurn(first), Destination::Turn::kLink);
  EXPECT_EQ(dst_.Read("root/second"), "new");
  EXPECT_EQ(dst_.Entries("root"), 2U);
}

TEST_F(DestinationTest, ALinkDoesNotReplaceWhatStays) {
  dst_.Write("root/second", "newer");
  dst_.Write("root/third", "newer");
  Open({.keep = Keep::All()});
  Entry first = Of(Kind::kFile, "first");
  first.links = 4;
  first.id = {1, 42};
  Entry other = first;
  EXPECT_EQ(*to_->TakeTurn(first), Destination::Turn::kFirst);
  other.path = "second";
  EXPECT_EQ(*to_->TakeTurn(other, true, {}, true), Destination::Turn::kThere);
  ASSERT_TRUE(MakeFile(first, "older").ok());
  other.path = "third";
  EXPECT_EQ(*to_->TakeTurn(other, true, {}, true), Destination::Turn::kThere);
  other.path = "fourth";
  EXPECT_EQ(*to_->TakeTurn(other), Destination::Turn::kLink);
  EXPECT_EQ(dst_.Read("root/second") + dst_.Read("root/third"), "newernewer");
  EXPECT_EQ(dst_.Read("root/fourth"), "older");
}

TEST_F(DestinationTest, WhatIsNoFileIsNotReplacedByOne) {
  ASSERT_EQ(mkfifo((dst_ / "root/fifo").c_str(), 0600), 0);
  dst_.MakeDirectory("root/folder");
  dst_.Write("root/file", "x");
  Open({.keep = Keep::All()});
  EXPECT_FALSE(MakeFile("fifo", "x").ok());
  EXPECT_FALSE(MakeFile("folder", "x").ok());
  EXPECT_FALSE(to_->Enter(Of(Kind::kDirectory, "file")).ok());
  EXPECT_TRUE(to_->Make(Of(Kind::kFifo, "fifo")).ok());
  EXPECT_EQ(dst_.Entries("root"), 3U);
}

TEST_F(DestinationTest, AFileIsNotCopiedOntoItself) {
  dst_.Write("root/file", "precious");
  Open({.same_machine = true});
  Entry entry = EntryOf(dst_.Stat("root/file"));
  entry.path = "file";
  EXPECT_FALSE(to_->Begin(entry).ok());
  Entry folder = EntryOf(dst_.Stat("root"));
  folder.path = "again";
  EXPECT_FALSE(to_->Enter(folder).ok());
  EXPECT_EQ(dst_.Read("root/file"), "precious");
  EXPECT_TRUE(to_->IsIn(folder));
  EXPECT_TRUE(to_->IsIn(EntryOf(dst_.Stat("."))));
  EXPECT_FALSE(to_->IsIn(entry));
}

TEST_F(DestinationTest, ADirectoryThatIsRefusedStaysAsItWas) {
  dst_.MakeDirectory("root/folder");
  GiveAway(dst_);
  ASSERT_EQ(chmod((dst_ / "root/folder").c_str(), 0555), 0);
  const AsOrdinary user;
  Open({.same_machine = true});
  Entry entry = EntryOf(dst_.Stat("root/folder"));
  entry.path = "folder";
  EXPECT_FALSE(to_->Enter(entry).ok());
  EXPECT_EQ(dst_.Stat("root/folder").st_mode & 07777U, 0555U);
}

TEST_F(DestinationTest, GoesDeeperThanAnyPathAndWiderThanItsDescriptors) {
  Open({.keep = Keep::Attributes()});
  constexpr int kLevels = 400;
  std::vector<Entry> levels;
  std::string path;
  for (int i = 0; i < kLevels; ++i) {
    path += (i == 0 ? "" : "/") + std::string(100, 'd');
    levels.push_back(Of(Kind::kDirectory, path));
    levels.back().mtime = {i, 0};
    ASSERT_TRUE(to_->Enter(levels.back()).ok()) << i;
  }
  ASSERT_TRUE(MakeFile(path + "/bottom", "x").ok());
  ASSERT_TRUE(MakeFile(levels[0].path + "/top", "x").ok());  // its descriptor was closed meanwhile
  EXPECT_FALSE(to_->Enter(levels.back()).ok());              // twice
  for (int i = kLevels; i-- > 0;) ASSERT_TRUE(to_->Leave(levels[static_cast<std::size_t>(i)]).ok());
  EXPECT_FALSE(to_->Leave(levels[0]).ok());
  EXPECT_TRUE(reported_.empty());
  EXPECT_EQ(dst_.Stat("root/" + levels[0].path).st_mtim.tv_sec, 0);
  EXPECT_EQ(dst_.Stat("root/" + levels[9].path).st_mtim.tv_sec, 9);
}

TEST_F(DestinationTest, AReplacedDirectoryIsNotTakenForTheOneThatWasClosed) {
  Open();
  ASSERT_TRUE(to_->Enter(Of(Kind::kDirectory, "a")).ok());
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(to_->Enter(Of(Kind::kDirectory, "other" + std::to_string(i))).ok());
  }
  EXPECT_TRUE(MakeFile("a/first", "x").ok());
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(MakeFile("other" + std::to_string(i) + "/file", "x").ok());
  }
  ASSERT_EQ(rename((dst_ / "root/a").c_str(), (dst_ / "moved").c_str()), 0);
  dst_.MakeDirectory("root/a");
  dst_.Write("root/a/second", "another one's");
  EXPECT_FALSE(MakeFile("a/second", "x").ok());
  EXPECT_EQ(dst_.Read("root/a/second"), "another one's");
  EXPECT_EQ(dst_.Entries("moved"), 1U);
}

TEST_F(DestinationTest, AttributesAreSetAndOthersRemoved) {
  dst_.Write("root/file", "old");
  const std::string path = dst_ / "root/file";
  if (setxattr(path.c_str(), "user.old", "1", 1, 0) != 0) {
    GTEST_SKIP() << "no extended attributes in " << dst_.path();
  }
  Open({.keep = Keep::All(), .in_place = true});
  Entry entry = Of(Kind::kFile, "file");
  entry.mode = 0440;
  entry.xattrs = {{"user.new", "value"}, {"system.posix_acl_nonsense", "x"}};
  EXPECT_FALSE(MakeFile(entry, "new").ok());  // the nonsense; the rest is done
  entry.xattrs.pop_back();
  EXPECT_TRUE(to_->Touch(entry).ok());
  entry.xattrs[0].value = "other";
  EXPECT_TRUE(to_->Touch(entry).ok());
  std::string value(10, '\0');
  EXPECT_EQ(getxattr(path.c_str(), "user.new", value.data(), value.size()), 5);
  EXPECT_EQ(value.substr(0, 5), "other");
  EXPECT_LT(getxattr(path.c_str(), "user.old", nullptr, 0), 0);
  EXPECT_EQ(dst_.Read("root/file"), "new");
  EXPECT_EQ(dst_.Stat("root/file").st_mode & 07777U, 0440U);
}

TEST_F(DestinationTest, AttributesOfReadOnlyFilesAreRemovedByTheirOwner) {
  dst_.Write("root/file", "old");
  const std::string path = dst_ / "root/file";
  if (setxattr(path.c_str(), "user.old", "1", 1, 0) != 0) {
    GTEST_SKIP() << "no extended attributes in " << dst_.path();
  }
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  GiveAway(dst_);
  const AsOrdinary user;
  Open({.keep = Keep::All()});
  Entry entry = Of(Kind::kFile, "file");
  entry.mode = 0444;
  EXPECT_TRUE(to_->Touch(entry).ok());
  EXPECT_LT(getxattr(path.c_str(), "user.old", nullptr, 0), 0);
  EXPECT_EQ(dst_.Stat("root/file").st_mode & 07777U, 0444U);
}

// A security module's, as SELinux's, which nobody may remove.
TEST_F(DestinationTest, LabelsThatTheSourceHasNotStayAsRoot) {
  dst_.Write("root/file", "old");
  const std::string path = dst_ / "root/file";
  if (setxattr(path.c_str(), "security.SMACK64RDFS", "1", 1, 0) != 0) {
    GTEST_SKIP() << "only root may set them, and not in " << dst_.path();
  }
  Open({.keep = Keep::All()});
  EXPECT_TRUE(to_->Touch(Of(Kind::kFile, "file")).ok());
  EXPECT_EQ(getxattr(path.c_str(), "security.SMACK64RDFS", nullptr, 0), 1);
}

// Its group is not the source's before it is given to that.
TEST_F(DestinationTest, WhatGetsAnotherGroupIsNobodyElsesAtFirst) {
  const gid_t other = getegid() + 1;
  if (chown((dst_ / "root").c_str(), geteuid(), other) != 0) {
    GTEST_SKIP() << "only root may give a directory to any group";
  }
  ASSERT_EQ(chmod((dst_ / "root").c_str(), 02755), 0);
  Open({.keep = Keep::Attributes()});
  Entry entry = Of(Kind::kFile, "file");
  entry.mode = 0640;
  const auto file = to_->Begin(entry);
  ASSERT_TRUE(file.ok());
  struct stat made {};
  ASSERT_EQ((*file)->file().Stat("", true, made), 0);
  EXPECT_EQ(made.st_gid, other);
  EXPECT_EQ(made.st_mode & 07777U, 0600U);
  ASSERT_TRUE((*file)->Finish(entry).ok());
  EXPECT_EQ(dst_.Stat("root/file").st_gid, getegid());
  EXPECT_EQ(dst_.Stat("root/file").st_mode & 07777U, 0640U);
}

TEST_F(DestinationTest, WithoutKeepAnExistingFileKeepsItsMode) {
  dst_.Write("root/file", "old");
  ASSERT_EQ(chmod((dst_ / "root/file").c_str(), 0604), 0);
  Open();
  ASSERT_TRUE(MakeFile("file", "new").ok());
  EXPECT_EQ(dst_.Stat("root/file").st_mode & 07777U, 0604U);
  Entry entry = Of(Kind::kFile, "fresh");
  entry.mode = 04777;
  ASSERT_TRUE(MakeFile(entry, "new").ok());
  EXPECT_EQ(dst_.Stat("root/fresh").st_mode & 07777U, 0755U);
}

TEST_F(DestinationTest, PrunesWhatIsRefusedAndNothingOfItsOwn) {
  for (const char* name : {"root/a/keep", "root/a/gone", "root/a/tree/inner"}) {
    dst_.MakeDirectory(std::filesystem::path(name).parent_path());
    dst_.Write(name, "x");
  }
  dst_.MakeDirectory("outside");
  dst_.Write("outside/file", "mine");
  ASSERT_EQ(symlink("../../outside", (dst_ / "root/a/link").c_str()), 0);
  Open();
  const Entry folder = Of(Kind::kDirectory, "a");
  ASSERT_TRUE(to_->Enter(folder).ok());
  Entry entry = Of(Kind::kFile, "a/coming");
  auto file = to_->Begin(entry);
  ASSERT_TRUE(file.ok());
  std::vector<std::string> gone;
  const auto keeps = [](const std::string& name, bool) { return name == "keep"; };
  ASSERT_TRUE(to_->PeekPrune(
                     folder, {}, [](auto&, bool) { return false; }, [](auto&) {})
                  .ok());
  ASSERT_TRUE(
      to_->Prune(folder, {}, keeps, [&](const std::string& path) { gone.push_back(path); }).ok());
  std::sort(gone.begin(), gone.end());
  EXPECT_EQ(gone, (std::vector<std::string>{"a/gone", "a/link", "a/tree"}));
  ASSERT_TRUE((*file)->Finish(entry).ok());
  EXPECT_EQ(dst_.Entries("root/a"), 2U);
  EXPECT_EQ(dst_.Read("outside/file"), "mine");
}

// In DST it is seen with the change time that it has by now.
TEST_F(DestinationTest, PruneLeavesASourceThatHasChangedAndIsSeenInAnotherWay) {
  for (const char* name : {"root/src/file", "root/other/file"}) {
    dst_.MakeDirectory(std::filesystem::path(name).parent_path());
    dst_.Write(name, "x");
  }
  Open({.same_machine = true});
  for (const std::string name : {"src", "other"}) {
    Entry before = EntryOf(dst_.Stat("root/" + name));
    before.id.device = kFirstExportDevice;
    before.ctime.tv_sec -= 10;
    Entry now = before;
    if (name == "src") now.ctime.tv_sec += 5;
    to_->AddSource(before, [now] { return std::optional<Entry>(now); });
  }
  const Entry folder = Of(Kind::kDirectory, "");
  ASSERT_TRUE(to_->Enter(folder).ok());
  const auto keeps = [](const std::string&, bool) { return false; };
  EXPECT_EQ(to_->Prune(folder, {}, keeps, [](auto&) {}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(dst_.Has("root/src/file"));
  EXPECT_FALSE(dst_.Has("root/other")) << "another file of that number";
}

TEST_F(DestinationTest, PrunesReadOnlyDirectoriesOfTheUser) {
  for (const char* name : {"root/old/in/file", "root/kept/key", "root/kept/other"}) {
    dst_.MakeDirectory(std::filesystem::path(name).parent_path());
    dst_.Write(name, "x");
  }
  GiveAway(dst_);
  for (const char* name : {"root/old/in", "root/old", "root/kept"}) {
    ASSERT_EQ(chmod((dst_ / name).c_str(), 0555), 0);
  }
  const AsOrdinary user;
  Open();
  const Entry folder = Of(Kind::kDirectory, "");
  ASSERT_TRUE(to_->Enter(folder).ok());
  const auto keeps = [](const std::string& path, bool) { return path == "kept/key"; };
  EXPECT_TRUE(to_->Prune(folder, {}, keeps, [](auto&) {}).ok());
  EXPECT_FALSE(dst_.Has("root/old"));
  EXPECT_EQ(dst_.Entries("root/kept"), 1U);
  EXPECT_EQ(dst_.Stat("root/kept").st_mode & 07777U, 0555U);
}

TEST_F(DestinationTest, PruneKeepsWhatIsKeptDeepBelow) {
  for (const char* name :
       {"root/old/in/key", "root/old/in/other", "root/old/more/file", "root/x"}) {
    dst_.MakeDirectory(std::filesystem::path(name).parent_path());
    dst_.Write(name, "x");
  }
  Open();
  const Entry folder = Of(Kind::kDirectory, "");
  ASSERT_TRUE(to_->Enter(folder).ok());
  std::vector<std::string> gone;
  const auto tell = [&](const std::string& path) { gone.push_back(path); };
  std::vector<std::string> asked;
  const auto keeps = [&](const std::string& path, bool is_directory) {
    if (is_directory) asked.push_back(path);
    return path == "old/in/key";
  };
  const std::vector<std::string> goes{"old/in/other", "old/more", "x"};
  ASSERT_TRUE(to_->PeekPrune(folder, {}, keeps, tell).ok());
  std::sort(gone.begin(), gone.end());
  EXPECT_EQ(gone, goes);
  EXPECT_TRUE(dst_.Has("root/old/more/file"));
  std::sort(asked.begin(), asked.end());
  EXPECT_EQ(asked, (std::vector<std::string>{"old", "old/in", "old/more"}));
  gone.clear();
  ASSERT_TRUE(to_->Prune(folder, {}, keeps, tell).ok());
  std::sort(gone.begin(), gone.end());
  EXPECT_EQ(gone, goes);
  EXPECT_EQ(dst_.Entries("root"), 1U);
  EXPECT_EQ(dst_.Entries("root/old"), 1U);
  EXPECT_EQ(dst_.Entries("root/old/in"), 1U);
  EXPECT_EQ(dst_.Read("root/old/in/key"), "x");
}

TEST_F(DestinationTest, NothingMoreIsPrunedOnceItIsToStop) {
  constexpr int kFiles = 300, kGoing = 100;
  dst_.MakeDirectory("root/old");
  for (int i = 0; i < kFiles; ++i) dst_.Write("root/old/" + std::to_string(i), "x");
  for (int i = 0; i < kFiles; ++i) dst_.Write("root/" + std::to_string(i), "x");
  Open();
  const Entry folder = Of(Kind::kDirectory, "");
  ASSERT_TRUE(to_->Enter(folder).ok());
  std::atomic<bool> stop{false};
  int asked = 0;
  const auto keeps = [&](const std::string& path, bool is_directory) {
    if (!is_directory && path.starts_with("old/") && ++asked == kGoing) stop = true;
    return !path.starts_with("old");
  };
  std::size_t gone = 0;
  const auto tell = [&](const std::string&) { ++gone; };
  EXPECT_TRUE(to_->Prune(folder, {}, keeps, tell, &stop).ok());
  EXPECT_EQ(asked, kGoing);
  EXPECT_EQ(gone, std::size_t{kGoing});
  EXPECT_EQ(dst_.Entries("root/old"), std::size_t{kFiles - kGoing});
  EXPECT_EQ(dst_.Entries("root"), std::size_t{kFiles + 1});
}

// Runs it with a stack of 512 KiB.
void OnASmallStack(std::function<void()> what) {
  constexpr std::size_t kStack = 512 << 10;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
  const auto run = [](void* given) -> void* {
    (*static_cast<std::function<void()>*>(given))();
    return nullptr;
  };
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &what), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
}

// Neither stack nor descriptors bound it.
TEST_F(DestinationTest, PrunesATreeOfAnyDepth) {
  constexpr int kLevels = 2000;
  Fd at(open((dst_ / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int level = 0; level < kLevels; ++level) {
    const std::string name = level == 0 ? "old" : "d";
    ASSERT_EQ(mkdirat(at.get(), name.c_str(), 0755), 0) << level;
    at.Reset(openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  at.Reset();
  Open();
  const Entry folder = Of(Kind::kDirectory, "");
  ASSERT_TRUE(to_->Enter(folder).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 512);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::size_t longest = 0;
  const auto keeps = [&](const std::string& path, bool) {
    longest = std::max(longest, path.size());
    return false;
  };
  std::vector<std::string> gone;
  const auto tell = [&](const std::string& path) { gone.push_back(path); };
  OnASmallStack([&] {
    const Status would = to_->PeekPrune(folder, {}, keeps, tell);
    EXPECT_TRUE(would.ok()) << would.message();
    const Status pruned = to_->Prune(folder, {}, keeps, tell);
    EXPECT_TRUE(pruned.ok()) << pruned.message();
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(longest, std::string("old").size() + 2 * (kLevels - 1));
  EXPECT_EQ(gone, (std::vector<std::string>{"old", "old"}));
  EXPECT_EQ(dst_.Entries("root"), 0U);
}

// What cannot go is named by its path, and of a long one by how that begins and ends.
TEST_F(DestinationTest, WhatCannotBePrunedIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "everything here is ours";
  dst_.MakeDirectory("root/old/in");
  dst_.Write("root/old/in/file", "x");
  std::string deep = "root/deep";
  while (deep.size() < 1500) deep += "/" + std::string(100, 'd');
  dst_.MakeDirectory(deep + "/last");
  dst_.Write(deep + "/last/file", "x");
  GiveAway(dst_);
  ASSERT_EQ(chown((dst_ / "root/old/in").c_str(), 0, 0), 0);
  ASSERT_EQ(chown((dst_ / deep + "/last").c_str(), 0, 0), 0);
  const AsOrdinary user;
  Open();
  std::vector<std::string> gone;
  EXPECT_EQ(RemoveTree(*Here(), dst_ / "root/old", {}, gone).message(),
            dst_ / "root/old/in/file: Permission denied");
  EXPECT_EQ(RemoveTree(*Here(), dst_ / "root/deep", {}, gone).message(),
            dst_ / "root/deep/.../file: Permission denied");
}

}  // namespace
}  // namespace rdfs::copy
