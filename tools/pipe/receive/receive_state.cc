#include "tools/pipe/receive/receive_state.h"

#include <algorithm>
#include <utility>

namespace rdfs::pipe {

using Kind = ReceiveAction::Kind;

namespace {

Status OutOfTurn() { return {Code::kProtocolError, "the sender sent a message out of turn"}; }

}  // namespace

void ReceiveState::Say(Bytes message, TimePoint now, ReceiveActions& out) {
  out.push_back({.kind = Kind::kSend, .message = std::move(message)});
  liveness_.Sent(now);
}

void ReceiveState::Finish(Status status, ReceiveActions& out) {
  if (over()) return;
  state_ = State::kOver;
  status_ = std::move(status);
  out.push_back({.kind = Kind::kFinish});
}

void ReceiveState::Fail(Status why, ReceiveActions& out) {
  if (over()) return;
  if (confirmed()) return Finish(Status::Ok(), out);
  out.push_back({.kind = Kind::kSend, .message = EncodeAbort(why)});
  gave_up_ = true;
  Finish(std::move(why), out);
}

void ReceiveState::Lost(const Status& why, ReceiveActions& out) {
  // What was confirmed is whole, whether or not the sender heard it.
  if (confirmed()) return Finish(Status::Ok(), out);
  if (came_whole()) {
    lost_ = true;
    return;
  }
  if (!over()) sender_ = Sender::kGoesOn;
  Finish(Status(Code::kDisconnected,
                "the sender is gone before the end of the stream (" + why.message() + ")"),
         out);
}

void ReceiveState::OnOpened(Welcome welcome, TimePoint now, ReceiveActions& out) {
  if (state_ != State::kOpening) return;
  welcome_ = std::move(welcome);
  ends_.resize(welcome_.slots);
  state_ = State::kGreeting;
  Say(welcome_.Encode(), now, out);
}

void ReceiveState::OnMessage(ByteSpan message, TimePoint now, ReceiveActions& out) {
  if (over()) return;
  liveness_.Heard(now);
  if (Status status = Handle(message, now, out); !status.ok()) Fail(std::move(status), out);
}

Status ReceiveState::Handle(ByteSpan message, TimePoint now, ReceiveActions& out) {
  const auto type = TypeOf(message);
  if (!type) return {Code::kProtocolError, "the sender sent an unknown message"};
  switch (*type) {
    case MessageType::kBegin:
      return OnBegin(message, out);
    case MessageType::kRecord:
      return OnRecord(message, out);
    case MessageType::kEnd:
      return OnEnd(message, out);
    case MessageType::kAbort: {
      if (confirmed()) return OutOfTurn();
      const Status why = DecodeAbort(message);
      if (why.code() == Code::kUnavailable && came_whole()) {  // nothing is left to go on with
        lost_ = true;
        return {};
      }
      sender_ = why.code() == Code::kUnavailable ? Sender::kGoesOn : Sender::kOver;
      Finish(why.WithContext("the sender gave up"), out);
      return {};
    }
    case MessageType::kPing:
      if (liveness_.AnswersPing(now)) Say(EncodeBare(MessageType::kPing), now, out);
      return {};
    case MessageType::kFarewell:
      if (!confirmed()) return OutOfTurn();
      Finish(Status::Ok(), out);
      return {};
    default:
      return OutOfTurn();
  }
}

Status ReceiveState::OnBegin(ByteSpan message, ReceiveActions& out) {
  if (state_ != State::kGreeting) return OutOfTurn();
  RDFS_ASSIGN_OR_RETURN(begin_, DecodeNumber(message));
  const bool whole_blocks = begin_ == welcome_.have_bytes ||
                            (begin_ < welcome_.have_bytes && begin_ % welcome_.block_bytes == 0);
  if (!whole_blocks) {
    return {Code::kProtocolError, "the sender goes on at a place that was not offered"};
  }
  for (std::uint64_t at = 0, i = 0; at < begin_; ++i) {
    const std::uint64_t length = std::min(welcome_.block_bytes, begin_ - at);
    digest_.Add(at, length, welcome_.blocks[i]);
    at += length;
  }
  offset_ = stored_offset_ = begin_;
  state_ = State::kStreaming;
  out.push_back({.kind = Kind::kBegin, .offset = begin_});
  return {};
}

Status ReceiveState::OnRecord(ByteSpan message, ReceiveActions& out) {
  if (state_ != State::kStreaming) return OutOfTurn();
  RDFS_ASSIGN_OR_RETURN(const RecordWire record, DecodeRecord(message, welcome_.slot_bytes));
  if (record.sequence != next_ || record.offset != offset_) {
    return {Code::kProtocolError, "the sender left a gap in the stream"};
  }
  if (next_ - stored_ >= welcome_.slots) {
    return {Code::kProtocolError, "the sender overran the ring"};
  }
  const auto slot = static_cast<std::uint32_t>(next_ % welcome_.slots);
  ++next_;
  offset_ += record.length;
  ends_[slot] = offset_;
  digest_.Add(record.offset, record.length, record.digest);
  out.push_back({.kind = Kind::kStore, .slot = slot, .record = record});
  return {};
}

void ReceiveState::OnStored(std::uint64_t sequence, TimePoint now, ReceiveActions& out) {
  if (over()) return;
  out_of_order_.insert(sequence);
  const std::uint64_t before = stored_;
  while (!out_of_order_.empty() && *out_of_order_.begin() == stored_) {
    stored_offset_ = ends_[stored_ % welcome_.slots];
    out_of_order_.erase(out_of_order_.begin());
    ++stored_;
  }
  if (stored_ != before && state_ == State::kStreaming) {
    Say(EncodeNumber(MessageType::kCredit, stored_), now, out);
  }
  FinishWhenStored(out);
}

Status ReceiveState::OnEnd(ByteSpan message, ReceiveActions& out) {
  if (state_ != State::kStreaming) return OutOfTurn();
  RDFS_ASSIGN_OR_RETURN(end_, DecodeEnd(message));
  if (from_peer_) {
    RDFS_RETURN_IF_ERROR(from_peer_->Open(next_, BoundPart(end_), {}, end_.tag, {}));
  }
  if (end_.number != next_ || end_.length != offset_ || end_.digest != digest_.Value()) {
    return {Code::kProtocolError,
            "the checksum of the stream is not the sender's: it was damaged on the way"};
  }
  state_ = State::kDraining;
  FinishWhenStored(out);
  return {};
}

void ReceiveState::FinishWhenStored(ReceiveActions& out) {
  if (state_ != State::kDraining || stored_ != next_) return;
  state_ = State::kFinishing;
  out.push_back({.kind = Kind::kFinishFile, .length = offset_});
}

void ReceiveState::OnFinished(const std::vector<FailedHop>& failed, TimePoint now,
                              ReceiveActions& out) {
  if (state_ != State::kFinishing) return;
  if (lost_) return Finish(Status::Ok(), out);
  EndWire stored = end_;
  stored.type = static_cast<std::uint8_t>(MessageType::kStored);
  stored.number = failed.size();
  for (const FailedHop& hop : failed) Say(EncodeReport(hop), now, out);
  stored.tag = {};
  // It is stored and cannot be taken back; what follows only tells the sender so.
  state_ = State::kConfirmed;
  if (from_us_) {
    const Status sealed = from_us_->Close(0, BoundPart(stored), {}, {}, stored.tag);
    if (!sealed.ok()) return Finish(Status::Ok(), out);
  }
  Say(ToBytes(stored), now, out);
}

void ReceiveState::OnTime(TimePoint now, ReceiveActions& out) {
  if (over() || lost_) return;
  if (liveness_.Dead(now)) {
    if (came_whole()) {
      lost_ = true;
      return;
    }
    sender_ = Sender::kGoesOn;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(liveness_.limit());
    return Fail(Status(Code::kDeadlineExceeded, "the sender has been silent for " +
                                                    std::to_string(seconds.count()) +
                                                    " s: it is stopped, or its machine is gone"),
                out);
  }
  if (!liveness_.PingDue(now)) return;
  Say(EncodeBare(MessageType::kPing), now, out);
  liveness_.Pinged();
}

}  // namespace rdfs::pipe
