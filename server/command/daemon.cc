#include "server/command/daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "server/supervisor/service_manager.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

constexpr std::chrono::seconds kManagersPatience{5};

// The parent's part: its exit code.
[[noreturn]] void WaitAndExit(int pipe) {
  char ready = 0;
  ssize_t got = 0;
  do {
    got = ::read(pipe, &ready, 1);
  } while (got < 0 && errno == EINTR);
  ::_exit(got == 1 ? 0 : 1);  // without: the worker has said why on standard error
}

}  // namespace

Result<Readiness> Readiness::Daemonise() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  Fd read_end(ends[0]);
  Readiness readiness;
  readiness.pipe_.Reset(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno(errno, "fork");
  if (child > 0) {
    readiness.pipe_.Reset();
    WaitAndExit(read_end.get());
  }
  ::setsid();
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.valid()) ::dup2(null.get(), STDIN_FILENO);
  return readiness;
}

void Readiness::Ready(std::string_view text) {
  const std::string lines = std::string(text) + "\n";
  if (::write(STDOUT_FILENO, lines.data(), lines.size()) < 0) {
    LogDebug("nobody reads our standard output");
  }
  const Status told = NotifyServiceManager("READY=1", {}, DeadlineAfter(kManagersPatience));
  if (!told.ok() && told.code() != Code::kNotFound) {
    LogWarn("cannot tell systemd that rdfsd is ready: {}", told.message());
  }
  if (!pipe_.valid()) return;
  Detach();
  const char ready = 'R';
  if (::write(pipe_.get(), &ready, 1) != 1) LogDebug("nobody waits for us");
  pipe_.Reset();
}

void Readiness::Detach() {
  if (!pipe_.valid()) return;
  LogToSyslog();
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return;
  ::dup2(null.get(), STDOUT_FILENO);
  ::dup2(null.get(), STDERR_FILENO);
}

}  // namespace rdfs::server
