// The supervisor with real workers that are really killed. A worker says what it found by its exit
// code: 0 is right, anything else names the step.
#include "server/supervisor/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/process/signal_thread.h"
#include "server/supervisor/supervisor_keeper.h"
#include "server/supervisor/supervisor_packet.h"
#include "tests/server/temp_dir.h"
#include "transport/base/clock.h"

namespace rdfs::server {
namespace {

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  _exit(99);
}

int OpenFile(const std::string& path) {
  return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

int LockWhole(int fd, int type) {
  struct flock lock {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &lock);
}

bool IsText(ByteSpan bytes, std::string_view text) { return AsText(bytes) == text; }

// Counts the worker's starts where it survives them.
int NextRun(const std::string& path) {
  const Fd fd(OpenFile(path));
  (void)lseek(fd.get(), 0, SEEK_END);
  const char one = 'x';
  if (write(fd.get(), &one, 1) != 1) return -1;
  return static_cast<int>(lseek(fd.get(), 0, SEEK_END));
}

SupervisorOptions Quick(std::function<int(int)> worker) {
  SupervisorOptions options;
  options.worker = std::move(worker);
  options.first_back_off = std::chrono::milliseconds(1);
  options.longest_back_off = std::chrono::milliseconds(4);
  options.stop_patience = std::chrono::seconds(5);
  return options;
}

int RunOrFail(const SupervisorOptions& options) {
  const auto code = RunSupervisor(options);
  EXPECT_TRUE(code.ok()) << code.status().ToString();
  return code.ok() ? *code : -1;
}

class SupervisorTest : public testing::Test {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return directory_ / name; }
  TempDir directory_;
};

TEST_F(SupervisorTest, AnUnlinkedFileAndALockSurviveKills) {
  const std::string unlinked = Path("unlinked");
  const std::string locked = Path("locked");
  const auto first_run = [&](DescriptorKeeper& keeper) {
    if (keeper.restarted()) return 1;
    const int fd = OpenFile(unlinked);
    if (write(fd, "hello", 5) != 5 || unlink(unlinked.c_str()) != 0) return 2;
    if (!keeper.Keep(AsBytes("unlinked"), fd, AsBytes("state one")).ok()) return 3;
    const int lock = OpenFile(locked);
    if (LockWhole(lock, F_WRLCK) != 0) return 4;
    if (!keeper.Keep(AsBytes("locked"), lock, AsBytes("0-end")).ok()) return 5;
    if (!keeper.SetState(AsBytes("unlinked"), AsBytes("state two")).ok()) return 6;
    Die();
  };
  const auto later_run = [&](DescriptorKeeper& keeper, int run) {
    if (!keeper.restarted()) return 11;
    auto all = keeper.FetchAll();
    if (!all.ok() || all->size() != 2) return 12;
    DescriptorKeeper::Kept& lock = (*all)[0];
    DescriptorKeeper::Kept& file = (*all)[1];
    if (!IsText(lock.key, "locked") || !IsText(file.key, "unlinked")) return 13;
    if (!IsText(file.state, "state two") || !IsText(lock.state, "0-end")) return 14;
    std::array<char, 5> text{};
    if (pread(file.fd.get(), text.data(), 5, 0) != 5) return 15;
    if (std::string_view(text.data(), 5) != "hello") return 16;
    const Fd other(OpenFile(locked));
    if (LockWhole(other.get(), F_WRLCK) == 0 || errno != EAGAIN) return 17;
    if (run < 4) Die();
    // Given up by us and by the supervisor, the lock is gone.
    keeper.Drop(AsBytes("locked"));
    if (LockWhole(lock.fd.get(), F_UNLCK) != 0) return 18;
    return LockWhole(other.get(), F_WRLCK) == 0 ? 0 : 19;
  };
  EXPECT_EQ(RunOrFail(Quick([&](int fd) {
              const int run = NextRun(Path("runs"));
              const auto keeper = DescriptorKeeper::Connect(fd);
              if (!keeper.ok()) return 90;
              return run == 1 ? first_run(**keeper) : later_run(**keeper, run);
            })),
            0);
}

TEST_F(SupervisorTest, AListeningSocketGoesOnAndNobodyIsRefused) {
  EXPECT_EQ(RunOrFail(Quick([&](int fd) {
              auto keeper = DescriptorKeeper::Connect(fd);
              if (!keeper.ok()) return 90;
              if (!(*keeper)->restarted()) {
                const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                sockaddr_in any{};
                any.sin_family = AF_INET;
                any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                if (bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0) return 1;
                if (listen(listener, 8) != 0) return 2;
                if (!(*keeper)->Keep(AsBytes("listen"), listener).ok()) return 3;
                Die();
              }
              auto all = (*keeper)->FetchAll();
              if (!all.ok() || all->size() != 1) return 4;
              sockaddr_in where{};
              socklen_t length = sizeof(where);
              auto* address = reinterpret_cast<sockaddr*>(&where);
              if (getsockname((*all)[0].fd.get(), address, &length) != 0) return 5;
              const Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
              if (connect(client.get(), address, length) != 0) return 6;
              return accept((*all)[0].fd.get(), nullptr, nullptr) >= 0 ? 0 : 7;
            })),
            0);
}

TEST_F(SupervisorTest, EpochsGrowAndTheSecretStays) {
  EXPECT_EQ(RunOrFail(Quick([&](int fd) {
              const int run = NextRun(Path("runs"));
              auto keeper = DescriptorKeeper::Connect(fd);
              if (!keeper.ok()) return 90;
              auto all = (*keeper)->FetchAll();
              if (!all.ok()) return 1;
              const std::uint64_t epoch = (*keeper)->epoch();
              const ByteSpan secret = (*keeper)->secret();
              std::vector<std::byte> state(8 + secret.size());
              std::memcpy(state.data(), &epoch, 8);
              std::ranges::copy(secret, state.begin() + 8);
              if (run > 1) {
                std::uint64_t before = 0;
                std::memcpy(&before, (*all)[0].state.data(), 8);
                if (before >= epoch) return 2;
                if (!std::equal(secret.begin(), secret.end(), (*all)[0].state.begin() + 8))
                  return 3;
              }
              if (!(*keeper)->Keep(AsBytes("epoch"), 0, state).ok()) return 4;
              if (run < 4) Die();
              return 0;
            })),
            0);
}

TEST_F(SupervisorTest, ACrashLoopIsGivenUpWithAWord) {
  SupervisorOptions options = Quick([&](int) -> int {
    NextRun(Path("runs"));
    Die();
  });
  options.max_crashes = 3;
  testing::internal::CaptureStderr();
  const int code = RunOrFail(options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 1);
  EXPECT_NE(log.find("giving up"), std::string::npos) << log;
  EXPECT_EQ(NextRun(Path("runs")), 5) << "three crashes are forgiven, the fourth is not";
}

TEST_F(SupervisorTest, TheEndOfAWorkerIsHeardOfAlsoWhereItWasIgnored) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(RunOrFail(Quick([&](int) {
              if (NextRun(Path("runs")) == 1) Die();
              return 7;
            })),
            7);
  (void)signal(SIGCHLD, before);
}

