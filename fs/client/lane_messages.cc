#include <algorithm>
#include <cerrno>

#include "fs/client/attach.h"
#include "fs/client/decode.h"
#include "fs/client/lane_impl.h"
#include "transport/base/log.h"

namespace rdfs::fs::client {
namespace {

// Pause of a lock request while a lock is undone whose caller heard that it failed.
constexpr std::chrono::milliseconds kUndoPause{10};

}  // namespace

// ---- Sending ------------------------------------------------------------------------------------

void LaneImpl::SendQueued() {
  if (!wire_.connected() || !table_.Next()) return;
  now_ = Now();
  while (wire_.connected()) {
    const std::optional<Slot> slot = table_.Next();
    if (!slot) return;
    SendOne(*slot, now_);
  }
}

void LaneImpl::FillInOpens(Call& call) {
  const MutableByteSpan body = call.body.bytes();
  if (call.open != nullptr) {
    call.sent_open = call.open->server_open();
    const Le64 number = call.sent_open;
    std::memcpy(body.data(), &number, sizeof(number));
  }
  if (call.other_open != nullptr) {
    const Le64 number = call.other_open->server_open();
    std::memcpy(body.data() + offsetof(CopyFileRangeRequest, open_out), &number, sizeof(number));
  }
}

void LaneImpl::SendOne(Slot slot, TimePoint now) {
  Call& call = calls_[slot];
  for (const OpenPtr& open : {call.open, call.other_open}) {
    if (open == nullptr || open->lost_errno() == 0) continue;
    const bool released = IsRelease(call.opcode);
    // A file that lost only its lock (EIO) is still open at the server: send its release.
    if (released && open->lost_errno() != ESTALE) continue;
    FinishLater(slot, released ? Status::Ok() : ErrnoStatus(open->lost_errno()));
    return;
  }
  if (call.opcode == Opcode::kSetLock || call.opcode == Opcode::kFlush) {
    const HeldLocks& locks = call.open->inode().locks;
    if (call.undoes != 0 && call.undoes != locks.asked()) return FinishLater(slot, Status::Ok());
    if (call.undoes == 0 && locks.undoing()) {
      table_.Withdraw(slot);
      return table_.QueueAt(slot, call.opcode, now + kUndoPause);
    }
  }
  if (call.kind == Call::Kind::kWrite) {
    if (call.opcode == Opcode::kCommit && !call.write.staged && !call.write.inquiring) {
      table_.Withdraw(slot);
      return StartWrite(slot);
    }
    EncodeWrite(call, slot_bytes_);
  }
  // Also in what is sent again: names that changed since are no part of the request (NamesInBody).
  FillInOpens(call);
  const MutableByteSpan body = call.body.bytes();

  const RequestTable::Sent sent = table_.MarkSent(slot);
  const TimePoint deadline = table_.DeadlineOf(slot);
  RequestHeader header{};
  header.opcode = static_cast<std::uint16_t>(call.opcode);
  header.flags =
      static_cast<std::uint16_t>((sent.sent_before ? kRequestSentBefore : 0U) |
                                 (call.context.tell_directories ? kRequestTellDirectories : 0U) |
                                 (call.comes_back ? kRequestComesBack : 0U));
  header.body_bytes = static_cast<std::uint32_t>(body.size() + call.payload_bytes);
  header.session = session_;
  header.sequence = sent.sequence;
  header.acknowledged = mount_.sequences().Acknowledged();
  header.deadline_ms = deadline == TimePoint::max()
                           ? 0
                           : static_cast<std::uint32_t>(std::max(1, PollTimeoutMs(deadline, now)));
  header.trace = call.context.trace;
  header.uid = call.context.uid;
  header.gid = call.context.gid;
  header.pid = call.context.pid;
  // What was sent before may be answered from the record: with the leases of then.
  if (!sent.sent_before) call.asked = now;
  std::array<ByteSpan, 4> parts{std::as_bytes(std::span(&header, 1)), body, {}, {}};
  std::size_t count = 2;
  if (call.payload_bytes > 0) {
    parts[count++] =
        memory_->bytes().subspan(call.write.from.offset + call.write.done, call.payload_bytes);
  }
  std::array<std::byte, kMaxAnsweredExtensionBytes> room;
  if (sizeof(header) + header.body_bytes + room.size() <= transport::kMaxMessageBytes) {
    if (const auto answered = table_.TakeAnswered(header.acknowledged)) {
      ByteWriter extension(room);
      WriteAnsweredExtension(extension, *answered);
      parts[count++] = extension.written();
    }
  }
  wire_.Send(std::span(parts).first(count));
}

// ---- Answers ------------------------------------------------------------------------------------

void LaneImpl::Hostile(std::string_view what) {
  LogWarn("the server sent a malformed {}; connecting anew", what);
  wire_.Fail({Code::kProtocolError, std::string(what)});
}

void LaneImpl::OnMessage(ByteSpan message) {
  ByteReader reader(message);
  const auto header = reader.Read<ReplyHeader>();
  const ByteSpan body = reader.ReadBytes(header.body_bytes);
  Extensions extensions;
  if (!reader.ok() || !ReadExtensions(reader, extensions)) return Hostile("message");
  heartbeat_.OnReceived(now_);
  if (header.sequence == 0) return OnUnasked(header, body);
  if (header.epoch != epoch_) {
    stale_session_ = true;
    return wire_.Fail({Code::kDisconnected, "the server has restarted"});
  }
  const auto opcode = static_cast<Opcode>(std::uint16_t{header.opcode});
  const auto error = static_cast<WireError>(std::uint16_t{header.error});
  const RequestTable::Arrival arrival = table_.OnReply(header.sequence, opcode);
  switch (arrival.verdict) {
    case RequestTable::Verdict::kUnknown:
      return Hostile("answer to nothing that was asked");
    case RequestTable::Verdict::kLate:
      if (calls_[arrival.slot].kind == Call::Kind::kWrite) GiveStagingBack(calls_[arrival.slot]);
      return;
    case RequestTable::Verdict::kDeliver:
      break;
  }
  counters_->round_trips[static_cast<std::size_t>(opcode) % counters_->round_trips.size()].Add();
  const std::chrono::nanoseconds took = now_ - calls_[arrival.slot].asked;
  if (round_trip_ == std::chrono::nanoseconds{} || took < round_trip_) round_trip_ = took;
  if (error != WireError::kOk) extensions.directories = {};
  if (!TakeDirectories(arrival.slot, extensions.directories)) {
    Finish(arrival.slot, Status(Code::kProtocolError, EIO, {}));
    Hostile("extension of an answer");
  } else {
    Deliver(arrival.slot, error, body);
  }
  told_count_ = 0;
}

bool LaneImpl::TakeDirectories(Slot slot, ByteSpan directories) {
  const Call& call = calls_[slot];
  ByteReader reader(directories);
  told_trace_ = call.context.trace;
  for (told_count_ = 0; reader.remaining() > 0; ++told_count_) {
    const bool asked = call.context.tell_directories && told_count_ < told_.size();
    if (asked) told_[told_count_] = DecodeAttributes(reader, call.asked);
    if (!asked || !reader.ok()) {
      told_count_ = 0;
      return false;
    }
  }
  return true;
}

std::span<const Attributes> LaneImpl::DirectoriesTold(std::uint64_t trace) const {
  if (trace != told_trace_) return {};
  return std::span(told_).first(told_count_);
}

void LaneImpl::OnUnasked(const ReplyHeader& header, ByteSpan body) {
  if (header.opcode == static_cast<std::uint16_t>(Opcode::kRecall)) return OnRecall(body);
  // Later versions may tell more without being asked; what is not known is theirs to do without.
  if (header.opcode != static_cast<std::uint16_t>(Opcode::kArena)) return;
  ByteReader reader(body);
  const auto arena = reader.Read<ArenaMessage>();
  if (!reader.ok()) return Hostile("arena");
  OnArena(arena);
}

void LaneImpl::OnRecall(ByteSpan body) {
  ByteReader reader(body);
  const auto recall = reader.Read<RecallMessage>();
  RecallNotice notice{.number = recall.number, .handle = ReadHandle(reader), .parts = recall.parts};
  notice.name = AsText(reader.ReadSized16(kMaxNameBytes));
  const bool is_name =
      notice.name.find('/') == notice.name.npos && notice.name.find('\0') == notice.name.npos;
  if (!reader.ok() || !is_name) return Hostile("recall");
  if ((notice.parts & kRecallContent) != 0) {
    // Extents that are granted, or asked for, have the bytes of before.
    if (const auto inode = mount_.FindInode(notice.handle)) inode->own_changes.fetch_add(1);
  }
  OnRecall(notice);
}

void LaneImpl::OnRecall(const RecallNotice& notice) {
  if (!mount_.on_recall()) return AcknowledgeRecall(notice.number);
  mount_.on_recall()(*this, notice);
}

void LaneImpl::AcknowledgeRecall(std::uint64_t number) {
  const RecallAckRequest request{.number = number};
  IssueUrgent(Opcode::kRecallAck, std::as_bytes(std::span(&request, 1)));
}

void LaneImpl::OnArena(const ArenaMessage& arena) {
  if (arenas_.erase(arena.arena) > 0) grants_.DropArena(arena.arena);
  if (arena.region.length == 0) return;
  if (arenas_.size() >= kMaxArenas) return Hostile("number of arenas");
  arenas_[arena.arena] = arena.region.ToRegion();
}

void LaneImpl::Deliver(Slot slot, WireError error, ByteSpan body) {
  Call& call = calls_[slot];
  if (call.late) return GiveStagingBack(call);
  switch (error) {
    case WireError::kGrace:
      // Not this request again: what is held then may be something else.
      if (call.opcode == Opcode::kReclaimLock) {
        return Finish(slot, Status(Code::kUnavailable, EAGAIN, {}));
      }
      GiveStagingBack(call);
      if (EndCancelled(slot)) return;
      // Nobody waits for it any more, and nothing was done.
      if (call.caller_gone && !IsRelease(call.opcode) && call.opcode != Opcode::kFlush) {
        return FinishLater(slot, Status(Code::kErrno, EINTR, {}));
      }
      return table_.QueueAt(slot, call.opcode, now_ + kGracePause);
    case WireError::kUnknownSession:
      stale_session_ = true;
      GiveStagingBack(call);
      table_.Queue(slot, call.opcode);
      return wire_.Fail({Code::kDisconnected, "the server does not know this session any more"});
    case WireError::kWrongEpoch:
      return OnWrongEpoch(slot);
    default:
      break;
  }
  if (call.kind == Call::Kind::kRead && error == WireError::kOk) return OnReadReply(slot, body);
  if (call.kind == Call::Kind::kWrite) return OnWriteReply(slot, error, body);
  // Released twice, because the first answer was lost: that is what was wanted.
  if (IsRelease(call.opcode) && error == WireError::kBadHandle) error = WireError::kOk;
  Answer answer;
  if (error != WireError::kOk) answer.status = ErrnoStatus(ToErrno(error));
  answer.body = ByteReader(body);
  answer.asked = call.asked;
  Finish(slot, answer);
}

}  // namespace rdfs::fs::client
