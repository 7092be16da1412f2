#include "transport/shm/connection.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace rdfs::transport::shm {
namespace {

constexpr std::size_t kInboxBytes = kMaxMessageBytes;
constexpr std::uint32_t kMaxOutstanding = 256;
// A look at the socket costs some 300 ns, an empty poll some 10: 3 %. At that pace a spinning
// caller learns of a peer's death within some 30 us.
constexpr std::uint32_t kPollsPerLook = 1024;
// Packets handled in one Poll, so that a peer cannot keep us in the socket.
constexpr int kPacketsPerPoll = 64;

ChannelLayout& Layout(const SharedMemory& channel) {
  return *reinterpret_cast<ChannelLayout*>(channel.bytes().data());
}

std::size_t Index(Role role) { return static_cast<std::size_t>(role); }
std::size_t Other(Role role) { return 1 - Index(role); }

}  // namespace

Result<std::unique_ptr<Connection>> ShmConnection::Create(Role role, std::shared_ptr<Domain> domain,
                                                          PacketSocket socket,
                                                          std::shared_ptr<SharedMemory> channel,
                                                          std::string description,
                                                          std::size_t peer_regions) {
  RDFS_ASSIGN_OR_RETURN(const std::size_t attachment, KeyAttachment::Join(*domain));
  return std::unique_ptr<Connection>(new ShmConnection(role, std::move(domain), attachment,
                                                       std::move(socket), std::move(channel),
                                                       std::move(description), peer_regions));
}

ShmConnection::ShmConnection(Role role, std::shared_ptr<Domain> domain, std::size_t attachment,
                             PacketSocket socket, std::shared_ptr<SharedMemory> channel,
                             std::string description, std::size_t peer_regions)
    : capabilities_{.kind = Kind::kShm,
                    .passive_progress = false,
                    .encrypted = false,
                    .same_host = true,
                    .max_outstanding = kMaxOutstanding,
                    .max_transfer_bytes = std::uint64_t{1} << 30},
      domain_(std::move(domain)),
      attachment_index_(attachment),
      attachment_(static_cast<KeyAttachment&>(domain_->attachment(attachment))),
      description_(std::move(description)),
      socket_(std::move(socket)),
      channel_(std::move(channel)),
      mine_(Layout(*channel_).sides[Index(role)]),
      peers_(Layout(*channel_).sides[Other(role)]),
      writer_(Layout(*channel_).cursors[Index(role)], Layout(*channel_).rings[Index(role)]),
      reader_(Layout(*channel_).cursors[Other(role)], Layout(*channel_).rings[Other(role)],
              kMaxMessageBytes),
      ended_seen_(attachment_.ended()),
      shared_(channel_, Layout(*channel_).live[Index(role)]),
      peer_regions_(Layout(*channel_).live[Other(role)], peer_regions),
      inbox_(new std::byte[kInboxBytes]) {
  finished_.reserve(kMaxOutstanding);
  PublishCpu();
}

// What was sent and fits the ring still reaches the peer: its end of the channel lives on.
ShmConnection::~ShmConnection() { (void)Flush(); }

Status ShmConnection::End(Status why) {
  over_ = std::move(why);
  return over_;
}

void ShmConnection::RingBell() {
  constexpr PacketType kBell = PacketType::kBell;
  const auto packet = std::as_bytes(std::span<const PacketType, 1>(&kBell, 1));
  // A full socket wakes the peer as well; a peer that is gone is noticed when we read.
  if (auto sent = socket_.Send(packet, -1); !sent.ok()) look_at_socket_ = true;
}

Status ShmConnection::Send(std::span<const ByteSpan> parts) {
  if (!over_.ok()) return over_;
  const std::size_t length = std::accumulate(
      parts.begin(), parts.end(), std::size_t{0},
      [](std::size_t sum, ByteSpan p) { return sum + std::min(p.size(), kMaxMessageBytes + 1); });
  if (length > kMaxMessageBytes) {
    return {Code::kInvalidArgument,
            "a message above " + std::to_string(kMaxMessageBytes) + " bytes cannot be sent"};
  }
  TellOfEndedRegions();
  if (backlog_.empty()) {
    auto written = writer_.Write(parts, length, notices_sent_);
    if (!written.ok()) return End(std::move(written).status());
    if (*written) return {};
  }
  Pending message{.bytes = {}, .tag = notices_sent_};
  message.bytes.reserve(length);
  for (const ByteSpan part : parts) {
    message.bytes.insert(message.bytes.end(), part.begin(), part.end());
  }
  backlog_.push_back(std::move(message));
  backlog_bytes_ += length;
  return Flush();
}

