// What writes to a pipe without a reader, in children that a signal may end.
#include "transport/base/sigpipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace rdfs {
namespace {

// The errno of a write that nobody can read.
int WriteToNobody() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
  close(ends[0]);
  const int error = write(ends[1], "x", 1) < 0 ? errno : 0;
  close(ends[1]);
  return error;
}

bool IsPending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

bool IsBlocked() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGPIPE) == 1;
}

void Block() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

[[noreturn]] void ExitIf(bool as_expected) { _exit(as_expected ? 0 : 1); }

TEST(SigpipeDeathTest, EndsWhoDoesNothingAboutIt) {
  EXPECT_EXIT(
      {
        signal(SIGPIPE, SIG_DFL);
        ExitIf(WriteToNobody() == EPIPE);
      },
      testing::KilledBySignal(SIGPIPE), "");
}

TEST(SigpipeDeathTest, EndsNobodyWhileItIsHeldAndIsGoneThen) {
  EXPECT_EXIT(
      {
        signal(SIGPIPE, SIG_DFL);
        int error = 0;
        {
          const SigpipeHeld held;
          error = WriteToNobody();
        }
        ExitIf(error == EPIPE && !IsPending() && !IsBlocked());
      },
      testing::ExitedWithCode(0), "");
}

TEST(SigpipeDeathTest, ErrnoOutlivesTheHold) {
  EXPECT_EXIT(
      {
        signal(SIGPIPE, SIG_DFL);
        {
          const SigpipeHeld held;
          (void)WriteToNobody();
          errno = EPIPE;
        }
        ExitIf(errno == EPIPE);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SigpipeDeathTest, OneThatTheProgramHasBlockedStaysBlocked) {
  EXPECT_EXIT(
      {
        Block();
        { const SigpipeHeld held; }
        ExitIf(IsBlocked() && !IsPending());
      },
      testing::ExitedWithCode(0), "");
}

TEST(SigpipeDeathTest, OneThatWaitedBeforeStillWaits) {
  EXPECT_EXIT(
      {
        Block();
        raise(SIGPIPE);
        {
          const SigpipeHeld held;
          (void)WriteToNobody();
        }
        ExitIf(IsPending());
      },
      testing::ExitedWithCode(0), "");
}

TEST(SigpipeDeathTest, IsIgnoredForGood) {
  EXPECT_EXIT(
      {
        signal(SIGPIPE, SIG_DFL);
        IgnoreSigpipe();
        const SigpipeHeld held;
        ExitIf(WriteToNobody() == EPIPE && !IsPending() && !IsBlocked());
      },
      testing::ExitedWithCode(0), "");
}

TEST(SigpipeDeathTest, EndsAProgramThatWantsToEndByItAfterAll) {
  EXPECT_EXIT(
      {
        IgnoreSigpipe();
        EndBySigpipe();
        ExitIf(true);
      },
      testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace rdfs
