// Writes: staging slots and commits, or bytes inside the message.
//
// A write is a row of chunks, one at a time, so that what the server reports as written is always a
// prefix. A chunk is WRITten into a staging slot and committed by a message behind it; a small one,
// or one without staging, travels inside its message. The slot is the server's until it has
// answered; the bytes are the device's until their WRITE has completed.
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

// The next chunk. One that may have reached the server keeps its length, its place and its slot.
void LaneImpl::StartWrite(Slot slot) {
  Call& call = calls_[slot];
  WriteState& write = call.write;
  write.answered = false;
  if (!wire_.connected()) return Wait(waiting_writes_, slot);
  if (table_.MayHaveArrived(slot)) {
    return call.opcode == Opcode::kWrite ? table_.Queue(slot, call.opcode) : Stage(slot);
  }
  if (write.left() <= mount_.options().inline_write_bytes || staging_slots_ == 0) {
    return WriteInline(slot);
  }
  write.chunk = 0;
  Stage(slot);
}

void LaneImpl::WriteInline(Slot slot) {
  Call& call = calls_[slot];
  WriteState& write = call.write;
  write.chunk = std::min<std::uint32_t>(write.left(), kMaxInlineDataBytes);
  call.opcode = Opcode::kWrite;
  call.payload_bytes = write.chunk;
  call.body.Encode([&](ByteWriter& writer) {
    writer.Write(WriteRequest{.open = 0,  // filled in when it is sent
                              .offset = write.offset + write.done,
                              .flags = write.flags});
    writer.Write(Le32(write.chunk));  // of the bytes, which follow from the caller's slice
  });
  table_.Queue(slot, Opcode::kWrite);
}

void LaneImpl::Stage(Slot slot) {
  Call& call = calls_[slot];
  WriteState& write = call.write;
  call.opcode = Opcode::kCommit;
  call.payload_bytes = 0;
  if (write.staging == kNoStaging) {
    // What may have arrived cannot be asked again from another slot; nobody knows what became of
    // it.
    if (table_.MayHaveArrived(slot)) return FinishLater(slot, Status(Code::kErrno, EIO, {}));
    if (free_staging_.empty()) return Wait(waiting_writes_, slot);
    write.staging = free_staging_.back();
    free_staging_.pop_back();
  }
  if (write.chunk == 0) {
    const std::uint64_t most =
        std::min<std::uint64_t>(slot_bytes_, wire_.connection()->capabilities().max_transfer_bytes);
    write.chunk = static_cast<std::uint32_t>(std::min<std::uint64_t>(write.left(), most));
  }
  table_.BeginLocal(slot);
  wire_.Write(
      slot,
      {.region = memory_.get(), .offset = write.from.offset + write.done, .length = write.chunk},
      {.region = staging_, .offset = std::uint64_t{write.staging} * slot_bytes_});
}

// The WRITE is on its way; the commit arrives behind it.
void LaneImpl::OnWritePosted(Slot slot) {
  if (!table_.IsOpen(slot)) return;
  Call& call = calls_[slot];
  WriteState& write = call.write;
  write.staged = true;
  call.body.Encode([&](ByteWriter& writer) {
    writer.Write(CommitRequest{.open = 0,  // filled in when it is sent
                               .offset = write.offset + write.done,
                               .flags = write.flags,
                               .length = write.chunk,
                               .staging_offset = std::uint64_t{write.staging} * slot_bytes_});
  });
  table_.Queue(slot, Opcode::kCommit);
}

void LaneImpl::GiveStagingBack(Call& call) {
  if (call.kind != Call::Kind::kWrite) return;
  call.write.staged = false;
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
  GiveStagingBack(call);
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
    write.done += reply.written;
    // Less than asked: there is no room for more.
    if (reply.written < write.chunk) write.failure = Status(Code::kErrno, ENOSPC, {});
    call.open->NoteWritten(reply.verifier);
    grants_.OwnChange(call.open->inode(), reply.offset, reply.offset + reply.written);
    (call.opcode == Opcode::kWrite ? counters_->inline_written_bytes : counters_->written_bytes)
        .Add(reply.written);
  }
  if (!table_.HasLocal(slot)) AfterChunk(slot);
}

void LaneImpl::AfterChunk(Slot slot) {
  WriteState& write = calls_[slot].write;
  if (write.failure.ok() && write.left() > 0) {
    write.chunk = 0;
    return StartWrite(slot);
  }
  // What was written is told first; the next write meets the error itself (write(2)).
  if (!write.failure.ok() && write.done == 0) return Finish(slot, std::move(write.failure));
  Answer answer;
  write.result.written = write.done;
  answer.write = write.result;
  Finish(slot, answer);
}

}  // namespace rdfs::fs::client
