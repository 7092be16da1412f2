#include "tools/copy/remote/receive_lanes.h"

#include <utility>

namespace rdfs::copy {

Result<std::unique_ptr<ReceiveLanes>> ReceiveLanes::Create(const pipe::Ring& ring) {
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  return std::unique_ptr<ReceiveLanes>(new ReceiveLanes(ring, std::move(wake)));
}

ReceiveLanes::ReceiveLanes(const pipe::Ring& ring, EventFd wake)
    : ring_(ring),
      wake_(std::move(wake)),
      threads_([this](Talk& talk, bool& counts) { return Drive(talk, counts); },
               [this] { wake_.Ring(); }) {}

Status ReceiveLanes::Drive(Talk& talk, bool& counts) {
  RDFS_ASSIGN_OR_RETURN(const auto shared, talk.lane().Share(*ring_.memory));
  RDFS_RETURN_IF_ERROR(talk.Say(Welcome{shared, ring_.size.slot_bytes, ring_.size.slots}.Encode()));
  const bool never = false;
  return talk.HearUntil(never, [&](MessageType type, ByteSpan message) -> Status {
    counts = true;
    if (type != MessageType::kBatch) return OutOfTurn();
    RDFS_ASSIGN_OR_RETURN(const BatchWire batch, DecodeBatch(message, ring_.size.slot_bytes));
    return Put(batch);
  });
}

Status ReceiveLanes::Put(const BatchWire& batch) {
  {
    const std::lock_guard lock(mutex_);
    // No more than were granted; which ones the driver checks.
    if (came_.size() >= ring_.size.slots) return OutOfTurn();
    came_.push_back(batch);
  }
  wake_.Ring();
  return {};
}

Status ReceiveLanes::Take(std::vector<BatchWire>& out) {
  out.clear();
  wake_.Drain();
  {
    const std::lock_guard lock(mutex_);
    came_.swap(out);
  }
  return threads_.status();
}

}  // namespace rdfs::copy
