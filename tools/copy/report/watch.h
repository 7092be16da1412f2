// Watch: what a run does besides copying: it takes signals, and draws progress.
//
// Owns a thread, and a Counter's.
#pragma once

#include <atomic>
#include <thread>

#include "tools/copy/report/counter.h"
#include "tools/copy/report/report.h"
#include "tools/pipe/io/stopping.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// Whether there is a line to draw: standard error is a terminal, and names are not listed on the
// same.
bool ShowsProgress(bool quiet, bool lists);

class Watch {
 public:
  // `interrupts`: see pipe::TakeInterrupts; `stop` is set when one comes. `count` may be null.
  Watch(Fd interrupts, bool progress, Report& report, std::atomic<bool>& stop,
        const Counter::Count& count);
  // Removes the line.
  ~Watch();
  // Errors: kResourceExhausted: it has no thread, and sees nothing.
  [[nodiscard]] Status status() const { return thread_.joinable() ? Status() : pipe::NoThread(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void Run();

  const Fd interrupts_, end_;
  const bool progress_;
  Report& report_;
  std::atomic<bool>& stop_;
  const Counter counter_;
  std::thread thread_;
};

}  // namespace rdfs::copy
