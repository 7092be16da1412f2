#include "tools/rdping/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rdfs::rdping {

std::size_t Latencies::RangeOf(std::uint64_t latency) {
  if (latency < 2 * kParts) return latency;
  // The leading one and the bits behind it that tell the parts: from kParts to twice that.
  const auto shift = static_cast<std::size_t>(std::bit_width(latency)) - kPartBits - 1;
  return shift * kParts + (latency >> shift);
}

std::uint64_t Latencies::MiddleOf(std::size_t range) {
  if (range < 2 * kParts) return range;
  const std::size_t shift = range / kParts - 1;
  const std::uint64_t begin = std::uint64_t{range - shift * kParts} << shift;
  return begin + (std::uint64_t{1} << shift) / 2;
}

void Latencies::Add(std::uint64_t latency) {
  ++ranges_[RangeOf(latency)];
  ++count_;
  sum_ += latency;
  shortest_ = std::min(shortest_, latency);
  longest_ = std::max(longest_, latency);
}

std::uint64_t Latencies::Percentile(double fraction) const {
  if (count_ == 0) return 0;
  const double rank = std::max(std::ceil(fraction * static_cast<double>(count_)), 1.0);
  std::uint64_t so_far = 0;
  for (std::size_t range = 0; range < kRanges; ++range) {
    so_far += ranges_[range];
    if (static_cast<double>(so_far) >= rank) {
      return std::clamp(MiddleOf(range), shortest_, longest_);
    }
  }
  return longest_;
}

LatencySummary Latencies::Summarise(double ns_a_unit) const {
  LatencySummary summary;
  if (count_ == 0) return summary;
  const double us_a_unit = ns_a_unit / 1e3;
  const auto count = static_cast<double>(count_);
  const double sum_us = static_cast<double>(sum_) * us_a_unit;
  summary.count = count_;
  summary.average_us = sum_us / count;
  summary.p50_us = static_cast<double>(Percentile(0.5)) * us_a_unit;
  summary.p99_us = static_cast<double>(Percentile(0.99)) * us_a_unit;
  summary.p999_us = static_cast<double>(Percentile(0.999)) * us_a_unit;
  summary.per_second = sum_us > 0 ? count / sum_us * 1e6 : 0;
  return summary;
}

}  // namespace rdfs::rdping
