#include "tools/rdping/laps.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace rdfs::rdping {
namespace {

std::uint64_t ClockTicks() {
  return static_cast<std::uint64_t>(BootClock::now().time_since_epoch().count());
}

#if defined(__x86_64__)
// CPUID 80000007H, EDX bit 8: the time-stamp counter runs at one rate in every power state (AMD64
// APM volume 3, E.4.7; Intel SDM volume 3, 18.17.1).
bool CounterIsConstant() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8U)) != 0;
}

std::uint64_t Ticks() {
  static const bool constant = CounterIsConstant();
  return constant ? __rdtsc() : ClockTicks();
}
#elif defined(__aarch64__)
std::uint64_t Ticks() {
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}
#else
std::uint64_t Ticks() { return ClockTicks(); }
#endif

}  // namespace

Laps::Laps(std::chrono::nanoseconds duration)
    : start_(BootClock::now()),
      duration_(duration),
      last_reading_(start_),
      lap_start_(Ticks()),
      first_tick_(lap_start_),
      last_tick_(lap_start_) {}

bool Laps::More() {
  const std::uint64_t now = Ticks();
  ticks_.Add(now - lap_start_);
  lap_start_ = now;
  if (--until_reading_ > 0) return true;
  until_reading_ = kLapsBetweenReadings;
  last_reading_ = BootClock::now();
  // The reading itself is nobody's lap.
  lap_start_ = last_tick_ = Ticks();
  return last_reading_ - start_ < duration_;
}

LatencySummary Laps::Summarise() const {
  const std::chrono::nanoseconds elapsed = last_reading_ - start_;
  const std::uint64_t ticks = last_tick_ - first_tick_;
  const double ns_a_tick =
      ticks == 0 ? 1 : static_cast<double>(elapsed.count()) / static_cast<double>(ticks);
  return ticks_.Summarise(ns_a_tick);
}

}  // namespace rdfs::rdping
