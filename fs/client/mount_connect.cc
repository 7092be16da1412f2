// The mount's thread: making connections anew, and the session where that is needed.
#include <algorithm>
#include <utility>

#include "fs/client/attach.h"
#include "fs/client/mount_impl.h"
#include "transport/base/log.h"
#include "transport/base/random.h"

namespace rdfs::fs::client {
namespace {

// For files that the server cannot give back at the moment; all other calls wait meanwhile.
constexpr std::chrono::seconds kReclaimPatience{2};
constexpr std::chrono::milliseconds kReclaimPause{50};

constexpr char kOneLane[] = "the session carries one lane only";  // ssh's stream

// The first that works: the one that the session's lanes are on.
const transport::LegReport* LegInUse(const transport::Session& session) {
  const auto& legs = session.legs();
  const auto works =
      std::ranges::find_if(legs, [](const transport::LegReport& leg) { return leg.status.ok(); });
  return works == legs.end() ? nullptr : &*works;
}

bool OnStream(const transport::Session& session) {
  const transport::LegReport* const leg = LegInUse(session);
  return leg != nullptr && leg->stdio;
}

}  // namespace

void MountImpl::Run() {
  Backoff backoff(RandomU64());
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !lost_.empty() || !waiting_.empty(); });
    if (stopping_) return;
    DestroyLost(lock);
    if (waiting_.empty()) continue;
    if (const auto pause = backoff.Next(); pause.count() > 0) {
      changed_.wait_for(lock, pause, [this] { return stopping_ || !lost_.empty(); });
      if (stopping_) return;
      DestroyLost(lock);
      if (waiting_.empty()) continue;
    }

    const std::uint32_t lane = waiting_.front().lane;
    const std::shared_ptr<Mailbox> mailbox = waiting_.front().mailbox;
    lock.unlock();
    Result<std::unique_ptr<LaneLink>> link = Status(Code::kInternal, "not connected");
    bool anothers_stream = false;
    {
      const std::lock_guard session_lock(session_mutex_);
      link = Connect(lane, DeadlineAfter(options_.dial_timeout));
      anothers_stream = stream_lane_ && *stream_lane_ != lane;
    }
    lock.lock();
    if (!link.ok()) {
      LogDebug("lane {}: {}", lane, link.status().message());
      if (!anothers_stream) health_ = link.status();
      // Its turn comes again behind the others.
      if (!waiting_.empty()) std::rotate(waiting_.begin(), waiting_.begin() + 1, waiting_.end());
      continue;
    }
    health_ = Status::Ok();
    backoff.Reset();
    // The lane may have gone meanwhile; then nobody opens the letter.
    std::erase_if(waiting_, [&](const LostLane& l) { return l.mailbox == mailbox; });
    mailbox->PutLink(*std::move(link));
  }
}

// Destroying first, for all lanes: their buffers are in quarantine until then.
void MountImpl::DestroyLost(std::unique_lock<std::mutex>& lock) {
  while (!lost_.empty()) {
    LostLane lost = std::move(lost_.front());
    lost_.pop_front();
    lock.unlock();
    lost.connection.reset();
    lost.mailbox->PutDestroyed();
    lock.lock();
    if (seats_[lost.lane].mailbox == lost.mailbox) waiting_.push_back(std::move(lost));
  }
}

Result<std::unique_ptr<LaneLink>> MountImpl::Connect(std::uint32_t lane, Deadline deadline) {
  const bool fresh = session_ == nullptr || session_stale_.load();
  if (fresh) RDFS_RETURN_IF_ERROR(Redial(deadline));
  Result<std::unique_ptr<LaneLink>> link = ConnectOnce(lane, deadline);
  if (link.ok() || fresh) return link;
  // A new session would be no better for this lane, and take the stream from the other one.
  if (link.status().code() == Code::kBusy && stream_lane_ && *stream_lane_ != lane) {
    return Status(Code::kResourceExhausted, kOneLane);
  }
  // The session that the lane belonged to may be gone with its server: once more with a new one.
  RDFS_RETURN_IF_ERROR(Redial(deadline));
  return ConnectOnce(lane, deadline);
}