TEST_F(SupervisorTest, AWorkersOwnExitIsTheEnd) {
  EXPECT_EQ(RunOrFail(Quick([](int) { return 42; })), 42);
}

TEST_F(SupervisorTest, KeepsNoMoreThanItsBounds) {
  SupervisorOptions options = Quick([&](int fd) {
    auto keeper = DescriptorKeeper::Connect(fd);
    if (!keeper.ok()) return 90;
    if (!(*keeper)->restarted()) {
      for (int i = 0; i < 8; ++i) {
        if (!(*keeper)->Keep(AsBytes("k" + std::to_string(i)), 0).ok()) return 1;
      }
      if ((*keeper)->Keep(AsBytes("k8"), 0).code() != Code::kResourceExhausted) return 2;
      if (!(*keeper)->Keep(AsBytes("k7"), 0).ok()) return 3;
      (*keeper)->Drop(AsBytes("k0"));
      if (!(*keeper)->Keep(AsBytes("k8"), 0).ok()) return 4;
      const std::vector<std::byte> large(DescriptorKeeper::kMaxStateBytes);
      if (!(*keeper)->SetState(AsBytes("k8"), large).ok()) return 5;
      if ((*keeper)->SetState(AsBytes("k7"), large).code() != Code::kResourceExhausted) return 6;
      const std::vector<std::byte> larger(DescriptorKeeper::kMaxStateBytes + 1);
      if ((*keeper)->SetState(AsBytes("k8"), larger).code() != Code::kInvalidArgument) return 7;
      // Far more than fit into a socket's queue at once.
      for (int i = 0; i < 3000; ++i) {
        (*keeper)->Drop(AsBytes("k1"));
        if (!(*keeper)->Keep(AsBytes("k1"), 0).ok()) return 8;
      }
      Die();
    }
    auto all = (*keeper)->FetchAll();
    if (!all.ok()) return 10;
    if (all->size() != 8 || (*keeper)->kept() != 8) return 11;
    if ((*all)[7].state.size() != DescriptorKeeper::kMaxStateBytes) return 12;
    return (*keeper)->Keep(AsBytes("k9"), 0).code() == Code::kResourceExhausted ? 0 : 13;
  });
  options.max_descriptors = 8;
  options.max_state_bytes = DescriptorKeeper::kMaxStateBytes + 1000;
  EXPECT_EQ(RunOrFail(options), 0);
}

