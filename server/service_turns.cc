// What a service does every so often, on its first loop.
#include <algorithm>
#include <utility>

#include "server/service.h"

namespace rdfs::server {
namespace {

// Files that stay open for one to two of these are kept by the supervisor.
constexpr std::chrono::seconds kKeepTurn{1};
// Descriptors that were not used for one to two of these are closed.
constexpr std::chrono::seconds kAge{15};
// So many in one go: a millisecond or two.
constexpr std::size_t kClosedAtOnce = 2048;
// Behind a part of what is done every so often comes the next one.
constexpr std::chrono::milliseconds kPartPause{5};
// A timer that is so late tells of a host that was suspended, or of a process that was stopped.
constexpr std::chrono::seconds kAway{1};
// Open files that are handed to the supervisor in one go, some milliseconds; of one session no more
// in a turn.
constexpr std::size_t kKeptAtOnce = 512;

}  // namespace

void Service::AgeLater() {
  if (aging_.exchange(true)) return;
  loops_.front()->After(kAge, [this] { Age(); });
}

void Service::Age() {
  const std::optional<std::size_t> left = exports_->Age(kClosedAtOnce);
  if (!left) return loops_.front()->After(kPartPause, [this] { Age(); });
  aging_.store(false);  // a session that comes from now on sees to the next turn itself
  if (*left + sessions_.size() > 0) AgeLater();
}

// An idle server has nothing to do every second, with or without files that are open.
void Service::KeepSoon() {
  if (!keeper_.supervised() || keep_scheduled_.load() || keep_scheduled_.exchange(true)) return;
  loops_.front()->After(kKeepTurn, [this] { KeepLongOpens(); });
}

// What stays open outlives a crash, whatever is done to its name and mode meanwhile.
void Service::KeepLongOpens() {
  if (to_keep_.empty()) to_keep_ = sessions_.All();
  for (std::size_t room = kKeptAtOnce; room > 0 && !to_keep_.empty();) {
    const SessionPtr session = std::move(to_keep_.back());
    to_keep_.pop_back();
    if (!keeper_.HasPlenty()) continue;
    const std::vector<OpenPtr> opens = session->OpensToKeep(room);
    room -= opens.size();
    const auto keep = [this](const OpenPtr& open) { return KeepOpen(keeper_, *open); };
    if (std::all_of(opens.begin(), opens.end(), keep)) continue;
    session->NotAllKept();
    to_keep_.clear();  // what cannot be told now may be in a second
  }
  if (!to_keep_.empty()) return loops_.front()->After(kPartPause, [this] { KeepLongOpens(); });
  keep_scheduled_.store(false);  // a file that is opened from now on has a turn of its own
  const std::vector<SessionPtr> all = sessions_.All();
  const auto more = [](const SessionPtr& session) { return session->MayHaveOpensToKeep(); };
  if (std::any_of(all.begin(), all.end(), more)) KeepSoon();
}

void Service::ScheduleExpiry() {
  const auto due = sessions_.NextDeadline();
  if (!due || expiry_scheduled_.exchange(true)) return;
  // A little later, so that what is due then is due for sure.
  const auto delay = std::max<std::chrono::nanoseconds>(*due - core_->clock.Now(), {}) +
                     std::chrono::milliseconds(5);
  loops_.front()->After(delay, [this, due = core_->clock.Now() + delay] { Expire(due); });
}

void Service::Expire(TimePoint due) {
  expiry_scheduled_.store(false);
  const TimePoint now = core_->clock.Now();
  if (now - due > kAway) sessions_.WasAway(now);
  for (const SessionPtr& session : sessions_.TakeExpired(now)) {
    core_->counters.sessions_expired.fetch_add(1);
    EndSession(session, Status(Code::kDeadlineExceeded, "is gone: its lease has run out"));
  }
  ScheduleExpiry();
}

}  // namespace rdfs::server
