// What is written, under which name, and what is left when it is not finished.
#include "tools/pipe/io/sink.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "tests/tools/pipe/temp_dir.h"
#include "tools/pipe/wire/digest.h"
#include "transport/base/fd.h"
#include "transport/base/shared_memory.h"

namespace rdfs::pipe {
namespace {

class SinkTest : public testing::Test {
 protected:
  std::unique_ptr<Sink> Open(const SinkOptions& options) {
    EXPECT_TRUE(Sink::Check(options).ok());
    auto sink = Sink::Open(options, stop_);
    EXPECT_TRUE(sink.ok()) << sink.status().message();
    return sink.ok() ? *std::move(sink) : nullptr;
  }
  // With "one two " in it, and more that nobody has confirmed.
  std::unique_ptr<Sink> OpenPaused(bool keep_partial) {
    auto sink = Open({.path = Path(), .keep_partial = keep_partial});
    EXPECT_TRUE(sink->StartAt(0).ok());
    EXPECT_TRUE(sink->Write(0, AsBytes("one two lost")).ok());
    EXPECT_TRUE(sink->Pause(8).ok());
    return sink;
  }
  std::string Path(const std::string& name = "file") { return dir_ / name; }
  // What is written to "link" is in `target`, and the link stays one.
  void ExpectWrittenThroughLink(const std::string& target) {
    const auto sink = Open({.path = Path("link")});
    ASSERT_TRUE(sink->Write(0, AsBytes("new")).ok());
    ASSERT_TRUE(sink->Finish(3).ok());
    EXPECT_EQ(dir_.Read(target), "new");
    struct stat info {};
    ASSERT_EQ(lstat(Path("link").c_str(), &info), 0);
    EXPECT_TRUE(S_ISLNK(info.st_mode));
  }

