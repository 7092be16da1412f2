// VerbsConnection's data path: transfers out, completions and frames in.
#include <cstring>

#include "transport/verbs/connection.h"
#include "transport/verbs/errors.h"

namespace rdfs::transport::verbs {
namespace {

Completion Completed(WorkKind kind, Ticket ticket) {
  return {.kind = kind == WorkKind::kRead ? Completion::Kind::kRead : Completion::Kind::kWritten,
          .ticket = ticket,
          .status = Status::Ok(),
          .message = {}};
}

}  // namespace

Result<Ticket> VerbsConnection::Read(const LocalSlice& to, const RemoteSlice& from, Order order) {
  if (to.region != nullptr && to.region->access() == Access::kRemoteRead) {
    return Status(Code::kInvalidArgument, "a region that peers read cannot be read into");
  }
  return Transfer(WorkKind::kRead, to, from, order == Order::kAfterEarlierReads);
}

Result<Ticket> VerbsConnection::Write(const LocalSlice& from, const RemoteSlice& to) {
  return Transfer(WorkKind::kWrite, from, to, false);
}

// Only what is ours: whether the peer shares the remote range is for its device to say.
Status VerbsConnection::CheckTransfer(const LocalSlice& local, const RemoteSlice& remote) const {
  if (local.region == nullptr || local.region->domain() != domain_.get()) {
    return {Code::kInvalidArgument, "the local region is of another domain than the connection"};
  }
  if (local.offset > local.region->size() || local.length > local.region->size() - local.offset) {
    return {Code::kInvalidArgument, "a slice outside its region"};
  }
  if (local.length > capabilities_.max_transfer_bytes) {
    return {Code::kInvalidArgument, "a transfer above max_transfer_bytes"};
  }
  if (remote.region.key > UINT32_MAX) {
    return {Code::kInvalidArgument, "the key of the remote region is none of an RDMA device"};
  }
  return Status::Ok();
}

Result<Ticket> VerbsConnection::Transfer(WorkKind kind, const LocalSlice& local,
                                         const RemoteSlice& remote, bool fenced) {
  RDFS_RETURN_IF_ERROR(CheckTransfer(local, remote));
  if (!over_.ok()) return over_;
  if (transfers_under_way_ == limits().max_transfers) {
    return Status(Code::kBusy, "max_outstanding READs and WRITEs are under way");
  }
  RDFS_ASSIGN_OR_RETURN(const DeviceRegistration* registration,
                        RegistrationOf(*local.region, device_index_));
  const Ticket ticket = next_ticket_++;
  ++transfers_under_way_;
  if (ending()) return ticket;  // void: Poll is about to say that the connection is over
  if (local.length == 0) {
    empty_transfers_.push_back(Completed(kind, ticket));
    return ticket;
  }
  queue_pair_->QueueTransfer(
      {.id = WorkId(kind, ticket),
       .opcode = kind == WorkKind::kRead ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
       .fenced = fenced,
       .local_address =
           reinterpret_cast<std::uintptr_t>(local.region->bytes().data()) + local.offset,
       .local_key = registration->local_key(),
       .length = static_cast<std::uint32_t>(local.length),
       .remote_address = remote.region.address + remote.offset,
       .remote_key = static_cast<std::uint32_t>(remote.region.key)});
  return ticket;
}

Result<std::size_t> VerbsConnection::Poll(std::span<Completion> out) {
  if (!over_.ok()) return over_;
  Repost();
  PostSends();
  std::size_t count = HandleCompletions(out);
  if (count == 0 && --polls_until_look_ == 0) {
    LookAtEvents();
    // What arrived before the event is in the queue by now.
    count = HandleCompletions(out);
  }
  if (count > 0) {
    // The peer is there. Only an event that waits to be read is looked for all the same.
    if (!armed_) polls_until_look_ = kPollsBetweenLooks;
  } else {
    if (ending()) {
      over_ = ending_;
      AsOwner([this] { queue_pair_->End(); });
      return over_;
    }
    // Nobody looks at these: the caller got no message. The peer may be waiting for the credits.
    Repost();
  }
  PostSends();
  return count;
}

std::size_t VerbsConnection::HandleCompletions(std::span<Completion> out) {
  std::size_t count = 0;
  for (; count < out.size() && !empty_transfers_.empty(); ++count) {
    out[count] = std::move(empty_transfers_.front());
    empty_transfers_.pop_front();
    --transfers_under_way_;
  }
  while (count < out.size() && !assembled_delivered_) {
    if (batch_.empty()) {
      Result<std::span<const ibv_wc>> some = queue_pair_->PollCompletions();
      if (!some.ok()) {
        BeginEnding(some.status());
        break;
      }
      if ((*some).empty()) break;
      batch_ = *some;
      came_since_armed_ = true;
    }
    const ibv_wc& completion = batch_.front();
    batch_ = batch_.subspan(1);
    if (Handle(completion, out[count])) ++count;
  }
  return count;
}

bool VerbsConnection::Handle(const ibv_wc& completion, Completion& out) {
  const WorkId id = WorkId::FromRaw(completion.wr_id);
  if (completion.status != IBV_WC_SUCCESS) {
    BeginEnding(FromCompletion(completion.status, id.kind()));
    return false;
  }
  switch (id.kind()) {
    case WorkKind::kReceive:
      // A WRITE with immediate takes a receive too, leaves its buffer as it was, and tells the
      // length of what it wrote elsewhere.
      if (completion.opcode != IBV_WC_RECV || (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ||
          completion.byte_len > kFrameBytes) {
        return EndByFrame({Code::kProtocolError, "the peer sent something that is no frame"});
      }
      return HandleFrame(static_cast<std::uint32_t>(id.value()), completion.byte_len, out);
    case WorkKind::kSend:
      outbox_->OnSent(id.value());
      return false;
    case WorkKind::kRead:
    case WorkKind::kWrite:
      --transfers_under_way_;
      out = Completed(id.kind(), id.value());
      return true;
  }
  return false;
}

bool VerbsConnection::HandleFrame(std::uint32_t slot, std::uint32_t length, Completion& out) {
  used_slots_[used_slot_count_++] = slot;
  if (last_frame_seen_) return false;
  // The peer cannot change the bytes any more: the buffer is ours until it is posted again.
  ByteReader reader(queue_pair_->receive_buffer(slot).first(length));
  const auto header = reader.Read<FrameHeader>();
  const auto type = FrameType{header.type};
  const ByteSpan payload = reader.rest();
  if (!reader.ok() || header.flags != 0 || (type == FrameType::kOpening) == peer_opened_) {
    return EndByFrame({Code::kProtocolError, "the peer sent a frame that makes no sense here"});
  }
  if (type == FrameType::kOpening) {
    if (Status opened = HandleOpening(payload); !opened.ok()) return EndByFrame(std::move(opened));
  }
  credits_.OnFrame(header.credits);
  switch (type) {
    case FrameType::kOpening:
      if (!outbox_->open()) outbox_->Open();
      return false;
    case FrameType::kMessage:
    case FrameType::kContinuation:
      return HandleMessage(header, payload, out);
    case FrameType::kCredits:
      return false;
    case FrameType::kBye:
      return EndByFrame({Code::kDisconnected, "the peer closed the connection"});
  }
  return EndByFrame({Code::kProtocolError, "the peer sent a frame of an unknown type"});
}

bool VerbsConnection::EndByFrame(Status why) {
  BeginEnding(std::move(why));
  last_frame_seen_ = true;
  return false;
}

Status VerbsConnection::HandleOpening(ByteSpan payload) {
  ByteReader reader(payload);
  const auto opening = reader.Read<Opening>();
  if (!reader.ok() || opening.magic != kOpeningMagic) {
    return {Code::kProtocolError, "the peer does not speak rdfs"};
  }
  if (opening.version_major != kVersionMajor || opening.frame_bytes < kFrameBytes) {
    return {Code::kVersionMismatch,
            "the peer's RDMA frames are of another version; install the same rdfs on both hosts"};
  }
  if (!credits_.OnOpening(opening.receive_slots)) {
    return {Code::kProtocolError, "the peer has too few receive buffers"};
  }
  peer_opened_ = true;
  nudge_timer_.Reset();
  return Status::Ok();
}

bool VerbsConnection::HandleMessage(const FrameHeader& header, ByteSpan payload, Completion& out) {
  Result<std::optional<Reassembler::Message>> message = reassembler_.Add(header, payload);
  if (!message.ok()) return EndByFrame(message.status());
  if (!*message) return false;
  assembled_delivered_ = !(**message).in_frame;
  out = {.kind = Completion::Kind::kMessage,
         .ticket = 0,
         .status = Status::Ok(),
         .message = (**message).bytes};
  return true;
}

void VerbsConnection::Repost() {
  assembled_delivered_ = false;
  if (used_slot_count_ == 0 || ending()) return;
  for (std::uint32_t i = 0; i < used_slot_count_; ++i) queue_pair_->QueueReceive(used_slots_[i]);
  if (const Status posted = queue_pair_->PostReceives(); !posted.ok()) {
    return BeginEnding({Code::kDisconnected, "the RDMA connection has ended: " + posted.message()});
  }
  credits_.OnReposted(used_slot_count_);
  used_slot_count_ = 0;
}

}  // namespace rdfs::transport::verbs
