#include "tests/coherence/lock_server.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace rdfs::coherence {

using fs::LockType;
using fs::WireError;
using Kind = LockMessage::Kind;

class LockServer::SimulatedLane final : public server::Lane {
 public:
  SimulatedLane(server::SessionPtr session, LockServer& server, Answer answer)
      : Lane(std::move(session)), server_(server), answer_(std::move(answer)) {}
  void Send(std::span<const ByteSpan> parts) override {
    ByteReader reader(parts.front());
    const auto header = reader.Read<fs::ReplyHeader>();
    answer_(header.sequence, static_cast<WireError>(std::uint16_t{header.error}));
  }
  std::shared_ptr<server::Staging> MakeStaging(std::size_t) override { return nullptr; }
  void Post(std::function<void()> task) override { server_.After({}, std::move(task)); }

  void Say(std::uint64_t sequence, WireError error) { answer_(sequence, error); }

 private:
  LockServer& server_;
  const Answer answer_;
};

LockServer::Disk::Disk() {
  for (std::uint64_t file = 0; file < kFiles; ++file) {
    const Fd made(::open((directory / std::to_string(file)).c_str(), O_RDWR | O_CREAT, 0600));
    inodes.push_back(
        std::make_shared<server::Inode>(fs::Handle(), server::NativeHandle(),
                                        server::InodeKey{.device = 1, .inode = file + 1}, S_IFREG));
  }
}

LockServer::LockServer(VirtualTime& time, Disk& disk, LockBug bug)
    : time_(time),
      disk_(disk),
      bug_(bug),
      rate_(time.ClockRate()),
      proc_(*server::ProcFd::Open()),
      keeper_(server::DescriptorKeeper::None()),
      locks_(proc_, *keeper_, *this, 1024) {
  ++disk_.epoch;
  std::vector<std::uint64_t> waited_for;
  for (const auto& [session, record] : disk_.records) {
    if (record.opens > 0) waited_for.push_back(session);
  }
  if (bug_ != LockBug::kNoGrace) grace_.Begin(waited_for, Now() + kLease / 2);
  After(kLease, [this] {
    locks_.EndReclaims();
    std::erase_if(disk_.records, [this](const auto& r) { return !sessions_.contains(r.first); });
  });
}

LockServer::~LockServer() {
  for (auto& [id, session] : sessions_) session.session->MarkEnded();
}

// What a server has planned goes with it.
void LockServer::After(std::chrono::nanoseconds delay, std::function<void()> task) {
  const auto real = static_cast<double>(delay.count()) / rate_;
  time_.After(VirtualTime::Time(static_cast<std::int64_t>(real)),
              [alive = std::weak_ptr(alive_), task = std::move(task)] {
                if (!alive.expired()) task();
              });
}

TimePoint LockServer::Now() const {
  const auto now = static_cast<double>(time_.now().count()) * rate_;
  return TimePoint(std::chrono::nanoseconds(static_cast<std::int64_t>(now)));
}

LockServer::Welcome LockServer::Admit(std::uint64_t id, Answer answer) {
  auto found = sessions_.find(id);
  const bool known = found != sessions_.end();
  if (!known) {
    const auto [record, anew] = disk_.records.try_emplace(id);
    const bool may_reclaim = !anew && !record->second.given_up;
    if (!may_reclaim) record->second.given_up = true;
    const auto lease = bug_ == LockBug::kGivenAwayEarly ? kLease / 2 : kLease;
    server::FsSessionParams params;
    params.id = id;
    params.may_reclaim = may_reclaim;
    found =
        sessions_
            .emplace(id, Session{.state = server::SessionState(Now(), lease),
                                 .session = std::make_shared<server::FsSession>(params, nullptr),
                                 .may_reclaim = may_reclaim})
            .first;
    WatchLease(id);
  }
  Session& session = found->second;
  session.state.LaneOpened(Now());
  auto lane = std::make_shared<SimulatedLane>(session.session, *this, std::move(answer));
  session.lanes.push_back(lane);
  const bool client_knows = session.may_reclaim || !disk_.records[id].given_up;
  return {.epoch = disk_.epoch,
          .resumed = known && client_knows,
          .given_up = !client_knows,
          .lane = std::move(lane)};
}

void LockServer::LaneGone(std::uint64_t session) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) found->second.state.LaneClosed(Now());
}

void LockServer::WatchLease(std::uint64_t id) {
  After(sessions_.at(id).state.deadline() - Now() + std::chrono::microseconds(10), [this, id] {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    found->second.state.Expire(Now()) ? EndSession(id) : WatchLease(id);
  });
}

