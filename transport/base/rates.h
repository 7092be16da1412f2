// Rates: how fast a program's totals grow, for who asks now and then what it is doing.
//
// Over the time since somebody asked before, if that is kLeast ago or longer, and since the start
// for who asks first: so nothing is measured, and nothing runs, while nobody asks.
//
// Any thread; one short lock. No clock, no I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "transport/base/clock.h"

namespace rdfs {

class Rates {
 public:
  struct Totals {
    std::uint64_t read_bytes = 0, written_bytes = 0, requests = 0;
  };
  struct Speeds {
    double read_bytes_per_second = 0, written_bytes_per_second = 0, requests_per_second = 0;
    double over_seconds = 0;  // the time that they are of
  };
  static constexpr std::chrono::seconds kLeast{2};

  explicit Rates(TimePoint start) : before_{start, {}}, latest_{start, {}} {}

  Speeds Look(TimePoint now, const Totals& totals);

 private:
  struct Seen {
    TimePoint at;
    Totals totals;
  };
  std::mutex mutex_;
  Seen before_, latest_;  // the latest at least kLeast behind the one before
};

// For a person: "read 1.2 MB/s, written 0 B/s, 35 requests/s, over the last 4 s".
std::string ToString(const Rates::Speeds& speeds);

}  // namespace rdfs
