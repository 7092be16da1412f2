// Watch: what a run does besides copying: it takes signals, and draws progress.
//
// Owns a thread, and one more that counts where there is something to count.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "tools/copy/report.h"
#include "transport/base/fd.h"

namespace rdfs::copy {

// Whether there is a line to draw: standard error is a terminal, and names are not listed on the
// same.
bool ShowsProgress(bool quiet, bool lists);

class Watch {
 public:
  // Adds what there is to do, until that is all or `stop` is set.
  using Count =
      std::function<void(std::atomic<std::uint64_t>& files, std::atomic<std::uint64_t>& bytes,
                         const std::atomic<bool>& stop)>;
  // `interrupts`: see pipe::TakeInterrupts; `stop` is set when one comes. `count` may be null.
  Watch(Fd interrupts, bool progress, Report& report, std::atomic<bool>& stop, const Count& count);
  // Removes the line.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  void Run();

  const Fd interrupts_, end_;
  const bool progress_;
  Report& report_;
  std::atomic<bool>& stop_;
  std::atomic<bool> done_{false}, counted_{false};
  std::atomic<std::uint64_t> files_{0}, bytes_{0};
  std::thread thread_, counter_;
};

}  // namespace rdfs::copy