void LockServer::EndSession(std::uint64_t id) {
  Session session = std::move(sessions_.at(id));
  sessions_.erase(id);
  session.session->MarkEnded();
  grace_.Done(id);
  locks_.SessionEnded(id);
  for (const auto& [number, open] : session.opens) locks_.Released(*open);
  disk_.records.erase(id);
  for (const auto& weak : session.lanes) {
    if (const auto lane = weak.lock()) lane->Say(0, WireError::kOk);
  }
}

server::OpenPtr LockServer::OpenOf(Session& session, const LockMessage& message) {
  server::OpenPtr& open = session.opens[message.lock.open];
  if (open == nullptr) {
    const std::string path = disk_.directory / std::to_string(message.file);
    open = std::make_shared<server::OpenFile>();
    open->session = session.session->id();
    open->number = message.lock.open;
    open->inode = disk_.inodes[message.file];
    open->fd = std::make_shared<const Fd>(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    open->flags = fs::kOpenRead | fs::kOpenWrite;
    disk_.records[open->session].opens = session.opens.size();
  }
  return open;
}

bool LockServer::HeldBack(const LockMessage& message) const {
  return message.lock.type != LockType::kUnlock && grace_.active(Now());
}

void LockServer::Handle(const server::LanePtr& lane, const LockMessage& message) {
  const auto said = std::static_pointer_cast<SimulatedLane>(lane);
  const auto found = sessions_.find(lane->session()->id());
  if (found == sessions_.end() || found->second.session != lane->session()) {
    return said->Say(0, WireError::kOk);
  }
  Session& session = found->second;
  session.state.Seen(Now());
  disk_.records[lane->session()->id()].given_up = false;  // it has heard, for it asks
  WireError error = WireError::kOk;
  switch (message.kind) {
    case Kind::kSet:
      return Set(session, lane, message);
    case Kind::kReclaim:
      error = Reclaim(session, message);
      break;
    case Kind::kReopen:
      OpenOf(session, message);
      break;
    case Kind::kRelease:
      Release(session, message);
      break;
    case Kind::kInterrupt:
      locks_.Interrupt(session.session->id(), message.target);
      break;
    case Kind::kGraceEnd:
      grace_.Done(session.session->id());
      break;
    case Kind::kRenew:
      break;
  }
  said->Say(message.sequence, error);
}

void LockServer::Set(Session& session, const server::LanePtr& lane, const LockMessage& message) {
  const auto said = std::static_pointer_cast<SimulatedLane>(lane);
  Disk::Record& record = disk_.records[session.session->id()];
  record.acknowledged = std::max(record.acknowledged, message.acknowledged);
  record.answered.erase(record.answered.begin(), record.answered.upper_bound(record.acknowledged));
  const bool open = message.fresh || session.opens.contains(message.lock.open);
  if (message.wait) {
    if (HeldBack(message)) return said->Say(message.sequence, WireError::kGrace);
    if (!open) return said->Say(message.sequence, WireError::kWrongEpoch);
    server::Responder responder(lane, fs::Opcode::kSetLock, message.sequence, disk_.epoch,
                                disk_.counters);
    const int error = locks_.Set(OpenOf(session, message), message.lock, &responder);
    if (error != server::LockService::kParked) responder.Send(fs::ToWire(error));
    return;
  }
  if (message.sequence <= record.acknowledged) return said->Say(0, WireError::kOk);
  const auto before = record.answered.find(message.sequence);
  if (before != record.answered.end() &&
      (before->second.epoch == disk_.epoch || bug_ == LockBug::kAnsweredByAnotherLife)) {
    return said->Say(message.sequence, before->second.error);
  }
  if (HeldBack(message)) return said->Say(message.sequence, WireError::kGrace);
  if (!open) return said->Say(message.sequence, WireError::kWrongEpoch);
  const int error = locks_.Set(OpenOf(session, message), message.lock, nullptr);
  record.answered[message.sequence] = {.epoch = disk_.epoch, .error = fs::ToWire(error)};
  said->Say(message.sequence, fs::ToWire(error));
}

WireError LockServer::Reclaim(Session& session, const LockMessage& message) {
  const server::OpenPtr open = OpenOf(session, message);
  if (grace_.active(Now()) && !grace_.Awaits(open->session)) return WireError::kGrace;
  if (bug_ == LockBug::kReclaimedAfterAnother) {
    return fs::ToWire(locks_.Set(open, message.lock, nullptr));
  }
  return fs::ToWire(locks_.Reclaim(open, message.lock, session.may_reclaim));
}

void LockServer::Release(Session& session, const LockMessage& message) {
  const auto found = session.opens.find(message.lock.open);
  if (found == session.opens.end()) return;
  server::LockOwner owner = message.lock.owner;
  owner.flock = false;
  locks_.OwnerClosed(*found->second, owner);
  locks_.Released(*found->second);
  session.opens.erase(found);
  disk_.records[session.session->id()].opens = session.opens.size();
}

}  // namespace rdfs::coherence