Result<std::unique_ptr<LaneLink>> MountImpl::ConnectOnce(std::uint32_t lane, Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(auto connection, OpenConnection(lane, deadline));
  RDFS_ASSIGN_OR_RETURN(auto link, MakeLink(lane, std::move(connection), deadline));
  const Status reclaimed = ReclaimOpens(*link, deadline);
  if (reclaimed.code() == Code::kNotFound) session_stale_.store(true);
  RDFS_RETURN_IF_ERROR(reclaimed);
  const std::lock_guard lock(mutex_);
  info_.transport = session_->ExplainChoice();
  const transport::LegReport* const leg = LegInUse(*session_);
  info_.kind = leg == nullptr ? std::nullopt : std::optional(leg->kind);
  session_fallbacks_ = static_cast<std::uint64_t>(
      std::ranges::count_if(session_->legs(), &transport::LegReport::failed));
  return link;
}

// The leg that the others are on is the first that works; what becomes of this attempt says nothing
// about it. What the server does not know yet of open files the others tell it, or the calls that
// need them: where nothing comes of this lane, nobody would go on asking for their locks.
Result<std::unique_ptr<LaneLink>> MountImpl::ConnectBeside(std::uint32_t lane, Deadline deadline) {
  if (session_ == nullptr || session_stale_.load()) {
    return Status(Code::kUnavailable, "the session is being made anew");
  }
  const transport::LegReport* const leg = LegInUse(*session_);
  if (leg == nullptr || leg->stdio) {
    return Status(Code::kUnavailable, kOneLane);
  }
  RDFS_ASSIGN_OR_RETURN(auto connection, session_->OpenLaneOver(leg->kind, deadline));
  return MakeLink(lane, std::move(connection), deadline);
}

Result<std::unique_ptr<LaneLink>> MountImpl::MakeLink(
    std::uint32_t lane, std::unique_ptr<transport::Connection> connection, Deadline deadline) {
  auto link = std::make_unique<LaneLink>();
  link->connection = std::move(connection);
  link->session = admission_.grant.session;
  link->epoch = admission_.grant.epoch;
  link->incarnation = incarnation();
  link->lease = std::chrono::milliseconds(admission_.grant.lease_ms);
  Attacher attacher(*link, sequences_, kMountCell, deadline);
  RDFS_RETURN_IF_ERROR(attacher.Attach(
      lane, static_cast<std::uint32_t>(options_.lane_staging_bytes), session_->ExplainChoice()));
  return link;
}

// A lane that began without verbs may have more memory than a device could register: it stays away
// from verbs when the session comes back over it.
Result<std::unique_ptr<transport::Connection>> MountImpl::OpenConnection(std::uint32_t lane,
                                                                         Deadline deadline) {
  auto connection = session_->OpenLane(deadline);
  if (connection.ok() && (*connection)->capabilities().kind == transport::Kind::kVerbs) {
    Status verbs;
    bool others_use_verbs = false;
    {
      const std::lock_guard lock(mutex_);
      verbs = seats_[lane].verbs;
      others_use_verbs = std::ranges::any_of(
          seats_, [](const LaneSeat& seat) { return seat.taken && seat.verbs.ok(); });
    }
    if (verbs.ok()) return connection;
    connection->reset();
    // Only this lane changes transport; the others stay on verbs.
    if (others_use_verbs) {
      auto over_shm = session_->OpenLaneOver(transport::Kind::kShm, deadline);
      return over_shm.ok() ? std::move(over_shm)
                           : session_->OpenLaneOver(transport::Kind::kTcp, deadline);
    }
    session_->RuleOut(transport::Kind::kVerbs, std::move(verbs));
    connection = session_->OpenLane(deadline);
  }
  if (connection.ok() && OnStream(*session_)) stream_lane_ = lane;
  return connection;
}

