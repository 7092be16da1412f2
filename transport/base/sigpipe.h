// SIGPIPE, which ends a program that writes to a pipe or connection whose reader is gone: the calls
// that fail say so too, with EPIPE. signal(7), pipe(7).
//
// Sockets need neither of these, but MSG_NOSIGNAL. Pipes have no such flag, and soft-iWARP's
// connections are sockets in the kernel that are written to without it: by whoever rings a
// doorbell, accepts, disconnects.
#pragma once

#include <signal.h>

namespace rdfs {

// For main, before there are threads: in a program of ours nothing asks for the signal.
void IgnoreSigpipe();
// For a program whose standard output nobody reads any more: ends as if it had not been ignored.
void EndBySigpipe();

// As long as one lives, what its thread writes to raises no SIGPIPE, whatever the program does
// about it, which is not ours to change. Nothing where it is ignored; three system calls else.
class SigpipeHeld {
 public:
  SigpipeHeld();
  ~SigpipeHeld();
  SigpipeHeld(const SigpipeHeld&) = delete;
  SigpipeHeld& operator=(const SigpipeHeld&) = delete;

 private:
  bool held_ = false;  // it was neither ignored nor pending before
  sigset_t before_;
};

}  // namespace rdfs
