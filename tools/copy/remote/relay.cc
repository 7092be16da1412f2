#include "tools/copy/remote/relay.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rdfs::copy {

Status Relay::Run() {
  Status status = Drive();
  // All is there, and both go when they have heard of it: one that went early has what he wanted.
  if (confirmed_ && (sender_.talk.lost() || receiver_.talk.lost())) status = Status();
  (void)receiver_.talk.Part(status);
  return sender_.talk.Part(std::move(status));
}

Status Relay::Drive() {
  const Talk::OnMessage on_sender = [this](MessageType type, ByteSpan message) {
    return OnSender(type, message);
  };
  const Talk::OnMessage on_receiver = [this](MessageType type, ByteSpan message) {
    return OnReceiver(type, message);
  };
  const Talk::OnCompletion on_written = [this](const transport::Completion& completion) {
    const auto done = std::ranges::find(in_flight_, completion.ticket, &InFlight::ticket);
    if (done == in_flight_.end()) return;
    free_.push_back(done->buffer);
    in_flight_.erase(done);
  };
  while (!over_) {
    bool any = false;
    // Who does not take what we say is not asked for more of it by the other.
    if (!receiver_.talk.congested()) {
      RDFS_ASSIGN_OR_RETURN(any, sender_.talk.Hear(on_sender, nullptr));
    }
    if (!sender_.talk.congested()) {
      RDFS_ASSIGN_OR_RETURN(const bool heard, receiver_.talk.Hear(on_receiver, on_written));
      any = any || heard;
    }
    RDFS_RETURN_IF_ERROR(PassOn());
    if (on_turn) RDFS_RETURN_IF_ERROR(on_turn());
    if (!any && !over_) RDFS_RETURN_IF_ERROR(Sleep());
  }
  return receiver_.talk.Checked(receiver_.talk.lane().Flush());
}

Status Relay::Sleep() {
  transport::Connection& lane = receiver_.talk.lane();
  RDFS_RETURN_IF_ERROR(receiver_.talk.Checked(lane.Flush()));
  const auto armed = lane.Arm();
  if (!armed.ok()) return receiver_.talk.Checked(armed.status());
  return *armed ? sender_.talk.Sleep({lane.fd()}) : Status();
}

Status Relay::OnSender(MessageType type, ByteSpan message) {
  switch (type) {
    case MessageType::kBegin:
      return begun_ ? OutOfTurn() : OnBegin(message);
    case MessageType::kBatch:
      return welcomed_ && !end_ ? OnBatch(message) : OutOfTurn();
    case MessageType::kEnd:
      if (!welcomed_ || end_) return OutOfTurn();
      RDFS_RETURN_IF_ERROR(Tally::Decode(message).status());
      end_ = CopyOf(message);
      return {};
    case MessageType::kTotals: {
      if (!counts || totals_ || end_) return OutOfTurn();
      RDFS_ASSIGN_OR_RETURN(totals_, DecodeTotals(message));
      return {};
    }
    case MessageType::kFarewell:
      if (!confirmed_) return OutOfTurn();
      over_ = true;
      return receiver_.talk.Say(CopyOf(message));
    default:
      return OutOfTurn();
  }
}

Status Relay::OnBegin(ByteSpan message) {
  RDFS_ASSIGN_OR_RETURN(begun_, begin_.Take(message));
  begin_messages_.push_back(CopyOf(message));
  if (!begun_) return {};
  if (allow_) RDFS_RETURN_IF_ERROR(allow_(begin_.begin(), sender_.talk.failures_heard()));
  for (const Bytes& each : std::exchange(begin_messages_, {})) {
    RDFS_RETURN_IF_ERROR(receiver_.talk.Say(each));
  }
  return {};
}

