// Daemon: a program that goes to the background only once it is known how its start went.
//
// RunDetached forks before any thread exists; the child does everything and tells the outcome
// through a pipe, which the parent prints and exits with. The child keeps the terminal until then,
// so that ssh can ask for a password. Standard error afterwards is a file, or a thread that hands
// each line to syslog(3).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::fs::fuse {

// How the start went; told once. The last thing that is told to the person who typed the command.
class StartReport {
 public:
  // To the person directly (-f).
  StartReport() = default;
  // To the waiting parent.
  explicit StartReport(Fd pipe) : pipe_(std::move(pipe)), detached_(true) {}

  // Prints the status line; a detached process leaves its terminal.
  void Ready(std::string_view status_line);
  // Prints "rdfs: <sentence>". Async-signal-safe it is not.
  void Failed(std::string_view sentence);
  [[nodiscard]] bool detached() const { return detached_; }

 private:
  void Tell(char outcome, std::string_view text);
  Fd pipe_;
  bool detached_ = false;
};

// Runs `body` in a child and returns what the parent exits with: 0 after Ready, 1 after Failed or
// when the child ended without a word. In the child it does not return: the process exits with
// body's value.
int RunDetached(const std::function<int(StartReport&)>& body);

// Sends standard error to the end of `path` (made with mode 0600).
Result<Fd> OpenLogFile(const std::string& path);
Status RedirectStandardError(const Fd& to);

// Sends standard error to syslog, line by line, while it lives. Lines that arrive faster than
// syslog takes them are lost, never waited for.
class SyslogPipe {
 public:
  static Result<std::unique_ptr<SyslogPipe>> Create(const std::string& name);
  SyslogPipe(const SyslogPipe&) = delete;
  SyslogPipe& operator=(const SyslogPipe&) = delete;
  ~SyslogPipe();

 private:
  SyslogPipe(std::string name, Fd read_end, EventFd stop);
  void Run() const;

  const std::string name_;  // openlog(3) keeps the pointer
  Fd read_end_;
  EventFd stop_;
  std::jthread thread_;
};

}  // namespace rdfs::fs::fuse