// The exports are to be read again, whoever reads them.
TEST_F(SupervisorTest, AHangUpThatNoWorkerHasReadIsTheNextOnes) {
  EXPECT_EQ(RunOrFail(Quick([&](int) {
              if (NextRun(Path("runs")) == 1) {
                kill(getppid(), SIGHUP);
                Die();
              }
              sigset_t mask;
              sigemptyset(&mask);
              sigaddset(&mask, SIGHUP);
              const timespec patience{.tv_sec = 10, .tv_nsec = 0};
              return sigtimedwait(&mask, nullptr, &patience) == SIGHUP ? 0 : 1;
            })),
            0);
}

TEST_F(SupervisorTest, SignalsThatComeWhileAWorkerStartsWaitForIt) {
  EXPECT_EQ(RunOrFail(Quick([&](int) {
              if (NextRun(Path("runs")) > 1) return 1;  // it was killed
              sigset_t mask;
              pthread_sigmask(SIG_BLOCK, nullptr, &mask);
              if (sigismember(&mask, SIGTERM) != 0) return 2;
              for (const int number : {SIGHUP, SIGUSR1}) kill(getpid(), number);
              SignalThread::Block();
              std::promise<void> reported, reloaded;
              const auto signals = SignalThread::Start([] {}, [&] { reported.set_value(); },
                                                       [&] { reloaded.set_value(); });
              if (!signals.ok()) return 3;
              const auto came = [](std::promise<void>& told) {
                return told.get_future().wait_for(std::chrono::seconds(10)) ==
                       std::future_status::ready;
              };
              return came(reported) && came(reloaded) ? 0 : 4;
            })),
            0);
}

// A supervisor in a process of its own, whose worker says over a pipe that it runs and holds the
// pipe while it lives.
class SupervisorProcessTest : public SupervisorTest {
 protected:
  void Start(std::function<int(int)> worker) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    supervisor_ = fork();
    ASSERT_GE(supervisor_, 0);
    if (supervisor_ == 0) {
      close(ends[0]);
      const auto code = RunSupervisor(Quick([&](int fd) {
        if (write(ends[1], "r", 1) != 1) return 98;
        return worker(fd);
      }));
      _exit(code.ok() ? *code : 97);
    }
    close(ends[1]);
    pipe_.Reset(ends[0]);
    char ready = 0;
    ASSERT_EQ(read(pipe_.get(), &ready, 1), 1);
  }
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(supervisor_, &status, 0), supervisor_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Once nobody holds the pipe's other end, supervisor and worker are both gone.
  bool EverybodyIsGone() {
    pollfd entry{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, 20'000) != 1) return false;
    char byte = 0;
    return read(pipe_.get(), &byte, 1) == 0;
  }
  pid_t supervisor_ = -1;
  Fd pipe_;
};

