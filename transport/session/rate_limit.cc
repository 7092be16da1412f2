#include "transport/session/rate_limit.h"

#include <algorithm>
#include <tuple>

namespace rdfs::transport::session {
namespace {

double Seconds(std::chrono::nanoseconds span) {
  return std::chrono::duration<double>(span).count();
}

}  // namespace

std::optional<std::size_t> ChooseVictim(std::span<const HalfOpen> open, const PeerAddress& newcomer,
                                        const HalfOpenLimits& limits) {
  const auto from_there = [&](const HalfOpen& entry) { return entry.address == newcomer; };
  const auto silent_there = [&](const HalfOpen& entry) {
    return from_there(entry) && entry.progress <= 0;
  };
  const auto count = [&](const auto& which) {
    return static_cast<std::size_t>(std::ranges::count_if(open, which));
  };
  const bool address_full = count(silent_there) >= limits.per_address ||
                            count(from_there) >= limits.answering_per_address;
  if (!address_full && open.size() < limits.total) return std::nullopt;
  std::optional<std::size_t> victim;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (address_full && !from_there(open[i])) continue;
    if (!victim || std::tie(open[i].progress, open[i].since) <
                       std::tie(open[*victim].progress, open[*victim].since)) {
      victim = i;
    }
  }
  return victim;
}

WrongKeyLimit::Duration WrongKeyLimit::OnWrongKey(const PeerAddress& address, TimePoint now) {
  if (!failures_.contains(address) && failures_.size() >= kMaxAddresses) ForgetOldest();
  Failures& entry = failures_[address];
  if (entry.count > 0) entry.count = std::max(0.0, entry.count - Seconds(now - entry.last));
  entry.count += 1;
  entry.last = now;
  Duration hold{0};
  for (double over = entry.count - free_; over > 0 && hold < kLongestHold; over -= 1) {
    hold = hold == Duration{0} ? kFirstHold : hold * 2;
  }
  // No use in remembering more than what leads to the longest hold.
  entry.count = std::min(entry.count, free_ + kToLongest);
  return std::min(hold, kLongestHold);
}

void WrongKeyLimit::ForgetOldest() {
  const auto oldest =
      std::ranges::min_element(failures_, {}, [](const auto& entry) { return entry.second.last; });
  if (oldest != failures_.end()) failures_.erase(oldest);
}

bool TokenBucket::Take(TimePoint now) {
  level_ = std::min(burst_, level_ + per_second_ * Seconds(now - last_));
  last_ = now;
  if (level_ < 1) return false;
  level_ -= 1;
  return true;
}

}  // namespace rdfs::transport::session
