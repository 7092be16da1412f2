// Supervisor: the small process around the worker that does the serving.
//
// It starts the worker, starts it again after a crash, and keeps what a crash would lose:
// duplicates of descriptors that cannot be found again (files unlinked while open, locks, which
// live in the open file description; listening sockets), each with a few bytes of the worker's own,
// the secret that handles are signed with, and the epoch. It knows nothing of files and parses
// nothing that a client sent. Under systemd a stop leaves what is kept to the next supervisor
// (supervisor_store.h).
//
// One thread (and for a while one that closes large files: ClosingThread), no allocation that grows
// with clients beyond Options' bounds. The worker talks to it through DescriptorKeeper
// (supervisor_keeper.h) over a socket pair.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "transport/base/status.h"

namespace rdfs::server {

struct SupervisorOptions {
  // The worker: runs in the forked child, gives the socket to DescriptorKeeper::Connect, and its
  // result is the exit code.
  std::function<int(int fd)> worker;
  std::function<void()> started;  // runs in the supervisor when it has its first worker

  std::size_t max_descriptors = 65536;     // lowered to what RLIMIT_NOFILE allows
  std::size_t max_state_bytes = 32 << 20;  // keys and states together
  // More crashes than this within the window: something is broken for good.
  int max_crashes = 5;
  std::chrono::nanoseconds crash_window = std::chrono::seconds(60);
  std::chrono::nanoseconds first_back_off = std::chrono::milliseconds(20);  // doubles
  std::chrono::nanoseconds longest_back_off = std::chrono::seconds(5);
  std::chrono::nanoseconds stop_patience = std::chrono::seconds(10);  // then SIGKILL
};

// Runs until the worker has ended for good, and returns the exit code for main: the worker's own,
// or 1 after a crash loop (logged, with what to do). SIGTERM, SIGINT, SIGHUP and SIGUSR1 go to the
// worker; the first two end the supervisor with it. The worker begins with the last two blocked,
// and after a SIGHUP so does each further one with one more that waits for it. The worker dies with
// its supervisor. Blocks these signals and SIGCHLD in the caller, so it is called before any thread
// starts; SIGPIPE is ignored from then on. Errors: kErrno before the first worker has started.
Result<int> RunSupervisor(const SupervisorOptions& options);

}  // namespace rdfs::server
