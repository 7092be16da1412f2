// What is kept goes from one supervisor to the next through a service manager: this process, which
// does what systemd does with its end of NOTIFY_SOCKET, and starts the second one with what it got
// from the first.
#include "server/supervisor/supervisor_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "server/supervisor/service_manager.h"
#include "server/supervisor/supervisor.h"
#include "server/supervisor/supervisor_keeper.h"
#include "tests/server/temp_dir.h"
#include "transport/base/clock.h"

namespace rdfs::server {
namespace {

constexpr int kMany = 1500;  // in more than one socket
constexpr int kFirstPassed = 3;

std::string KeyOf(int i) { return fmt::format("file {}", i); }

class ManagerTest : public testing::Test {
 protected:
  ManagerTest() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    socket_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }

  // In a process of its own, which has been given these descriptors under these names.
  pid_t Start(const std::vector<Fd>& given, const std::string& names,
              const std::function<int()>& run) {
    const pid_t child = fork();
    if (child != 0) return child;
    std::vector<int> high;
    for (const Fd& fd : given) high.push_back(fcntl(fd.get(), F_DUPFD, 1000));
    for (std::size_t i = 0; i < high.size(); ++i) dup2(high[i], kFirstPassed + static_cast<int>(i));
    for (const int fd : high) close(fd);
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    setenv("LISTEN_FDS", std::to_string(given.size()).c_str(), 1);
    setenv("LISTEN_FDNAMES", names.c_str(), 1);
    _exit(run());
  }

