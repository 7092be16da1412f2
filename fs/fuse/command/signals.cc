#include "fs/fuse/command/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "transport/base/sigpipe.h"

namespace rdfs::fs::fuse {
namespace {

sigset_t OurSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

bool IsIgnored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

SignalAction DecideOnSignal(Phase phase, int signal) {
  if (signal == SIGUSR1) {
    const bool mounted = phase == Phase::kMounted || phase == Phase::kUnmounting;
    return mounted ? SignalAction::kShowCounters : SignalAction::kNone;
  }
  switch (phase) {
    case Phase::kStarting:
      return SignalAction::kStop;
    case Phase::kMounting:
      return SignalAction::kRemember;
    case Phase::kMounted:
      return SignalAction::kUnmount;
    case Phase::kUnmounting:
      return SignalAction::kEndNow;
    case Phase::kEnding:
      return SignalAction::kNone;
  }
  return SignalAction::kNone;
}

void SignalThread::BlockSignals() {
  sigset_t set = OurSignals();
  sigset_t left_alone;
  sigemptyset(&left_alone);
  for (const int signal : {SIGINT, SIGHUP}) {
    if (!IsIgnored(signal)) continue;
    sigdelset(&set, signal);
    sigaddset(&left_alone, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &left_alone, nullptr);
  // Linux queues a blocked signal also when it is ignored; who is started later is not asked by the
  // terminal to end.
  for (const int signal : {SIGINT, SIGHUP, SIGXFSZ}) (void)std::signal(signal, SIG_IGN);
  IgnoreSigpipe();
}

Result<std::unique_ptr<SignalThread>> SignalThread::Start(SignalActions actions) {
  const sigset_t set = OurSignals();
  Fd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return Status::FromErrno(errno, "cannot wait for signals");
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::unique_ptr<SignalThread>(
      new SignalThread(std::move(signals), std::move(wake), std::move(actions)));
}

SignalThread::SignalThread(Fd signals, EventFd wake, SignalActions actions)
    : signals_(std::move(signals)), wake_(std::move(wake)), actions_(std::move(actions)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

SignalThread::~SignalThread() {
  thread_.request_stop();
  WakeUp();
  thread_.join();
}

void SignalThread::WakeUp() const { wake_.Ring(); }

void SignalThread::Enter(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  if (phase == Phase::kMounted && std::exchange(remembered_, false)) {
    phase_ = Phase::kUnmounting;
    actions_.unmount();
  }
}

void SignalThread::EndWithin(std::chrono::milliseconds limit, int exit_code) {
  {
    const std::lock_guard lock(mutex_);
    phase_ = Phase::kEnding;
    forced_end_ = DeadlineAfter(limit);
    forced_exit_code_ = exit_code;
  }
  WakeUp();
}

void SignalThread::Act(SignalAction action) {
  switch (action) {
    case SignalAction::kStop:
      return actions_.stop();
    case SignalAction::kUnmount:
      return actions_.unmount();
    case SignalAction::kEndNow:
      return actions_.end_now();
    case SignalAction::kShowCounters:
      return actions_.show_counters();
    case SignalAction::kNone:
    case SignalAction::kRemember:
      return;
  }
}

void SignalThread::Handle(int signal) {
  // Held while it acts: nobody enters the next phase under an action of this one.
  const std::lock_guard lock(mutex_);
  const SignalAction action = DecideOnSignal(phase_, signal);
  if (action == SignalAction::kRemember) remembered_ = true;
  if (action == SignalAction::kUnmount) phase_ = Phase::kUnmounting;
  Act(action);
}

void SignalThread::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    int timeout = -1;
    {
      const std::lock_guard lock(mutex_);
      if (forced_end_) {
        const TimePoint now = BootClock::now();
        if (now >= *forced_end_) _exit(forced_exit_code_);
        timeout = PollTimeoutMs(*forced_end_, now);
      }
    }
    std::array<pollfd, 2> entries{{{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = wake_.fd(), .events = POLLIN, .revents = 0}}};
    if (poll(entries.data(), entries.size(), timeout) < 0) continue;
    wake_.Drain();
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      Handle(static_cast<int>(info.ssi_signo));
    }
  }
}

}  // namespace rdfs::fs::fuse
