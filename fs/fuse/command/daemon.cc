#include "fs/fuse/command/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "transport/base/log.h"
#include "transport/base/log_format.h"

namespace rdfs::fs::fuse {
namespace {

constexpr char kReady = '+';
constexpr char kFailed = '-';

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // nobody listens any more
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

// A person reads it: stdout for how it went, stderr for why not.
void Print(char outcome, std::string_view text) {
  const bool ready = outcome == kReady;
  WriteAll(ready ? STDOUT_FILENO : STDERR_FILENO,
           std::string(ready ? "" : ErrorPrefix()) + "rdfs: " + std::string(text) + "\n");
}

int WaitForOutcome(int pipe, pid_t child) {
  const std::string told = ReadAll(pipe);
  if (!told.empty()) {
    Print(told.front(), std::string_view(told).substr(1));
    // The exit of one that failed is waited for, so that nothing of it is left when we are gone.
    if (told.front() == kReady) return 0;
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return 1;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Print(kFailed, WIFSIGNALED(status)
                     ? "ended by signal " + std::to_string(WTERMSIG(status)) +
                           " before it had mounted; run it with -f -v to see more"
                     : "ended before it had mounted; run it with -f -v to see more");
  return 1;
}

}  // namespace

void StartReport::Tell(char outcome, std::string_view text) {
  if (!detached_) {
    Print(outcome, text);
    return;
  }
  if (!pipe_.valid()) return;
  WriteAll(pipe_.get(), outcome + std::string(text));
  pipe_.Reset();
}

void StartReport::Ready(std::string_view status_line) {
  if (detached_) {
    prctl(PR_SET_PDEATHSIG, 0);
    setsid();
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null.valid()) {
      dup2(null.get(), STDIN_FILENO);
      dup2(null.get(), STDOUT_FILENO);
    }
  }
  Tell(kReady, status_line);
}

void StartReport::Failed(std::string_view sentence) { Tell(kFailed, sentence); }

int RunDetached(const std::function<int(StartReport&)>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    Print(kFailed, Status::FromErrno(errno, "cannot make a pipe").message());
    return 1;
  }
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    Print(kFailed, Status::FromErrno(errno, "cannot start a second process").message());
    return 1;
  }
  if (child == 0) {
    read_end.Reset();
    // Whoever ends the command before the mount is there ends all of it.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) std::exit(1);
    StartReport report(std::move(write_end));
    std::exit(body(report));
  }
  write_end.Reset();
  return WaitForOutcome(read_end.get(), child);
}

Result<Fd> OpenLogFile(const std::string& path) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open the log file " + path);
  return fd;
}

Status RedirectStandardError(const Fd& to) {
  if (dup2(to.get(), STDERR_FILENO) < 0) return Status::FromErrno(errno, "cannot redirect the log");
  LogToWhereStandardErrorIs();
  return {};
}

Result<std::unique_ptr<SyslogPipe>> SyslogPipe::Create(const std::string& name) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return Status::FromErrno(errno, "cannot make a pipe for the log");
  }
  Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  RDFS_ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  RDFS_RETURN_IF_ERROR(RedirectStandardError(write_end));
  return std::unique_ptr<SyslogPipe>(new SyslogPipe(name, std::move(read_end), std::move(stop)));
}

SyslogPipe::SyslogPipe(std::string name, Fd read_end, EventFd stop)
    : name_(std::move(name)), read_end_(std::move(read_end)), stop_(std::move(stop)) {
  openlog(name_.c_str(), LOG_PID, LOG_DAEMON);
  thread_ = std::jthread([this] { Run(); });
}

SyslogPipe::~SyslogPipe() {
  // Children may hold the pipe's other end, so its end cannot be waited for.
  stop_.Ring();
  thread_.join();
  const Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (null.valid()) dup2(null.get(), STDERR_FILENO);
  closelog();
}

void SyslogPipe::Run() const {
  constexpr std::size_t kMostLine = 8192;
  std::string line;
  std::array<char, 4096> piece{};
  std::array<pollfd, 2> entries{{{.fd = read_end_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = stop_.fd(), .events = POLLIN, .revents = 0}}};
  for (;;) {
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    const bool stopping = entries[1].revents != 0;
    for (;;) {
      const ssize_t got = read(read_end_.get(), piece.data(), piece.size());
      if (got <= 0) break;
      for (const char c : std::string_view(piece.data(), static_cast<std::size_t>(got))) {
        if (c != '\n') line += c;
        if (c != '\n' && line.size() < kMostLine) continue;
        const bool grave =
            line.find(": error: ") != line.npos || line.find(R"("level": "error")") != line.npos;
        syslog(grave ? LOG_ERR : LOG_NOTICE, "%s", line.c_str());
        line.clear();
      }
    }
    if (stopping) return;
  }
}

}  // namespace rdfs::fs::fuse
