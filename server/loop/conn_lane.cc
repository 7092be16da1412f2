#include "server/loop/conn_lane.h"

#include <array>
#include <utility>

namespace rdfs::server {
namespace {

constexpr std::size_t kKeptHeldBytes = 256 * 1024;

}  // namespace

std::shared_ptr<ConnLane> ConnLane::Create(SessionPtr session,
                                           std::unique_ptr<transport::Connection> connection,
                                           std::shared_ptr<StagingBudget> budget,
                                           std::uint64_t epoch, PostFunction post,
                                           std::vector<std::weak_ptr<ConnLane>>& unflushed,
                                           AnswerTimes& times) {
  transport::Connection& raw = *connection;
  std::shared_ptr<ConnLane> lane(new ConnLane(std::move(session), std::move(connection),
                                              std::move(budget), std::move(post), unflushed,
                                              times));
  std::weak_ptr<ConnLane> weak = lane;
  lane->SetGrants(std::make_shared<GrantLane>(raw, [weak, epoch](const fs::ArenaMessage& arena) {
    const std::shared_ptr<ConnLane> self = weak.lock();
    if (!self) return Status(Code::kDisconnected, "the lane is gone");
    fs::ReplyHeader header{};
    header.opcode = static_cast<std::uint16_t>(fs::Opcode::kArena);
    header.body_bytes = static_cast<std::uint32_t>(sizeof(arena));
    header.epoch = epoch;
    const std::array<ByteSpan, 2> parts = {
        std::as_bytes(std::span<const fs::ReplyHeader, 1>(&header, 1)),
        std::as_bytes(std::span<const fs::ArenaMessage, 1>(&arena, 1))};
    self->Send(parts);
    return self->failure();
  }));
  return lane;
}

ConnLane::ConnLane(SessionPtr session, std::unique_ptr<transport::Connection> connection,
                   std::shared_ptr<StagingBudget> budget, PostFunction post,
                   std::vector<std::weak_ptr<ConnLane>>& unflushed, AnswerTimes& times)
    : Lane(std::move(session)),
      connection_(std::move(connection)),
      budget_(std::move(budget)),
      post_(std::move(post)),
      unflushed_lanes_(unflushed),
      times_(times) {}

void ConnLane::Send(std::span<const ByteSpan> parts) {
  if (!holding_) return SendNow(parts);
  const std::size_t before = held_.size();
  for (const ByteSpan part : parts) held_.insert(held_.end(), part.begin(), part.end());
  held_sizes_.push_back(held_.size() - before);
}

void ConnLane::SendNow(std::span<const ByteSpan> parts) {
  if (closed() || !failure_.ok()) return;
  NoteWord();
  failure_ = connection_->Send(parts);
  if (!std::exchange(unflushed_, true)) {
    unflushed_lanes_.push_back(std::static_pointer_cast<ConnLane>(shared_from_this()));
  }
}

void ConnLane::Release() {
  holding_ = false;
  std::size_t at = 0;
  for (const std::size_t size : held_sizes_) {
    const ByteSpan message = ByteSpan(held_).subspan(at, size);
    SendNow(std::span<const ByteSpan>(&message, 1));
    at += size;
  }
  // One burst of long answers is no reason to have that much memory for ever.
  if (held_.capacity() > kKeptHeldBytes) held_ = {};
  held_.clear();
  held_sizes_.clear();
}

Status ConnLane::Flush() {
  if (closed() || !failure_.ok()) return failure_;
  // What an earlier one has left, because the wire was full, is nobody else's to send.
  const std::size_t backlog = connection_->backlog_bytes();
  if (unflushed_ || backlog > 0) {
    unflushed_ = false;
    failure_ = connection_->Flush();
    if (connection_->backlog_bytes() < backlog) NoteWord();
  }
  CountUnread(connection_->kept_bytes());
  return failure_;
}

void ConnLane::CountUnread(std::size_t now) {
  const std::size_t before = std::exchange(counted_unread_, now);
  const auto& unread = session()->params().unread;
  if (before != now && unread != nullptr) unread->Change(before, now);
}

std::shared_ptr<Staging> ConnLane::MakeStaging(std::size_t wished_bytes) {
  if (closed()) return nullptr;
  const auto& own = session()->params().staging;
  return Staging::Create(session()->access().domain, *connection_, wished_bytes,
                         own != nullptr ? own : budget_);
}

void ConnLane::Close() {
  if (closed()) return;
  grants()->Close();
  CountUnread(0);
  connection_.reset();
}

}  // namespace rdfs::server
