#include "tools/pipe/io/handover.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace rdfs::pipe {

Result<std::shared_ptr<Handover>> Handover::Create() {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::shared_ptr<Handover>(new Handover(std::move(wake)));
}

Status Handover::WhyOver() const {
  if (over_->ok()) return {Code::kErrno, EPIPE, "the stream has ended"};
  // EAGAIN says that nothing has come yet: who heard it of a stream that is over would ask for
  // ever.
  if (over_->errno_value() == EAGAIN) return {over_->code(), EBUSY, over_->message()};
  return *over_;
}

void Handover::Wake() const { wake_.Ring(); }

void Handover::Sleep() const { wake_.Drain(); }

Status Handover::Write(ByteSpan bytes) {
  const std::lock_guard turn(turn_);
  std::unique_lock lock(mutex_);
  if (over_) return WhyOver();
  if (ended_) return {Code::kErrno, EPIPE, "the stream has ended"};
  offered_ = bytes;
  if (!bytes.empty()) Wake();
  changed_.wait(lock, [this] { return offered_.empty() || over_; });
  return std::exchange(offered_, {}).empty() ? Status::Ok() : WhyOver();
}

Result<std::size_t> Handover::Read(MutableByteSpan room,
                                   std::optional<std::chrono::milliseconds> limit) {
  const std::lock_guard turn(turn_);
  std::unique_lock lock(mutex_);
  wanted_ = room;
  Wake();
  const auto answered = [this] { return wanted_.empty() || ended_ || over_; };
  if (!limit) {
    changed_.wait(lock, answered);
  } else if (!changed_.wait_for(lock, *limit, answered)) {
    wanted_ = {};
    return Status(Code::kErrno, EAGAIN, "nothing has come yet");
  }
  if (std::exchange(wanted_, {}).empty()) return put_;
  if (ended_) return std::size_t{0};
  return WhyOver();
}

std::optional<std::size_t> Handover::Take(MutableByteSpan room) {
  const std::lock_guard lock(mutex_);
  if (offered_.empty()) {
    if (ended_) return 0;
    Sleep();
    return std::nullopt;
  }
  const std::size_t length = std::min(offered_.size(), room.size());
  std::memcpy(room.data(), offered_.data(), length);
  offered_ = offered_.subspan(length);
  if (offered_.empty()) changed_.notify_all();
  return length;
}

std::size_t Handover::Put(ByteSpan bytes) {
  const std::lock_guard lock(mutex_);
  if (wanted_.empty()) {
    Sleep();
    return 0;
  }
  put_ = std::min(bytes.size(), wanted_.size());
  std::memcpy(wanted_.data(), bytes.data(), put_);
  wanted_ = {};
  changed_.notify_all();
  return put_;
}

void Handover::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  Wake();
  changed_.notify_all();
}

void Handover::Break(Status why) {
  const std::lock_guard lock(mutex_);
  if (!over_) over_ = std::move(why);
  Wake();
  changed_.notify_all();
}

}  // namespace rdfs::pipe
