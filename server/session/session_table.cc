#include "server/session/session_table.h"

#include <algorithm>

namespace rdfs::server {

SessionPtr SessionTable::Resume(const ClientId& client, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(client);
  if (it == entries_.end() || it->second.state.over()) return nullptr;
  it->second.state.Seen(now);
  return it->second.session;
}

SessionPtr SessionTable::Add(SessionPtr session, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto [it, added] =
      entries_.try_emplace(session->params().client_id, Entry{session, SessionState(now, lease_)});
  return it->second.state.over() ? nullptr : it->second.session;
}

SessionTable::Entry* SessionTable::FindLocked(const FsSession& session) {
  const auto it = entries_.find(session.params().client_id);
  return it == entries_.end() || it->second.session.get() != &session ? nullptr : &it->second;
}

bool SessionTable::LaneOpened(const FsSession& session, TimePoint now) {
  const std::lock_guard lock(mutex_);
  Entry* entry = FindLocked(session);
  return entry != nullptr && entry->state.lanes() < session.params().limits.lanes &&
         entry->state.LaneOpened(now);
}

void SessionTable::LaneClosed(const FsSession& session, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = FindLocked(session)) entry->state.LaneClosed(now);
}

bool SessionTable::Take(const FsSession& session) {
  const std::lock_guard lock(mutex_);
  Entry* entry = FindLocked(session);
  if (entry == nullptr || entry->state.over()) return false;
  entry->state.End();
  return true;
}

void SessionTable::Cleared(const FsSession& session) {
  {
    const std::lock_guard lock(mutex_);
    if (FindLocked(session) == nullptr) return;
    entries_.erase(session.params().client_id);
  }
  cleared_.notify_all();
}

bool SessionTable::WaitUntilCleared(const ClientId& client, std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  return cleared_.wait_for(lock, patience, [&] {
    const auto it = entries_.find(client);
    return it == entries_.end() || !it->second.state.over();
  });
}

void SessionTable::WasAway(TimePoint now) {
  const std::lock_guard lock(mutex_);
  for (auto& [client, entry] : entries_) {
    entry.state.Seen(entry.session->last_request());
    entry.state.Respite(now);
  }
}

std::vector<SessionPtr> SessionTable::TakeExpired(TimePoint now) {
  std::vector<SessionPtr> expired;
  const std::lock_guard lock(mutex_);
  for (auto& [client, entry] : entries_) {
    const FsSession& session = *entry.session;
    entry.state.Seen(session.last_request());
    if (entry.state.Expire(now)) {
      expired.push_back(entry.session);
    } else if (IntentRing* record = session.record(); record != nullptr && !entry.state.over()) {
      record->NoteSeen();
    }
  }
  return expired;
}

std::optional<TimePoint> SessionTable::NextDeadline() const {
  const std::lock_guard lock(mutex_);
  std::optional<TimePoint> next;
  for (const auto& [client, entry] : entries_) {
    if (entry.state.over()) continue;
    const TimePoint due = std::max(entry.state.deadline(), entry.session->last_request() + lease_);
    if (!next || due < *next) next = due;
  }
  return next;
}

std::vector<SessionPtr> SessionTable::TakeAll() {
  std::vector<SessionPtr> all;
  const std::lock_guard lock(mutex_);
  for (auto& [client, entry] : entries_) {
    entry.state.End();
    all.push_back(entry.session);
  }
  entries_.clear();
  return all;
}

std::vector<SessionPtr> SessionTable::All() const {
  std::vector<SessionPtr> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [client, entry] : entries_) all.push_back(entry.session);
  return all;
}

std::size_t SessionTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

std::size_t SessionTable::CountFrom(std::string_view origin) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(entries_, [&](const auto& entry) {
    return entry.second.session->params().origin == origin;
  }));
}

}  // namespace rdfs::server
