// The receiving half of TcpConnection: from bytes to frames to completions.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/tcp/connection.h"

namespace rdfs::transport::tcp {
namespace {

// Reads of one Poll, and bytes behind which there is none: a fast sender on another CPU could keep
// it busy for ever.
constexpr int kMaxReadsAtOnce = 64;
constexpr std::uint64_t kMaxBytesAtOnce = 4 << 20;
// From this size on a payload is expected to be followed by another such.
constexpr std::size_t kLargePayload = 32 * 1024;
// What is read of the stream at a time while frames are small, and beyond a large payload's end:
// enough for the next head, and little to copy of what belongs behind it.
constexpr std::size_t kSmallFrames = 64 * 1024;
constexpr std::size_t kHeads = 4 * 1024;
// Who spins leaves the socket alone until the rest of a payload may have come: each look takes the
// socket's lock from its sender, and each small read makes an acknowledgement more for it to deal
// with. The last so many bytes are looked for at once; loopback carries no more a nanosecond than
// that, and half of it where it was measured.
constexpr std::uint32_t kAlmostThere = 64 * 1024;
constexpr std::uint32_t kMostBytesPerNs = 12;

Status Unexpected(const char* what) {
  return {Code::kProtocolError, std::string("the peer ") + what};
}

}  // namespace

// Nothing but a payload is waited for, and that cannot be whole yet.
bool TcpConnection::TooSoon() const {
  return payload_.missing >= kAlmostThere && !more_buffered_ && finished_.empty() &&
         BootClock::now() < rest_from_;
}

Status TcpConnection::Receive(Sink& sink, WhenIdle when_idle) {
  // What is read must be parsed first: without room for a completion it cannot be.
  if (TooSoon() || sink.out.empty()) return {};
  bool more = true;
  const std::uint64_t most = received_ + kMaxBytesAtOnce;
  for (int i = 0; i < kMaxReadsAtOnce && more && received_ < most; ++i) {
    RDFS_RETURN_IF_ERROR(Parse(sink));
    // Messages that were handed out lie in the buffer: it is read into again by the next Poll.
    if (sink.count > 0) return {};
    input_.MakeRoom();
    // Nobody sleeps while output waits: room for it would wake nobody.
    const bool nap = i == 0 && when_idle == WhenIdle::kNap && output_.empty() && !write_error_;
    RDFS_ASSIGN_OR_RETURN(more, ReadMore(nap));
  }
  // The last read as well: no descriptor tells of what is in the buffer.
  RDFS_RETURN_IF_ERROR(Parse(sink));
  if (!more && sink.count == 0 && write_error_) return *write_error_;
  return {};
}

// Reads once. True when the stream may hold more.
Result<bool> TcpConnection::ReadMore(bool nap) {
  const MutableByteSpan room = input_.room();
  const bool direct = payload_.missing > 0 && payload_.place != nullptr;
  const std::size_t heads = direct || after_large_payload_ ? kHeads : kSmallFrames;
  const std::size_t tail = std::min(room.size(), heads);
  const std::size_t front = direct ? payload_.missing : 0;
  if (!direct) after_large_payload_ = false;
  const std::array<iovec, 2> both{iovec{payload_.place, front}, iovec{room.data(), tail}};
  const auto parts = direct ? std::span(both) : std::span(both).last(1);
  RDFS_ASSIGN_OR_RETURN(const std::size_t count,
                        nap ? stream_->NapAndRead(parts) : stream_->ReadParts(parts));
  received_ += count;
  const std::size_t placed = std::min(count, front);
  if (placed > 0) TakePayload(placed);
  input_.Received(count - placed);
  if (count > 0 && payload_.missing >= kAlmostThere) {
    rest_from_ = BootClock::now() + std::chrono::nanoseconds(payload_.missing / kMostBytesPerNs);
  }
  return count == front + tail || (count > 0 && stream_->HasBufferedInput());
}

// Parses what is buffered until it is used up or `sink` is full.
Status TcpConnection::Parse(Sink& sink) {
  more_buffered_ = false;
  while (true) {
    Deliver(sink);
    if (sink.full()) {
      more_buffered_ = !finished_.empty() || !input_.unread().empty();
      return {};
    }
    RDFS_ASSIGN_OR_RETURN(const Step step, ParseFrame(sink));
    if (step == Step::kNeedsInput) break;
  }
  Deliver(sink);
  more_buffered_ = !finished_.empty();
  return {};
}

void TcpConnection::Deliver(Sink& sink) {
  while (!finished_.empty() && !sink.full()) {
    Finished done = finished_.pop();
    sink.out[sink.count++] = Completion{
        .kind = done.kind, .ticket = done.ticket, .status = std::move(done.status), .message = {}};
  }
}

// One frame, or as much of its payload as is there.
Result<TcpConnection::Step> TcpConnection::ParseFrame(Sink& sink) {
  if (payload_.purpose != Payload::For::kNothing) {
    const ByteSpan here = input_.unread();
    const std::size_t size = std::min<std::size_t>(here.size(), payload_.missing);
    if (size > 0 && payload_.place != nullptr) std::memcpy(payload_.place, here.data(), size);
    input_.Consume(size);
    TakePayload(size);
    if (payload_.missing > 0) return Step::kNeedsInput;
    RDFS_RETURN_IF_ERROR(PayloadDone());
    return Step::kAgain;
  }
  const ByteSpan unread = input_.unread();
  if (unread.size() < sizeof(FrameHeader)) return Step::kNeedsInput;
  ByteReader reader(unread);
  RDFS_ASSIGN_OR_RETURN(const DecodedHeader header, DecodeHeader(reader.Read<FrameHeader>()));
  return OnFrame(header, reader.rest(), sink);
}

// The bytes of a frame that must be there before it can be looked at.
static std::size_t HeadBytes(const DecodedHeader& header) {
  if (header.opcode == Opcode::kReadReply) return 0;
  return header.opcode == Opcode::kWrite ? sizeof(WriteHead) : header.body_bytes;
}

Result<TcpConnection::Step> TcpConnection::OnFrame(const DecodedHeader& header, ByteSpan body,
                                                   Sink& sink) {
  const std::size_t head = HeadBytes(header);
  if (body.size() < head) return Step::kNeedsInput;
  RDFS_RETURN_IF_ERROR(OnAcknowledged(header.acknowledged));
  // The bytes stay where they are: Consume only moves past them.
  input_.Consume(sizeof(FrameHeader) + head);
  body = body.first(head);
  Status status;
  switch (header.opcode) {
    case Opcode::kMessage:
      // Parse made sure of the room; WRITEs that were acknowledged just now come after it.
      sink.out[sink.count++] = Completion{
          .kind = Completion::Kind::kMessage, .ticket = 0, .status = {}, .message = body};
      break;
    case Opcode::kReadRequest:
      status = OnReadRequest(body);
      break;
    case Opcode::kReadReply:
      status = OnReadReply(header.body_bytes);
      break;
    case Opcode::kReadRefused:
      status = OnReadRefused(body);
      break;
    case Opcode::kWrite:
      status = OnWrite(body, header.body_bytes);
      break;
    case Opcode::kAcknowledge:
      break;
    case Opcode::kWriteRefused:
      status = OnWriteRefused(body);
      break;
    case Opcode::kBye:
      status = Status(Code::kDisconnected, "the peer ended the connection");
      break;
  }
  RDFS_RETURN_IF_ERROR(status);
  return Step::kAgain;
}

// The caller may reuse what the oldest WRITE reads from: all of it must have gone.
Result<Ticket> TcpConnection::TakeAnsweredWrite() {
  if (writes_.empty() || writes_.front().end > output_.sent_bytes()) {
    return Unexpected("answered a WRITE that was never sent");
  }
  return writes_.pop().ticket;
}

Status TcpConnection::OnAcknowledged(std::size_t count) {
  for (; count > 0; --count) {
    RDFS_ASSIGN_OR_RETURN(const Ticket ticket, TakeAnsweredWrite());
    finished_.push({.ticket = ticket, .kind = Completion::Kind::kWritten, .status = {}});
  }
  return {};
}

Status TcpConnection::OnReadRequest(ByteSpan body) {
  ByteReader reader(body);
  const auto request = reader.Read<ReadRequest>();
  if (request.length > kMaxTransferBytes || request.reserved != 0) {
    return Unexpected("asked for a READ that no peer of ours would");
  }
  if (write_error_) return {};  // nobody to answer to
  Shares::Target target =
      shares_.Find(request.key, request.position, request.length, Access::kRemoteRead);
  if (target.refusal) {
    QueueRefusal(Opcode::kReadRefused, *target.refusal);
  } else {
    QueueFrame(Opcode::kReadReply, target.bytes.size());
    output_.Refer(target.bytes, std::move(target.memory), OutputQueue::Backlog::kCounts);
    output_.EndAnswer();
  }
  return CheckUnanswered();
}

Status TcpConnection::OnReadReply(std::uint32_t length) {
  if (reads_.empty()) return Unexpected("answered a READ that was never sent");
  if (reads_.front().to.size() != length) return Unexpected("answered a READ at another length");
  after_large_payload_ = length >= kLargePayload;
  payload_ = {.purpose = Payload::For::kRead,
              .missing = length,
              .place = reads_.front().to.data(),
              .keep = nullptr};
  return {};
}

Status TcpConnection::OnReadRefused(ByteSpan body) {
  if (reads_.empty()) return Unexpected("refused a READ that was never sent");
  ByteReader reader(body);
  finished_.push({.ticket = reads_.pop().ticket,
                  .kind = Completion::Kind::kRead,
                  .status = RefusedStatus(reader.Read<Refusal>().reason)});
  return {};
}

Status TcpConnection::OnWrite(ByteSpan head, std::uint32_t body_bytes) {
  ByteReader reader(head);
  const auto write = reader.Read<WriteHead>();
  const auto length = static_cast<std::uint32_t>(body_bytes - sizeof(WriteHead));
  after_large_payload_ = length >= kLargePayload;
  Shares::Target target = shares_.Find(write.key, write.position, length, Access::kRemoteWrite);
  payload_.missing = length;
  if (target.refusal) {
    payload_.purpose = Payload::For::kRefusedWrite;
    payload_.refusal = *target.refusal;
    payload_.place = nullptr;
  } else {
    payload_.purpose = Payload::For::kWrite;
    payload_.place = target.bytes.data();
    payload_.keep = std::move(target.memory);
  }
  return {};
}

Status TcpConnection::OnWriteRefused(ByteSpan body) {
  RDFS_ASSIGN_OR_RETURN(const Ticket ticket, TakeAnsweredWrite());
  ByteReader reader(body);
  finished_.push({.ticket = ticket,
                  .kind = Completion::Kind::kWritten,
                  .status = RefusedStatus(reader.Read<Refusal>().reason)});
  return {};
}

void TcpConnection::TakePayload(std::size_t size) {
  payload_.missing -= static_cast<std::uint32_t>(size);
  if (payload_.place != nullptr) payload_.place += size;
}

Status TcpConnection::PayloadDone() {
  const Payload done = std::exchange(payload_, Payload{});
  switch (done.purpose) {
    case Payload::For::kRead:
      finished_.push(
          {.ticket = reads_.pop().ticket, .kind = Completion::Kind::kRead, .status = {}});
      return {};
    case Payload::For::kWrite:
      ++owed_;
      return CheckUnanswered();
    case Payload::For::kRefusedWrite:
      if (!write_error_) QueueRefusal(Opcode::kWriteRefused, done.refusal);
      return CheckUnanswered();
    case Payload::For::kNothing:
      break;
  }
  return {};
}

// An honest peer has no more requests in flight, and so never more answers to wait for.
Status TcpConnection::CheckUnanswered() const {
  if (output_.unsent_answers() <= kMaxOutstanding && owed_ <= kMaxOutstanding) return {};
  return Unexpected("has more READs and WRITEs in flight than it may");
}

}  // namespace rdfs::transport::tcp
