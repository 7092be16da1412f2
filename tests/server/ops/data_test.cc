// Open files and their content.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "server/lease/outside_watch.h"
#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

class DataTest : public testing::Test {
 protected:
  explicit DataTest(HarnessOptions options = {}) : server(std::move(options)) {
    std::ofstream(server / "file") << "0123456789";
    ::mkdir((server / "dir").c_str(), 0755);
    EXPECT_EQ(::mkfifo((server / "fifo").c_str(), 0644), 0);
    EXPECT_EQ(::symlink("file", (server / "link").c_str()), 0);
  }
  std::uint64_t MustOpen(const std::string& path, std::uint32_t flags) {
    const Answer answer = server.Open(server.Walk(path), flags);
    EXPECT_TRUE(answer.ok()) << path;
    return server.OpenNumber(answer);
  }
  fs::AttrWire AttrByOpen(std::uint64_t open, const fs::Handle& handle) {
    fs::GetAttrRequest request{};
    request.open = open;
    return server.Ask(Opcode::kGetAttr, Body().Add(request).Add(handle)).As<fs::AttrWire>();
  }

  Harness server;
};

constexpr std::uint32_t kReadWrite = fs::kOpenRead | fs::kOpenWrite;

TEST_F(DataTest, ReadsAndWritesArriveInTheFile) {
  const std::uint64_t open = MustOpen("file", kReadWrite);
  EXPECT_EQ(server.Read(open, 2, 3).second, "234");
  EXPECT_EQ(server.Read(open, 8, 100).second, "89");
  EXPECT_EQ(server.Read(open, 100, 5).second, "");
  const auto reply = server.Write(open, 5, "abcdefgh").As<fs::WriteReply>();
  EXPECT_EQ(reply.written, 8U);
  EXPECT_EQ(reply.size, 13U);
  EXPECT_EQ(reply.verifier, 99U);
  EXPECT_EQ(Content(server / "file"), "01234abcdefgh");
  // What was cached before the write is not served after it.
  EXPECT_EQ(server.Read(open, 0, 20).second, "01234abcdefgh");
  EXPECT_TRUE(server.Release(open).ok());
  EXPECT_EQ(server.Release(open).errno_value(), EBADF);
  EXPECT_EQ(server.Read(open, 0, 1).first, EBADF);
}

// Where nobody tells of changes behind the server's back (the harness has no watch).
TEST_F(DataTest, AReadBringsWhatTheAttributesPromised) {
  const std::uint64_t open = MustOpen("file", fs::kOpenRead);
  EXPECT_EQ(server.Read(open, 0, 100).second, "0123456789");
  std::ofstream(server / "file", std::ios::app) << "abc";
  EXPECT_EQ(AttrByOpen(open, server.Walk("file")).size, 13U);
  EXPECT_EQ(server.Read(open, 0, 100).second, "0123456789abc");
}

TEST_F(DataTest, AReadBringsWhatTheAnswerToAChangeOfAttributesPromised) {
  const std::uint64_t open = MustOpen("file", fs::kOpenRead);
  EXPECT_EQ(server.Read(open, 0, 100).second, "0123456789");
  std::ofstream(server / "file", std::ios::app) << "abc";
  fs::SetAttrRequest request{};
  request.valid = fs::kSetMode;
  request.mode = 0600;
  const Answer set = server.Ask(Opcode::kSetAttr, Body().Add(request).Add(server.Walk("file")));
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set.As<fs::AttrWire>().size, 13U);
  EXPECT_EQ(server.Read(open, 0, 100).second, "0123456789abc");
}

// As a store through a mapping is, and a write by a name elsewhere.
TEST_F(DataTest, AReadBringsWhatTheAttributesPromisedWhereAWatchDoesNotTellOfIt) {
  auto watch = OutsideWatch::Start(server.core().proc, {}, {.changed = [](auto) {}, .lost = [] {}});
  if (!watch.ok()) GTEST_SKIP() << watch.status().ToString();
  server.table().SetWatch(watch->get());
  const std::uint64_t open = MustOpen("file", fs::kOpenRead);
  EXPECT_EQ(server.Read(open, 0, 100).second, "0123456789");
  EXPECT_TRUE((*watch)->Watches(*server.table().root().inode));
  std::ofstream(server / "file", std::ios::app) << "abc";
  EXPECT_EQ(AttrByOpen(open, server.Walk("file")).size, 13U);
  EXPECT_EQ(server.Read(open, 0, 100).second, "0123456789abc");
  server.table().SetWatch(nullptr);
}

