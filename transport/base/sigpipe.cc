#include "transport/base/sigpipe.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <ctime>

namespace rdfs {
namespace {

std::atomic<bool> ignored = false;

sigset_t OnlySigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool IsPending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

void IgnoreSigpipe() {
  (void)signal(SIGPIPE, SIG_IGN);
  ignored = true;
}

void EndBySigpipe() {
  const sigset_t set = OnlySigpipe();
  (void)signal(SIGPIPE, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  (void)raise(SIGPIPE);
}

SigpipeHeld::SigpipeHeld() {
  if (ignored.load(std::memory_order_relaxed)) return;
  const sigset_t set = OnlySigpipe();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  // One that waits already is the program's: it can only wait where it was blocked before.
  held_ = sigismember(&before_, SIGPIPE) == 0 || !IsPending();
}

// What is raised by writing is directed at the thread that writes: it is ours to take.
SigpipeHeld::~SigpipeHeld() {
  if (!held_) return;
  const int error = errno;
  const sigset_t set = OnlySigpipe();
  const timespec at_once{};
  (void)sigtimedwait(&set, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace rdfs
