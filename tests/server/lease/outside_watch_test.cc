// Real directories and real other processes: what the kernel tells of them.
#include "server/lease/outside_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "server/inode/inode_table.h"
#include "server/ops/attr.h"
#include "tests/server/temp_dir.h"

namespace rdfs::server {
namespace {

using namespace std::chrono_literals;

class OutsideWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto proc = ProcFd::Open();
    ASSERT_TRUE(proc.ok());
    proc_ = std::make_unique<ProcFd>(std::move(*proc));
    Start({});
  }

  void Start(const OutsideWatch::Options& options) {
    auto watch = OutsideWatch::Start(
        *proc_, options, {.changed = [this](auto changes) { Take(changes); }, .lost = [] {}});
    ASSERT_TRUE(watch.ok()) << watch.status().ToString();
    watch_ = *std::move(watch);
  }

  void Take(std::span<const OutsideWatch::Change> changes) {
    const std::lock_guard lock(mutex_);
    told_.insert(told_.end(), changes.begin(), changes.end());
    came_.notify_all();
  }

  struct Directory {
    std::shared_ptr<Inode> inode;
    Fd fd;
  };
  static Directory Open(const std::string& path) {
    Fd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct statx stat {};
    EXPECT_EQ(StatFd(fd.get(), stat), 0);
    const NativeHandle native = NativeHandle::Of(fd.get(), stat);
    const InodeKey key{DeviceOf(stat), stat.stx_ino};
    return {std::make_shared<Inode>(fs::Handle(), native, key, stat.stx_mode & S_IFMT),
            std::move(fd)};
  }

  // In another process, which is over when this returns.
  static void Outside(const std::function<void()>& what) {
    const pid_t child = ::fork();
    if (child == 0) {
      what();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }

  using Matches = std::function<bool(const OutsideWatch::Change&)>;
  bool Told(const Matches& matches) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, 10s,
                          [&] { return std::any_of(told_.begin(), told_.end(), matches); });
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return told_.size();
  }

  TempDir temp_;
  std::unique_ptr<ProcFd> proc_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<OutsideWatch::Change> told_;
  std::unique_ptr<OutsideWatch> watch_;  // last: its thread uses the rest
};

void Write(const std::string& path, const char* text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (::write(fd.get(), text, std::strlen(text)) < 0) ::_exit(1);
}

TEST_F(OutsideWatchTest, TellsOfNamesContentAndAttributes) {
  Write(temp_ / "old", "x");
  const Directory directory = Open(temp_.path());
  const Directory old = Open(temp_ / "old");
  ASSERT_TRUE(watch_->Watch(directory.inode, directory.fd.get()));
  EXPECT_TRUE(watch_->Watches(*directory.inode));

  Outside([&] { Write(temp_ / "new", "y"); });
  EXPECT_TRUE(Told([&](const auto& change) {
    return change.directory == directory.inode && change.name == "new" && change.entry;
  }));
  Outside([&] { Write(temp_ / "old", "z"); });
  EXPECT_TRUE(Told([&](const auto& change) {
    return change.name == "old" && change.content && !change.entry && change.inode &&
           change.inode->size == old.inode->native.size &&
           change.inode->bytes == old.inode->native.bytes;
  }));
  Outside([&] { ::chmod((temp_ / "old").c_str(), 0600); });
  EXPECT_TRUE(Told([&](const auto& change) {
    return change.name == "old" && !change.content && !change.entry;
  }));
  Outside([&] { ::rename((temp_ / "old").c_str(), (temp_ / "away").c_str()); });
  EXPECT_TRUE(Told([&](const auto& change) { return change.name == "old" && change.moved; }));
  EXPECT_TRUE(Told([&](const auto& change) { return change.name == "away" && change.entry; }));
  Outside([&] { ::chmod(temp_.path().c_str(), 0711); });
  EXPECT_TRUE(Told([&](const auto& change) { return change.name.empty() && !change.entry; }));
}