TEST_F(DataTest, FilesBeyondFourGigabytes) {
  const std::uint64_t open = MustOpen("file", kReadWrite);
  const std::uint64_t far = (5ULL << 30U) + 3;
  ASSERT_TRUE(server.Write(open, far, "far").ok());
  EXPECT_EQ(server.Read(open, far, 10).second, "far");
  EXPECT_EQ(server.Read(open, far - 2, 3).second, std::string("\0\0f", 3));
  EXPECT_EQ(server.Write(open, ~std::uint64_t{0} - 2, "x").errno_value(), EFBIG);
}

TEST_F(DataTest, OpeningWhatIsNoFileAndWithoutTheRight) {
  EXPECT_EQ(server.Open(server.Walk("dir"), fs::kOpenRead).errno_value(), EISDIR);
  EXPECT_EQ(server.Open(server.Walk("link"), fs::kOpenRead).errno_value(), ELOOP);
  EXPECT_EQ(server.Open(server.Walk("fifo"), fs::kOpenRead).errno_value(), ENXIO);
  const std::uint64_t reader = MustOpen("file", fs::kOpenRead);
  EXPECT_EQ(server.Write(reader, 0, "x").errno_value(), EBADF);
  const std::uint64_t writer = MustOpen("file", fs::kOpenWrite);
  EXPECT_EQ(server.Read(writer, 0, 1).first, EBADF);
}