  // Reads what it is told until the process has ended.
  int ServeUntilEnd(pid_t process) {
    const TimePoint deadline = BootClock::now() + std::chrono::seconds(60);
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
      if (BootClock::now() > deadline) kill(process, SIGKILL);
      pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, 20) == 1) Read();
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  void Read() {
    std::array<char, 4096> text{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control{};
    iovec part{.iov_base = text.data(), .iov_len = text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    ASSERT_GE(got, 0);
    ASSERT_EQ(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
    const std::string said(text.data(), static_cast<std::size_t>(got));
    said_ += said + "\n\n";
    std::vector<Fd> with;
    for (cmsghdr* found = CMSG_FIRSTHDR(&message); found; found = CMSG_NXTHDR(&message, found)) {
      for (std::size_t i = 0; i < (found->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(found) + i * sizeof(int), sizeof(fd));
        with.emplace_back(fd);
      }
    }
    if (said.starts_with("FDSTORE=1\nFDNAME=rdfsd-kept-1\n")) {
      for (Fd& fd : with) stored_.push_back(std::move(fd));
    }
    // What came with a barrier is closed here.
  }

  TempDir directory_;
  const std::string path_ = directory_ / "notify";
  Fd socket_;
  std::string said_;
  std::vector<Fd> stored_;
};

int Supervise(std::function<int(DescriptorKeeper&)> worker) {
  SupervisorOptions options;
  options.worker = [&](int fd) {
    auto keeper = DescriptorKeeper::Connect(fd);
    return keeper.ok() ? worker(**keeper) : 90;
  };
  const auto code = RunSupervisor(options);
  return code.ok() ? *code : 91;
}

// A worker that is asked to end when it has done its part, as systemctl restart asks.
int EndOnRequest() {
  kill(getppid(), SIGTERM);
  while (true) pause();
}

int LockWhole(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &lock);
}

TEST_F(ManagerTest, WhatIsKeptGoesFromOneSupervisorToTheNext) {
  const std::string deleted = directory_ / "deleted";
  const std::string locked = directory_ / "locked";
  const pid_t first = Start({}, "", [&] {
    return Supervise([&](DescriptorKeeper& keeper) {
      const Fd file(open(deleted.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (write(file.get(), "hello", 5) != 5 || unlink(deleted.c_str()) != 0) return 1;
      for (int i = 0; i < kMany; ++i) {
        if (!keeper.Keep(AsBytes(KeyOf(i)), file.get(), AsBytes(std::to_string(i))).ok()) return 2;
      }
      const Fd lock(open(locked.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (LockWhole(lock.get()) != 0) return 3;
      const std::string longest(DescriptorKeeper::kMaxStateBytes, 's');
      return keeper.Keep(AsBytes("lock"), lock.get(), AsBytes(longest)).ok() ? EndOnRequest() : 4;
    });
  });
  ASSERT_EQ(ServeUntilEnd(first), 0);
  EXPECT_GT(stored_.size(), 1U) << "more than one is tried";
  EXPECT_NE(said_.find("\nFDPOLL=0"), said_.npos) << said_;
  EXPECT_TRUE(said_.ends_with("BARRIER=1\n\n")) << said_;
  const Fd other(open(locked.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_NE(LockWhole(other.get()), 0) << "the lock was gone for a while";

  said_.clear();
  const std::vector<Fd> given = std::move(stored_);
  stored_.clear();
  std::string names = "rdfsd-kept-1";
  for (std::size_t i = 1; i < given.size(); ++i) names += ":rdfsd-kept-1";
  const pid_t second = Start(given, names, [&] {
    return Supervise([&](DescriptorKeeper& keeper) {
      if (keeper.restarted()) return 10;
      auto all = keeper.FetchAll();
      if (!all.ok() || all->size() != kMany + 1) return 11;
      int right = 0;
      for (const DescriptorKeeper::Kept& kept : *all) {
        std::array<char, 5> text{};
        if (AsText(kept.key) == "lock") {
          right += kept.state.size() == DescriptorKeeper::kMaxStateBytes ? 1 : 0;
        } else if (pread(kept.fd.get(), text.data(), 5, 0) == 5 &&
                   std::string_view(text.data(), 5) == "hello") {
          right += AsText(kept.key) == KeyOf(std::stoi(std::string(AsText(kept.state)))) ? 1 : 0;
        }
      }
      if (right != kMany + 1) return 12;
      return getenv("LISTEN_FDS") == nullptr ? 0 : 13;
    });
  });
  EXPECT_EQ(ServeUntilEnd(second), 0);
  EXPECT_EQ(said_, "FDSTOREREMOVE=1\nFDNAME=rdfsd-kept-1\n\n");
}

TEST_F(ManagerTest, OthersDescriptorsAndOddOnesAreLeftOut) {
  std::vector<Fd> given;
  given.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  given.emplace_back(open("/dev/zero", O_RDONLY | O_CLOEXEC));  // no socket at all
  std::array<int, 2> pair{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
  ASSERT_EQ(write(pair[0], "nonsense", 8), 8);
  ASSERT_TRUE(SendPacket(pair[0], PacketType::kRecord, AsBytes("without a descriptor"), {}, -1,
                         BootClock::now())
                  .ok());
  ASSERT_TRUE(
      SendPacket(pair[0], PacketType::kRecord, AsBytes("good"), {}, 0, BootClock::now()).ok());
  close(pair[0]);
  given.emplace_back(pair[1]);
  const pid_t process = Start(given, "other:rdfsd-kept-1:rdfsd-kept-1", [] {
    return Supervise([](DescriptorKeeper& keeper) {
      const auto all = keeper.FetchAll();
      if (!all.ok() || all->size() != 1) return 1;
      if (AsText(all->front().key) != "good") return 2;
      return fcntl(kFirstPassed, F_GETFD) >= 0 ? 0 : 3;
    });
  });
  EXPECT_EQ(ServeUntilEnd(process), 0);
}

TEST_F(ManagerTest, ACrashOrNothingKeptIsNotStored) {
  const pid_t nothing =
      Start({}, "", [] { return Supervise([](DescriptorKeeper&) { return EndOnRequest(); }); });
  EXPECT_EQ(ServeUntilEnd(nothing), 0);
  const pid_t own_end = Start({}, "", [] {
    return Supervise(
        [](DescriptorKeeper& keeper) { return keeper.Keep(AsBytes("k"), 0).ok() ? 7 : 8; });
  });
  EXPECT_EQ(ServeUntilEnd(own_end), 7);
  EXPECT_EQ(said_, "");
}

TEST_F(ManagerTest, AManagerThatDoesNotReadKeepsNobodyForLong) {
  const pid_t process = Start({}, "", [] {
    const TimePoint deadline = BootClock::now() + std::chrono::milliseconds(50);
    Status told;
    while (told.ok()) told = NotifyServiceManager("STATUS=again", {}, deadline);
    if (told.code() != Code::kDeadlineExceeded) return 1;
    return BootClock::now() < deadline + std::chrono::seconds(10) ? 0 : 2;
  });
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ServiceManager, WithoutOneNobodyIsTold) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(HasServiceManager());
  EXPECT_EQ(NotifyServiceManager("READY=1", {}, BootClock::now()).code(), Code::kNotFound);
  EXPECT_TRUE(TakePassedDescriptors("rdfsd-kept-1").empty());
}

}  // namespace
}  // namespace rdfs::server