  TempDir dir_;
  StopFlag stop_{false};
};

TEST_F(SinkTest, AppearsWhenItIsWhole) {
  const auto sink = Open({.path = Path()});
  ASSERT_TRUE(sink->ranged());
  ASSERT_TRUE(sink->StartAt(0).ok());
  ASSERT_TRUE(sink->Write(4, AsBytes("two")).ok());
  ASSERT_TRUE(sink->Write(0, AsBytes("one ")).ok());
  EXPECT_NE(access(Path().c_str(), F_OK), 0);
  ASSERT_TRUE(sink->Finish(7).ok());
  EXPECT_EQ(dir_.Read("file"), "one two");
  EXPECT_EQ(dir_.Entries(), 1U);
}

TEST_F(SinkTest, AnUnfinishedOneLeavesNothingAndHarmsNothing) {
  dir_.Write("file", "old");
  {
    const auto sink = Open({.path = Path()});
    ASSERT_TRUE(sink->StartAt(0).ok());
    ASSERT_TRUE(sink->Write(0, AsBytes("new")).ok());
  }
  EXPECT_EQ(dir_.Read("file"), "old");
  EXPECT_EQ(dir_.Entries(), 1U);
}

TEST_F(SinkTest, ASymlinkStays) {
  dir_.Write("target", "old");
  ASSERT_EQ(symlink("target", Path("link").c_str()), 0);
  ExpectWrittenThroughLink("target");
}

TEST_F(SinkTest, ASymlinkToWhatIsNotThereStays) {
  ASSERT_EQ(mkdir(Path("folder").c_str(), 0700), 0);
  ASSERT_EQ(symlink("../made", Path("folder/first").c_str()), 0);
  ASSERT_EQ(symlink(Path("folder/first").c_str(), Path("link").c_str()), 0);
  ExpectWrittenThroughLink("made");
}

TEST_F(SinkTest, APartIsKeptUpToItsFirstGap) {
  const auto sink = Open({.path = Path(), .keep_partial = true});
  ASSERT_TRUE(sink->StartAt(0).ok());
  ASSERT_TRUE(sink->Write(0, AsBytes("one")).ok());
  ASSERT_TRUE(sink->Write(10, AsBytes("behind a gap")).ok());
  EXPECT_EQ(sink->Abandon(3), Path("file.rdpart"));
  EXPECT_EQ(dir_.Read("file.rdpart"), "one");
  EXPECT_NE(access(Path().c_str(), F_OK), 0);
}

TEST_F(SinkTest, ResumingReadsThePart) {
  const std::string text((2 << 20) + 5, 'p');
  dir_.Write("file.rdpart", text);
  const auto sink = Open({.path = Path(), .resume = true});
  const auto partial = sink->ReadPartial();
  ASSERT_TRUE(partial.ok());
  EXPECT_EQ(partial->bytes, text.size());
  ASSERT_EQ(partial->blocks.size(), 3U);
  EXPECT_EQ(partial->blocks[2], DigestOf(AsBytes("ppppp")));
  // Before it was begun, a failure leaves the part as it was.
  EXPECT_EQ(sink->Abandon(0), Path("file.rdpart"));
  EXPECT_EQ(dir_.Read("file.rdpart").size(), text.size());
}

TEST_F(SinkTest, APartIsLockedWhereThatCanBe) {
  dir_.Write("file.rdpart", "part");
  const auto sink = Open({.path = Path(), .resume = true});
  EXPECT_EQ(Sink::Open({.path = Path(), .resume = true}, stop_).status().code(), Code::kBusy);
  for (const int none : {0, ENOSYS, EOPNOTSUPP, ENOLCK}) EXPECT_TRUE(JudgeLock(none, "p").ok());
  EXPECT_EQ(JudgeLock(EWOULDBLOCK, "p").message(), "another rdrecv writes p");
  EXPECT_EQ(JudgeLock(EIO, "p").message(), "cannot lock p: Input/output error");
}

TEST_F(SinkTest, WhatIsBehindTheBeginningIsDropped) {
  dir_.Write("file.rdpart", "good and bad");
  const auto sink = Open({.path = Path(), .resume = true});
  ASSERT_TRUE(sink->StartAt(5).ok());
  ASSERT_TRUE(sink->Finish(8).ok());
  EXPECT_EQ(dir_.Read("file"), std::string("good \0\0\0", 8));
}

// Another sender goes on, with or without a name for the part.
TEST_F(SinkTest, APausedOneGoesOn) {
  for (const bool keep : {false, true}) {
    const auto sink = OpenPaused(keep);
    StopFlag other{false};
    sink->ObeyFrom(other);
    const auto partial = sink->ReadPartial();
    ASSERT_TRUE(partial.ok());
    EXPECT_EQ(partial->bytes, 8U);
    ASSERT_EQ(partial->blocks.size(), 1U);
    EXPECT_EQ(partial->blocks[0], DigestOf(AsBytes("one two ")));
    ASSERT_TRUE(sink->StartAt(4).ok());
    ASSERT_TRUE(sink->Write(4, AsBytes("three")).ok());
    ASSERT_TRUE(sink->Finish(9).ok());
    EXPECT_EQ(dir_.Read("file"), "one three");
    EXPECT_EQ(dir_.Entries(), 1U);
  }
}

TEST_F(SinkTest, APausedOneThatNobodyGoesOnWith) {
  for (const bool keep : {false, true}) {
    const auto sink = OpenPaused(keep);
    EXPECT_EQ(sink->Abandon(0), keep ? Path("file.rdpart") : "");
    EXPECT_EQ(dir_.Entries(), keep ? 1U : 0U);
  }
  EXPECT_EQ(dir_.Read("file.rdpart"), "one two ");
  // One that was not begun leaves the part of before as it was.
  const auto sink = Open({.path = Path(), .resume = true});
  ASSERT_TRUE(sink->Pause(0).ok());
  EXPECT_EQ(sink->Abandon(0), Path("file.rdpart"));
  EXPECT_EQ(dir_.Read("file.rdpart"), "one two ");
}

// An interrupt that comes while it is written to the disk: who is told that it failed finds what
// was there before.
TEST_F(SinkTest, OneThatIsStoppedBeforeItHasItsNameFails) {
  for (const bool keep : {false, true}) {
    dir_.Write("file", "old");
    const auto sink = Open({.path = Path(), .keep_partial = keep});
    ASSERT_TRUE(sink->StartAt(0).ok());
    ASSERT_TRUE(sink->Write(0, AsBytes("new")).ok());
    stop_ = true;
    EXPECT_EQ(sink->Finish(3).errno_value(), EINTR);
    EXPECT_EQ(sink->Abandon(3), keep ? Path("file.rdpart") : "");
    EXPECT_EQ(dir_.Read("file"), "old");
    EXPECT_EQ(dir_.Entries(), keep ? 2U : 1U);
    stop_ = false;
  }
}

TEST_F(SinkTest, OneReceiverAPart) {
  const auto first = Open({.path = Path(), .keep_partial = true});
  const auto second = Sink::Open({.path = Path(), .keep_partial = true}, stop_);
  EXPECT_EQ(second.status().code(), Code::kBusy);
}

TEST_F(SinkTest, WhatCanBeKnownBefore) {
  EXPECT_EQ(Sink::Check({.path = dir_ / "."}).errno_value(), EISDIR);
  EXPECT_EQ(Sink::Check({.path = Path("none/file")}).errno_value(), ENOENT);
  EXPECT_FALSE(Sink::Check({.path = "", .resume = true}).ok());
  EXPECT_TRUE(Sink::Check({.path = "/dev/null"}).ok());
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  for (const std::string& place : {std::string("/dev/null"), Path("fifo")}) {
    EXPECT_EQ(Sink::Check({.path = place, .resume = true}).code(), Code::kInvalidArgument);
    EXPECT_EQ(Sink::Check({.path = place, .keep_partial = true}).code(), Code::kInvalidArgument);
  }
}

// One that gives user 65534 these rights and the group none, as the kernel has it (acl(5),
// linux/posix_acl_xattr.h).
std::string AclFor(char rights) {
  std::string acl("\2\0\0\0", 4);
  const auto add = [&acl](char tag, char bits, bool named) {
    acl += {tag, '\0', bits, '\0'};
    acl += named ? std::string("\xfe\xff\0\0", 4) : std::string(4, '\xff');
  };
  add(0x01, 6, false);
  add(0x02, rights, true);
  add(0x04, 0, false);
  add(0x10, 6, false);
  add(0x20, 0, false);
  return acl;
}

std::string AclOf(const std::string& path) {
  std::string acl(1000, '\0');
  const ssize_t got = getxattr(path.c_str(), "system.posix_acl_access", acl.data(), acl.size());
  return acl.substr(0, got < 0 ? 0 : static_cast<std::size_t>(got));
}

// The group bits of a file that has one are what anybody named in it may have at most.
TEST_F(SinkTest, AnAclStaysWhatItWas) {
  const auto write = [this] {
    const auto sink = Open({.path = Path()});
    ASSERT_TRUE(sink->Write(0, AsBytes("new")).ok());
    ASSERT_TRUE(sink->Finish(3).ok());
  };
  dir_.Write("file", "old");
  const std::string acl = AclFor(4);
  if (setxattr(Path().c_str(), "system.posix_acl_access", acl.data(), acl.size(), 0) != 0) {
    GTEST_SKIP() << "no ACLs in " << Path("");
  }
  write();
  EXPECT_EQ(AclOf(Path()), acl);
  struct stat info {};
  ASSERT_EQ(stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0660U);

  // And none stays none, whatever the folder gives to new files.
  ASSERT_EQ(removexattr(Path().c_str(), "system.posix_acl_access"), 0);
  ASSERT_EQ(chmod(Path().c_str(), 0660), 0);
  const std::string given = AclFor(6);
  ASSERT_EQ(setxattr(Path(".").c_str(), "system.posix_acl_default", given.data(), given.size(), 0),
            0);
  write();
  EXPECT_EQ(AclOf(Path()), "");
  ASSERT_EQ(stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0660U);
}

// How much of `name` is in the page cache between these two places.
std::size_t CachedPages(const std::string& name, off_t from, std::size_t length) {
  const Fd file(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  void* const map = mmap(nullptr, length, PROT_READ, MAP_SHARED, file.get(), from);
  if (map == MAP_FAILED) return 0;
  std::vector<unsigned char> there(length / 4096);
  EXPECT_EQ(mincore(map, length, there.data()), 0);
  munmap(map, length);
  return static_cast<std::size_t>(
      std::ranges::count_if(there, [](unsigned char page) { return (page & 1U) != 0; }));
}

bool KnowsDirectIo(const std::string& name) {
  struct statx info {};
  return statx(AT_FDCWD, name.c_str(), 0, STATX_DIOALIGN, &info) == 0 &&
         (info.stx_mask & STATX_DIOALIGN) != 0 && info.stx_dio_offset_align != 0;
}

// Behind the first 32 MiB, whole pages at whole pages; all else goes through the cache, and beside
// it.
TEST_F(SinkTest, LargeFilesGoPastTheCache) {
  constexpr std::size_t kFrom = 32UL << 20;
  constexpr std::size_t kPiece = 1UL << 20;
  auto memory = SharedMemory::Create("sink", kPiece, SharedMemory::Peers::kMayWrite);
  ASSERT_TRUE(memory.ok());
  const MutableByteSpan piece = (*memory)->bytes();
  std::string content(kFrom + 4 * kPiece + 5, '\0');
  const auto sink = Open({.path = Path(), .keep_partial = true});
  ASSERT_TRUE(sink->StartAt(0).ok());
  const auto write = [&](std::size_t offset, std::size_t length, std::size_t at, char what) {
    std::ranges::fill(piece.subspan(at, length), static_cast<std::byte>(what));
    content.replace(offset, length, length, what);
    ASSERT_TRUE(sink->Write(offset, piece.subspan(at, length)).ok());
  };
  write(kFrom + 3 * kPiece, kPiece, 0, 'd');
  write(kFrom - kPiece, kPiece, 0, 'a');
  write(kFrom + 4 * kPiece, 5, 0, 'e');
  write(kFrom, kPiece, 0, 'b');
  write(kFrom + kPiece, kPiece - 1, 0, 'x');
  write(kFrom + kPiece + kPiece - 1, 1, 1, 'y');
  write(kFrom + 2 * kPiece, kPiece - 4096, 512, 'z');
  write(kFrom + 3 * kPiece - 4096, 4096, 4096, 'c');
  const std::string part = Path("file.rdpart");
  EXPECT_EQ(CachedPages(part, kFrom - kPiece, kPiece), kPiece / 4096);
  const std::size_t direct = KnowsDirectIo(part) ? 0 : kPiece / 4096;
  EXPECT_EQ(CachedPages(part, kFrom, kPiece), direct);
  EXPECT_EQ(CachedPages(part, kFrom + 3 * kPiece, kPiece), direct);
  ASSERT_TRUE(sink->Finish(content.size()).ok());
  EXPECT_EQ(dir_.Read("file"), content);
}

TEST_F(SinkTest, AFifoIsWrittenInPlace) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = dir_.Read("file"); });
  {
    const auto sink = Open({.path = Path()});
    ASSERT_FALSE(sink->ranged());
    ASSERT_TRUE(sink->Write(0, AsBytes("one")).ok());
    ASSERT_TRUE(sink->WriteHole(100000).ok());
    ASSERT_TRUE(sink->Finish(100003).ok());
  }
  reader.join();
  EXPECT_EQ(got, "one" + std::string(100000, '\0'));
}