// The log of a service ends where nobody reads it any more.
TEST_F(SupervisorProcessTest, AWorkerIsStartedAgainAlsoWhereNobodyReadsTheLog) {
  (void)signal(SIGPIPE, SIG_DFL);  // a test before may have had it ignored
  std::array<int, 2> log{};
  ASSERT_EQ(pipe2(log.data(), O_CLOEXEC), 0);
  const Fd standard_error(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  ASSERT_GE(dup2(log[1], STDERR_FILENO), 0);
  close(log[0]);
  close(log[1]);
  Start([&](int) -> int {
    if (NextRun(Path("runs")) == 1) Die();
    return 7;
  });
  ASSERT_GE(dup2(standard_error.get(), STDERR_FILENO), 0);
  EXPECT_EQ(Wait(), 7);
}

int SleepForEver(int) {
  while (true) pause();
}

TEST_F(SupervisorProcessTest, PassesSigtermOn) {
  Start(SleepForEver);
  ASSERT_EQ(kill(supervisor_, SIGTERM), 0);
  EXPECT_EQ(Wait(), 0);
  EXPECT_TRUE(EverybodyIsGone());
}

TEST_F(SupervisorProcessTest, AWorkerThatEndsInGoodOrderSaysHow) {
  Start([](int) {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    int number = 0;
    (void)sigwait(&mask, &number);
    return number == SIGTERM ? 3 : 4;
  });
  ASSERT_EQ(kill(supervisor_, SIGTERM), 0);
  const int code = Wait();
  // Killed before it had blocked the signal, it ended by it.
  EXPECT_TRUE(code == 3 || code == 0) << code;
}

TEST_F(SupervisorProcessTest, TheWorkerEndsWithItsSupervisor) {
  Start(SleepForEver);
  ASSERT_EQ(kill(supervisor_, SIGKILL), 0);
  EXPECT_EQ(Wait(), -SIGKILL);
  EXPECT_TRUE(EverybodyIsGone());
}

TEST(DescriptorKeeper, NoneKeepsNothingAndSucceeds) {
  const auto keeper = DescriptorKeeper::None();
  EXPECT_FALSE(keeper->supervised());
  EXPECT_NE(keeper->epoch(), 0U);
  EXPECT_TRUE(keeper->Keep(AsBytes("x"), 0).ok());
  const auto all = keeper->FetchAll();
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->empty());
}

