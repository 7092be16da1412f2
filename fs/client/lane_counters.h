// LaneCounters: what one lane counts; the mount adds them up. Written by the lane's thread, read by
// any.
#pragma once

#include <array>
#include <cstdint>

#include "fs/client/client.h"
#include "transport/base/count.h"
#include "transport/base/latency.h"

namespace rdfs::fs::client {

struct LaneCounters {
  std::array<Count, std::tuple_size_v<decltype(Counters::round_trips)>> round_trips;
  Count read_bytes, written_bytes, inline_read_bytes, inline_written_bytes;
  Count grant_hits, grant_misses, grants_discarded;
  Count retries, connections_lost, reconnects, timeouts;
  // Written when a call ends, with readings of the clock that its deadline and Poll need anyway. An
  // answer that Poll finds behind others counts as if it had been the first: what their callbacks
  // take is not in it.
  std::array<LatencyRecorder, std::tuple_size_v<decltype(Counters::took)>> took;

  void AddTo(Counters& sum) const {
    for (std::size_t i = 0; i < round_trips.size(); ++i) {
      sum.round_trips[i] += round_trips[i].value();
    }
    sum.read_bytes += read_bytes.value();
    sum.written_bytes += written_bytes.value();
    sum.inline_read_bytes += inline_read_bytes.value();
    sum.inline_written_bytes += inline_written_bytes.value();
    sum.grant_hits += grant_hits.value();
    sum.grant_misses += grant_misses.value();
    sum.grants_discarded += grants_discarded.value();
    sum.retries += retries.value();
    sum.connections_lost += connections_lost.value();
    sum.reconnects += reconnects.value();
    sum.timeouts += timeouts.value();
    for (std::size_t i = 0; i < took.size(); ++i) took[i].AddTo(sum.took[i]);
  }
};

}  // namespace rdfs::fs::client