TEST_F(SinkTest, AFullDeviceSaysSo) {
  const auto sink = Open({.path = "/dev/full"});
  const Status status = sink->Write(0, AsBytes("x"));
  EXPECT_EQ(status.errno_value(), ENOSPC);
  EXPECT_EQ(status.message(), "cannot write /dev/full: No space left on device");
}

// A thread that waits for a FIFO's reader ends when it is asked to.
TEST_F(SinkTest, ABlockedOpenIsInterrupted) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  Status status;
  Threads threads(1, [&] { status = Sink::Open({.path = Path()}, stop_).status(); });
  stop_ = true;
  threads.Join();
  EXPECT_EQ(status.errno_value(), EINTR);
}

TEST_F(SinkTest, AnUnblockedFifoTakesWhatFits) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  const Fd reader(open(Path().c_str(), O_RDWR | O_NONBLOCK));
  const auto sink = Open({.path = Path()});
  ASSERT_TRUE(sink->Unblock());
  const std::vector<std::byte> much(4 << 20, std::byte{7});
  const auto first = sink->WriteSome(much);
  ASSERT_TRUE(first.ok());
  EXPECT_GT(*first, 0U);
  EXPECT_LT(*first, much.size());
  EXPECT_EQ(*sink->WriteSome(much), 0U);
  std::vector<std::byte> room(4 << 20);
  EXPECT_EQ(static_cast<std::size_t>(read(reader.get(), room.data(), room.size())), *first);
  EXPECT_GT(*sink->WriteSome(much), 0U);
}

}  // namespace
}  // namespace rdfs::pipe
