// AdaptiveSpin: how long a loop looks again and again for what is about to come, before it sleeps.
//
// A sleep and the wake-up out of it cost two changes of context, and across processors an interrupt
// as well: tens of microseconds, more than most answers take. Spinning saves them when what is
// waited for comes meanwhile, and wastes the processor otherwise: when nothing is to come, or when
// who should send it needs this very processor. Only trying tells the cases apart: a wait that
// ended while we spun lets the next ones be longer, one that did not halves them, and where
// spinning has not paid at all it is tried again once in a while.
//
//   GoOn true ... GoOn true, Came              it paid: as long as may be, next time
//   GoOn true ... GoOn false (sleep) ... Came  it did not: half as long, then not at all
//
// Decides only: no clock, no sleep. One thread.
#pragma once

#include <chrono>

#include "transport/base/clock.h"

namespace rdfs {

class AdaptiveSpin {
 public:
  // Shorter ones are not worth looking at the clock.
  static constexpr std::chrono::nanoseconds kShortest{2'000};
  // Of the waits that would not spin, one in so many tries it.
  static constexpr unsigned kTryEvery = 64;

  explicit AdaptiveSpin(std::chrono::nanoseconds longest) : longest_(longest), spin_(longest) {}

  // Nothing has come. True: look again; false: sleep, and until Came every call says so.
  [[nodiscard]] bool GoOn(TimePoint now) {
    if (phase_ == Phase::kIdle) {
      phase_ = Phase::kSpinning;
      until_ = now + NextSpin();
    }
    if (phase_ == Phase::kSpinning && now < until_) return true;
    if (phase_ == Phase::kSpinning) {
      phase_ = Phase::kSleeping;
      spin_ = spin_ / 2 < kShortest ? std::chrono::nanoseconds(0) : spin_ / 2;
    }
    return false;
  }
  // It has come: the wait is over, if there was one.
  void Came() {
    if (phase_ == Phase::kSpinning) spin_ = longest_;
    phase_ = Phase::kIdle;
  }

  // Whether the next wait begins with spinning, but for the tries once in a while.
  [[nodiscard]] bool pays() const { return spin_.count() > 0; }

 private:
  enum class Phase { kIdle, kSpinning, kSleeping };

  std::chrono::nanoseconds NextSpin() {
    if (spin_.count() > 0) return spin_;
    return ++skipped_ % kTryEvery == 0 ? longest_ : spin_;
  }

  const std::chrono::nanoseconds longest_;
  std::chrono::nanoseconds spin_;
  unsigned skipped_ = 0;
  Phase phase_ = Phase::kIdle;
  TimePoint until_{};
};

}  // namespace rdfs
