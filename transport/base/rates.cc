#include "transport/base/rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/scaled.h"
#include "transport/base/snapshot.h"

namespace rdfs {

Rates::Speeds Rates::Look(TimePoint now, const Totals& totals) {
  constexpr std::chrono::milliseconds kShortest{1};  // as the first to ask may be at once
  const std::lock_guard lock(mutex_);
  if (now - latest_.at >= kLeast) {
    before_ = latest_;
    latest_ = {now, totals};
  }
  const double seconds =
      std::chrono::duration<double>(std::max<std::chrono::nanoseconds>(now - before_.at, kShortest))
          .count();
  const auto rate = [&](std::uint64_t Totals::*total) {
    return static_cast<double>(totals.*total - before_.totals.*total) / seconds;
  };
  return {.read_bytes_per_second = rate(&Totals::read_bytes),
          .written_bytes_per_second = rate(&Totals::written_bytes),
          .requests_per_second = rate(&Totals::requests),
          .over_seconds = seconds};
}

std::string ToString(const Rates::Speeds& speeds) {
  const double seconds = speeds.over_seconds;
  return fmt::format(
      "read {}, written {}, {} requests/s, over the last {} s",
      ShortAmount(ScaleByteRate(speeds.read_bytes_per_second)),
      ShortAmount(ScaleByteRate(speeds.written_bytes_per_second)),
      ShortRate(speeds.requests_per_second),
      seconds < 9.95 ? fmt::format("{:.2g}", seconds) : fmt::format("{:.0f}", seconds));
}

}  // namespace rdfs
