#include "server/process/signal_thread.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "transport/base/sigpipe.h"

namespace rdfs::server {
namespace {

sigset_t OurSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&set, number);
  return set;
}

}  // namespace

void SignalThread::Block() {
  const sigset_t set = OurSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  IgnoreSigpipe();
  // Not SIGHUP: to ignore it would drop one that waits to be read.
  ::signal(SIGXFSZ, SIG_IGN);
}

Result<std::unique_ptr<SignalThread>> SignalThread::Start(std::function<void()> on_stop,
                                                          std::function<void()> on_report,
                                                          std::function<void()> on_reload) {
  const sigset_t set = OurSignals();
  Fd signals(::signalfd(-1, &set, SFD_CLOEXEC));
  if (!signals.valid()) return Status::FromErrno(errno, "signalfd");
  RDFS_ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  std::unique_ptr<SignalThread> thread(new SignalThread(std::move(signals), std::move(stop)));
  thread->on_stop_ = std::move(on_stop);
  thread->on_report_ = std::move(on_report);
  thread->on_reload_ = std::move(on_reload);
  thread->thread_ = std::thread([raw = thread.get()] { raw->Run(); });
  return thread;
}

SignalThread::~SignalThread() {
  stop_.Ring();
  thread_.join();
}

void SignalThread::Run() {
  std::array<pollfd, 2> fds = {pollfd{signals_.get(), POLLIN, 0}, pollfd{stop_.fd(), POLLIN, 0}};
  while (true) {
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (fds[0].revents == 0 || ::read(signals_.get(), &info, sizeof(info)) != sizeof(info)) {
      continue;
    }
    if (info.ssi_signo == SIGUSR1) {
      on_report_();
    } else if (info.ssi_signo == SIGHUP) {
      if (on_reload_) on_reload_();
    } else {
      on_stop_();
    }
  }
}

}  // namespace rdfs::server
