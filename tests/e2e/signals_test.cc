// Signals: a call that a signal meets goes on as if nothing had been, as on a local file system.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "tests/e2e/compare.h"

namespace rdfs::e2e {
namespace {

volatile std::sig_atomic_t g_signals = 0;
void Count(int) { g_signals = g_signals + 1; }

// A signal every 300 us, and no call is begun anew by the kernel or libc (no SA_RESTART).
void StartStorm() {
  struct sigaction action {};
  action.sa_handler = Count;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 300},
                        .it_value = {.tv_sec = 0, .tv_usec = 300}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

struct Failures {
  int count = 0;
  int first = 0;  // errno
  void Check(bool good) {
    if (!good && count++ == 0) first = errno;
  }
};

void OneFile(Failures& failures) {
  std::array<char, 8192> bytes{};
  const int fd = open("new", O_CREAT | O_RDWR | O_TRUNC, 0644);
  failures.Check(fd >= 0);
  failures.Check(pwrite(fd, bytes.data(), bytes.size(), 100) == 8192);
  failures.Check(fdatasync(fd) == 0);
  failures.Check(fsync(fd) == 0);
  failures.Check(pread(fd, bytes.data(), bytes.size(), 0) == 8192);
  failures.Check(ftruncate(fd, 5) == 0);
  failures.Check(close(fd) == 0);
  failures.Check(access("absent", F_OK) != 0 && errno == ENOENT);
  failures.Check(mkdir("directory", 0755) == 0);
  failures.Check(rename("new", "directory/moved") == 0);
  failures.Check(chmod("directory/moved", 0600) == 0);
  const int dir = open("directory", O_RDONLY | O_DIRECTORY);
  failures.Check(dir >= 0 && close(dir) == 0);
  failures.Check(unlink("directory/moved") == 0);
  failures.Check(rmdir("directory") == 0);
}

TEST(Signals, CutNoCallShort) {
  Compare([](Transcript& t) {
    std::array<int, 2> result{};
    ASSERT_EQ(pipe(result.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      Failures failures;
      if (fchdir(t.dir()) != 0) _exit(1);
      StartStorm();
      // As many calls as it takes to be met by signals, on a fast file system too.
      for (int i = 0; i < 200 || g_signals < 200; ++i) OneFile(failures);
      (void)!write(result[1], &failures, sizeof failures);
      _exit(0);
    }
    close(result[1]);
    Failures failures{.count = -1};
    EXPECT_EQ(read(result[0], &failures, sizeof failures), ssize_t{sizeof failures});
    close(result[0]);
    waitpid(child, nullptr, 0);
    t.Note("calls that failed", failures.count);
    t.Note("errno of the first", failures.first);
    EXPECT_EQ(failures.count, 0) << failures.first;
  });
}

}  // namespace
}  // namespace rdfs::e2e
