#include "tools/copy/file/pace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>
#include <thread>

namespace rdfs::copy {
namespace {

using std::chrono_literals::operator""ms;

// How soon a stop is seen.
constexpr auto kLook = 50ms;
constexpr std::uint64_t kMost = std::uint64_t{1} << 50;

}  // namespace

TimePoint Pace::Take(std::uint64_t bytes, TimePoint now) {
  if (!limited()) return now;
  const std::lock_guard lock(mutex_);
  const TimePoint at = std::max(next_, now);
  const double seconds = static_cast<double>(bytes) / static_cast<double>(rate_);
  next_ =
      at + std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds));
  return at;
}

void Pace::Await(std::uint64_t bytes, const std::atomic<bool>& stop) {
  if (!limited()) return;
  const TimePoint at = Take(bytes, BootClock::now());
  for (TimePoint now = BootClock::now(); now < at && !stop; now = BootClock::now()) {
    std::this_thread::sleep_for(std::min<TimePoint::duration>(at - now, kLook));
  }
}

Result<std::uint64_t> Pace::Parse(std::string_view text) {
  std::uint64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  constexpr std::string_view kUnits = "KMG";
  std::size_t unit = kUnits.npos;
  if (error == std::errc() && last - end == 1) unit = kUnits.find(*end);
  const std::uint64_t scale = unit == kUnits.npos ? 0 : std::uint64_t{1} << (10 * (unit + 1));
  if (scale == 0 || value == 0 || value > kMost / scale) {
    return Status(Code::kInvalidArgument, "'" + std::string(text) +
                                              "' is no rate: write --bwlimit 500K, 20M or 1G, "
                                              "which are bytes a second");
  }
  return value * scale;
}

}  // namespace rdfs::copy
