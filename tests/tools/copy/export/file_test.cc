// Files of a real rdfsd's export: where paths lead, and what open files answer.
#include "tools/copy/export/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "tests/fs/client/rdfsd.h"
#include "tests/transport/kinds.h"
#include "tools/copy/file/data.h"

namespace rdfs::copy {
namespace {

namespace filesystem = std::filesystem;

class ExportFiles : public testing::TestWithParam<transport::Kind> {
 protected:
  void SetUp() override {
    const auto operand = ParseOperand("rdfs://" + transport::TestAddress() + ":" +
                                      std::to_string(server_.port()) + "/live");
    ASSERT_TRUE(operand.ok());
    ExportOptions options;
    options.require = GetParam();
    auto session = ExportSession::Connect(*operand, options, 0, stop_);
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    root_ = session_->root();
  }
  void TearDown() override { root_ = nullptr; }
  [[nodiscard]] filesystem::path Path(const std::string& name) const {
    return server_.root() / name;
  }
  void Put(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
  }
  // The content behind a path, or what is wrong.
  std::string Behind(const std::string& path, int flags = O_RDONLY) {
    const FilePtr file = root_->Open(path, flags);
    if (file == nullptr) return "errno " + std::to_string(errno);
    std::string text(64, '\0');
    const ssize_t got = file->Read(std::as_writable_bytes(std::span(text)), 0);
    if (got < 0) return "read: errno " + std::to_string(errno);
    text.resize(static_cast<std::size_t>(got));
    return text;
  }

