// SIGPIPE, which ends a program that writes to a pipe or connection whose reader is gone: the calls
// that fail say so too, with EPIPE. signal(7), pipe(7).
//
// Sockets need neither of these, but MSG_NOSIGNAL. Pipes have no such flag, and soft-iWARP's
// connections are sockets in the kernel that are written to without it: by whoever rings a
// doorbell, accepts, disconnects.
#pragma once

#include <signal.h>

#include <optional>

namespace rdfs {

// For main, before there are threads: in a program of ours nothing asks for the signal.
void IgnoreSigpipe();
// For a program whose standard output nobody reads any more: ends as if it had not been ignored.
void EndBySigpipe();

// As long as one lives, what its thread calls raises no `number`, of those that the kernel directs
// at the thread (SIGPIPE, SIGXFSZ), whatever the program does about it, which is not ours to
// change. Three system calls.
class SignalHeld {
 public:
  explicit SignalHeld(int number);
  ~SignalHeld();
  SignalHeld(const SignalHeld&) = delete;
  SignalHeld& operator=(const SignalHeld&) = delete;

 private:
  const int number_;
  bool ours_ = false;  // it was not pending before
  sigset_t before_{};
};
// SIGPIPE, where it is not ignored.
class SigpipeHeld {
 public:
  SigpipeHeld();

 private:
  std::optional<SignalHeld> held_;
};

}  // namespace rdfs
