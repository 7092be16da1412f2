#include "transport/tcp/connection.h"

#include <poll.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "transport/tcp/transport.h"

namespace rdfs::transport::tcp {
namespace {

// WRITEs below this are copied behind their header: cheaper than a part of their own.
constexpr std::size_t kCopyBelow = 512;
// How long the destructor tries to get the last bytes out, from when the wire last took some: who
// ends many connections of a peer that is frozen must not wait for each.
constexpr std::chrono::milliseconds kGoodbye{200};
// Where the peer runs costs a system call to ask and changes rarely.
constexpr std::uint32_t kWaitsPerLook = 16;
// Buffers full of input that it throws away: more than a socket holds.
constexpr int kDiscards = 64;

// The place in the peer's memory, or one that no memory has when the sum leaves 64 bits.
std::uint64_t Position(const RemoteSlice& remote) {
  const std::uint64_t position = remote.region.address + remote.offset;
  return position < remote.offset ? std::numeric_limits<std::uint64_t>::max() : position;
}

template <WireStruct T>
ByteSpan BytesOf(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace

Result<std::unique_ptr<Connection>> MakeConnection(std::unique_ptr<ByteStream> stream,
                                                   const std::shared_ptr<Domain>& domain,
                                                   std::string description) {
  return TcpConnection::Create(std::move(stream), domain, std::move(description));
}

Result<std::unique_ptr<Connection>> TcpConnection::Create(std::unique_ptr<ByteStream> stream,
                                                          const std::shared_ptr<Domain>& domain,
                                                          std::string description) {
  RDFS_ASSIGN_OR_RETURN(const std::size_t attachment, AttachTo(*domain));
  std::unique_ptr<TcpConnection> connection(
      new TcpConnection(std::move(stream), domain, std::move(description), attachment));
  RDFS_RETURN_IF_ERROR(connection->readiness_.Open(*connection->stream_));
  return std::unique_ptr<Connection>(std::move(connection));
}

TcpConnection::TcpConnection(std::unique_ptr<ByteStream> stream, std::shared_ptr<Domain> domain,
                             std::string description, std::size_t attachment)
    : stream_(std::move(stream)),
      domain_(std::move(domain)),
      description_(std::move(description)),
      capabilities_{.kind = Kind::kTcp,
                    .passive_progress = true,
                    .encrypted = stream_->encrypted(),
                    .same_host = stream_->same_host(),
                    .max_outstanding = kMaxOutstanding,
                    .max_transfer_bytes = kMaxTransferBytes},
      shares_(attachment) {}

TcpConnection::~TcpConnection() { SayBye(); }

// Gets what is queued and a BYE out if the peer reads (at once if it is abandoned), and leaves
// nothing unread: closing a socket with unread input resets it, and the peer might lose our last
// words (RFC 1122, 4.2.2.13).
void TcpConnection::SayBye() {
  if (readiness_.fd() < 0) return;
  if (!over_ && !write_error_) {
    QueueFrame(Opcode::kBye, 0);
    FlushOutput(false);
    const Deadline deadline = stuck_since_.value_or(BootClock::now()) + kGoodbye;
    while (!output_.empty() && !abandoned_) {
      const int timeout = PollTimeoutMs(deadline, BootClock::now());
      pollfd entry{.fd = stream_->write_fd(), .events = stream_->write_events(), .revents = 0};
      if (timeout == 0 || poll(&entry, 1, timeout) < 0) break;
      FlushOutput(false);
    }
  }
  stream_->Shutdown();
  input_.Discard();
  for (int i = 0; i < kDiscards; ++i) {
    const auto count = stream_->Read(input_.room());
    if (!count.ok() || *count == 0) break;
  }
}

Status TcpConnection::CheckSlice(const LocalSlice& local) const {
  if (local.region == nullptr || local.region->domain() != domain_.get()) {
    return {Code::kInvalidArgument, "the local slice is of no region of the connection's domain"};
  }
  const std::uint64_t size = local.region->size();
  if (local.offset > size || local.length > size - local.offset) {
    return {Code::kInvalidArgument, "the local slice leaves its region"};
  }
  if (local.length > kMaxTransferBytes) {
    return {Code::kInvalidArgument, "a transfer above max_transfer_bytes"};
  }
  return {};
}

bool TcpConnection::SlotsFull() const {
  return reads_.size() + writes_.size() + finished_.size() >= kMaxOutstanding;
}

std::uint16_t TcpConnection::TakeOwed() {
  static_assert(kMaxOutstanding <= std::numeric_limits<std::uint16_t>::max());
  return static_cast<std::uint16_t>(std::exchange(owed_, 0));
}

void TcpConnection::QueueFrame(Opcode opcode, std::size_t body_bytes) {
  output_.Append(BytesOf(EncodeHeader(opcode, TakeOwed(), body_bytes)));
}

void TcpConnection::QueueRefusal(Opcode opcode, RefusalReason reason) {
  QueueFrame(opcode, sizeof(Refusal));
  output_.Append(BytesOf(Refusal{.reason = static_cast<std::uint16_t>(reason)}));
  output_.EndAnswer();
}

Status TcpConnection::Send(std::span<const ByteSpan> parts) {
  std::size_t total = 0;
  for (const ByteSpan& part : parts) total += part.size();
  if (total > kMaxMessageBytes) {
    return {Code::kInvalidArgument, "a message above the largest size that is carried"};
  }
  if (over_) return *over_;
  if (write_error_) return *write_error_;
  QueueFrame(Opcode::kMessage, total);
  for (const ByteSpan& part : parts) output_.Append(part);
  return {};
}

// The passive end answers in the order of arrival, so either Order is kept.
Result<Ticket> TcpConnection::Read(const LocalSlice& to, const RemoteSlice& from, Order) {
  RDFS_RETURN_IF_ERROR(CheckSlice(to));
  if (over_) return *over_;
  if (write_error_) return *write_error_;
  if (SlotsFull()) return Status(Code::kBusy, "as many READs and WRITEs as may be are in flight");
  QueueFrame(Opcode::kReadRequest, sizeof(ReadRequest));
  output_.Append(BytesOf(ReadRequest{.key = from.region.key,
                                     .position = Position(from),
                                     .length = static_cast<std::uint32_t>(to.length),
                                     .reserved = 0}));
  reads_.push({.ticket = next_ticket_, .to = to.region->bytes().subspan(to.offset, to.length)});
  return next_ticket_++;
}

Result<Ticket> TcpConnection::Write(const LocalSlice& from, const RemoteSlice& to) {
  RDFS_RETURN_IF_ERROR(CheckSlice(from));
  if (over_) return *over_;
  if (write_error_) return *write_error_;
  if (SlotsFull()) return Status(Code::kBusy, "as many READs and WRITEs as may be are in flight");
  QueueFrame(Opcode::kWrite, sizeof(WriteHead) + from.length);
  output_.Append(BytesOf(WriteHead{.key = to.region.key, .position = Position(to)}));
  const ByteSpan bytes = from.region->bytes().subspan(from.offset, from.length);
  if (bytes.size() < kCopyBelow) {
    output_.Append(bytes);
  } else {
    // The region may end before the connection has said its last.
    output_.Refer(bytes, from.region->memory(), OutputQueue::Backlog::kDoesNotCount);
  }
  writes_.push({.ticket = next_ticket_, .end = output_.queued_bytes()});
  return next_ticket_++;
}

void TcpConnection::FlushOutput(bool acknowledge) {
  if (write_error_ || over_) return;
  if (!output_.empty()) WriteOutput();
  // Behind a full wire the counter waits for the next frame: a peer that does not read must not
  // make us queue anything.
  if (!acknowledge || owed_ == 0 || !output_.empty() || write_error_) return;
  QueueFrame(Opcode::kAcknowledge, 0);
  WriteOutput();
}

// Writes what the wire takes. A broken stream may still hold messages that the peer sent before it
// went: the error is kept until they have been read (Receive).
void TcpConnection::WriteOutput() {
  const std::uint64_t before = output_.sent_bytes();
  Status status = output_.WriteTo(*stream_);
  if (output_.empty()) {
    stuck_since_.reset();
  } else if (!stuck_since_ || output_.sent_bytes() != before) {
    stuck_since_ = BootClock::now();
  }
  // The owner may be asleep already: what is sent after Arm needs room, too.
  if (status.ok() && !output_.empty()) status = readiness_.Update(*stream_, true);
  if (status.ok()) return;
  write_error_ = std::move(status);
  output_.Clear();
}

Status TcpConnection::Flush() {
  if (over_) return *over_;
  FlushOutput(true);
  return {};
}

void TcpConnection::End(Status why) {
  output_.Clear();
  payload_ = Payload{};
  more_buffered_ = false;
  over_ = std::move(why);
}

Result<std::size_t> TcpConnection::Poll(std::span<Completion> out) {
  return PollOnce(out, WhenIdle::kReturn);
}

// Where spinning cannot pay (the peer needs this processor), a short sleep inside the read itself
// comes first: peers that take turns on one processor make two system calls a turn then, as they
// would on a blocking socket.
Result<std::size_t> TcpConnection::Wait(std::span<Completion> out, Deadline deadline) {
  if (waits_++ % kWaitsPerLook == 0) spinning_pays_ = !stream_->PeerNeedsThisProcessor();
  if (!spinning_pays_ && stream_->CanNap() && deadline - BootClock::now() > ByteStream::kNap) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, PollOnce(out, WhenIdle::kNap));
    if (count > 0) return count;
  }
  return Connection::Wait(out, deadline);
}

Result<std::size_t> TcpConnection::PollOnce(std::span<Completion> out, WhenIdle when_idle) {
  if (over_) return *over_;
  FlushOutput(true);
  Sink sink{.out = out};
  Status status = Receive(sink, when_idle);
  if (!status.ok()) {
    End(std::move(status));
    // What came before the end is told first.
    if (sink.count == 0) return *over_;
    return sink.count;
  }
  // The caller will probably answer what it is given: acknowledgements ride on that, or go with the
  // next call. Answers to READs do not wait.
  FlushOutput(sink.count == 0);
  return sink.count;
}

Result<bool> TcpConnection::Arm() {
  if (over_) return *over_;
  FlushOutput(true);
  if (write_error_ || more_buffered_ || !finished_.empty() || stream_->HasBufferedInput()) {
    return false;
  }
  rest_from_ = {};
  RDFS_RETURN_IF_ERROR(readiness_.Update(*stream_, !output_.empty()));
  return true;
}

Result<RemoteRegion> TcpConnection::Share(const MemoryRegion& region) {
  if (region.domain() != domain_.get()) {
    return Status(Code::kInvalidArgument, "the region is not of the connection's domain");
  }
  if (region.access() == Access::kLocal) {
    return Status(Code::kInvalidArgument, "a local region cannot be shared");
  }
  return shares_.Add(region);
}

void TcpConnection::Unshare(const MemoryRegion& region) { shares_.Remove(region); }

}  // namespace rdfs::transport::tcp
