#include "tools/pipe/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace rdfs::pipe {
namespace {

constexpr std::size_t kBarWidth = 24;
// How far a new measurement moves the rate that is shown.
constexpr double kNewWeight = 0.3;

std::string Scaled(double value, double base, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  while (value >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", value, units[0])
                   : fmt::format("{:.2f} {}", value, units[unit]);
}

double Seconds(std::chrono::nanoseconds span) {
  return std::max(std::chrono::duration<double>(span).count(), 1e-9);
}

}  // namespace

std::string HumanBytes(double bytes) {
  return Scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}

std::string HumanRate(double bytes_per_second) {
  return Scaled(bytes_per_second, 1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}

void Progress::Update(std::uint64_t bytes, TimePoint now) {
  if (!shown_ || now - drawn_ < kEvery) return;
  const double latest = static_cast<double>(bytes - rate_bytes_) / Seconds(now - rate_at_);
  rate_ = rate_bytes_ == 0 ? latest : rate_ + kNewWeight * (latest - rate_);
  rate_bytes_ = bytes;
  rate_at_ = drawn_ = now;
  on_screen_ = true;
  fmt::print(stderr, "\r{}\x1b[K", Line(bytes, rate_));
  std::fflush(stderr);
}

void Progress::Clear() {
  if (on_screen_) fmt::print(stderr, "\r\x1b[K");
  on_screen_ = false;
}

std::string Progress::Line(std::uint64_t bytes, double rate) const {
  const std::uint64_t done = already_ + bytes;
  const std::string moved = HumanBytes(static_cast<double>(done));
  if (!size_ || *size_ == 0) return fmt::format("{}: {}  {}", name_, moved, HumanRate(rate));
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(*size_));
  const auto full = static_cast<std::size_t>(part * static_cast<double>(kBarWidth));
  const double left = static_cast<double>(*size_ - std::min(done, *size_));
  const std::string eta = rate > 0 ? fmt::format("{:.0f} s left", left / rate) : "";
  return fmt::format("{}: [{}{}] {:3.0f} %  {} of {}  {}  {}", name_, std::string(full, '#'),
                     std::string(kBarWidth - full, '.'), part * 100, moved,
                     HumanBytes(static_cast<double>(*size_)), HumanRate(rate), eta);
}

std::string Progress::Summary(std::uint64_t bytes, TimePoint now) const {
  const double seconds = Seconds(now - start_);
  return fmt::format("{} in {:.2f} s ({})", HumanBytes(static_cast<double>(bytes)), seconds,
                     HumanRate(static_cast<double>(bytes) / seconds));
}

}  // namespace rdfs::pipe
