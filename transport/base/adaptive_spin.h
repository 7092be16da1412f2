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
// Where there are fewer processors than threads in a chain of requests, who spins gives way after
// each look (sched_yield) and says how long that took: whoever is to send what is waited for gets
// the processor without being woken up, and without a wake-up for us. A third program that computes
// gets it as well, though, and keeps it for its whole slice, milliseconds, where a sleeper would
// have been woken up in front of it. Such a loss ends spinning at once, and makes the tries rarer.
//
// Decides only: no clock, no sleep. One thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "transport/base/clock.h"

namespace rdfs {

class AdaptiveSpin {
 public:
  // Shorter ones are not worth looking at the clock.
  static constexpr std::chrono::nanoseconds kShortest{2'000};
  // Of the waits that would not spin, one in so many tries it.
  static constexpr unsigned kTryEvery = 64;
  // The same where giving way has lost the processor again and again: a loss of 3 ms in some 400.
  static constexpr unsigned kRarestTry = 8192;
  // Of waits that spinning has ended, as many make the tries twice as frequent again.
  static constexpr unsigned kPaidForTrust = 64;
  // Nobody in a chain of requests keeps a processor for that long; who computes does.
  static constexpr std::chrono::nanoseconds kLostProcessor{500'000};

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
  // Before the first GoOn of a wait: whether it would say false at once. Then it has, and whoever
  // asks needs no clock.
  [[nodiscard]] bool Skips() {
    const bool tries = pays() || (skipped_ + 1) % try_every_ == 0;
    if (phase_ != Phase::kIdle || tries) return phase_ == Phase::kSleeping;
    ++skipped_;
    phase_ = Phase::kSleeping;
    return true;
  }
  // After GoOn said true others were let run, and we were running again after so long.
  void GaveWay(std::chrono::nanoseconds away) {
    if (phase_ != Phase::kSpinning || away < kLostProcessor) return;
    phase_ = Phase::kSleeping;
    spin_ = std::chrono::nanoseconds(0);
    try_every_ = std::min(try_every_ * 2, kRarestTry);
    paid_ = 0;
  }
  // It has come: the wait is over, if there was one.
  void Came() {
    if (phase_ == Phase::kSpinning) Paid();
    phase_ = Phase::kIdle;
  }

  // Whether the next wait begins with spinning, but for the tries once in a while.
  [[nodiscard]] bool pays() const { return spin_.count() > 0; }

 private:
  enum class Phase { kIdle, kSpinning, kSleeping };

  std::chrono::nanoseconds NextSpin() {
    if (spin_.count() > 0) return spin_;
    return ++skipped_ % try_every_ == 0 ? longest_ : spin_;
  }
  void Paid() {
    spin_ = longest_;
    if (try_every_ == kTryEvery || ++paid_ % kPaidForTrust != 0) return;
    try_every_ = std::max(try_every_ / 2, kTryEvery);
  }

  const std::chrono::nanoseconds longest_;
  std::chrono::nanoseconds spin_;
  unsigned skipped_ = 0;
  unsigned try_every_ = kTryEvery;
  unsigned paid_ = 0;  // since a processor was lost
  Phase phase_ = Phase::kIdle;
  TimePoint until_{};
};

}  // namespace rdfs
