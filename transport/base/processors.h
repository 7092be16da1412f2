// How many processors this process may run on, whether they are enough for a program, a client and
// a server to run at the same time, and how a thread that spins lets another one run.
#pragma once

#include <sched.h>

#include <algorithm>

#include "transport/base/adaptive_spin.h"
#include "transport/base/clock.h"

namespace rdfs {

// Those of its affinity mask, which may be fewer than the machine has; at least 1.
inline int Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Whether a program, a client and a server can each have a processor, when all are on one machine.
// Where not, who spins gives way (adaptive_spin.h).
inline bool RoomForAChain() { return Processors() >= 3; }

// After a GoOn at `asked` that said true: lets whoever waits for this processor run. Returns when
// we are running again.
inline TimePoint GiveWay(AdaptiveSpin& spin, TimePoint asked) {
  ::sched_yield();
  const TimePoint now = BootClock::now();
  spin.GaveWay(now - asked);
  return now;
}

}  // namespace rdfs
