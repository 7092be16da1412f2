// Time as rdfs counts it: CLOCK_BOOTTIME, so that a lease runs out while a machine sleeps.
//
// What decides takes the time as an argument or a Clock as a constructor parameter; only main() and
// tests choose which. Any thread.
#pragma once

#include <atomic>
#include <chrono>

namespace rdfs {

// Satisfies the standard's Clock requirements on CLOCK_BOOTTIME (clock_gettime(2)); never goes
// back.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};

using TimePoint = BootClock::time_point;
// A Deadline is the last moment at which a call may still be waiting.
using Deadline = TimePoint;

inline Deadline DeadlineAfter(std::chrono::nanoseconds span) { return BootClock::now() + span; }

// Milliseconds until `deadline` for poll(2): rounded up, never negative, at most one hour.
int PollTimeoutMs(Deadline deadline, TimePoint now);
int PollTimeoutMs(std::chrono::nanoseconds left);

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const override { return BootClock::now(); }
};

// Virtual time for tests: moves only when told to.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const override { return TimePoint(now_.load()); }
  void Advance(std::chrono::nanoseconds span) { now_.store(now_.load() + span); }

 private:
  std::atomic<std::chrono::nanoseconds> now_{std::chrono::hours(1)};
};

}  // namespace rdfs