// A keeper whose supervisor is this test, with the socket's other end.
void ConnectTo(Fd& other, std::unique_ptr<DescriptorKeeper>& keeper, std::uint32_t most,
               std::uint32_t most_state) {
  std::array<int, 2> pair{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
  other.Reset(pair[1]);
  HelloWire hello{};
  hello.max_descriptors = most;
  hello.max_state_bytes = most_state;
  ASSERT_TRUE(SendPacket(other.get(), PacketType::kHello, {},
                         std::as_bytes(std::span<const HelloWire, 1>(&hello, 1)), -1,
                         DeadlineAfter(std::chrono::seconds(5)))
                  .ok());
  auto connected = DescriptorKeeper::Connect(pair[0]);
  ASSERT_TRUE(connected.ok()) << connected.status().message();
  keeper = *std::move(connected);
}
// Tells it of "a" until the supervisor, which does not read, can be told no more.
void FillQueue(DescriptorKeeper& keeper) {
  ASSERT_TRUE(keeper.Keep(AsBytes("a"), 0).ok());
  const std::vector<std::byte> large(DescriptorKeeper::kMaxStateBytes);
  Status told;
  for (int i = 0; i < 100'000 && told.ok(); ++i) told = keeper.SetState(AsBytes("a"), large);
  ASSERT_EQ(told.code(), Code::kDeadlineExceeded) << "its queue has no end";
}

TEST(DescriptorKeeper, WhatTheSupervisorWasNotToldIsNotKept) {
  Fd other;
  std::unique_ptr<DescriptorKeeper> keeper;
  ASSERT_NO_FATAL_FAILURE(ConnectTo(other, keeper, 2, 100));
  ASSERT_TRUE(keeper->Keep(AsBytes("a"), 0, AsBytes("state")).ok());
  constexpr int kNoDescriptor = 1 << 29;  // so that the packet cannot go
  const std::string half(60, 's');
  EXPECT_FALSE(keeper->Keep(AsBytes("a"), kNoDescriptor, AsBytes(half)).ok());
  EXPECT_FALSE(keeper->Keep(AsBytes("b"), kNoDescriptor, AsBytes(half)).ok());
  EXPECT_EQ(keeper->kept(), 1U);
  EXPECT_EQ(keeper->SetState(AsBytes("b"), {}).code(), Code::kNotFound);
  EXPECT_TRUE(keeper->Keep(AsBytes("c"), 0, AsBytes(half)).ok()) << "the room is free again";
}

TEST(DescriptorKeeper, ASlowSupervisorIsToldLaterOfWhatIsDropped) {
  Fd other;
  std::unique_ptr<DescriptorKeeper> keeper;
  ASSERT_NO_FATAL_FAILURE(ConnectTo(other, keeper, 2, 1 << 20));
  ASSERT_NO_FATAL_FAILURE(FillQueue(*keeper));
  keeper->Drop(AsBytes("a"));
  EXPECT_EQ(keeper->kept(), 0U);

  const auto next = [&]() -> std::optional<Packet> {
    auto packet = ReceivePacket(other.get());
    EXPECT_TRUE(packet.ok());
    if (!packet.ok()) return std::nullopt;
    return *std::move(packet);
  };
  while (next()) {
  }
  ASSERT_TRUE(keeper->Keep(AsBytes("b"), 0).ok());
  const std::optional<Packet> dropped = next();
  ASSERT_TRUE(dropped);
  EXPECT_EQ(dropped->type, PacketType::kDrop);
  EXPECT_EQ(dropped->key, "a");
  const std::optional<Packet> kept = next();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->type, PacketType::kKeep);
  EXPECT_EQ(kept->key, "b");
  EXPECT_FALSE(next());
}

TEST(DescriptorKeeper, ASupervisorThatDoesNotReadIsWaitedForOnce) {
  Fd other;
  std::unique_ptr<DescriptorKeeper> keeper;
  ASSERT_NO_FATAL_FAILURE(ConnectTo(other, keeper, 1 << 20, 1 << 30));
  ASSERT_NO_FATAL_FAILURE(FillQueue(*keeper));
  const std::vector<std::byte> large(DescriptorKeeper::kMaxStateBytes);

  const TimePoint begun = BootClock::now();
  for (int i = 0; i < 20; ++i) {
    const std::string key = "b" + std::to_string(i);
    EXPECT_EQ(keeper->Keep(AsBytes(key), 0, large).code(), Code::kDeadlineExceeded);
  }
  keeper->Drop(AsBytes("a"));
  EXPECT_LT(BootClock::now() - begun, std::chrono::seconds(10)) << "a second for each";
  EXPECT_EQ(keeper->kept(), 0U);

  for (auto packet = ReceivePacket(other.get()); packet.ok() && packet->has_value();) {
    packet = ReceivePacket(other.get());
  }
  EXPECT_TRUE(keeper->Keep(AsBytes("b"), 0, large).ok());
  EXPECT_EQ(keeper->kept(), 1U);
}

TEST(DescriptorKeeper, RefusesASocketThatIsNoSupervisors) {
  std::array<int, 2> pair{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
  const Fd other(pair[1]);
  ASSERT_EQ(send(other.get(), "nonsense", 8, 0), 8);
  EXPECT_EQ(DescriptorKeeper::Connect(pair[0]).status().code(), Code::kProtocolError);
}

}  // namespace
}  // namespace rdfs::server
