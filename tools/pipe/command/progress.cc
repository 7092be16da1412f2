#include "tools/pipe/command/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "transport/base/say.h"
#include "transport/base/scaled.h"

namespace rdfs::pipe {
namespace {

constexpr std::size_t kBarWidth = 24;
// How far a new measurement moves the rate that is shown.
constexpr double kNewWeight = 0.3;

std::string WithUnit(const Scaled& amount) {
  return fmt::format("{:.{}f} {}", amount.value, amount.whole ? 0 : 2, amount.unit);
}

double Seconds(std::chrono::nanoseconds span) {
  return std::max(std::chrono::duration<double>(span).count(), 1e-9);
}

}  // namespace

std::string HumanBytes(double bytes) { return WithUnit(ScaleBytes(bytes)); }

std::string HumanRate(double bytes_per_second) { return WithUnit(ScaleByteRate(bytes_per_second)); }

void Progress::Update(std::uint64_t bytes, TimePoint now) {
  if (!shown_ || now - drawn_ < kEvery) return;
  if (bytes < rate_bytes_) rate_bytes_ = 0;  // to another receiver, anew
  const double latest = static_cast<double>(bytes - rate_bytes_) / Seconds(now - rate_at_);
  rate_ = rate_bytes_ == 0 ? latest : rate_ + kNewWeight * (latest - rate_);
  rate_bytes_ = bytes;
  rate_at_ = drawn_ = now;
  if (!MaySay()) return;
  on_screen_ = true;
  Say("\r{}\x1b[K", Line(bytes, rate_));
  std::fflush(stderr);
}

void Progress::Clear() {
  if (on_screen_ && MaySay()) Say("\r\x1b[K");
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
