// How long things take: a count for each power of two of microseconds.
//
// LatencyHistogram is a value, to be added up and looked at. LatencyRecorder is written by one
// thread, and read by any at any time. What Record costs: a division by a constant, a bit scan and
// three counts (count.h) in memory that only its thread writes. It takes no lock and reads no
// clock: who records says how long it took.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/base/count.h"

namespace rdfs {

struct LatencyHistogram {
  // The first has what took up to 1 us, the last what took longer than 2^25 us (34 s), which is
  // more than the default deadline; each one between reaches twice as far as the one before.
  static constexpr std::size_t kBuckets = 27;

  std::array<std::uint64_t, kBuckets> buckets{};
  std::chrono::nanoseconds sum{};
  std::chrono::nanoseconds longest{};

  static constexpr std::size_t BucketOf(std::chrono::nanoseconds took) {
    if (took.count() <= 0) return 0;
    const auto microseconds = static_cast<std::uint64_t>(took.count() - 1) / 1000;
    return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(microseconds)),
                                 kBuckets - 1);
  }
  // The longest time that the bucket counts; the last one has none.
  static constexpr std::chrono::microseconds UpperEdge(std::size_t bucket) {
    return std::chrono::microseconds(std::int64_t{1} << bucket);
  }

  [[nodiscard]] std::uint64_t count() const;
  // As long as `percent` of all took, or less: exact to a bucket, and as if what is in it were
  // spread evenly. Zero where nothing was counted.
  [[nodiscard]] std::chrono::nanoseconds Percentile(unsigned percent) const;
  void Add(const LatencyHistogram& other);
};

class LatencyRecorder {
 public:
  // Less than nothing, from readings of a clock in the wrong order, counts as nothing.
  void Record(std::chrono::nanoseconds took) {
    buckets_[LatencyHistogram::BucketOf(took)].Add();
    const auto nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
    sum_.Add(nanoseconds);
    longest_.Raise(nanoseconds);
  }
  // A little more may have been recorded in one part of it than in another.
  void AddTo(LatencyHistogram& sum) const;

 private:
  std::array<Count, LatencyHistogram::kBuckets> buckets_;
  Count sum_, longest_;
};

}  // namespace rdfs