Status Relay::OnReceiver(MessageType type, ByteSpan message) {
  if (type == MessageType::kWelcome && begun_ && !welcomed_) return OnWelcome(message);
  if (!welcomed_ || confirmed_) return OutOfTurn();
  switch (type) {
    case MessageType::kCredit:
      return OnCredit(message);
    case MessageType::kWant:
      RDFS_RETURN_IF_ERROR(Want::Decode(message).status());
      return sender_.talk.Say(CopyOf(message));
    case MessageType::kHave:
      RDFS_RETURN_IF_ERROR(Have::Decode(message).status());
      return sender_.talk.Say(CopyOf(message));
    case MessageType::kProgress: {
      if (!counts) return OutOfTurn();
      RDFS_ASSIGN_OR_RETURN(progress_, Progress::Decode(message));
      return {};
    }
    case MessageType::kDone: {
      if (!end_ || passed_on_ != next_) return OutOfTurn();
      RDFS_ASSIGN_OR_RETURN(done_, Tally::Decode(message));
      confirmed_ = true;
      return sender_.talk.Say(CopyOf(message));
    }
    default:
      return OutOfTurn();
  }
}

Status Relay::OnWelcome(ByteSpan message) {
  RDFS_ASSIGN_OR_RETURN(welcome_, Welcome::Decode(message));
  const pipe::RingSize size{welcome_.slot_bytes, welcome_.slots};
  RDFS_ASSIGN_OR_RETURN(
      ring_, pipe::ShareRing(sender_.talk.lane(), sender_.domain, "rdcp", size, size.slot_bytes));
  RDFS_ASSIGN_OR_RETURN(
      buffers_, pipe::MakeSendBuffers(pipe::ChooseRing(receiver_.talk.lane().capabilities().kind),
                                      receiver_.domain, "rdcp", size));
  for (std::uint32_t buffer = buffers_.count; buffer-- > 0;) free_.push_back(buffer);
  welcomed_ = true;
  return sender_.talk.Say(Welcome{ring_.shared, size.slot_bytes, size.slots}.Encode());
}

Status Relay::OnBatch(ByteSpan message) {
  RDFS_ASSIGN_OR_RETURN(const BatchWire batch, DecodeBatch(message, welcome_.slot_bytes));
  if (batch.number != next_ || next_ >= credit_ + welcome_.slots) return OutOfTurn();
  ++next_;
  waiting_.push_back(batch);
  return {};
}

Status Relay::OnCredit(ByteSpan message) {
  RDFS_ASSIGN_OR_RETURN(const std::uint64_t done, DecodeCredit(message));
  if (done < credit_ || done > passed_on_) return OutOfTurn();
  credit_ = done;
  RDFS_RETURN_IF_ERROR(sender_.talk.Say(CopyOf(message)));
  return {};
}

Status Relay::PassOn() {
  Talk& to = receiver_.talk;
  while (!waiting_.empty() && !free_.empty()) {
    const BatchWire batch = waiting_.front();
    const std::size_t slot = (batch.number % welcome_.slots) * welcome_.slot_bytes;
    if (batch.length > 0) {
      const std::size_t place = std::size_t{free_.back()} * welcome_.slot_bytes;
      std::memcpy(buffers_.memory->bytes().data() + place, ring_.memory->bytes().data() + slot,
                  batch.length);
      const auto ticket =
          to.lane().Write({buffers_.memory.get(), place, batch.length}, {welcome_.ring, slot});
      if (!ticket.ok()) return to.Checked(ticket.status());
      in_flight_.push_back({*ticket, free_.back()});
      free_.pop_back();
    }
    RDFS_RETURN_IF_ERROR(to.Say(EncodeBatch(batch.number, batch.length, batch.digest)));
    RDFS_RETURN_IF_ERROR(to.Checked(to.lane().Flush()));
    waiting_.pop_front();
    ++passed_on_;
    bytes_ += batch.length;
  }
  if (!waiting_.empty() || !end_ || end_->empty()) return {};
  // Said once; what remains of it only tells that it was.
  return to.Say(std::exchange(*end_, {}));
}

}  // namespace rdfs::copy
