// SignalThread: waits for signals on a thread of its own. SIGUSR1 calls `on_report`; SIGTERM and
// SIGINT call `on_stop`; SIGHUP calls `on_reload` where there is one, and is ignored where not.
// Block() first, before any other thread.
#pragma once

#include <functional>
#include <thread>

#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

class SignalThread {
 public:
  // Blocks the signals in the calling thread and those it starts; SIGPIPE is ignored (writing to a
  // peer that has gone is an error, not an end), and so is SIGXFSZ (EFBIG tells). One that came
  // before, and was blocked then too, is not lost.
  static void Block();
  static Result<std::unique_ptr<SignalThread>> Start(std::function<void()> on_stop,
                                                     std::function<void()> on_report,
                                                     std::function<void()> on_reload = nullptr);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  SignalThread(Fd signals, EventFd stop) : signals_(std::move(signals)), stop_(std::move(stop)) {}
  void Run();

  Fd signals_;
  EventFd stop_;
  std::function<void()> on_stop_, on_report_, on_reload_;
  std::thread thread_;
};

}  // namespace rdfs::server
