#include <algorithm>

#include "fs/client/lane_impl.h"
#include "fs/client/mount_impl.h"
#include "transport/base/memlock.h"

namespace rdfs::fs::client {
namespace {

const SystemClock kSystemClock;
// The memory that may be locked is shared out among this many lanes.
constexpr unsigned kUsualLanes = 2;

MountOptions WithDefaults(MountOptions options) {
  if (options.clock == nullptr) options.clock = &kSystemClock;
  if (options.lane_staging_bytes == 0) options.lane_staging_bytes = 4 << 20;
  options.inline_write_bytes = std::min(options.inline_write_bytes, kMaxInlineDataBytes);
  return options;
}

}  // namespace

Result<std::unique_ptr<Mount>> Mount::Create(MountOptions options, Deadline deadline) {
  SessionState state = SessionState::Create(options.export_name, options.host_name, options.uid,
                                            options.gid, options.flags);
  auto mount = std::make_unique<MountImpl>(std::move(options), std::move(state));
  RDFS_RETURN_IF_ERROR(mount->Start(deadline));
  return std::unique_ptr<Mount>(std::move(mount));
}

MountImpl::MountImpl(MountOptions options, SessionState state)
    : options_(WithDefaults(std::move(options))),
      domain_(transport::Domain::Create("mount")),
      state_(std::move(state)) {}

MountImpl::~MountImpl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status MountImpl::Start(Deadline deadline) {
  {
    const std::lock_guard lock(session_mutex_);
    RDFS_RETURN_IF_ERROR(Redial(deadline));
  }
  thread_ = std::thread([this] { Run(); });
  return Status::Ok();
}

Result<std::unique_ptr<Lane>> MountImpl::OpenLane(Deadline deadline) {
  return TakeSeat(&MountImpl::Connect, deadline);
}

Result<std::unique_ptr<Lane>> MountImpl::OpenLaneBeside(Deadline deadline) {
  return TakeSeat(&MountImpl::ConnectBeside, deadline);
}

Result<std::unique_ptr<Lane>> MountImpl::TakeSeat(Connector connect, Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<Mailbox> mailbox, Mailbox::Create());
  auto counters = std::make_shared<LaneCounters>();
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto seat =
        std::find_if(seats_.begin(), seats_.end(), [](const LaneSeat& s) { return !s.taken; });
    if (seat == seats_.end()) return Status(Code::kBusy, "every lane of this mount is open");
    *seat = {.taken = true, .mailbox = mailbox, .counters = counters};
    number = static_cast<std::uint32_t>(seat - seats_.begin());
  }
  // From here on the seat is given back by the lane, or by us when there is none.
  Result<std::unique_ptr<LaneImpl>> lane = MakeLane(number, mailbox, counters, connect, deadline);
  if (!lane.ok()) {
    Closed(number);
    return lane.status();
  }
  return std::unique_ptr<Lane>(*std::move(lane));
}

// The connection first: what it is decides how much memory the lane may have.
Result<std::unique_ptr<LaneImpl>> MountImpl::MakeLane(std::uint32_t number,
                                                      const std::shared_ptr<Mailbox>& mailbox,
                                                      std::shared_ptr<LaneCounters> counters,
                                                      Connector connect, Deadline deadline) {
  const bool waits = connect != &MountImpl::ConnectBeside;
  if (!(waits ? session_mutex_.LockUntil(deadline) : session_mutex_.try_lock())) {
    return Status(waits ? Code::kDeadlineExceeded : Code::kUnavailable,
                  "the session is being made anew");
  }
  const std::lock_guard lock(session_mutex_, std::adopt_lock);
  const std::uint64_t memlock = MemlockLimit();
  std::unique_ptr<LaneLink> link;
  LaneMemory memory;
  Status verbs;  // why it stays away from them
  while (true) {
    RDFS_ASSIGN_OR_RETURN(link, (this->*connect)(number, deadline));
    const transport::Kind kind = link->connection->capabilities().kind;
    std::size_t buffer_bytes = options_.lane_buffer_bytes;
    if (buffer_bytes == 0) buffer_bytes = LaneBufferBytes(kind, memlock, kUsualLanes);
    RDFS_ASSIGN_OR_RETURN(memory, LaneMemory::Create(domain_, buffer_bytes));
    const Status fits = memory.FitFor(*link->connection);
    if (fits.ok()) break;
    // One lane of several is not worth another transport.
    if (!verbs.ok() || !IsLast(number)) return fits;
    link.reset();
    session_->RuleOut(kind, fits);
    verbs = fits;
  }
  const std::size_t may_be_locked = LaneBufferBytes(transport::Kind::kVerbs, memlock, kUsualLanes);
  if (verbs.ok() && memory.buffers->size() > may_be_locked) {
    verbs = {Code::kUnavailable,
             "this mount began without it, with more memory than may be locked"};
  }
  RDFS_ASSIGN_OR_RETURN(
      std::unique_ptr<LaneImpl> lane,
      LaneImpl::Create(*this, number, mailbox, std::move(counters), std::move(memory)));
  {
    const std::lock_guard seats_lock(mutex_);
    seats_[number].verbs = std::move(verbs);
  }
  mailbox->PutLink(std::move(link));
  lane->TakeFirstLink();
  return lane;
}

