#include "server/pool/grant_table.h"

#include <algorithm>

namespace rdfs::server {

std::size_t GrantTable::HolderHash::operator()(const Holder& holder) const noexcept {
  // Both are small counters; a multiplication spreads them (Fibonacci hashing).
  return (holder.session * 0x9e3779b97f4a7c15U) ^ (holder.extent * 0xc2b2ae3d27d4eb4fU);
}

TimePoint GrantTable::ServerEnd(TimePoint now, std::chrono::nanoseconds lease) {
  // 1 % for two clocks that run apart, 1 ms for lease_ms, which is rounded.
  return now + lease + lease / 100 + std::chrono::milliseconds(1);
}

bool GrantTable::Grant(std::uint64_t session, ExtentNumber extent, std::size_t bytes, TimePoint now,
                       std::chrono::nanoseconds lease) {
  Expire(now);
  const TimePoint until = ServerEnd(now, lease);
  const Holder holder{session, extent};
  const auto held = holders_.find(holder);
  const auto leased = extents_.find(extent);
  if (leased == extents_.end() && leased_bytes_ + bytes > options_.total_bytes) return false;
  if (held == holders_.end()) {
    std::size_t& mine = session_bytes_[session];
    if (mine + bytes > options_.session_bytes) {
      if (mine == 0) session_bytes_.erase(session);
      return false;
    }
    mine += bytes;
    holders_.emplace(holder, Lease{until, bytes});
    holders_due_.push({until, holder});
  } else {
    held->second.until = std::max(held->second.until, until);
  }
  if (leased == extents_.end()) {
    leased_bytes_ += bytes;
    extents_.emplace(extent, Lease{until, bytes});
    extents_due_.push({until, extent});
  } else {
    leased->second.until = std::max(leased->second.until, until);
  }
  return true;
}

TimePoint GrantTable::LeasedUntil(ExtentNumber extent) const {
  const auto found = extents_.find(extent);
  return found == extents_.end() ? TimePoint{} : found->second.until;
}

void GrantTable::Expire(TimePoint now) {
  for (int i = 0; i < kMaxExpired && !extents_due_.empty() && extents_due_.top().when < now; ++i) {
    const Due<ExtentNumber> due = extents_due_.top();
    extents_due_.pop();
    const auto found = extents_.find(due.key);
    if (found == extents_.end()) continue;
    if (found->second.until >= now) {
      extents_due_.push({found->second.until, due.key});
      continue;
    }
    leased_bytes_ -= found->second.bytes;
    extents_.erase(found);
  }
  for (int i = 0; i < kMaxExpired && !holders_due_.empty() && holders_due_.top().when < now; ++i) {
    const Due<Holder> due = holders_due_.top();
    holders_due_.pop();
    const auto found = holders_.find(due.key);
    if (found == holders_.end()) continue;
    if (found->second.until >= now) {
      holders_due_.push({found->second.until, due.key});
      continue;
    }
    const auto session = session_bytes_.find(due.key.session);
    session->second -= found->second.bytes;
    if (session->second == 0) session_bytes_.erase(session);
    holders_.erase(found);
  }
}

std::chrono::milliseconds GrantTable::SuggestLease(std::uint64_t session,
                                                   std::chrono::milliseconds longest) const {
  // Whole leases while less than half is leased, down to an eighth as it fills up.
  const auto eighths = [](std::size_t used, std::size_t bound) -> std::int64_t {
    const std::size_t half = std::max<std::size_t>(bound / 2, 1);
    const std::size_t left = bound - std::min(used, bound);
    return static_cast<std::int64_t>(std::clamp<std::size_t>(left * 8 / half, 1, 8));
  };
  const std::int64_t share = std::min(eighths(leased_bytes_, options_.total_bytes),
                                      eighths(session_bytes(session), options_.session_bytes));
  return std::max(longest * share / 8, std::chrono::milliseconds(1));
}

std::size_t GrantTable::session_bytes(std::uint64_t session) const {
  const auto found = session_bytes_.find(session);
  return found == session_bytes_.end() ? 0 : found->second;
}

}  // namespace rdfs::server
