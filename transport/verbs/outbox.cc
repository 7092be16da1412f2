#include "transport/verbs/outbox.h"

#include <algorithm>
#include <cstring>

namespace rdfs::transport::verbs {
namespace {

// Copies the parts one after another, cut into pieces of the caller's sizes.
class Gatherer {
 public:
  explicit Gatherer(std::span<const ByteSpan> parts) : parts_(parts) {}

  void CopyTo(MutableByteSpan out) {
    while (!out.empty()) {
      const ByteSpan rest = parts_.front().subspan(offset_);
      const std::size_t count = std::min(rest.size(), out.size());
      if (count > 0) std::memcpy(out.data(), rest.data(), count);
      out = out.subspan(count);
      offset_ += count;
      if (offset_ == parts_.front().size() && !out.empty()) {
        parts_ = parts_.subspan(1);
        offset_ = 0;
      }
    }
  }

 private:
  std::span<const ByteSpan> parts_;
  std::size_t offset_ = 0;
};

}  // namespace

void Outbox::Open() {
  open_ = true;
  Opening opening;
  opening.receive_slots = static_cast<std::uint16_t>(kReceiveSlots);
  std::memcpy(Begin().data(), &opening, sizeof(opening));
  Commit(FrameType::kOpening, 0, sizeof(opening));
  Pump();
}

bool Outbox::CanSendMessageFrames(std::size_t count) const {
  return open_ && !bye_ && count <= credits_.messages_allowed() && count <= free_slots();
}

void Outbox::Send(std::span<const ByteSpan> parts, std::size_t size) {
  if (backlog_.empty() && CanSendMessageFrames(FramesOf(size))) {
    SendDirectly(parts, size);
    return;
  }
  Backlogged& message = backlog_.emplace_back();
  message.bytes.resize(size);
  Gatherer(parts).CopyTo(message.bytes);
  backlog_bytes_ += size;
  Pump();
}

void Outbox::SendDirectly(std::span<const ByteSpan> parts, std::size_t size) {
  Gatherer gatherer(parts);
  FrameType type = FrameType::kMessage;
  std::size_t left = size;
  do {
    const std::size_t piece = std::min(left, kMaxPayloadBytes);
    gatherer.CopyTo(Begin().first(piece));
    Commit(type, size, piece);
    type = FrameType::kContinuation;
    left -= piece;
  } while (left > 0);
}

void Outbox::SendFrameOf(Backlogged& message) {
  const std::size_t piece = std::min(message.bytes.size() - message.sent, kMaxPayloadBytes);
  if (piece > 0) std::memcpy(Begin().data(), message.bytes.data() + message.sent, piece);
  Commit(message.begun ? FrameType::kContinuation : FrameType::kMessage, message.bytes.size(),
         piece);
  message.begun = true;
  message.sent += piece;
  backlog_bytes_ -= piece;
}

void Outbox::Pump() {
  while (!backlog_.empty() && CanSendMessageFrames(1)) {
    Backlogged& message = backlog_.front();
    SendFrameOf(message);
    if (message.sent == message.bytes.size()) backlog_.pop_front();
  }
  if (open_ && !bye_ && credits_.credit_frame_due() && free_slots() > 0) {
    Commit(FrameType::kCredits, 0, 0);
  }
}

void Outbox::Nudge() {
  if (open_ && !bye_ && credits_.can_send() && free_slots() > 0) Commit(FrameType::kCredits, 0, 0);
}

void Outbox::SayBye() {
  if (!open_ || bye_ || !credits_.can_send() || free_slots() == 0) return;
  Commit(FrameType::kBye, 0, 0, true);
  bye_ = true;
}

MutableByteSpan Outbox::Begin() {
  const auto slot = static_cast<std::uint32_t>(next_ % kSendSlots);
  return queue_pair_.send_buffer(slot).subspan(sizeof(FrameHeader));
}

void Outbox::Commit(FrameType type, std::size_t message_bytes, std::size_t payload_bytes,
                    bool signalled) {
  FrameHeader header;
  header.type = static_cast<std::uint8_t>(type);
  header.credits = credits_.TakeForFrame();
  header.message_bytes = static_cast<std::uint32_t>(message_bytes);
  const auto slot = static_cast<std::uint32_t>(next_ % kSendSlots);
  std::memcpy(queue_pair_.send_buffer(slot).data(), &header, sizeof(header));
  // Soft-iWARP sends an unsignalled page from where it lies (siw_qp_tx.c, use_sendpage), which TCP
  // still reads when a later completion says that its slot is free: only a full frame is a page.
  const bool page = payload_bytes == kMaxPayloadBytes;
  signalled = signalled || page || next_ % kSignalInterval == kSignalInterval - 1;
  queue_pair_.QueueSend(next_, static_cast<std::uint32_t>(sizeof(header) + payload_bytes),
                        signalled);
  ++next_;
}

void Outbox::OnSent(std::uint64_t sequence) {
  // A flush may bring them back in any order.
  completed_ = std::max(completed_, std::min(sequence + 1, next_));
}

}  // namespace rdfs::transport::verbs
