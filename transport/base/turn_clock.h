// TurnClock: BootClock, which is read once for all that an event loop does with what it has taken.
//
// Reading it is some 25 ns where the kernel lets processes read the processor's counter, and a
// system call where it does not; serving one request asks for the time in half a dozen places.
// Within a Turn all of them get the time at which it began: after what is served was sent. So a
// lease that is granted in it ends no earlier here than where it was asked for, and whatever has
// run out since is taken to last: both on the safe side.
//
// Any thread; a Turn is its thread's.
#pragma once

#include "transport/base/clock.h"

namespace rdfs {

class TurnClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const override {
    return began_ == TimePoint{} ? BootClock::now() : began_;
  }

  // Not one inside another.
  class Turn {
   public:
    Turn() { began_ = BootClock::now(); }
    ~Turn() { began_ = {}; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
  };

 private:
  static inline thread_local TimePoint began_{};
};

}  // namespace rdfs
