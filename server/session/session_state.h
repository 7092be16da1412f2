// SessionState: when a file-system session is alive, waits to be resumed, and is over.
//
//              first lane                 lane goes, others stay
//   kGranted ------------> kAttached <-----------------------+
//      |                    |     ^  \_______________________|
//      |          last lane |     | a lane
//      | lease              v     | (resumed: opens and locks are still there)
//      +-----------------> kDetached
//      v       lease out        | lease out                  kAttached: lease out means a client
//    kOver <--------------------+------------------------    that neither asks nor renews is gone
//
// Pure: events and the time go in. The owner (SessionTable) holds a lock. Times are CLOCK_BOOTTIME.
#pragma once

#include <chrono>
#include <cstdint>

#include "transport/base/clock.h"

namespace rdfs::server {

class SessionState {
 public:
  enum class Phase : std::uint8_t { kGranted, kAttached, kDetached, kOver };

  SessionState(TimePoint now, std::chrono::nanoseconds lease) : lease_(lease), seen_(now) {}

  // The client was heard of: a request, a lane, a resumption. Nothing wakes a session that is over.
  void Seen(TimePoint now) {
    if (phase_ == Phase::kOver || now <= seen_) return;
    seen_ = now;
    respited_ = false;
  }
  // We may have been away ourselves: it has half a lease at least, once until it is heard of.
  void Respite(TimePoint now) {
    if (respited_ || now - lease_ / 2 <= seen_) return;
    Seen(now - lease_ / 2);
    respited_ = true;
  }
  // False when the session is over: the lane must go.
  bool LaneOpened(TimePoint now);
  void LaneClosed(TimePoint now);
  // Ends it now (unmount, server shutdown).
  void End() { phase_ = Phase::kOver; }

  // When Expire is next due; meaningless once over.
  [[nodiscard]] TimePoint deadline() const { return seen_ + lease_; }
  // True once, when the lease has run out: the owner then drops opens, locks and lanes.
  bool Expire(TimePoint now);

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool over() const { return phase_ == Phase::kOver; }
  [[nodiscard]] std::uint32_t lanes() const { return lanes_; }

 private:
  const std::chrono::nanoseconds lease_;
  TimePoint seen_;
  bool respited_ = false;
  std::uint32_t lanes_ = 0;
  Phase phase_ = Phase::kGranted;
};

}  // namespace rdfs::server
