#include "tools/pipe/send/send_state.h"

#include <algorithm>
#include <utility>

namespace rdfs::pipe {

using Kind = SendAction::Kind;

namespace {

Status OutOfTurn() { return {Code::kProtocolError, "the receiver sent a message out of turn"}; }

}  // namespace

void SendState::Say(Bytes message, TimePoint now, SendActions& out) {
  out.push_back({.kind = Kind::kSend, .message = std::move(message)});
  liveness_.Sent(now);
}

void SendState::Finish(Status status, SendActions& out) {
  if (over()) return;
  state_ = State::kOver;
  status_ = std::move(status);
  waiting_.clear();
  out.push_back({.kind = Kind::kFinish});
}

void SendState::Fail(Status why, SendActions& out) {
  if (over()) return;
  out.push_back({.kind = Kind::kSend, .message = EncodeAbort(why)});
  gave_up_ = true;
  Finish(std::move(why), out);
}

void SendState::Lost(const Status& why, SendActions& out) {
  Finish(Status(Code::kDisconnected,
                "the receiver is gone before it confirmed the end (" + why.message() + ")"),
         out);
}

void SendState::OnMessage(ByteSpan message, TimePoint now, SendActions& out) {
  if (over()) return;
  liveness_.Heard(now);
  if (Status status = Handle(message, now, out); !status.ok()) Fail(std::move(status), out);
}

Status SendState::Handle(ByteSpan message, TimePoint now, SendActions& out) {
  const auto type = TypeOf(message);
  if (!type) return {Code::kProtocolError, "the receiver sent an unknown message"};
  switch (*type) {
    case MessageType::kWelcome:
      return OnWelcome(message, out);
    case MessageType::kCredit:
      RDFS_RETURN_IF_ERROR(OnCredit(message));
      SendWhatFits(now, out);
      return {};
    case MessageType::kReport:
      return OnReport(message);
    case MessageType::kStored:
      return OnStored(message, out);
    case MessageType::kAbort:
      Finish(DecodeAbort(message).WithContext("the receiver gave up"), out);
      return {};
    case MessageType::kPing:
      if (liveness_.AnswersPing(now)) Say(EncodeBare(MessageType::kPing), now, out);
      return {};
    default:
      return OutOfTurn();
  }
}

Status SendState::OnWelcome(ByteSpan message, SendActions& out) {
  if (state_ != State::kGreeting) return OutOfTurn();
  RDFS_ASSIGN_OR_RETURN(welcome_, Welcome::Decode(message));
  state_ = State::kChecking;
  out.push_back({.kind = Kind::kCheck});
  return {};
}

void SendState::OnChecked(std::uint64_t bytes, TimePoint now, SendActions& out) {
  if (state_ != State::kChecking) return;
  state_ = State::kStreaming;
  begin_ = bytes;
  // What the receiver has already is part of the stream, and of its digest.
  for (std::uint64_t at = 0, i = 0; at < bytes; ++i) {
    const std::uint64_t length = std::min(welcome_.block_bytes, bytes - at);
    digest_.Add(at, length, welcome_.blocks[i]);
    at += length;
  }
  Say(EncodeNumber(MessageType::kBegin, bytes), now, out);
  out.push_back({.kind = Kind::kStart, .offset = bytes});
}

void SendState::OnRecord(const ReadyRecord& record, TimePoint now, SendActions& out) {
  if (state_ != State::kStreaming) return;
  waiting_.emplace(record.header.sequence, record);
  SendWhatFits(now, out);
}

void SendState::OnSourceEnd(std::uint64_t records, std::uint64_t length, TimePoint now,
                            SendActions& out) {
  if (state_ != State::kStreaming) return;
  end_ = End{records, length};
  SendWhatFits(now, out);
}

void SendState::SendWhatFits(TimePoint now, SendActions& out) {
  if (state_ != State::kStreaming) return;
  while (next_ < stored_ + welcome_.slots) {
    const auto first = waiting_.find(next_);
    if (first == waiting_.end()) break;
    SendRecord(first->second, out);
    liveness_.Sent(now);
    waiting_.erase(first);
    ++next_;
  }
  if (!end_ || next_ != end_->records) return;
  state_ = State::kEnding;
  SendEnd(out);
  liveness_.Sent(now);
}

void SendState::SendRecord(const ReadyRecord& record, SendActions& out) {
  const RecordWire& header = record.header;
  if (record.buffer) {
    out.push_back({.kind = Kind::kWrite,
                   .buffer = *record.buffer,
                   .slot = static_cast<std::uint32_t>(next_ % welcome_.slots),
                   .length = header.wire_bytes});
  }
  out.push_back({.kind = Kind::kSend, .message = ToBytes(header)});
  digest_.Add(header.offset, header.length, header.digest);
  sent_bytes_ += header.length;
}

void SendState::SendEnd(SendActions& out) {
  end_wire_.type = static_cast<std::uint8_t>(MessageType::kEnd);
  end_wire_.number = end_->records;
  end_wire_.length = end_->length;
  end_wire_.digest = digest_.Value();
  if (from_us_) {
    const Status sealed =
        from_us_->Close(end_->records, BoundPart(end_wire_), {}, {}, end_wire_.tag);
    if (!sealed.ok()) return Fail(sealed, out);
  }
  out.push_back({.kind = Kind::kSend, .message = ToBytes(end_wire_)});
}

Status SendState::OnCredit(ByteSpan message) {
  RDFS_ASSIGN_OR_RETURN(const std::uint64_t stored, DecodeNumber(message));
  if (stored < stored_ || stored > next_) {
    return {Code::kProtocolError, "the receiver says that it stored what was never sent"};
  }
  stored_ = stored;
  return {};
}

Status SendState::OnReport(ByteSpan message) {
  if (state_ != State::kEnding || failed_.size() > kMaxHops) return OutOfTurn();
  RDFS_ASSIGN_OR_RETURN(FailedHop hop, DecodeReport(message));
  failed_.push_back(std::move(hop));
  return {};
}

Status SendState::OnStored(ByteSpan message, SendActions& out) {
  RDFS_ASSIGN_OR_RETURN(const EndWire stored, DecodeEnd(message));
  if (state_ != State::kEnding) {
    return {Code::kProtocolError, "the receiver confirmed an end that was never sent"};
  }
  if (from_peer_) {
    RDFS_RETURN_IF_ERROR(from_peer_->Open(0, BoundPart(stored), {}, stored.tag, {}));
  }
  if (stored.length != end_wire_.length || stored.digest != end_wire_.digest ||
      stored.number != failed_.size()) {
    return {Code::kProtocolError, "the receiver confirmed something else than what was sent"};
  }
  out.push_back({.kind = Kind::kSend, .message = EncodeBare(MessageType::kFarewell)});
  Finish(Status::Ok(), out);
  return {};
}

void SendState::OnTime(TimePoint now, SendActions& out) {
  if (over()) return;
  if (liveness_.Dead(now)) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(liveness_.limit());
    return Fail(Status(Code::kDeadlineExceeded, "the receiver has been silent for " +
                                                    std::to_string(seconds.count()) +
                                                    " s: it is stopped, or its machine is gone"),
                out);
  }
  if (!liveness_.PingDue(now)) return;
  Say(EncodeBare(MessageType::kPing), now, out);
  liveness_.Pinged();
}

}  // namespace rdfs::pipe
