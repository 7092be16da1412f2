// ChildProcess: a program that we started with pipes to its standard input and output.
//
// Started by posix_spawn(3), which neither copies our address space (registered memory) nor runs
// code of ours between fork and exec. A thread waits for it, so that it never becomes a zombie
// however long its owner lives. One owner; Wait from any thread.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::transport::ssh {

class ChildProcess {
 public:
  struct Started {
    std::unique_ptr<ChildProcess> process;
    Fd input;   // what we write there it reads
    Fd output;  // and the other way round
  };
  // `arguments[0]` is looked up in PATH. `own_session`: without our terminal. Signals have their
  // default meaning in it, but for the terminal's (INT, QUIT, HUP), which it ignores. Errors:
  // kErrno (the program is not there ...). `errors`: its standard error; -1: it is ours.
  static Result<Started> Start(const std::vector<std::string>& arguments, bool own_session,
                               int errors = -1);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  // Gives it a second to end (its pipes should have been closed), then kills it.
  ~ChildProcess();

  // Its status as waitpid(2) tells it, or none at `deadline`, or where this process is not told of
  // its children's ends (SIGCHLD ignored).
  std::optional<int> Wait(Deadline deadline);
  void Terminate();

 private:
  explicit ChildProcess(pid_t pid);
  void Reap();
  // Whether it has ended by `deadline`.
  bool WaitForEnd(std::unique_lock<std::mutex>& lock, Deadline deadline);

  const pid_t pid_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool reaped_ = false;        // the pid is nobody's then
  std::optional<int> status_;  // once it has been reaped, if it is known
  std::jthread reaper_;        // last: it uses the rest
};

}  // namespace rdfs::transport::ssh