MountInfo MountImpl::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

Counters MountImpl::counters() const {
  const std::lock_guard lock(mutex_);
  Counters sum = closed_counters_;
  for (const LaneSeat& seat : seats_) {
    if (seat.counters != nullptr) seat.counters->AddTo(sum);
  }
  sum.fallbacks = fallbacks_ + session_fallbacks_;
  return sum;
}

Status MountImpl::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

void MountImpl::Lost(std::uint32_t lane, std::unique_ptr<transport::Connection> connection,
                     std::uint64_t incarnation, bool stale) {
  if (stale && incarnation == this->incarnation()) session_stale_.store(true);
  {
    const std::lock_guard lock(mutex_);
    lost_.push_back({lane, seats_[lane].mailbox, std::move(connection)});
  }
  changed_.notify_all();
}

bool MountImpl::IsLast(std::uint32_t lane) const {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].taken && i != lane) return false;
  }
  return true;
}

bool MountImpl::Leave(std::uint32_t lane) {
  const std::lock_guard lock(mutex_);
  seats_[lane].leaving = true;
  return std::ranges::none_of(seats_, [](const LaneSeat& s) { return s.taken && !s.leaving; });
}

void MountImpl::Closed(std::uint32_t lane) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [lane](const LostLane& l) { return l.lane == lane; });
  if (seats_[lane].counters != nullptr) seats_[lane].counters->AddTo(closed_counters_);
  seats_[lane] = {};
  sequences_.SetOldest(lane, SequenceCounter::kIdle);
}

std::shared_ptr<InodeState> MountImpl::InodeFor(const Handle& handle) {
  const std::lock_guard lock(opens_mutex_);
  std::weak_ptr<InodeState>& known = inodes_[handle];
  std::shared_ptr<InodeState> inode = known.lock();
  if (inode != nullptr) return inode;
  inode = std::make_shared<InodeState>(handle);
  known = inode;
  // Forgotten ones are swept when the table has doubled: constant cost for each.
  if (inodes_.size() > inodes_swept_at_) {
    std::erase_if(inodes_, [](const auto& entry) { return entry.second.expired(); });
    inodes_swept_at_ = std::max<std::size_t>(64, 2 * inodes_.size());
  }
  return inode;
}

std::shared_ptr<InodeState> MountImpl::FindInode(const Handle& handle) {
  const std::lock_guard lock(opens_mutex_);
  const auto found = inodes_.find(handle);
  return found == inodes_.end() ? nullptr : found->second.lock();
}

void MountImpl::KeepUnsynced(const std::shared_ptr<InodeState>& inode) {
  if (inode->kept.exchange(true)) return;
  const std::lock_guard lock(opens_mutex_);
  unsynced_.push_back(inode);
  if (unsynced_.size() <= kMostUnsynced) return;
  unsynced_.front()->kept = false;
  unsynced_.pop_front();
}

void MountImpl::Remember(const OpenPtr& open) {
  const std::lock_guard lock(opens_mutex_);
  opens_.push_back(open);
  if (opens_.size() <= opens_swept_at_) return;
  std::erase_if(opens_, [](const auto& known) { return known.expired(); });
  opens_swept_at_ = std::max<std::size_t>(64, 2 * opens_.size());
}

}  // namespace rdfs::fs::client
