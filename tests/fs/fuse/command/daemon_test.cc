// Going to the background: the parent says how it went, and never leaves a child that nobody knows
// of.
#include "fs/fuse/command/daemon.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace rdfs::fs::fuse {
namespace {

struct Outcome {
  int status = -1;
  std::string standard_output, standard_error;
};

std::string ReadToEnd(int fd) {
  std::string text;
  std::array<char, 256> piece{};
  for (ssize_t got = 0; (got = read(fd, piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

// Runs RunDetached in a process of its own and collects what a shell would see of it.
Outcome Detach(const std::function<int(StartReport&)>& body) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  EXPECT_EQ(pipe(out.data()), 0);
  EXPECT_EQ(pipe(err.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    _exit(RunDetached(body));
  }
  close(out[1]);
  close(err[1]);
  Outcome outcome;
  EXPECT_EQ(waitpid(child, &outcome.status, 0), child);
  outcome.standard_output = ReadToEnd(out[0]);
  outcome.standard_error = ReadToEnd(err[0]);
  return outcome;
}

TEST(Daemon, ReadyIsZeroAndTheLineOnStandardOutput) {
  const Outcome outcome = Detach([](StartReport& report) {
    report.Ready("/mnt is there");
    const bool free_of_terminal = getsid(0) == getpid();
    _exit(free_of_terminal ? 0 : 1);
    return 0;
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.standard_output, "rdfs: /mnt is there\n");
  EXPECT_EQ(outcome.standard_error, "");
}

TEST(Daemon, FailedIsOneAndOneSentence) {
  const Outcome outcome = Detach([](StartReport& report) {
    report.Failed("no");
    _exit(1);
    return 1;
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 1);
  EXPECT_EQ(outcome.standard_output, "");
  EXPECT_EQ(outcome.standard_error, "rdfs: no\n");
}

TEST(Daemon, AChildThatDiesWithoutAWordIsAFailure) {
  const Outcome killed = Detach([](StartReport&) { return raise(SIGKILL); });
  EXPECT_EQ(WEXITSTATUS(killed.status), 1);
  EXPECT_NE(killed.standard_error.find("signal 9"), std::string::npos) << killed.standard_error;
  const Outcome ended = Detach([](StartReport&) {
    _exit(0);
    return 0;
  });
  EXPECT_EQ(WEXITSTATUS(ended.status), 1);
  EXPECT_NE(ended.standard_error.find("ended before"), std::string::npos) << ended.standard_error;
}

TEST(Daemon, TheChildEndsWithAParentThatIsKilled) {
  std::array<int, 2> alive{};
  ASSERT_EQ(pipe(alive.data()), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    close(alive[0]);
    _exit(RunDetached([](StartReport&) {
      for (;;) pause();
      return 0;
    }));
  }
  close(alive[1]);
  // Give the child no chance to be missed: it holds the write end, and only its end closes that.
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  EXPECT_EQ(ReadToEnd(alive[0]), "");  // returns: nobody holds it any more
}

TEST(Daemon, TheLogFileIsAppendedToAndPrivate) {
  const std::string path = testing::TempDir() + "rdfs-log-" + std::to_string(getpid());
  std::ofstream(path) << "old\n";
  EXPECT_EXIT(
      {
        Result<Fd> log = OpenLogFile(path);
        if (!log.ok() || !RedirectStandardError(*log).ok()) _exit(1);
        (void)!write(STDERR_FILENO, "new\n", 4);
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "old\nnew\n");
  std::filesystem::remove(path);
  const Result<Fd> refused = OpenLogFile("/no/such/place");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("/no/such/place"), std::string::npos);
}

TEST(Daemon, TheSyslogPipeEndsThoughSomebodyHoldsItsOtherEnd) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        Result<std::unique_ptr<SyslogPipe>> pipe = SyslogPipe::Create("rdfs-test");
        if (!pipe.ok()) _exit(1);
        const int held = dup(STDERR_FILENO);
        const std::string flood(1U << 20U, 'x');
        (void)!write(STDERR_FILENO, flood.data(),
                     flood.size());  // more than it takes: lost, no wait
        pipe->reset();
        _exit(held >= 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace rdfs::fs::fuse
