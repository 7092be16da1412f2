#include "tools/pipe/command/process.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "transport/base/log.h"
#include "transport/base/processors.h"
#include "transport/base/say.h"
#include "transport/base/sigpipe.h"

namespace rdfs::pipe {
namespace {

constexpr int kMostThreads = 16;
// Reading or writing ranges of one file from the page cache: more do not make it faster.
constexpr int kRangeThreads = 4;

sigset_t Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  // Of nohup(1): a signal that is blocked would come though it is ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);
  }
  return signals;
}

}  // namespace

void SetUpProcess(const char* name, const CommonOptions& options) {
  HoldStandardDescriptors();
  SetLogName(name);
  SetLogLevel(options.verbosity == 0   ? LogLevel::kWarn
              : options.verbosity == 1 ? LogLevel::kInfo
                                       : LogLevel::kDebug);
  IgnoreSigpipe();
  (void)signal(SIGXFSZ, SIG_IGN);  // a call that fails tells
}

Result<Fd> WatchInterrupts() {
  const sigset_t signals = Interrupts();
  Fd fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return Status::FromErrno(errno, "signalfd");
  return fd;
}

void BlockInterrupts() {
  const sigset_t signals = Interrupts();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Result<Fd> TakeInterrupts() {
  BlockInterrupts();
  return WatchInterrupts();
}

bool ShowsProgress(const CommonOptions& options, int stream) {
  return !options.quiet && isatty(STDERR_FILENO) == 1 &&
         (!options.file.empty() || isatty(stream) == 0);
}

int CrewSize(bool computes, bool ranged) {
  const int processors = Processors();
  if (computes) return std::min(processors, kMostThreads);
  return ranged ? std::min(processors, kRangeThreads) : 1;
}

int Report(std::string_view name, const Status& status) {
  Say("{}: {}\n", name, status.message());
  return 1;
}

}  // namespace rdfs::pipe
