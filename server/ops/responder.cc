#include "server/ops/responder.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace rdfs::server {
namespace {

// The longest answer made of parts: header, struct, grants, length, the pieces of a read,
// extensions.
constexpr std::size_t kMaxParts = 64;

std::vector<std::byte> Join(std::span<const ByteSpan> parts) {
  std::vector<std::byte> all;
  for (const ByteSpan part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

Responder::Responder(const LanePtr& lane, fs::Opcode opcode, std::uint64_t sequence,
                     std::uint64_t epoch, Counters& counters)
    : lane_(lane),
      session_(lane->session()),
      counters_(&counters),
      opcode_(opcode),
      sequence_(sequence),
      epoch_(epoch) {
  lane->RequestTaken();
}

Responder::Responder(Responder&& other) noexcept { *this = std::move(other); }

Responder& Responder::operator=(Responder&& other) noexcept {
  if (this == &other) return *this;
  if (pending()) const Responder dropped(std::move(*this));
  lane_ = std::move(other.lane_);
  session_ = std::move(other.session_);
  counters_ = std::exchange(other.counters_, nullptr);
  opcode_ = other.opcode_;
  sequence_ = other.sequence_;
  epoch_ = other.epoch_;
  taken_ = other.taken_;
  recorded_ = other.recorded_;
  sent_before_ = other.sent_before_;
  counted_ = other.counted_;
  kept_bytes_ = std::exchange(other.kept_bytes_, 0);
  change_ = std::move(other.change_);
  return *this;
}

Responder::~Responder() {
  if (!pending()) return;
  Send(session_->ended() ? fs::WireError::kUnknownSession : fs::ToWire(EIO));
}

void Responder::Send(fs::WireError error, std::span<const ByteSpan> body, ByteSpan extensions) {
  if (!pending()) return;
  change_.End();
  session_->ReturnRequestBytes(std::exchange(kept_bytes_, 0));
  if (error != fs::WireError::kOk) body = {}, extensions = {};
  Counters::PerOpcode& counter = counters_->Of(opcode_);
  if (error != fs::WireError::kOk) counter.errors.fetch_add(1, std::memory_order_relaxed);
  counters_ = nullptr;
  // It may have been done, now or when it was sent before. No answer then, and where the server
  // stops the record stays as a crash would leave it: the lane ends with its session, the client
  // asks again under the same number, which finds it out, and not under a new one.
  const bool may_be_done = recorded_ || (sent_before_ && fs::IsMutating(opcode_));
  if (error == fs::WireError::kUnknownSession && session_->ended() && may_be_done) {
    if (recorded_) Repeat(error, {});
    return LeaveQueue();
  }
  if (recorded_) Record(error, body);

  std::size_t body_bytes = 0;
  for (const ByteSpan part : body) body_bytes += part.size();
  fs::ReplyHeader header;
  header.opcode = static_cast<std::uint16_t>(opcode_);
  header.error = static_cast<std::uint16_t>(error);
  header.body_bytes = static_cast<std::uint32_t>(body_bytes);
  header.sequence = sequence_;
  header.epoch = epoch_;
  std::array<ByteSpan, kMaxParts> parts;
  parts[0] = std::as_bytes(std::span<const fs::ReplyHeader, 1>(&header, 1));
  const std::size_t count = std::min(body.size(), kMaxParts - 2);
  std::copy_n(body.begin(), count, parts.begin() + 1);
  parts[count + 1] = extensions;
  if (const LanePtr lane = lane_.lock()) {
    if (counted_) lane->RequestAnswered();
    lane->Send(std::span(parts).first(extensions.empty() ? count + 1 : count + 2));
    if (taken_ != TimePoint{}) lane->Answered(opcode_, taken_);
  }
  if (recorded_) Repeat(error, body);
}

void Responder::LeaveQueue() {
  const LanePtr lane = lane_.lock();
  if (lane && std::exchange(counted_, false)) lane->RequestAnswered();
}

bool Responder::KeepBytes(std::size_t count) {
  if (kept_bytes_ != 0) return true;
  if (!session_->TakeRequestBytes(count)) return false;
  kept_bytes_ = count;
  return true;
}

void Responder::Record(fs::WireError error, std::span<const ByteSpan> body) {
  if (session_->record() == nullptr) return;
  if (body.size() <= 1) {
    session_->record()->Complete(sequence_, error, body.empty() ? ByteSpan() : body.front());
  } else {
    session_->record()->Complete(sequence_, error, Join(body));
  }
}

void Responder::Repeat(fs::WireError error, std::span<const ByteSpan> body) {
  for (Responder& duplicate : session_->TakeDuplicates(sequence_)) {
    SendFromAnywhere(std::move(duplicate), error, Join(body));
  }
}

void Responder::SendFromAnywhere(Responder responder, fs::WireError error, ByteSpan body) {
  const LanePtr lane = responder.lane_.lock();
  if (!lane) {
    responder.Send(error, std::span<const ByteSpan>(&body, 1));  // recorded, though nobody hears
    return;
  }
  auto moved = std::make_shared<Responder>(std::move(responder));
  auto copy = std::make_shared<std::vector<std::byte>>(body.begin(), body.end());
  lane->Post([moved, copy, error] {
    const ByteSpan bytes(*copy);
    moved->Send(error, std::span<const ByteSpan>(&bytes, 1));
  });
}

}  // namespace rdfs::server
