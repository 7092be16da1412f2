#include "tools/copy/report/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

namespace rdfs::copy {
namespace {

constexpr int kDrawEveryMs = 200;

}  // namespace

bool ShowsProgress(bool quiet, bool lists) {
  return !quiet && isatty(STDERR_FILENO) == 1 && !(lists && isatty(STDOUT_FILENO) == 1);
}

Watch::Watch(Fd interrupts, bool progress, Report& report, std::atomic<bool>& stop,
             const Counter::Count& count)
    : interrupts_(std::move(interrupts)),
      end_(eventfd(0, EFD_CLOEXEC)),
      progress_(progress),
      report_(report),
      stop_(stop),
      counter_(progress ? count : nullptr) {
  (void)pipe::StartThread(thread_, [this] { Run(); });
}

Watch::~Watch() {
  (void)eventfd_write(end_.get(), 1);
  if (thread_.joinable()) thread_.join();
  report_.Clear();
}

void Watch::Run() {
  for (;;) {
    std::array<pollfd, 2> fds{pollfd{interrupts_.get(), POLLIN, 0}, pollfd{end_.get(), POLLIN, 0}};
    const int ready = poll(fds.data(), fds.size(), progress_ ? kDrawEveryMs : -1);
    if (fds[1].revents != 0) return;
    if (ready > 0 && fds[0].revents != 0) {
      stop_ = true;
      return;
    }
    report_.Draw(counter_.totals().value_or(Totals{}), BootClock::now());
  }
}

}  // namespace rdfs::copy