TEST_F(DataTest, CreateWithEachOfItsFlags) {
  EXPECT_EQ(server.Create(server.root(), "file", fs::kOpenWrite | fs::kOpenExclusive).errno_value(),
            EEXIST);
  ASSERT_TRUE(server.Create(server.root(), "file", kReadWrite).ok());
  EXPECT_EQ(Content(server / "file"), "0123456789");
  ASSERT_TRUE(server.Create(server.root(), "file", kReadWrite | fs::kOpenTruncate).ok());
  EXPECT_EQ(Content(server / "file"), "");
  EXPECT_EQ(server.Create(server.root(), "link", kReadWrite).errno_value(), ESTALE);
  EXPECT_EQ(server.Create(server.root(), "dir", kReadWrite).errno_value(), EISDIR);
  EXPECT_EQ(server.Create(server.root(), "fifo", kReadWrite).errno_value(), ENXIO);
  const Answer made = server.Create(server.root(), "new", kReadWrite, 0666, 027);
  ASSERT_TRUE(made.ok());
  struct stat stat {};
  ASSERT_EQ(::stat((server / "new").c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 07777U, 0640U);
  EXPECT_EQ(Harness::EntryIn(made, sizeof(fs::OpenReply)).attr.ino, stat.st_ino);
}

TEST_F(DataTest, AFileOfModeZeroStaysUsableThroughItsOpenFile) {
  const Answer made = server.Create(server.root(), "zero", kReadWrite | fs::kOpenExclusive, 0);
  ASSERT_TRUE(made.ok());
  const std::uint64_t open = server.OpenNumber(made);
  EXPECT_TRUE(server.Write(open, 0, "kept").ok());
  EXPECT_EQ(server.Read(open, 0, 10).second, "kept");
}

TEST_F(DataTest, UnlinkedButOpen) {
  const fs::Handle handle = server.Walk("file");
  const std::uint64_t open = MustOpen("file", kReadWrite);
  ASSERT_TRUE(server.Ask(Opcode::kUnlink, Body().Add(server.root()).Name("file")).ok());
  EXPECT_EQ(server.Read(open, 0, 4).second, "0123");
  EXPECT_EQ(AttrByOpen(open, handle).nlink, 0U);
  EXPECT_TRUE(server.Write(open, 0, "ABCD").ok());
  fs::SetAttrRequest truncate{};
  truncate.open = open;
  truncate.valid = fs::kSetSize;
  truncate.size = 2;
  EXPECT_TRUE(server.Ask(Opcode::kSetAttr, Body().Add(truncate).Add(handle)).ok());
  EXPECT_EQ(server.Read(open, 0, 10).second, "AB");
  // Another file may have the name meanwhile.
  ASSERT_TRUE(server.Create(server.root(), "file", fs::kOpenWrite).ok());
  EXPECT_EQ(AttrByOpen(open, handle).size, 2U);
  EXPECT_TRUE(server.Release(open).ok());
  fs::GetAttrRequest gone{};
  EXPECT_EQ(server.Ask(Opcode::kGetAttr, Body().Add(gone).Add(handle)).errno_value(), ESTALE);
}

TEST_F(DataTest, AppendsGoToTheEndWhereverTheClientThinksItIs) {
  const std::uint64_t open = MustOpen("file", fs::kOpenWrite | fs::kOpenAppend);
  const auto reply = server.Write(open, 3, "end", fs::kWriteAppend).As<fs::WriteReply>();
  EXPECT_EQ(reply.offset, 10U);
  EXPECT_EQ(reply.size, 13U);
  std::ofstream(server / "file", std::ios::app) << "local";
  EXPECT_EQ(server.Write(open, 0, "!", fs::kWriteAppend).As<fs::WriteReply>().offset, 18U);
  EXPECT_EQ(Content(server / "file"), "0123456789endlocal!");
  // Without the flag an explicit offset counts, though the file was opened for appending.
  EXPECT_TRUE(server.Write(open, 0, "X").ok());
  EXPECT_EQ(Content(server / "file").substr(0, 2), "X1");
}

// chattr +a: the kernel lets nobody open it for writing but with O_APPEND.
TEST_F(DataTest, AFileThatOnlyGrowsIsAppendedToAsRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Fd file(::open((server / "file").c_str(), O_RDONLY | O_CLOEXEC));
  int before = 0;
  if (::ioctl(file.get(), FS_IOC_GETFLAGS, &before) != 0) GTEST_SKIP() << "no such flags here";
  const int only_grows = before | FS_APPEND_FL;
  if (::ioctl(file.get(), FS_IOC_SETFLAGS, &only_grows) != 0) GTEST_SKIP() << "nor may they be set";
  const fs::Handle handle = server.Walk("file");
  EXPECT_EQ(server.Open(handle, fs::kOpenWrite).errno_value(), EPERM);
  constexpr std::uint32_t kAppend = fs::kOpenWrite | fs::kOpenAppend;
  EXPECT_EQ(server.Open(handle, kAppend | fs::kOpenTruncate).errno_value(), EPERM);
  const Answer opened = server.Open(handle, kAppend | fs::kOpenRead);
  EXPECT_TRUE(opened.ok());
  if (opened.ok()) {
    const std::uint64_t open = server.OpenNumber(opened);
    EXPECT_EQ(server.Write(open, 0, "end", fs::kWriteAppend).As<fs::WriteReply>().offset, 10U);
    EXPECT_EQ(server.Write(open, 2, "x").errno_value(), EPERM);
    EXPECT_EQ(server.Read(open, 8, 10).second, "89end");
    EXPECT_TRUE(server.Release(open).ok());
  }
  EXPECT_EQ(Content(server / "file"), "0123456789end");
  // Nobody could remove it otherwise.
  EXPECT_EQ(::ioctl(file.get(), FS_IOC_SETFLAGS, &before), 0);
}

TEST_F(DataTest, ManyAppendsAtOnceDoNotOverlap) {
  const std::uint64_t open = MustOpen("file", fs::kOpenWrite | fs::kOpenAppend);
  fs::WriteRequest request{};
  request.open = open;
  request.flags = fs::kWriteAppend;
  for (int i = 0; i < 100; ++i) {
    server.Send(Opcode::kWrite, Body().Add(request).Sized32(
                                    AsBytes(std::string(7, static_cast<char>('a' + i % 26)))));
  }
  std::set<std::uint64_t> offsets;
  for (int i = 0; i < 100; ++i) {
    const auto reply = server.TakeAnswer(server.lane).As<fs::WriteReply>();
    EXPECT_EQ((reply.offset - 10) % 7, 0U);
    offsets.insert(reply.offset);
  }
  EXPECT_EQ(offsets.size(), 100U);
  EXPECT_EQ(Content(server / "file").size(), 10U + 700U);
}

TEST_F(DataTest, Tmpfile) {
  fs::TmpfileRequest request{};
  request.flags = kReadWrite;
  request.mode = 0600;
  const Answer made = server.Ask(Opcode::kTmpfile, Body().Add(request).Add(server.root()));
  if (made.errno_value() == EOPNOTSUPP) GTEST_SKIP() << "no O_TMPFILE here";
  ASSERT_TRUE(made.ok());
  const fs::Handle handle = Harness::EntryIn(made, sizeof(fs::OpenReply)).handle;
  const std::uint64_t open = server.OpenNumber(made);
  EXPECT_TRUE(server.Write(open, 0, "tmp").ok());
  EXPECT_TRUE(server.Ask(Opcode::kLink, Body().Add(handle).Add(server.root()).Name("named")).ok());
  EXPECT_EQ(Content(server / "named"), "tmp");
  EXPECT_TRUE(server.Release(open).ok());
  EXPECT_EQ(server.Walk("named"), handle);
}

TEST_F(DataTest, FsyncFlushAndSync) {
  const std::uint64_t open = MustOpen("file", fs::kOpenWrite | fs::kOpenSync);
  EXPECT_TRUE(server.Write(open, 0, "sync").ok());
  fs::FsyncRequest request{};
  request.open = open;
  EXPECT_EQ(server.Ask(Opcode::kFsync, Body().Add(request)).As<fs::FsyncReply>().verifier, 99U);
  request.data_only = 1;
  EXPECT_TRUE(server.Ask(Opcode::kFsync, Body().Add(request)).ok());
  fs::FlushRequest flush{};
  flush.open = open;
  EXPECT_TRUE(server.Ask(Opcode::kFlush, Body().Add(flush)).ok());
}

TEST_F(DataTest, FallocateModesAndSeek) {
  const std::uint64_t open = MustOpen("file", kReadWrite);
  const auto fallocate = [&](std::uint32_t mode, std::uint64_t offset, std::uint64_t length) {
    fs::FallocateRequest request{};
    request.open = open;
    request.mode = mode;
    request.offset = offset;
    request.length = length;
    return server.Ask(Opcode::kFallocate, Body().Add(request));
  };
  ASSERT_EQ(fallocate(0, 0, 1 << 20).As<fs::AttrWire>().size, 1U << 20U);
  ASSERT_TRUE(server.Write(open, 500'000, "data").ok());
  const Answer punched = fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
  if (punched.ok()) {
    EXPECT_EQ(server.Read(open, 0, 4).second, std::string(4, '\0'));
    fs::SeekRequest seek{};
    seek.open = open;
    seek.whence = SEEK_HOLE;
    EXPECT_EQ(server.Ask(Opcode::kSeek, Body().Add(seek)).As<fs::SeekReply>().offset, 0U);
    seek.offset = 1 << 21;
    EXPECT_EQ(server.Ask(Opcode::kSeek, Body().Add(seek)).errno_value(), ENXIO);
    seek.whence = SEEK_CUR;
    EXPECT_EQ(server.Ask(Opcode::kSeek, Body().Add(seek)).errno_value(), EINVAL);
  }
  EXPECT_EQ(fallocate(0, 0, 0).errno_value(), EINVAL);
  EXPECT_EQ(fallocate(0x10000, 0, 1).errno_value(), EOPNOTSUPP);
  EXPECT_EQ(fallocate(0, (1ULL << 62U), (1ULL << 62U)).errno_value(), EFBIG);
}

TEST_F(DataTest, CopyFileRange) {
  std::ofstream(server / "to") << "";
  const std::uint64_t in = MustOpen("file", fs::kOpenRead);
  const std::uint64_t out = MustOpen("to", fs::kOpenWrite);
  fs::CopyFileRangeRequest request{};
  request.open_in = in;
  request.offset_in = 2;
  request.open_out = out;
  request.offset_out = 1;
  request.length = 5;
  const auto reply = server.Ask(Opcode::kCopyFileRange, Body().Add(request)).As<fs::WriteReply>();
  EXPECT_EQ(reply.written, 5U);
  EXPECT_EQ(reply.size, 6U);
  EXPECT_EQ(Content(server / "to"), std::string("\0", 1) + "23456");
  request.flags = 1;
  EXPECT_EQ(server.Ask(Opcode::kCopyFileRange, Body().Add(request)).errno_value(), EINVAL);
  request.flags = 0;
  request.open_in = out;
  EXPECT_EQ(server.Ask(Opcode::kCopyFileRange, Body().Add(request)).errno_value(), EBADF);
}

TEST_F(DataTest, AnOpenFileOfAnEarlierTimeIsReclaimed) {
  const fs::Handle handle = server.Walk("file");
  const std::uint64_t unknown = 0x1234'0000'0000'0001;
  EXPECT_EQ(server.Read(unknown, 0, 1).first, EIO);  // kWrongEpoch
  fs::ReclaimOpenRequest request{};
  request.open = unknown;
  request.flags = kReadWrite | fs::kOpenTruncate;
  const Answer answer =
      server.Ask(Opcode::kReclaimOpen, Body().Add(request).Add(handle).Sized16({}).Sized16({}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(server.Read(server.OpenNumber(answer), 0, 3).second, "012");
  // By name, when the handle's file has another one there now.
  const Answer wrong = server.Ask(
      Opcode::kReclaimOpen, Body()
                                .Add(request)
                                .Add(*fs::Handle::FromBytes(AsBytes("no such handle at all......")))
                                .Add(server.root())
                                .Name("file"));
  EXPECT_EQ(wrong.errno_value(), ESTALE);
}

// The answer to the first time was lost.
TEST_F(DataTest, ReclaimedTwiceItIsOneOpenFile) {
  const fs::Handle handle = server.Walk("file");
  fs::ReclaimOpenRequest request{};
  request.open = 0x1234'0000'0000'0001;
  request.flags = kReadWrite;
  const auto reclaim = [&] {
    const Answer answer =
        server.Ask(Opcode::kReclaimOpen, Body().Add(request).Add(handle).Sized16({}).Sized16({}));
    EXPECT_TRUE(answer.ok());
    return server.OpenNumber(answer);
  };
  const std::uint64_t first = reclaim();
  const std::size_t open = server.session()->open_files();
  EXPECT_EQ(reclaim(), first);
  EXPECT_EQ(server.session()->open_files(), open);
  EXPECT_TRUE(server.Release(first).ok());
  EXPECT_NE(reclaim(), first) << "it was closed since";
}

// By the number that it has now, which its client may know by then.
TEST_F(DataTest, WhatIsOpenIsNotReclaimedAsAnother) {
  const fs::Handle handle = server.Walk("file");
  std::ofstream(server / "other") << "abc";
  fs::ReclaimOpenRequest request{};
  const auto reclaim = [&](std::uint64_t number, const fs::Handle& of, std::uint32_t flags) {
    request.open = number;
    request.flags = flags;
    return server.Ask(Opcode::kReclaimOpen, Body().Add(request).Add(of).Sized16({}).Sized16({}));
  };
  const std::uint64_t again = server.OpenNumber(reclaim(0x1234'0000'0000'0001, handle, kReadWrite));
  const std::uint64_t first = MustOpen("file", kReadWrite | fs::kOpenTruncate);
  const std::uint64_t directory = server.OpenNumber(
      server.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(server.root())));
  const std::size_t open = server.session()->open_files();
  for (const std::uint64_t number : {again, first}) {
    EXPECT_EQ(server.OpenNumber(reclaim(number, handle, kReadWrite)), number);
  }
  EXPECT_EQ(server.OpenNumber(reclaim(directory, server.root(), fs::kOpenRead)), directory);
  EXPECT_EQ(server.session()->open_files(), open);
  // By chance the number of another file's, from before a restart: that one is opened anew.
  EXPECT_NE(server.OpenNumber(reclaim(first, server.Walk("other"), kReadWrite)), first);
}

// What an earlier worker has left with the supervisor.
TEST_F(DataTest, AKeptDescriptorComesBackAsWhatItIs) {
  std::ofstream(server / "other") << "abcdefghij";
  std::uint64_t number = 0x1234'0000'0000'0000;
  const auto reclaim = [&](std::string_view kept_file, int kept_as, std::string_view name) {
    const fs::Handle handle = server.Walk(name);
    ++number;
    DescriptorKeeper::Kept kept;
    const Body key = Body().Add(Le32(0x4e45504f)).Add(Le64(42)).Add(Le64(number));
    kept.key.assign(key.bytes().begin(), key.bytes().end());
    kept.fd.Reset(::open((server / std::string(kept_file)).c_str(), kept_as | O_CLOEXEC));
    EXPECT_TRUE(server.core().orphans.Adopt(kept));
    if (kept_file == name) {
      EXPECT_EQ(::unlink((server / std::string(name)).c_str()), 0);
    }
    fs::ReclaimOpenRequest request{};
    request.open = number;
    request.flags = fs::kOpenRead;
    const Answer answer =
        server.Ask(Opcode::kReclaimOpen, Body().Add(request).Add(handle).Sized16({}).Sized16({}));
    EXPECT_TRUE(answer.ok());
    return server.Read(server.OpenNumber(answer), 0, 3).second;
  };
  EXPECT_EQ(reclaim("other", O_RDONLY, "file"), "012") << "of another file";
  EXPECT_EQ(reclaim("file", O_WRONLY, "file"), "012") << "for writing only";
  EXPECT_EQ(reclaim("other", O_RDWR, "other"), "abc");
}

// A local user's lease on "file" (F_SETLEASE), which he gives back when he likes.
class LeasedTest : public DataTest {
 protected:
  LeasedTest() : DataTest({.record = true}) {}
  void SetUp() override {
    before_ = std::signal(SIGIO, SIG_IGN);
    leased_.Reset(::open((server / "file").c_str(), O_RDWR | O_CLOEXEC));
    if (::fcntl(leased_.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  }
  void TearDown() override { std::signal(SIGIO, before_); }
  void GiveBack() { EXPECT_EQ(::fcntl(leased_.get(), F_SETLEASE, F_UNLCK), 0); }

  Fd leased_;

 private:
  void (*before_)(int) = SIG_DFL;
};

TEST_F(LeasedTest, AnOpenIsAskedAgainAndNobodyWaitsForIt) {
  const fs::Handle handle = server.Walk("file");
  fs::OpenRequest request{};
  request.flags = kReadWrite | fs::kOpenTruncate;
  const Body open = Body().Add(request).Add(handle);
  const std::uint64_t sequence = server.Send(Opcode::kOpen, open);
  EXPECT_EQ(server.TakeAnswer(server.lane).error, fs::WireError::kGrace);
  EXPECT_TRUE(server.Lookup(server.root(), "dir").ok());
  // Under the same number it is told the same, whatever has changed.
  const std::size_t opens = server.session()->open_files();
  GiveBack();
  EXPECT_TRUE(server.Deliver(
      server.lane, Harness::Message(Opcode::kOpen, open.bytes(), sequence, 42, server.caller)));
  EXPECT_EQ(server.TakeAnswer(server.lane).error, fs::WireError::kGrace);
  EXPECT_EQ(server.session()->open_files(), opens);
  EXPECT_EQ(Content(server / "file"), "0123456789");

  const Answer opened = server.Ask(Opcode::kOpen, open);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(Content(server / "file"), "");
  EXPECT_TRUE(server.Write(server.OpenNumber(opened), 0, "new").ok());
  EXPECT_EQ(server.Read(server.OpenNumber(opened), 0, 10).second, "new");
}

TEST_F(LeasedTest, AsIsACutAndACreateOfWhatIsThere) {
  const fs::Handle handle = server.Walk("file");
  fs::SetAttrRequest request{};
  request.valid = fs::kSetSize;
  request.size = 3;
  const Body cut = Body().Add(request).Add(handle);
  EXPECT_EQ(server.Ask(Opcode::kSetAttr, cut).error, fs::WireError::kGrace);
  EXPECT_EQ(server.Create(server.root(), "file", kReadWrite).error, fs::WireError::kGrace);
  struct stat stat {};
  ASSERT_EQ(::fstat(leased_.get(), &stat), 0);
  EXPECT_EQ(stat.st_size, 10);
  GiveBack();
  EXPECT_TRUE(server.Ask(Opcode::kSetAttr, cut).ok());
  EXPECT_EQ(Content(server / "file"), "012");
  EXPECT_TRUE(server.Create(server.root(), "file", kReadWrite).ok());
}

class ReadOnlyTest : public DataTest {
 protected:
  ReadOnlyTest() : DataTest({.read_only = true}) {}
};

TEST_F(ReadOnlyTest, RefusesEveryChange) {
  EXPECT_EQ(server.Open(server.Walk("file"), fs::kOpenWrite).errno_value(), EROFS);
  EXPECT_EQ(server.Create(server.root(), "new", fs::kOpenRead).errno_value(), EROFS);
  EXPECT_EQ(server.Ask(Opcode::kUnlink, Body().Add(server.root()).Name("file")).errno_value(),
            EROFS);
  fs::SetAttrRequest set{};
  set.valid = fs::kSetMode;
  EXPECT_EQ(server.Ask(Opcode::kSetAttr, Body().Add(set).Add(server.Walk("file"))).errno_value(),
            EROFS);
  EXPECT_EQ(server.Read(MustOpen("file", fs::kOpenRead), 0, 2).second, "01");
  EXPECT_EQ(Content(server / "file"), "0123456789");
}

// A server that is root and acts as its callers.
class SwitchAsRootTest : public DataTest {
 protected:
  SwitchAsRootTest()
      : DataTest({.ids = IdMap::Daemon(IdMode::kRootSquash), .can_switch_ids = true}) {}
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    ::chmod(server.base.path().c_str(), 0755);
    ::chmod(server.dir().c_str(), 0777);
    ::chmod((server / "file").c_str(), 0644);  // whatever umask an earlier test has left
  }
};

TEST_F(SwitchAsRootTest, TheCallerOwnsWhatItMakesAndMayNotMore) {
  server.caller = {1234, 1234};
  ASSERT_TRUE(server.Create(server.root(), "mine", kReadWrite, 0600).ok());
  struct stat stat {};
  ASSERT_EQ(::stat((server / "mine").c_str(), &stat), 0);
  EXPECT_EQ(stat.st_uid, 1234U);
  EXPECT_EQ(stat.st_gid, 1234U);
  EXPECT_EQ(server.Open(server.Walk("file"), fs::kOpenWrite).errno_value(), EACCES);
  server.caller = {1235, 1235};
  EXPECT_EQ(server.Open(server.Walk("mine"), fs::kOpenRead).errno_value(), EACCES);
  server.caller = {0, 0};  // squashed
  EXPECT_EQ(server.Open(server.Walk("mine"), fs::kOpenRead).errno_value(), EACCES);
  ASSERT_TRUE(server.Create(server.root(), "nobodys", kReadWrite, 0600).ok());
  ASSERT_EQ(::stat((server / "nobodys").c_str(), &stat), 0);
  EXPECT_EQ(stat.st_uid, kNobody.uid);
}

// (uid_t)-1 is nobody's, and changes nothing where it is set.
TEST_F(SwitchAsRootTest, AnIdThatIsNoneMayNothing) {
  ::chmod((server / "file").c_str(), 0600);
  const fs::Handle file = server.Walk("file");
  constexpr std::uint32_t kNone = 0xffffffffU;
  for (const Ids nobody : {Ids{kNone, kNone}, Ids{kNone, 1234}, Ids{1234, kNone}}) {
    server.caller = nobody;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(server.Open(file, fs::kOpenRead).errno_value(), EPERM) << nobody.uid;
    }
  }
  server.caller = {1234, 1234};
  EXPECT_EQ(server.Open(file, fs::kOpenRead).errno_value(), EACCES);
}

// What is set then is not known, and nobody else's is taken for it.
TEST_F(SwitchAsRootTest, AfterAChangeThatFailedAllIsSetAnew) {
  ThreadIdentity identity(true);
  const auto groups = std::make_shared<const std::vector<gid_t>>();
  const ThreadIdentity::Caller none{.ids = {0xffffffffU, 0xffffffffU}, .groups = groups},
      somebody{.ids = {1234, 1234}, .groups = groups};
  ASSERT_TRUE(identity.Become(somebody).ok());
  EXPECT_FALSE(identity.Become(none).ok());
  EXPECT_FALSE(identity.Become(none).ok());
  EXPECT_FALSE(identity.is_root());
  ASSERT_TRUE(identity.Become(somebody).ok());
  EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), 1234);
  EXPECT_FALSE(identity.Become(none).ok());
  ASSERT_TRUE(identity.Become(std::nullopt).ok());
  EXPECT_EQ(::setfsuid(static_cast<uid_t>(-1)), 0);
  EXPECT_TRUE(identity.is_root());
}

TEST_F(SwitchAsRootTest, TheStickyBitAndSetuidAreTheKernelsOwn) {
  ::chmod(server.dir().c_str(), 01777);
  ::chmod((server / "file").c_str(), 0666);
  server.caller = {1234, 1234};
  EXPECT_EQ(server.Ask(Opcode::kUnlink, Body().Add(server.root()).Name("file")).errno_value(),
            EPERM);
  server.ActAsItself();
  ASSERT_EQ(::chmod((server / "file").c_str(), 06777), 0);
  const std::uint64_t open = MustOpen("file", fs::kOpenWrite);
  ASSERT_TRUE(server.Write(open, 0, "x").ok());
  struct stat stat {};
  ASSERT_EQ(::stat((server / "file").c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 06000U, 0U);
  // Devices need CAP_MKNOD, which the caller has not.
  fs::MknodRequest device{};
  device.mode = S_IFCHR | 0666;
  device.rdev_major = 1;
  device.rdev_minor = 3;
  EXPECT_EQ(
      server.Ask(Opcode::kMknod, Body().Add(device).Add(server.root()).Name("null")).errno_value(),
      EPERM);
}

TEST_F(SwitchAsRootTest, SetuidIsTakenFromAFileByWhoMayWriteToItOnly) {
  const std::string file = server / "file";
  const auto mode_after = [&](mode_t mode, std::uint32_t valid) {
    server.ActAsItself();
    EXPECT_EQ(::chmod(file.c_str(), mode), 0);
    fs::SetAttrRequest request{};
    request.valid = valid;
    server.caller = {1234, 1234};
    (void)server.Ask(Opcode::kSetAttr, Body().Add(request).Add(server.Walk("file")));
    struct stat stat {};
    EXPECT_EQ(::stat(file.c_str(), &stat), 0);
    return stat.st_mode & 07777U;
  };
  EXPECT_EQ(mode_after(04755, fs::kSetKillPriv), 04755U);
  EXPECT_EQ(mode_after(04755, fs::kSetKillPriv | fs::kSetSize), 04755U);
  EXPECT_EQ(mode_after(04777, fs::kSetKillPriv), 04777U);
  EXPECT_EQ(mode_after(04777, fs::kSetKillPriv | fs::kSetSize), 0777U);
}

TEST_F(SwitchAsRootTest, AFallocateTakesSetuidAwayWhoeverIsServedMeanwhile) {
  ASSERT_EQ(::chmod((server / "file").c_str(), 06777), 0);
  // The kernel takes it away itself where the thread for such work was started as a user.
  bool started = false;
  server.io().Offload([] { return 0; }, [&](std::int64_t) { started = true; });
  while (!started) server.io().Poll();
  server.caller = {1234, 1234};
  fs::FallocateRequest request{};
  request.open = MustOpen("file", fs::kOpenWrite);
  request.length = 100;
  server.Send(Opcode::kFallocate, Body().Add(request));
  server.caller = {1235, 1235};
  server.Send(Opcode::kRenew, Body());
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  struct stat stat {};
  ASSERT_EQ(::stat((server / "file").c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 07777U, 0777U);
  EXPECT_NE(::chmod((server / "file").c_str(), 0600), 0) << "the caller's rights again";
}

TEST_F(SwitchAsRootTest, ALockThatWaitsIsTakenWhoeverIsServedMeanwhile) {
  server.caller = {1234, 1234};
  const Answer made = server.Create(server.root(), "locked", kReadWrite, 0600);
  ASSERT_TRUE(made.ok());
  fs::LockRequest request{};
  request.open = server.OpenNumber(made);
  request.owner = 1;
  request.type = static_cast<std::uint32_t>(fs::LockType::kWrite);
  request.start = request.end = 100;
  ASSERT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(request)).ok());
  server.ActAsItself();
  const Fd local(::open((server / "locked").c_str(), O_RDWR | O_CLOEXEC));
  struct flock held {};
  held.l_type = F_WRLCK;
  held.l_whence = SEEK_SET;
  held.l_len = 10;
  ASSERT_EQ(::fcntl(local.get(), F_OFD_SETLK, &held), 0);
  request.owner = 2;
  request.start = request.end = 5;
  request.flags = fs::kLockWait;
  const std::uint64_t waiting = server.Send(Opcode::kSetLock, Body().Add(request));
  ASSERT_EQ(server.core().locks.waiting(), 1U);
  server.caller = {1235, 1235};
  ASSERT_TRUE(server.Ask(Opcode::kRenew, Body()).ok());
  held.l_type = F_UNLCK;
  ASSERT_EQ(::fcntl(local.get(), F_OFD_SETLK, &held), 0);
  server.scheduler.Advance(std::chrono::seconds(1));
  const Answer answer = server.TakeAnswer(server.lane);
  EXPECT_EQ(answer.sequence, waiting);
  EXPECT_TRUE(answer.ok()) << answer.errno_value();
}

TEST_F(SwitchAsRootTest, HandlesResolveWhileActingAsSomebodyElse) {
  if (!server.table().persistent()) GTEST_SKIP() << "no open_by_handle_at";
  ASSERT_EQ(::mkdir((server / "deep").c_str(), 0777), 0);
  ::chmod((server / "deep").c_str(), 0777);
  server.caller = {1234, 1234};
  const fs::Handle handle = server.Walk("deep");
  for (int i = 0; i < 1500; ++i) {  // more than the table has descriptors
    const Answer made = server.Create(server.root(), "f" + std::to_string(i), kReadWrite);
    ASSERT_TRUE(made.ok());
    ASSERT_TRUE(server.Release(server.OpenNumber(made)).ok());
  }
  EXPECT_TRUE(server.Create(handle, "inside", kReadWrite).ok());
}

}  // namespace
}  // namespace rdfs::server