TEST_F(OutsideWatchTest, SaysNothingOfWhatThisProcessDoes) {
  const Directory directory = Open(temp_.path());
  ASSERT_TRUE(watch_->Watch(directory.inode, directory.fd.get()));
  for (int i = 0; i < 1000; ++i) {
    Write(temp_ / "ours", "x");
    ::unlink((temp_ / "ours").c_str());
  }
  Outside([&] { Write(temp_ / "theirs", "x"); });
  EXPECT_TRUE(Told([&](const auto& change) { return change.name == "theirs"; }));
  const std::lock_guard lock(mutex_);
  for (const auto& change : told_) EXPECT_EQ(change.name, "theirs");
}

TEST_F(OutsideWatchTest, AnotherGenerationMissesNothing) {
  constexpr auto kPeriod = 20ms;
  watch_.reset();
  Start({.period = kPeriod});
  const Directory directory = Open(temp_.path());
  // Through many of them, what is armed again each time it is looked at is told of. On a busy
  // machine some writes come so late that it may have been forgotten.
  int in_time = 0;
  for (int i = 0; i < 400 && in_time < 40; ++i) {
    const TimePoint looked = BootClock::now();
    ASSERT_TRUE(watch_->Watch(directory.inode, directory.fd.get()));
    const std::string name = std::to_string(i);
    Outside([&] { Write(temp_ / name, "x"); });
    if (BootClock::now() - looked >= kPeriod) continue;
    ++in_time;
    ASSERT_TRUE(Told([&](const auto& change) { return change.name == name; })) << i;
  }
  EXPECT_GT(in_time, 0);
}

TEST_F(OutsideWatchTest, WhatIsNotLookedAtAnyMoreIsForgotten) {
  watch_.reset();
  Start({.period = 300ms});  // in which the last write has to come
  const Directory directory = Open(temp_.path());
  ASSERT_TRUE(watch_->Watch(directory.inode, directory.fd.get()));
  const std::weak_ptr<Inode> inode = directory.inode;
  EXPECT_GT(inode.use_count(), 1);
  for (int i = 0; i < 1000 && inode.use_count() > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(inode.use_count(), 1);
  EXPECT_FALSE(watch_->Watches(*directory.inode));
  const std::size_t before = count();
  Outside([&] { Write(temp_ / "unseen", "x"); });
  EXPECT_TRUE(watch_->Watch(directory.inode, directory.fd.get()));
  Outside([&] { Write(temp_ / "seen", "x"); });
  EXPECT_TRUE(Told([&](const auto& change) { return change.name == "seen"; }));
  EXPECT_GT(count(), before);
  EXPECT_FALSE(std::any_of(told_.begin(), told_.end(),
                           [](const auto& change) { return change.name == "unseen"; }));
}

TEST_F(OutsideWatchTest, TakesSoManyDirectoriesAndNoMore) {
  watch_.reset();
  Start({.directories = 3});
  for (int i = 0; i < 4; ++i) {
    const std::string path = temp_ / std::to_string(i);
    ::mkdir(path.c_str(), 0755);
    const Directory directory = Open(path);
    EXPECT_EQ(watch_->Watch(directory.inode, directory.fd.get()), i < 3);
  }
}

// As a container or a unit that does not allow it. The filter is the calling thread's alone.
bool RefuseFanotify(int error) {
  std::array<sock_filter, 4> filter = {
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_fanotify_init},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(OutsideWatchTest, SaysWhyThereIsNone) {
  const auto try_with = [this](int error) {
    Status status;
    std::thread([&] {
      ASSERT_TRUE(RefuseFanotify(error));
      status = OutsideWatch::Start(*proc_, {}, {.changed = [](auto) {}, .lost = [] {}}).status();
    }).join();
    return status;
  };
  EXPECT_EQ(try_with(ENOSYS).code(), Code::kUnsupported);
  const Status refused = try_with(EPERM);
  EXPECT_EQ(refused.code(), Code::kErrno);
  EXPECT_NE(refused.message().find("SystemCallFilter="), std::string::npos) << refused.ToString();
}

}  // namespace
}  // namespace rdfs::server
