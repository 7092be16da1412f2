// AnswerTimes: how long a loop takes for its answers, by opcode: from when a request has been
// recognised to when its answer is handed to the wire, with what it waited for in between (a disk,
// other clients' leases, a lock).
//
// An answer is noted when its lane gets it, and timed right before lanes are flushed, with one
// reading of the clock for all that go out together: so it costs a store, and LatencyRecorder's
// Record. Behind the flush, which wakes the client up, it may be the client who runs, and not we.
// That a request has come is stamped with the reading that keeps its session alive.
//
// A loop's, on its thread; only AddTo is for any.
#pragma once

#include <array>
#include <vector>

#include "fs/protocol.h"
#include "server/process/counters.h"
#include "transport/base/clock.h"
#include "transport/base/latency.h"

namespace rdfs::server {

class AnswerTimes {
 public:
  using Sums = std::array<LatencyHistogram, Counters::kOpcodes>;

  AnswerTimes() { sent_.reserve(kUsual); }
  void Note(fs::Opcode opcode, TimePoint taken) { sent_.push_back({opcode, taken}); }
  // All that were noted go out now.
  void GoOut(TimePoint now) {
    for (const Sent& one : sent_) times_[Counters::IndexOf(one.opcode)].Record(now - one.taken);
    sent_.clear();
  }
  void AddTo(Sums& sums) const {
    for (std::size_t i = 0; i < times_.size(); ++i) times_[i].AddTo(sums[i]);
  }

 private:
  static constexpr std::size_t kUsual = 256;  // between two flushes
  struct Sent {
    fs::Opcode opcode;
    TimePoint taken;
  };

  std::vector<Sent> sent_;
  std::array<LatencyRecorder, Counters::kOpcodes> times_;
};

}  // namespace rdfs::server
