// Laps: times operations one after the other, by the processor's own counter.
//
// Reading the clock may cost a system call (it does in a virtual machine without a usable vDSO), a
// good part of a round trip. The counter costs some 20 cycles; how fast it runs is learnt from the
// clock readings around all of the laps, so nothing has to be known about it. Where there is no
// counter of constant rate, the clock is read. A value; one thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "tools/rdping/statistics.h"
#include "transport/base/clock.h"

namespace rdfs::rdping {

class Laps {
 public:
  explicit Laps(std::chrono::nanoseconds duration);

  // Ends a lap. False when `duration` is over, give or take a few laps.
  bool More();
  [[nodiscard]] LatencySummary Summarise() const;

 private:
  static constexpr std::uint32_t kLapsBetweenReadings = 16;

  Latencies ticks_;  // first: that it is made is no lap's
  const TimePoint start_;
  const std::chrono::nanoseconds duration_;
  TimePoint last_reading_;
  std::uint32_t until_reading_ = kLapsBetweenReadings;
  std::uint64_t lap_start_;
  std::uint64_t first_tick_;
  std::uint64_t last_tick_;
};

}  // namespace rdfs::rdping
