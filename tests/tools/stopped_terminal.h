// A terminal that takes nothing, as behind ^S, in place of standard error.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "transport/base/fd.h"

namespace rdfs {

class StoppedTerminal {
 public:
  StoppedTerminal()
      : before_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)),
        theirs_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(grantpt(theirs_.get()), 0);
    EXPECT_EQ(unlockpt(theirs_.get()), 0);
    ours_.Reset(open(ptsname(theirs_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));  // NOLINT: one thread
    EXPECT_TRUE(ours_.valid());
    EXPECT_EQ(tcflow(ours_.get(), TCOOFF), 0);
    EXPECT_GE(dup2(ours_.get(), STDERR_FILENO), 0);
  }
  StoppedTerminal(const StoppedTerminal&) = delete;
  StoppedTerminal& operator=(const StoppedTerminal&) = delete;
  ~StoppedTerminal() {
    GoOn();
    (void)dup2(before_.get(), STDERR_FILENO);
  }

  void GoOn() { (void)tcflow(ours_.get(), TCOON); }

  // Whether that ends although the terminal is stopped. If not, `release` lets it end.
  static bool Ends(const std::function<void()>& what, const std::function<void()>& release) {
    constexpr std::chrono::seconds kLong{10};
    std::packaged_task<void()> task(what);
    std::future<void> done = task.get_future();
    std::thread thread(std::move(task));
    const bool ended = done.wait_for(kLong) == std::future_status::ready;
    if (!ended) release();
    thread.join();
    return ended;
  }

 private:
  const Fd before_, theirs_;
  Fd ours_;
};

}  // namespace rdfs