Status ShmConnection::WriteBacklog() {
  while (!backlog_.empty()) {
    const Pending& message = backlog_.front();
    const ByteSpan part(message.bytes);
    auto written = writer_.Write(std::span<const ByteSpan>(&part, 1), part.size(), message.tag);
    if (!written.ok()) return End(std::move(written).status());
    if (!*written) return {};
    backlog_bytes_ -= part.size();
    backlog_.pop_front();
  }
  return {};
}

bool ShmConnection::SendNotices() {
  while (!notices_.empty()) {
    const Notice& next = notices_.front();
    const auto packet = std::as_bytes(std::span<const ShareWire, 1>(&next.packet, 1));
    const Result<bool> sent = socket_.Send(packet, next.fd.get());
    if (!sent.ok() && sent.status().code() == Code::kDisconnected) look_at_socket_ = true;
    if (!sent.ok() || !*sent) return false;
    notices_.pop_front();
  }
  return true;
}

Status ShmConnection::Flush() {
  if (!over_.ok()) return over_;
  const bool waiting = !backlog_.empty() || !notices_.empty();
  if (waiting) {
    RDFS_RETURN_IF_ERROR(WriteBacklog());
    if (!SendNotices() || !backlog_.empty()) {
      // The flag first, then one more try: either we see the room or the peer sees the flag.
      mine_.blocked.store(1, std::memory_order_seq_cst);
      writer_.Publish();
      RDFS_RETURN_IF_ERROR(WriteBacklog());
      (void)SendNotices();
    }
  }
  if ((writer_.Publish() || waiting) && peers_.asleep.load(std::memory_order_seq_cst) != 0) {
    if (peers_.asleep.exchange(0) != 0) RingBell();
  }
  return {};
}

Status ShmConnection::CheckPost(const LocalSlice& slice) const {
  if (!over_.ok()) return over_;
  if (finished_.size() - taken_ >= kMaxOutstanding) {
    return {Code::kBusy, "too many READs and WRITEs have not been polled"};
  }
  if (slice.region == nullptr || slice.region->domain() != domain_.get()) {
    return {Code::kInvalidArgument, "the local slice is not of this connection's domain"};
  }
  if (slice.offset > slice.region->size() || slice.length > slice.region->size() - slice.offset) {
    return {Code::kInvalidArgument, "the local slice lies outside its region"};
  }
  if (slice.length > capabilities_.max_transfer_bytes) {
    return {Code::kInvalidArgument, "one READ or WRITE moves at most 1 GiB"};
  }
  return {};
}

