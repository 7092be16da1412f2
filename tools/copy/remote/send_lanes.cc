#include "tools/copy/remote/send_lanes.h"

#include <algorithm>
#include <utility>

namespace rdfs::copy {

Result<std::unique_ptr<SendLanes>> SendLanes::Create(Settings settings) {
  RDFS_ASSIGN_OR_RETURN(EventFd queued, EventFd::Create());
  return std::unique_ptr<SendLanes>(new SendLanes(std::move(settings), std::move(queued)));
}

// The driver looks at status() a few times a second anyway.
SendLanes::SendLanes(Settings settings, EventFd queued)
    : settings_(std::move(settings)),
      queued_(std::move(queued)),
      threads_([this](Talk& talk, bool& counts) { return Drive(talk, counts); }, [] {}) {}

void SendLanes::Put(const SendCrew::Batch& batch) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(batch);
  if (queue_.size() == 1) queued_.Ring();
}

std::optional<SendCrew::Batch> SendLanes::Take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  const SendCrew::Batch batch = queue_.front();
  queue_.pop_front();
  if (queue_.empty()) queued_.Drain();
  return batch;
}

Status SendLanes::Drive(Talk& talk, bool& counts) {
  Carrying lane;
  const Talk::OnMessage on_message = [&](MessageType type, ByteSpan message) -> Status {
    RDFS_RETURN_IF_ERROR(OnMessage(type, message, lane));
    counts = true;
    return {};
  };
  const Talk::OnCompletion on_completion = [&](const transport::Completion& completion) {
    if (!lane.batches.Done(completion, settings_.release)) return;
    lane.most = std::min(lane.most + 1, kMostUnderWay);
  };
  for (;;) {
    RDFS_ASSIGN_OR_RETURN(bool busy, talk.Hear(on_message, on_completion));
    while (lane.has_room() && !talk.congested()) {
      const auto batch = Take();
      if (!batch) break;
      busy = true;
      RDFS_RETURN_IF_ERROR(
          lane.batches.Send(*batch, talk, *settings_.memory, *lane.ring, settings_.release));
    }
    if (!busy) RDFS_RETURN_IF_ERROR(talk.Sleep({lane.has_room() ? queued_.fd() : -1}));
  }
}

Status SendLanes::OnMessage(MessageType type, ByteSpan message, Carrying& lane) {
  if (type != MessageType::kWelcome || lane.ring) return OutOfTurn();
  RDFS_ASSIGN_OR_RETURN(const Welcome welcome, Welcome::Decode(message));
  if (welcome.slot_bytes != settings_.slot_bytes || welcome.slots != settings_.slots) {
    return {Code::kProtocolError, "the other rdcp has another ring on a further lane"};
  }
  lane.ring = welcome;
  ready_ = true;
  return {};
}

Status BatchesUnderWay::Send(const SendCrew::Batch& batch, Talk& talk,
                             const transport::MemoryRegion& memory, const Welcome& to,
                             const Release& release) {
  const std::uint64_t slot_bytes = to.slot_bytes;
  if (batch.length == 0) {
    release(batch.buffer);
  } else {
    const auto ticket = talk.lane().Write({&memory, batch.buffer * slot_bytes, batch.length},
                                          {to.ring, (batch.number % to.slots) * slot_bytes});
    if (!ticket.ok()) return talk.Checked(ticket.status());
    in_flight_.push_back({*ticket, batch.buffer});
  }
  RDFS_RETURN_IF_ERROR(talk.Say(EncodeBatch(batch.number, batch.length, batch.digest)));
  return talk.Checked(talk.lane().Flush());
}

bool BatchesUnderWay::Done(const transport::Completion& completion, const Release& release) {
  const auto done = std::ranges::find(in_flight_, completion.ticket, &InFlight::ticket);
  if (done == in_flight_.end()) return false;
  release(done->buffer);
  in_flight_.erase(done);
  return true;
}

}  // namespace rdfs::copy
