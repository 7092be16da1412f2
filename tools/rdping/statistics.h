// Latencies and what is told of them. Pure; a value.
//
// What took up to 255 units is counted exactly, and longer ones in ranges of which each is less
// than 1 % wide (128 for every power of two): a minute of many million laps a second takes no more
// memory than one lap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rdfs::rdping {

struct LatencySummary {
  std::uint64_t count = 0;
  double per_second = 0;  // one after the other
  double average_us = 0, p50_us = 0, p99_us = 0, p999_us = 0;
};

class Latencies {
 public:
  // In units of the caller's choice, such as ticks of a counter.
  void Add(std::uint64_t latency);
  // The latency that `fraction` of all do not exceed (nearest rank), to less than 1 %, and never
  // outside of what was added; 0 where nothing was.
  [[nodiscard]] std::uint64_t Percentile(double fraction) const;
  // Count, sum and with them the average are exact.
  [[nodiscard]] LatencySummary Summarise(double ns_a_unit) const;

 private:
  static constexpr unsigned kPartBits = 7;
  static constexpr std::size_t kParts = std::size_t{1} << kPartBits;  // of a power of two
  // Twice the parts that count one unit each, and the parts of every power of two above them.
  static constexpr std::size_t kRanges = kParts * (64 - kPartBits + 1);
  static std::size_t RangeOf(std::uint64_t latency);
  static std::uint64_t MiddleOf(std::size_t range);

  std::array<std::uint64_t, kRanges> ranges_{};
  std::uint64_t count_ = 0, sum_ = 0;
  std::uint64_t shortest_ = UINT64_MAX, longest_ = 0;
};

}  // namespace rdfs::rdping
