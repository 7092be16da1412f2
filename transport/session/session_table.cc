#include "transport/session/session_table.h"

#include <utility>

#include "transport/base/random.h"

namespace rdfs::transport::session {

std::uint64_t SessionTable::NewId() const {
  std::uint64_t id = 0;
  while (id == 0 || sessions_.contains(id)) id = RandomU64();
  return id;
}

Status SessionTable::Add(Ticket ticket, TimePoint now) {
  if (sessions_.size() >= kMaxSessions) {
    return {Code::kBusy, "this server has " + std::to_string(kMaxSessions) +
                             " sessions already: try again when one has ended"};
  }
  const std::uint64_t id = ticket.session_id;
  sessions_.emplace(id, Entry{std::make_shared<const Ticket>(std::move(ticket)), ++last_number_, 0,
                              TokenBucket(kLaneBurst, kLanesPerSecond, now)});
  return Status::Ok();
}

std::shared_ptr<const SessionTable::Ticket> SessionTable::Remove(std::uint64_t session_id) {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return nullptr;
  auto ticket = std::move(found->second.ticket);
  sessions_.erase(found);
  return ticket;
}

std::shared_ptr<const SessionTable::Ticket> SessionTable::Find(std::uint64_t session_id) const {
  const auto found = sessions_.find(session_id);
  return found == sessions_.end() ? nullptr : found->second.ticket;
}

std::optional<std::uint64_t> SessionTable::OldestOf(const std::shared_ptr<void>& context) const {
  if (context == nullptr) return std::nullopt;
  std::size_t count = 0;
  const Entry* oldest = nullptr;
  for (const auto& [id, entry] : sessions_) {
    if (entry.ticket->context != context) continue;
    ++count;
    if (oldest == nullptr || entry.number < oldest->number) oldest = &entry;
  }
  if (oldest == nullptr || (count < kMaxOfOne && sessions_.size() < kMaxSessions)) {
    return std::nullopt;
  }
  return oldest->ticket->session_id;
}

std::optional<std::uint64_t> SessionTable::Any() const {
  if (sessions_.empty()) return std::nullopt;
  return sessions_.begin()->first;
}

Result<SessionTable::Redeemed> SessionTable::Redeem(ByteSpan token, Kind kind, TimePoint now) {
  RDFS_ASSIGN_OR_RETURN(const LaneClaim claim, ParseLaneToken(token));
  const auto found = sessions_.find(claim.session_id);
  // One sentence for all of these: who guesses learns nothing.
  const Status refused(Code::kAuthenticationFailed,
                       "the server knows no session for this lane: it has ended, connect again");
  if (found == sessions_.end()) return refused;
  Entry& entry = found->second;
  if (!VerifyLaneToken(token, entry.ticket->secret)) return refused;
  if (claim.kind != kind || claim.counter <= entry.highest_counter) return refused;
  if (!entry.lanes.Take(now)) {
    return Status(Code::kBusy, "this session opens lanes too fast: wait a second");
  }
  entry.highest_counter = claim.counter;
  return Redeemed{entry.ticket, claim};
}

}  // namespace rdfs::transport::session
