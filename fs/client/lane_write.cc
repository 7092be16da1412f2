// Writes: staging slots and commits, or bytes inside the message.
//
// A write is a row of chunks, one at a time, so that what the server reports as written is always a
// prefix. A chunk is WRITten into a staging slot and committed by a message behind it; a small one,
// or one without staging, travels inside its message. The slot is the server's until it has
// answered; the bytes are the device's until their WRITE has completed.
//
// After a loss a chunk that may have arrived is sent again under its number: WRITten into a slot of
// the new connection, from the caller's slice, which is the call's until its callback. Where the
// new connection's slots are too small for it, its commit only asks what became of the first; one
// that was not done (kNotStaged: nor will be) begins anew, in chunks that fit.
#include <algorithm>
#include <cerrno>

#include "fs/client/lane_impl.h"

namespace rdfs::fs::client {

CallTicket LaneImpl::Write(const CallContext& context, const OpenPtr& open, std::uint64_t offset,
                           const transport::LocalSlice& from, std::uint32_t flags,
                           Callback<WriteDone> done) {
  Completion completion = [done = std::move(done)](Answer& answer) mutable {
    done(answer.status.ok() ? Result<WriteDone>(answer.write) : std::move(answer.status));
    return true;
  };
  if (open == nullptr || !buffers_.Contains(from) || from.length > kMaxTransferBytes ||
      offset > INT64_MAX - from.length) {
    return Refuse(std::move(completion), EINVAL);
  }
  Slot slot = kNoSlot;
  Call* call = Begin(context, Opcode::kCommit, std::move(completion), &slot);
  if (call == nullptr) return 0;
  call->kind = Call::Kind::kWrite;
  call->open = open;
  call->write = {.offset = offset, .from = from, .flags = flags};
  call->write.result.offset = offset;
  StartWrite(slot);
  return table_.TicketOf(slot);
}

bool LaneImpl::SendsWriteAtOnce(std::uint32_t bytes) const {
  // Each call has one request at a time.
  if (!wire_.connected() || table_.open_calls() >= kMostOnWire) return false;
  if (!IsInline(bytes)) return bytes <= MostStaged() && !free_staging_.empty();
  return bytes <= kMaxInlineDataBytes;
}

bool LaneImpl::IsInline(std::uint32_t bytes) const {
  return bytes <= mount_.options().inline_write_bytes || staging_slots_ == 0;
}

// The next chunk, or the one under way again after a loss.
void LaneImpl::StartWrite(Slot slot) {
  calls_[slot].write.answered = false;
  if (!wire_.connected()) return Wait(waiting_writes_, slot);
  table_.MayHaveArrived(slot) ? ResendChunk(slot) : StartChunk(slot);
}

// The server may have a record of it, under its number: it stays what it is, only the slot is
// another one.
void LaneImpl::ResendChunk(Slot slot) {
  Call& call = calls_[slot];
  if (call.opcode == Opcode::kWrite) return table_.Queue(slot, call.opcode);
  if (call.write.chunk <= MostStaged()) return Stage(slot);
  call.write.inquiring = true;
  table_.Queue(slot, call.opcode);
}

void LaneImpl::StartChunk(Slot slot) {
  Call& call = calls_[slot];
  WriteState& write = call.write;
  if (IsInline(write.left())) {
    write.chunk = std::min<std::uint32_t>(write.left(), kMaxInlineDataBytes);
    call.opcode = Opcode::kWrite;
    return table_.Queue(slot, call.opcode);
  }
  write.chunk = static_cast<std::uint32_t>(std::min<std::uint64_t>(write.left(), MostStaged()));
  call.opcode = Opcode::kCommit;
  Stage(slot);
}

std::uint64_t LaneImpl::MostStaged() const {
  if (staging_slots_ == 0) return 0;
  return std::min<std::uint64_t>(slot_bytes_,
                                 wire_.connection()->capabilities().max_transfer_bytes);
}

void LaneImpl::Stage(Slot slot) {
  WriteState& write = calls_[slot].write;
  if (free_staging_.empty()) return Wait(waiting_writes_, slot);
  write.staging = free_staging_.back();
  free_staging_.pop_back();
  table_.BeginLocal(slot);
  wire_.Write(
      slot,
      {.region = memory_.get(), .offset = write.from.offset + write.done, .length = write.chunk},
      {.region = staging_, .offset = std::uint64_t{write.staging} * slot_bytes_});
}

// The WRITE is on its way; the commit arrives behind it.
void LaneImpl::OnWritePosted(Slot slot) {
  if (!table_.IsOpen(slot) || calls_[slot].late) return;
  calls_[slot].write.staged = true;
  table_.Queue(slot, Opcode::kCommit);
}

// What goes out, made when it does: only then is it certain which slot and which connection.
void LaneImpl::EncodeWrite(Call& call, std::uint32_t slot_bytes) {
  const WriteState& write = call.write;
  const std::uint64_t offset = write.offset + write.done;
  const bool inside = call.opcode == Opcode::kWrite;
  call.payload_bytes = inside ? write.chunk : 0;
  call.body.Encode([&](ByteWriter& writer) {
    if (inside) {
      writer.Write(WriteRequest{.open = 0,  // FillInOpens
                                .offset = offset,
                                .flags = write.flags});
      writer.Write(Le32(write.chunk));  // of the bytes, which follow from the caller's slice
      return;
    }
    writer.Write(CommitRequest{.open = 0,
                               .offset = offset,
                               .flags = write.flags,
                               .length = write.chunk,
                               .staging_offset = write.inquiring
                                                     ? kNothingStaged
                                                     : std::uint64_t{write.staging} * slot_bytes});
  });
}

void LaneImpl::GiveStagingBack(Call& call) {
  if (call.kind != Call::Kind::kWrite) return;
  call.write.staged = false;
  call.write.inquiring = false;
  if (call.write.staging == kNoStaging) return;
  free_staging_.push_back(std::exchange(call.write.staging, kNoStaging));
  if (!closing_) StartWaitingWrites();
}

void LaneImpl::StartWaitingWrites() {
  // Only as many as are there now: one that has to wait again stands at the end of the list.
  for (std::size_t i = waiting_writes_.size(); i > 0 && wire_.connected(); --i) {
    if (staging_slots_ > 0 && free_staging_.empty()) return;
    const Waiting waiting = waiting_writes_.front();
    waiting_writes_.pop_front();
    if (StillWaits(waiting)) Restart(waiting.slot);
  }
}

void LaneImpl::OnWriteReply(Slot slot, WireError error, ByteSpan body) {
  Call& call = calls_[slot];
  WriteState& write = call.write;
  const bool inquired = write.inquiring;
  GiveStagingBack(call);
  if (error == WireError::kNotStaged && inquired) return StartWrite(slot);
  write.answered = true;
  write.failure = Status();
  if (error != WireError::kOk) {
    write.failure = Status(Code::kErrno, ToErrno(error), {});
  } else {
    ByteReader reader(body);
    const auto reply = reader.Read<WriteReply>();
    if (!reader.ok() || reader.remaining() > 0 || reply.written > write.chunk) {
      Finish(slot, Status(Code::kProtocolError, EIO, {}));
      return Hostile("answer to a write");
    }
    if (write.done == 0) write.result.offset = reply.offset;
    write.result.file_size = reply.size;
    write.result.change = reply.change;
    write.result.write_lease = LeaseEnd(call.asked, reply.write_lease_ms);
    write.done += reply.written;
    // The rest is asked for again, and what is wrong with it said then.
    if (reply.written == 0 && write.chunk > 0) write.failure = Status(Code::kErrno, ENOSPC, {});
    if (reply.written > 0 && !call.open->durable()) NoteWritten(*call.open, reply.verifier);
    grants_.OwnChange(call.open->inode(), reply.offset, reply.offset + reply.written);
    (call.opcode == Opcode::kWrite ? counters_->inline_written_bytes : counters_->written_bytes)
        .Add(reply.written);
  }
  if (!table_.HasLocal(slot)) AfterChunk(slot);
}

void LaneImpl::NoteWritten(OpenFile& open, std::uint64_t verifier) {
  open.Wrote(verifier);
  mount_.KeepUnsynced(open.inode_ref());
}

void LaneImpl::NoteFailed(const Call& call, const Answer& answer) {
  if ((call.write.flags & kWriteEarly) == 0) return;
  if (answer.status.ok() && answer.write.written == call.write.from.length) return;
  call.open->WriteFailed(answer.status.ok() ? answer.write.rest_errno
                                            : answer.status.errno_value());
  mount_.KeepUnsynced(call.open->inode_ref());
}

void LaneImpl::AfterChunk(Slot slot) {
  WriteState& write = calls_[slot].write;
  if (write.failure.ok() && write.left() > 0) return StartWrite(slot);
  // What was written is told first; the next write meets the error itself (write(2)).
  if (!write.failure.ok() && write.done == 0) return Finish(slot, std::move(write.failure));
  Answer answer;
  write.result.written = write.done;
  write.result.rest_errno = write.failure.ok() ? 0 : write.failure.errno_value();
  answer.write = write.result;
  Finish(slot, answer);
}

}  // namespace rdfs::fs::client
