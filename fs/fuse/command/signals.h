// SignalThread: what the command does when it is told to end, or to say how it goes.
//
// Signals are blocked in every thread and read by one (signalfd(2)), so that what they start is
// ordinary code. What to do is decided by DecideOnSignal, which is pure:
//
//              end signal                     USR1
//   starting   stop: nothing is mounted yet   -
//   mounting   remembered until mounted       -
//   mounted    unmount                        counters
//   unmounting end now                        counters
//   ending     -                              -
//
// Once ending, the process has nothing to lose: what does not end by itself within a few seconds
// (a dial that waits for a dead host) ends with the process.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "transport/base/clock.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::fs::fuse {

enum class Phase { kStarting, kMounting, kMounted, kUnmounting, kEnding };
enum class SignalAction { kNone, kStop, kRemember, kUnmount, kEndNow, kShowCounters };
SignalAction DecideOnSignal(Phase phase, int signal);

// What the thread calls; each returns at once (but for `stop`, which does not return) and calls
// nothing of SignalThread.
struct SignalActions {
  std::function<void()> stop;
  std::function<void()> unmount;
  std::function<void()> end_now;
  std::function<void()> show_counters;
};

class SignalThread {
 public:
  // Once, before the first other thread: blocks the signals for good, and lets programs that are
  // started later ignore those of a terminal. Of those, one that is ignored already (nohup, a
  // script's `&`) stays so, and asks for nothing.
  static void BlockSignals();

  static Result<std::unique_ptr<SignalThread>> Start(SignalActions actions);
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;
  ~SignalThread();

  // A signal that was remembered is acted on when the mount is there.
  void Enter(Phase phase);
  // From now on the process ends with `exit_code` by force unless this object dies within `limit`.
  void EndWithin(std::chrono::milliseconds limit, int exit_code);

 private:
  SignalThread(Fd signals, EventFd wake, SignalActions actions);
  void Run(const std::stop_token& stop);
  void Handle(int signal);
  void Act(SignalAction action);
  void WakeUp() const;

  Fd signals_;
  EventFd wake_;
  const SignalActions actions_;
  std::mutex mutex_;
  Phase phase_ = Phase::kStarting;
  bool remembered_ = false;
  std::optional<Deadline> forced_end_;
  int forced_exit_code_ = 0;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace rdfs::fs::fuse