  fs::client::Rdfsd server_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<ExportSession> session_;
  FilePtr root_;
};

std::string Errno(int error) { return "errno " + std::to_string(error); }

TEST_P(ExportFiles, PathsLeadWhereTheKernelWouldGoInTheExport) {
  filesystem::create_directories(Path("a/b"));
  Put("a/file", "deep");
  Put("file", "top");
  filesystem::create_symlink("../file", Path("a/up"));
  filesystem::create_symlink("/a/file", Path("a/b/whole"));
  filesystem::create_symlink("a", Path("to_a"));
  filesystem::create_symlink("loop", Path("loop"));
  filesystem::create_symlink("nowhere", Path("dangling"));
  EXPECT_EQ(Behind("a/file"), "deep");
  EXPECT_EQ(Behind("/a//./file"), "deep");
  EXPECT_EQ(Behind("a/up"), "top");
  EXPECT_EQ(Behind("a/b/whole"), "deep");
  EXPECT_EQ(Behind("to_a/b/../file"), "deep");
  EXPECT_EQ(Behind("../../../file"), "top") << "there is no way out of the export";
  EXPECT_EQ(Behind("a/up", O_RDONLY | O_NOFOLLOW), Errno(ELOOP));
  EXPECT_EQ(Behind("loop"), Errno(ELOOP));
  EXPECT_EQ(Behind("dangling"), Errno(ENOENT));
  EXPECT_EQ(Behind("none"), Errno(ENOENT));
  EXPECT_EQ(Behind("file/x"), Errno(ENOTDIR));
  EXPECT_EQ(Behind("file/"), Errno(ENOTDIR));
  EXPECT_EQ(Behind("file", O_RDONLY | O_DIRECTORY), Errno(ENOTDIR));
  struct stat info {};
  ASSERT_EQ(root_->Stat("to_a", false, info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  ASSERT_EQ(root_->Stat("to_a/", false, info), 0);
  EXPECT_TRUE(S_ISDIR(info.st_mode));
  EXPECT_EQ(root_->OpenBeneath("to_a/b", O_PATH), nullptr);
  EXPECT_EQ(errno, ELOOP);
  const FilePtr inner = root_->OpenBeneath("a/b", O_RDONLY | O_DIRECTORY);
  ASSERT_NE(inner, nullptr);
  const FilePtr above = inner->Open("..", O_RDONLY | O_DIRECTORY);
  ASSERT_NE(above, nullptr);
  EXPECT_EQ(above->Stat("file", false, info), 0);
}

TEST_P(ExportFiles, AllNamesAreListedWithWhatTheyAre) {
  std::set<std::string> expected;
  for (int i = 0; i < 3000; ++i) {
    expected.insert("name" + std::to_string(i));
    Put("name" + std::to_string(i), std::string(static_cast<std::size_t>(i % 7), 'x'));
  }
  const FilePtr directory = root_->Open(".", O_RDONLY | O_DIRECTORY);
  std::deque<std::string> names;
  int more = 1;
  while (more > 0) more = directory->ReadNames(names);
  EXPECT_EQ(more, 0);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
  EXPECT_EQ(names.size(), expected.size());
  for (int i = 0; i < 3000; i += 311) {
    struct stat info {};
    struct stat real {};
    const std::string name = "name" + std::to_string(i);
    ASSERT_EQ(directory->Stat(name, false, info), 0);
    ASSERT_EQ(lstat(Path(name).c_str(), &real), 0);
    EXPECT_EQ(info.st_size, real.st_size);
    EXPECT_EQ(info.st_ino, real.st_ino);
    EXPECT_EQ(info.st_mode, real.st_mode);
    EXPECT_EQ(info.st_mtim.tv_nsec, real.st_mtim.tv_nsec);
    EXPECT_EQ(info.st_dev, session_->device());
  }
}

TEST_P(ExportFiles, WhatWasChangedIsNotToldFromMemory) {
  Put("file", "x");
  const FilePtr directory = root_->Open(".", O_RDONLY | O_DIRECTORY);
  std::deque<std::string> names;
  while (directory->ReadNames(names) > 0) {
  }
  ASSERT_EQ(directory->SetMode("file", 0640), 0);
  struct stat info {};
  ASSERT_EQ(directory->Stat("file", false, info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0640U);
  ASSERT_EQ(directory->Rename("file", "other"), 0);
  EXPECT_EQ(directory->Stat("file", false, info), -1);
  EXPECT_EQ(errno, ENOENT);
  const FilePtr made = directory->Open("new", O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(made->Write(AsBytes(std::string_view("12345")), 3), 5);
  ASSERT_EQ(made->Stat("", true, info), 0);
  EXPECT_EQ(info.st_size, 8);
  ASSERT_EQ(made->Truncate(4), 0);
  ASSERT_EQ(made->Stat("", true, info), 0);
  EXPECT_EQ(info.st_size, 4);
  EXPECT_EQ(directory->Open("new", O_RDWR | O_CREAT | O_EXCL, 0600), nullptr);
  EXPECT_EQ(errno, EEXIST);
}

TEST_P(ExportFiles, WhatWasReplacedSinceItWasListedIsFoundByItsName) {
  const std::vector<std::string> replaced{"read", "followed", "listed"};
  for (const std::string& name : replaced) Put(name, "before");
  Put("gone", "before");
  filesystem::create_symlink("before", Path("link"));
  filesystem::create_symlink("followed", Path("leads"));
  const FilePtr directory = root_->Open(".", O_RDONLY | O_DIRECTORY);
  std::deque<std::string> names;
  while (directory->ReadNames(names) > 0) {
  }
  for (const std::string& name : replaced) {
    Put("new", "after");
    filesystem::rename(Path("new"), Path(name));
  }
  filesystem::remove(Path("gone"));
  filesystem::create_symlink("after", Path("new"));
  filesystem::rename(Path("new"), Path("link"));
  server_.KillWorker();  // it may still have had what was there
  for (const char* name : {"read", "leads"}) {
    const FilePtr file = directory->Open(name, O_RDONLY);
    ASSERT_NE(file, nullptr) << name << ": errno " << errno;
    std::array<std::byte, 6> out{};
    EXPECT_EQ(file->Read(out, 0), 5) << name;
  }
  std::string target;
  ASSERT_EQ(directory->ReadLink("link", target), 0) << "errno " << errno;
  EXPECT_EQ(target, "after");
  EXPECT_TRUE(directory->ListXattrs("listed", nullptr, 0) >= 0 || errno == EOPNOTSUPP) << errno;
  EXPECT_EQ(directory->Open("gone", O_RDONLY), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

// rdcp leaves a directory its time where that is right already.
TEST_P(ExportFiles, ADirectoryWhoseNamesChangeHasAnotherTime) {
  constexpr timespec kLongAgo{1'000'000'000, 0};
  const auto expect_changed = [&](const std::string& what,
                                  const std::function<int(File&)>& change) {
    filesystem::create_directories(Path(what + "/sub"));
    Put(what + "/one", "x");
    ASSERT_EQ(root_->SetTimes(what, {kLongAgo, kLongAgo}), 0);
    const FilePtr directory = root_->OpenBeneath(what, O_RDONLY | O_DIRECTORY);
    ASSERT_NE(directory, nullptr);
    ASSERT_EQ(change(*directory), 0) << what;
    struct stat info {};
    ASSERT_EQ(directory->Stat("", true, info), 0);
    EXPECT_NE(info.st_mtim.tv_sec, kLongAgo.tv_sec) << what;
  };
  expect_changed("create", [](File& d) {
    return d.Open("new", O_WRONLY | O_CREAT | O_EXCL, 0600) != nullptr ? 0 : -1;
  });
  expect_changed("mkdir", [](File& d) { return d.MakeDirectory("new", 0700); });
  expect_changed("symlink", [](File& d) { return d.MakeSymlink("target", "new"); });
  expect_changed("mknod", [](File& d) { return d.MakeNode("new", S_IFIFO | 0600, 0); });
  expect_changed("link", [](File& d) { return d.Link("one", d, "new"); });
  expect_changed("rename", [](File& d) { return d.Rename("one", "new"); });
  expect_changed("unlink", [](File& d) { return d.Remove("one", false); });
  expect_changed("rmdir", [](File& d) { return d.Remove("sub", true); });
}

TEST_P(ExportFiles, LargeContentGoesBothWaysInManyPieces) {
  std::mt19937_64 random(7);
  std::string text(5'000'001, '\0');
  for (char& c : text) c = static_cast<char>(random());
  Put("from", text);
  const FilePtr from = root_->Open("from", O_RDONLY);
  const FilePtr to = root_->Open("to", O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_TRUE(from != nullptr && to != nullptr);
  std::atomic<std::uint64_t> moved{0};
  // By way of here, as to another export.
  const Conduct conduct{moved, stop_, nullptr, [](std::uint64_t, ByteSpan) {}};
  ASSERT_TRUE(CopyData({*from, *to, 0, text.size()}, conduct).ok());
  EXPECT_EQ(moved, text.size());
  std::ifstream in(Path("to"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
  const Status cut = CopyData({*from, *to, 0, text.size() + 1}, conduct);
  EXPECT_EQ(cut.errno_value(), ENODATA);
}

TEST_P(ExportFiles, ManyThreadsMoreThanLanesAllGetTheirs) {
  constexpr int kThreads = 40;
  for (int i = 0; i < kThreads; ++i) Put(std::to_string(i), std::to_string(i));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        if (Behind(std::to_string(i)) == std::to_string(i)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * 20);
}

TEST_P(ExportFiles, ARestartedServerIsGoneOnWith) {
  Put("file", "before");
  const FilePtr file = root_->Open("file", O_RDONLY);
  ASSERT_NE(file, nullptr);
  server_.KillWorker();
  std::array<std::byte, 6> out{};
  EXPECT_EQ(file->Read(out, 0), 6);
  EXPECT_EQ(Behind("file"), "before");
  EXPECT_FALSE(session_->lost());
}

TEST_P(ExportFiles, NobodyWaitsForADiskInARunThatEnds) {
  Put("file", "x");
  const FilePtr file = root_->Open("file", O_RDWR);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->Sync(), 0);
  server_.Stop();
  stop_ = true;
  EXPECT_EQ(file->Sync(), -1);
  EXPECT_EQ(errno, EINTR);
  server_.Continue();
  EXPECT_FALSE(session_->lost());
}

TEST_P(ExportFiles, WhoMakesFilesIsFoundOutOnce) {
  EXPECT_EQ(root_->Maker(), geteuid());
  EXPECT_TRUE(filesystem::is_empty(server_.root()));
  filesystem::remove_all(server_.root());
  EXPECT_EQ(root_->Maker(), geteuid());
}

TEST_P(ExportFiles, ALockIsWaitedForUntilItsHolderIsGone) {
  Put("file", "x");
  FilePtr holder = root_->Open("file", O_RDWR);
  const FilePtr other = root_->Open("file", O_RDWR);
  ASSERT_EQ(holder->Lock(), 0);
  // Nobody waits in a run that ends.
  stop_ = true;
  EXPECT_EQ(other->Lock(), -1);
  EXPECT_EQ(errno, EAGAIN);
  stop_ = false;
  std::thread waiting([&] { EXPECT_EQ(other->Lock(), 0); });
  holder = nullptr;
  waiting.join();
}

TEST_P(ExportFiles, WhatTheServerHasNoRoomForIsAskedAgain) {
  int calls = 0;
  const Status status = session_->Do([&](ExportSession::Seat&) {
    return ++calls < 3 ? Status(Code::kErrno, EAGAIN, {}) : Status();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(calls, 3);
}

TEST_P(ExportFiles, AServerThatDoesNotAnswerIsAskedNoMore) {
  // Each lane is had by a call that will be too late, and more threads wait for one.
  const Status late(Code::kErrno, ETIMEDOUT, {});
  std::atomic<std::size_t> asked{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3 * ExportSession::kMostLanes; ++i) {
    threads.emplace_back([&] {
      (void)session_->Do([&](ExportSession::Seat&) {
        ++asked;
        while (asked < ExportSession::kMostLanes) std::this_thread::yield();
        return late;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(asked, ExportSession::kMostLanes);
  EXPECT_TRUE(session_->lost() && stop_);
  EXPECT_EQ(root_->Open("file", O_RDONLY), nullptr);
  EXPECT_EQ(errno, ENOTCONN);
}

INSTANTIATE_TEST_SUITE_P(Over, ExportFiles, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::copy