Status MountImpl::Redial(Deadline deadline) {
  session_.reset();
  stream_lane_.reset();
  const TimePoint asked = options_.clock->Now();
  RDFS_ASSIGN_OR_RETURN(session_, options_.dial(state_.Request(), domain_, deadline));
  Result<Admission> admission = state_.OnGrant(session_->grant(), asked);
  if (!admission.ok()) {
    session_.reset();
    return admission.status();
  }
  session_stale_.store(false);
  const bool same = admission->resumed && admission->grant.session == admission_.grant.session &&
                    admission->grant.epoch == admission_.grant.epoch;
  const bool given_up = (admission->grant.flags & kGrantGivenUp) != 0 ||
                        (!admission->resumed && admission->grant.epoch == admission_.grant.epoch);
  admission_ = *admission;
  const std::uint64_t before = incarnation();
  if (!same) incarnation_.fetch_add(1);
  if (given_up) LoseLocks();
  TellVerifier(admission_.grant.verifier);
  if (admission_.resumed) {
    // The server still has the open files that it knew: none of these needs to be made known again.
    const std::lock_guard lock(opens_mutex_);
    for (const auto& known : opens_) {
      if (const OpenPtr open = known.lock()) open->MoveIncarnation(before, incarnation());
    }
  }
  const MountGrant& grant = admission_.grant;
  const std::lock_guard lock(mutex_);
  info_ = {.root = admission_.root,
           .epoch = grant.epoch,
           .flags = grant.flags,
           .lease = std::chrono::milliseconds(grant.lease_ms),
           .attr_lease = std::chrono::milliseconds(grant.attr_lease_ms),
           .max_transfer_bytes = grant.max_transfer_bytes,
           .transport = {},
           .kind = {}};
  fallbacks_ += std::exchange(session_fallbacks_, 0);
  for (const LaneSeat& seat : seats_) {
    if (seat.taken && !same) seat.mailbox->Wake();  // to see that its connection is of no use
  }
  return Status::Ok();
}

// The server may have given them to others meanwhile, who changed what the locks were for.
void MountImpl::LoseLocks() {
  const std::lock_guard lock(opens_mutex_);
  for (const auto& known : opens_) {
    const OpenPtr open = known.lock();
    if (open != nullptr && !open->inode().locks.Of(open.get()).empty()) LoseLock(*open);
  }
}

void MountImpl::TellVerifier(std::uint64_t verifier) {
  const std::lock_guard lock(opens_mutex_);
  for (const auto& [handle, known] : inodes_) {
    if (const auto inode = known.lock()) inode->unsynced.ServerHas(verifier);
  }
}

Status MountImpl::ReclaimOpens(LaneLink& link, Deadline deadline) {
  std::vector<OpenPtr> unknown;
  {
    const std::lock_guard lock(opens_mutex_);
    for (const auto& known : opens_) {
      OpenPtr open = known.lock();
      if (open == nullptr || open->incarnation() == link.incarnation) continue;
      unknown.push_back(std::move(open));
    }
  }
  Attacher attacher(link, sequences_, kMountCell, deadline);
  const Deadline patience = std::min(deadline, DeadlineAfter(kReclaimPatience));
  while (true) {
    RDFS_ASSIGN_OR_RETURN(unknown, ReclaimOnce(attacher, unknown, link));
    if (unknown.empty()) break;
    if (BootClock::now() + kReclaimPause > patience) {
      LogWarn("{} open files could not be reclaimed yet: each is tried again when it is used",
              unknown.size());
      return Status::Ok();
    }
    std::this_thread::sleep_for(kReclaimPause);
  }
  return admission_.grant.grace_ms == 0 ? Status::Ok() : attacher.EndGrace();
}

// Those that are worth asking for again.
Result<std::vector<OpenPtr>> MountImpl::ReclaimOnce(Attacher& attacher,
                                                    const std::vector<OpenPtr>& opens,
                                                    LaneLink& link) {
  std::vector<OpenPtr> again;
  for (const OpenPtr& open : opens) {
    auto reclaimed = Attacher::Reclaimed::kSettled;
    if (open->lost_errno() == 0) {
      RDFS_ASSIGN_OR_RETURN(reclaimed, attacher.Reclaim(*open, path_finder_));
    }
    switch (reclaimed) {
      case Attacher::Reclaimed::kWithoutLocks:
        // Settled when a lane has taken it up.
        link.without_locks.push_back(open);
        break;
      case Attacher::Reclaimed::kSettled:
        open->set_incarnation(link.incarnation);
        break;
      case Attacher::Reclaimed::kNotNow:
        again.push_back(open);
        break;
      case Attacher::Reclaimed::kRefused:
        break;
    }
  }
  return again;
}

}  // namespace rdfs::fs::client
