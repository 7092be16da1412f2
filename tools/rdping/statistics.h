// Latencies and what is told of them. Pure; a value.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace rdfs::rdping {

struct LatencySummary {
  std::uint64_t count = 0;
  double per_second = 0;  // one after the other
  double average_us = 0, p50_us = 0, p99_us = 0, p999_us = 0;
};

class Latencies {
 public:
  void Add(std::chrono::nanoseconds latency) { samples_.push_back(latency.count()); }
  // `elapsed`: from the first to the last, by another clock reading than the samples.
  [[nodiscard]] LatencySummary Summarise(std::chrono::nanoseconds elapsed) const;

 private:
  std::vector<std::int64_t> samples_;
};

// The sample below which `fraction` of the sorted samples lie (nearest rank); 0 without samples.
std::int64_t Percentile(const std::vector<std::int64_t>& sorted, double fraction);

}  // namespace rdfs::rdping
