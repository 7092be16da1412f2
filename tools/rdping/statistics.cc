#include "tools/rdping/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rdfs::rdping {

std::int64_t Percentile(const std::vector<std::int64_t>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(fraction * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

LatencySummary Latencies::Summarise(std::chrono::nanoseconds elapsed) const {
  LatencySummary summary;
  if (samples_.empty()) return summary;
  std::vector<std::int64_t> sorted = samples_;
  std::ranges::sort(sorted);
  const auto count = static_cast<double>(sorted.size());
  summary.count = sorted.size();
  summary.average_us =
      static_cast<double>(std::accumulate(sorted.begin(), sorted.end(), std::int64_t{0})) / count /
      1e3;
  summary.p50_us = static_cast<double>(Percentile(sorted, 0.5)) / 1e3;
  summary.p99_us = static_cast<double>(Percentile(sorted, 0.99)) / 1e3;
  summary.p999_us = static_cast<double>(Percentile(sorted, 0.999)) / 1e3;
  const double seconds = std::chrono::duration<double>(elapsed).count();
  summary.per_second = seconds > 0 ? count / seconds : 0;
  return summary;
}

}  // namespace rdfs::rdping
