// GrantTable: who may READ which extent until when. Pure: events and the time go in.
//
// A grant is a lease on one extent for one session. The server counts from a moment after the
// client asked and adds kDrift, so the client, which counts from before it asked, always ends
// first. Two bounds hold at any time: a session's live grants name at most `session_bytes`, and all
// live leases together at most `total_bytes` (the rest of the pool always can be reused).
//
// Owned by an ExtentStore, under its lock. Times are CLOCK_BOOTTIME.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "transport/base/clock.h"

namespace rdfs::server {

class GrantTable {
 public:
  struct Options {
    std::size_t session_bytes = 0;
    std::size_t total_bytes = 0;
  };
  using ExtentNumber = std::uint64_t;  // unique for the life of the table

  explicit GrantTable(const Options& options) : options_(options) {}

  // Until when a lease that the client counts as `lease` blocks the memory.
  static TimePoint ServerEnd(TimePoint now, std::chrono::nanoseconds lease);

  // Grants `extent` of `bytes` to `session` for `lease` from `now`, or renews that. False when a
  // bound stands in the way; then nothing has changed.
  bool Grant(std::uint64_t session, ExtentNumber extent, std::size_t bytes, TimePoint now,
             std::chrono::nanoseconds lease);
  // When the last lease on `extent` ends; a time in the past (or the epoch) when there is none.
  [[nodiscard]] TimePoint LeasedUntil(ExtentNumber extent) const;
  // Forgets what has run out, up to kMaxExpired extents and as many grants: others wait meanwhile.
  // What is left counts as leased until the next time. Grant calls it; cheap when there is nothing
  // to do.
  static constexpr int kMaxExpired = 256;
  void Expire(TimePoint now);

  // Shorter leases when most of what may be leased, to all or to `session`, is: a stream of reads
  // then waits for memory that comes back soon, instead of running into the bound for a whole
  // lease.
  [[nodiscard]] std::chrono::milliseconds SuggestLease(std::uint64_t session,
                                                       std::chrono::milliseconds longest) const;

  [[nodiscard]] std::size_t leased_bytes() const { return leased_bytes_; }
  [[nodiscard]] std::size_t session_bytes(std::uint64_t session) const;

 private:
  struct Lease {
    TimePoint until{};
    std::size_t bytes = 0;
  };
  struct Holder {
    std::uint64_t session;
    ExtentNumber extent;
    friend bool operator==(const Holder&, const Holder&) = default;
  };
  struct HolderHash {
    std::size_t operator()(const Holder& holder) const noexcept;
  };
  template <typename Key>
  struct Due {
    TimePoint when;
    Key key;
    friend bool operator>(const Due& a, const Due& b) { return a.when > b.when; }
  };
  template <typename Key>
  using DueQueue = std::priority_queue<Due<Key>, std::vector<Due<Key>>, std::greater<>>;

  const Options options_;
  std::unordered_map<ExtentNumber, Lease> extents_;
  std::unordered_map<Holder, Lease, HolderHash> holders_;
  std::unordered_map<std::uint64_t, std::size_t> session_bytes_;
  // When to look at a lease again: by its end as it was at first; a renewed one is queued anew.
  DueQueue<ExtentNumber> extents_due_;
  DueQueue<Holder> holders_due_;
  std::size_t leased_bytes_ = 0;
};

}  // namespace rdfs::server
