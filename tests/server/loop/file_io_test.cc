#include "server/loop/file_io.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "server/write/staging.h"
#include "tests/server/pool/store_fixture.h"

namespace rdfs::server {
namespace {

class FileIoTest : public testing::TestWithParam<bool> {
 protected:
  TempDir directory_;
  TestFile file_{directory_ / "file"};
  std::unique_ptr<FileIo> io_ = MakeFileIo(GetParam());
};

TEST_P(FileIoTest, ReadsAndWrites) {
  const Bytes content = SomeBytes(300'000, 1);
  std::int64_t written = 0;
  io_->Write(file_.fd(), content, 0, 0, [&](std::int64_t result) { written = result; });
  io_->Submit();
  Drive(*io_, [&] { return written != 0; });
  ASSERT_EQ(written, 300'000);
  Bytes back(400'000);
  std::int64_t got = 0;
  io_->Read(file_.fd(), back, 0, [&](std::int64_t result) { got = result; });
  io_->Submit();
  Drive(*io_, [&] { return got != 0; });
  ASSERT_EQ(got, 300'000);
  back.resize(300'000);
  EXPECT_EQ(back, content);
}

TEST_P(FileIoTest, TakesMoreThanTheRingHolds) {
  file_.WriteAt(0, SomeBytes(1000, 1));
  std::vector<Bytes> buffers(1000, Bytes(10));
  std::size_t done = 0;
  for (Bytes& buffer : buffers) {
    io_->Read(file_.fd(), buffer, 5, [&](std::int64_t result) {
      EXPECT_EQ(result, 10);
      ++done;
    });
  }
  EXPECT_EQ(io_->in_flight(), 1000U);
  io_->Submit();
  Drive(*io_, [&] { return done == 1000; });
  EXPECT_EQ(io_->in_flight(), 0U);
}

TEST_P(FileIoTest, ReportsErrno) {
  const auto bad = std::make_shared<const Fd>(open("/", O_RDONLY | O_CLOEXEC));
  Bytes buffer(10);
  std::int64_t result = 0;
  io_->Read(bad, buffer, 0, [&](std::int64_t got) { result = got; });
  io_->Submit();
  Drive(*io_, [&] { return result != 0; });
  EXPECT_EQ(result, -EISDIR);
}

TEST_P(FileIoTest, WhatWasPostedIsSharedOutAmongPolls) {
  std::vector<int> ran;
  for (int i = 0; i < 5; ++i) {
    io_->Post([&ran, i] {
      std::this_thread::sleep_for(FileIo::kPostedTurn);
      ran.push_back(i);
    });
  }
  for (std::size_t polls = 1; polls <= 5; ++polls) {
    EXPECT_TRUE(io_->has_posted());
    io_->Poll();
    EXPECT_EQ(ran.size(), polls);
  }
  EXPECT_FALSE(io_->has_posted());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_P(FileIoTest, OffloadsAndPosts) {
  const auto here = std::this_thread::get_id();
  std::int64_t result = 0;
  io_->Offload(
      [here] { return std::this_thread::get_id() == here ? std::int64_t{1} : std::int64_t{42}; },
      [&](std::int64_t got) { result = got; });
  bool posted = false;
  std::thread other([&] { io_->Post([&] { posted = std::this_thread::get_id() == here; }); });
  Drive(*io_, [&] { return result != 0 && posted; });
  other.join();
  EXPECT_EQ(result, 42);
  std::int64_t synced = 1;
  io_->Fsync(file_.fd(), true, [&](std::int64_t got) { synced = got; });
  io_->Submit();
  Drive(*io_, [&] { return synced == 0; });
}

TEST_P(FileIoTest, ThreadsActAsWhoAsked) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto acting = [] { return std::int64_t{::syscall(SYS_setfsuid, -1)}; };
  for (const uid_t uid : {1234U, 0U, 1235U}) {
    std::int64_t found = -1;
    (void)::syscall(SYS_setfsuid, uid);
    io_->Offload(acting, [&](std::int64_t got) { found = got; });
    (void)::syscall(SYS_setfsuid, 0U);
    Drive(*io_, [&] { return found != -1; });
    EXPECT_EQ(found, std::int64_t{uid});
  }
}

TEST_P(FileIoTest, DropsWhatNobodyWaitsForWhereThereIsMuchOfIt) {
  const auto held = std::make_shared<int>(0);
  std::size_t ran = 0;
  const auto defer = [&] { io_->Defer([&ran, held] { ++ran; }); };
  for (std::size_t i = 0; i < FileIo::kMostDeferred + 100; ++i) defer();
  EXPECT_EQ(static_cast<std::size_t>(held.use_count()), FileIo::kMostDeferred + 1);
  while (io_->RunDeferred()) {
  }
  EXPECT_EQ(ran, FileIo::kMostDeferred);
  defer();
  EXPECT_FALSE(io_->RunDeferred());
  EXPECT_EQ(ran, FileIo::kMostDeferred + 1);
}

TEST_P(FileIoTest, EndsWithOperationsInFlight) {
  file_.WriteAt(0, SomeBytes(1 << 20, 1));
  file_.MakeCold();
  Bytes buffer(1 << 20);
  for (int i = 0; i < 200; ++i) {
    io_->Read(file_.fd(), buffer, 0, [](std::int64_t) { FAIL() << "nobody polls any more"; });
  }
  io_->Submit();
  io_ = nullptr;  // and the buffer may go
}

TEST_P(FileIoTest, AFullWriteAppearsWhateverTheFileSystem) {
  SystemClock clock;
  FileWriter writer(*io_, clock);
  std::uint64_t device = 0;
  for (const std::string& base : {directory_.path(), std::string("/dev/shm")}) {
    ++device;
    std::string path = base + "/rdfs-writer-XXXXXX";
    const int raw = mkstemp(path.data());
    if (raw < 0) continue;  // no /dev/shm here
    const auto fd = std::make_shared<const Fd>(raw);
    unlink(path.c_str());
    for (const int flags : {0, RWF_DSYNC}) {
      const Bytes content = SomeBytes(777'777, static_cast<std::uint32_t>(flags));
      std::int64_t written = 0;
      writer.Write(fd, device, content, 1234, flags,
                   [&](std::int64_t result) { written = result; });
      Drive(*io_, [&] { return written != 0; });
      ASSERT_EQ(written, 777'777);
      Bytes back(777'777);
      ASSERT_EQ(pread(raw, back.data(), back.size(), 1234), 777'777);
      EXPECT_EQ(back, content);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, FileIoTest, testing::Bool(),
                         [](const auto& engine) { return engine.param ? "io_uring" : "threads"; });

}  // namespace
}  // namespace rdfs::server
