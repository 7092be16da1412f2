#include "transport/base/latency.h"

#include <algorithm>
#include <numeric>

namespace rdfs {

using std::chrono::nanoseconds;

std::uint64_t LatencyHistogram::count() const {
  return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
}

nanoseconds LatencyHistogram::Percentile(unsigned percent) const {
  // The wanted one, counted from 1 in the order of length.
  const std::uint64_t wanted = std::max<std::uint64_t>(1, (count() * percent + 99) / 100);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (before + buckets[i] < wanted) {
      before += buckets[i];
      continue;
    }
    const nanoseconds from = i == 0 ? nanoseconds(0) : nanoseconds(UpperEdge(i - 1));
    const nanoseconds edge = i + 1 == kBuckets ? longest : nanoseconds(UpperEdge(i));
    const nanoseconds to = std::max(from, std::min(edge, longest));
    const double part = static_cast<double>(wanted - before) / static_cast<double>(buckets[i]);
    return from +
           nanoseconds(static_cast<std::int64_t>(part * static_cast<double>((to - from).count())));
  }
  return nanoseconds(0);
}

void LatencyHistogram::Add(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets[i] += other.buckets[i];
  sum += other.sum;
  longest = std::max(longest, other.longest);
}

void LatencyRecorder::AddTo(LatencyHistogram& sum) const {
  LatencyHistogram one;
  for (std::size_t i = 0; i < buckets_.size(); ++i) one.buckets[i] = buckets_[i].value();
  one.sum = nanoseconds(sum_.value());
  one.longest = nanoseconds(longest_.value());
  sum.Add(one);
}

}  // namespace rdfs
