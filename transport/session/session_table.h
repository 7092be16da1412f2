// The server's sessions: who may open lanes, and which lane tokens have been used.
//
// Pure: the time comes in, no I/O. Owned by the acceptor, on its thread. Bounded: kMaxSessions
// sessions, kMaxOfOne for each mount, and as many lanes as a bucket of kLaneBurst that refills with
// kLanesPerSecond allows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "transport/base/clock.h"
#include "transport/base/status.h"
#include "transport/session/acceptor.h"
#include "transport/session/derive.h"
#include "transport/session/lane_token.h"
#include "transport/session/rate_limit.h"

namespace rdfs::transport::session {

class SessionTable {
 public:
  static constexpr std::size_t kMaxSessions = 4096;
  // Of one context: a client that comes back leaves some behind until TCP gives them up.
  static constexpr std::size_t kMaxOfOne = 8;
  static constexpr double kLaneBurst = 64;
  static constexpr double kLanesPerSecond = 4;

  // What a lane of a session needs to know.
  struct Ticket {
    std::uint64_t session_id = 0;
    std::shared_ptr<Domain> domain;
    std::shared_ptr<void> context;
    Secret32 secret;
    bool encrypt_lanes = false;
  };

  // An id that no session of this table has. Random: it tells nothing of how many there are.
  [[nodiscard]] std::uint64_t NewId() const;
  // Errors: kBusy at the bound.
  Status Add(Ticket ticket, TimePoint now);
  // From now on no token of this session opens anything. Null when there is none.
  std::shared_ptr<const Ticket> Remove(std::uint64_t session_id);
  [[nodiscard]] std::shared_ptr<const Ticket> Find(std::uint64_t session_id) const;
  // The oldest session of this context when it has kMaxOfOne, or the table is full: to make room
  // for its next.
  [[nodiscard]] std::optional<std::uint64_t> OldestOf(const std::shared_ptr<void>& context) const;
  // Any session there is.
  [[nodiscard]] std::optional<std::uint64_t> Any() const;
  // The session that `token` belongs to, if it is genuine, meant for `kind`, and was never used.
  // Errors: kProtocolError, kAuthenticationFailed (unknown, forged, replayed), kBusy (too many).
  struct Redeemed {
    std::shared_ptr<const Ticket> ticket;
    LaneClaim claim;
  };
  Result<Redeemed> Redeem(ByteSpan token, Kind kind, TimePoint now);
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const Ticket> ticket;
    std::uint64_t number = 0;           // counted as they come
    std::uint64_t highest_counter = 0;  // counters start at 1 and only rise
    TokenBucket lanes;
  };
  std::map<std::uint64_t, Entry> sessions_;
  std::uint64_t last_number_ = 0;
};

}  // namespace rdfs::transport::session
