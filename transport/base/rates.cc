#include "transport/base/rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/scaled.h"
#include "transport/base/snapshot.h"

namespace rdfs {

std::string Rates::Look(TimePoint now, const Totals& totals) {
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
  return fmt::format("read {}, written {}, {} requests/s, over the last {:.0f} s",
                     ShortAmount(ScaleByteRate(rate(&Totals::read_bytes))),
                     ShortAmount(ScaleByteRate(rate(&Totals::written_bytes))),
                     ShortRate(rate(&Totals::requests)), std::max(1.0, seconds));
}

}  // namespace rdfs
