#include "transport/base/sigpipe.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

namespace rdfs {
namespace {

std::atomic<bool> ignored = false;

sigset_t Only(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  return set;
}

bool IsPending(int number) {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

}  // namespace

void IgnoreSigpipe() {
  (void)signal(SIGPIPE, SIG_IGN);
  ignored = true;
}

void EndBySigpipe() {
  const sigset_t set = Only(SIGPIPE);
  (void)signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  (void)raise(SIGPIPE);
}

SignalHeld::SignalHeld(int number) : number_(number) {
  const sigset_t set = Only(number);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  // One that waits already is the program's: it can only wait where it was blocked before.
  ours_ = sigismember(&before_, number) == 0 || !IsPending(number);
}

// What a call raises is directed at the thread that makes it: it is ours to take.
SignalHeld::~SignalHeld() {
  if (!ours_) return;
  const int error = errno;
  const sigset_t set = Only(number_);
  const timespec at_once{};
  (void)sigtimedwait(&set, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

// Made in place: g++ 14 takes emplace's reset for a use of a value that is not there.
SigpipeHeld::SigpipeHeld()
    : held_(ignored.load(std::memory_order_relaxed)
                ? std::optional<SignalHeld>()
                : std::optional<SignalHeld>(std::in_place, SIGPIPE)) {}

}  // namespace rdfs