Ticket ShmConnection::Finish(Completion::Kind kind, Status status) {
  if (taken_ == finished_.size() || finished_.size() == finished_.capacity()) {
    finished_.erase(finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }
  finished_.push_back(
      {.kind = kind, .ticket = ++last_ticket_, .status = std::move(status), .message = {}});
  return last_ticket_;
}

Result<Ticket> ShmConnection::Read(const LocalSlice& to, const RemoteSlice& from,
                                   Order /*order: each READ is done when it has been posted*/) {
  RDFS_RETURN_IF_ERROR(CheckPost(to));
  const auto source = peer_regions_.Find(from, to.length, Access::kRemoteRead);
  if (source.ok() && to.length > 0) {
    std::memcpy(to.region->bytes().data() + to.offset, source->data(), to.length);
  }
  return Finish(Completion::Kind::kRead, source.status());
}

Result<Ticket> ShmConnection::Write(const LocalSlice& from, const RemoteSlice& to) {
  RDFS_RETURN_IF_ERROR(CheckPost(from));
  const auto target = peer_regions_.Find(to, from.length, Access::kRemoteWrite);
  if (target.ok() && from.length > 0) {
    std::memcpy(target->data(), from.region->bytes().data() + from.offset, from.length);
  }
  return Finish(Completion::Kind::kWritten, target.status());
}

std::size_t ShmConnection::TakeFinished(std::span<Completion> out) {
  std::size_t count = 0;
  while (count < out.size() && taken_ < finished_.size()) {
    out[count++] = std::move(finished_[taken_++]);
  }
  return count;
}

bool ShmConnection::ComesAfterANotice(const RecordHeader& header) const {
  return static_cast<std::int32_t>(header.tag - notices_received_) > 0;  // they wrap together
}

Result<std::size_t> ShmConnection::TakeMessages(std::span<Completion> out) {
  std::size_t count = 0;
  std::size_t used = 0;
  bool gave_room = false;
  awaiting_notice_ = false;
  while (count < out.size()) {
    auto header = reader_.Peek();
    if (!header.ok()) return End(std::move(header).status());
    if (header->length == RingReader::kNone || header->length > kInboxBytes - used) break;
    if (ComesAfterANotice(*header)) {
      awaiting_notice_ = true;
      RDFS_RETURN_IF_ERROR(ReadSocket());
      if (ComesAfterANotice(*header)) {
        look_at_socket_ = true;
        break;
      }
      awaiting_notice_ = false;
    }
    const MutableByteSpan message(inbox_.get() + used, header->length);
    gave_room |= reader_.Take(*header, message);
    used += message.size();
    Completion& completion = out[count++];
    completion.kind = Completion::Kind::kMessage;
    completion.ticket = 0;
    completion.status = Status();
    completion.message = message;
  }
  if (gave_room && peers_.blocked.load(std::memory_order_seq_cst) != 0) {
    if (peers_.blocked.exchange(0) != 0) RingBell();
  }
  return count;
}

Result<std::size_t> ShmConnection::Poll(std::span<Completion> out) {
  RDFS_RETURN_IF_ERROR(Flush());
  std::size_t count = TakeFinished(out);
  if (look_at_socket_) {
    look_at_socket_ = false;
    PublishCpu();  // a sleeper may wake up elsewhere
    RDFS_RETURN_IF_ERROR(ReadSocket());
  }
  RDFS_ASSIGN_OR_RETURN(const std::size_t messages, TakeMessages(out.subspan(count)));
  count += messages;
  if (count > 0 || out.empty()) return count;
  if (++empty_polls_ >= kPollsPerLook) {
    empty_polls_ = 0;
    look_at_socket_ = true;
    PublishCpu();
    TellOfEndedRegions();
  }
  // The ring was looked at after the socket had ended: nothing more can come.
  if (peer_gone_ && (awaiting_notice_ || !reader_.MayHaveRecord())) {
    return End(Status(Code::kDisconnected, "the peer on this host has closed the connection"));
  }
  return count;
}

Result<bool> ShmConnection::Arm() {
  TellOfEndedRegions();
  RDFS_RETURN_IF_ERROR(Flush());
  PublishCpu();
  if (taken_ < finished_.size() || peer_gone_) return false;
  mine_.asleep.store(1, std::memory_order_seq_cst);
  // A message that waits for a Share does not count: the Share makes the socket readable.
  if (!awaiting_notice_ && reader_.MayHaveRecord()) {
    mine_.asleep.store(0, std::memory_order_relaxed);
    return false;
  }
  look_at_socket_ = true;
  return true;
}

Status ShmConnection::ReadSocket() {
  bool took_notice = false;
  for (int i = 0; i < kPacketsPerPoll && !peer_gone_; ++i) {
    Packet packet;
    auto event = socket_.Receive(packet);
    if (!event.ok()) {
      if (event.status().code() != Code::kDisconnected) return End(std::move(event).status());
      peer_gone_ = true;
      break;
    }
    if (*event == PacketSocket::Event::kEnd) peer_gone_ = true;
    if (*event != PacketSocket::Event::kPacket) break;
    // One bell comes for each Arm, usually alone: what may be behind it keeps fd() readable.
    if (packet.type() == PacketType::kBell && packet.size == sizeof(PacketType)) {
      if (!awaiting_notice_) break;
      continue;
    }
    if (Status handled = Handle(packet); !handled.ok()) return End(std::move(handled));
    took_notice = true;
  }
  if (took_notice && peers_.blocked.load(std::memory_order_seq_cst) != 0) {
    if (peers_.blocked.exchange(0) != 0) RingBell();
  }
  return {};
}

Status ShmConnection::Handle(Packet& packet) {
  const Status malformed(Code::kProtocolError, "the peer on this host sent a malformed packet");
  ByteReader reader(packet.bytes());
  const auto wire = reader.Read<ShareWire>();
  if (!reader.ok() || reader.remaining() != 0) return malformed;
  ++notices_received_;
  if (wire.type == PacketType::kUnshare) {
    return !packet.fd.valid() && peer_regions_.Remove(wire.key) ? Status() : malformed;
  }
  const auto access = static_cast<Access>(wire.access);
  const bool known = access == Access::kRemoteRead || access == Access::kRemoteWrite;
  if (wire.type != PacketType::kShare || !known || !packet.fd.valid()) return malformed;
  return peer_regions_.Add(wire, std::move(packet.fd));
}

void ShmConnection::Announce(const ShareWire& packet, Fd fd) {
  ++notices_sent_;
  notices_.push_back({.packet = packet, .fd = std::move(fd)});
  (void)SendNotices();  // what stays is sent by Flush
}

Result<RemoteRegion> ShmConnection::Share(const MemoryRegion& region) {
  if (!over_.ok()) return over_;
  if (region.domain() != domain_.get() || region.access() == Access::kLocal) {
    return Status(Code::kInvalidArgument,
                  "only a region of the connection's domain that peers may reach can be shared");
  }
  Registration* const registration = region.registration(attachment_index_);
  if (registration == nullptr) return region.registration_error(attachment_index_);
  auto& keyed = static_cast<KeyRegistration&>(*registration);
  const RemoteRegion descriptor{.address = 0, .length = region.size(), .key = keyed.key()};
  if (shared_.Contains(descriptor.key)) return descriptor;
  RDFS_ASSIGN_OR_RETURN(Fd fd, DescriptorForPeer(*region.memory(), region.access()));
  TellOfEndedRegions();
  const std::optional<std::uint16_t> slot = shared_.Add(keyed);
  if (!slot) {
    return Status(Code::kResourceExhausted,
                  "a connection shares at most " + std::to_string(kMaxRegions) + " regions");
  }
  Announce({.type = PacketType::kShare,
            .access = static_cast<std::uint8_t>(region.access()),
            .slot = *slot,
            .key = descriptor.key,
            .size = region.size()},
           std::move(fd));
  return descriptor;
}

void ShmConnection::Unshare(const MemoryRegion& region) {
  if (!over_.ok() || region.domain() != domain_.get()) return;
  const Registration* const registration = region.registration(attachment_index_);
  if (registration == nullptr) return;
  const std::uint64_t key = static_cast<const KeyRegistration&>(*registration).key();
  if (shared_.Remove(key)) AnnounceEnd(key);
}

void ShmConnection::TellOfEndedRegions() {
  const std::uint64_t ended = attachment_.ended();
  if (ended == ended_seen_) return;
  ended_seen_ = ended;
  for (const std::uint64_t key : shared_.RemoveEnded()) AnnounceEnd(key);
}

void ShmConnection::AnnounceEnd(std::uint64_t key) {
  Announce({.type = PacketType::kUnshare, .access = 0, .slot = 0, .key = key, .size = 0}, Fd());
}

void ShmConnection::PublishCpu() {
  const int now = sched_getcpu();
  const auto cpu = now < 0 ? ~0U : static_cast<std::uint32_t>(now);
  // Stored only when it changed: the peer keeps this cache line.
  if (cpu == cpu_) return;
  cpu_ = cpu;
  mine_.cpu.store(cpu, std::memory_order_relaxed);
}

bool ShmConnection::SpinningPays() const {
  const int cpu = sched_getcpu();
  return cpu < 0 || peers_.cpu.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(cpu);
}

}  // namespace rdfs::transport::shm
