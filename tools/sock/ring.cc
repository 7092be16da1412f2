#include "tools/sock/ring.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace rdfs::sock {
namespace {

constexpr std::array<std::byte, 4> kBellPacket = {std::byte{5}};

// Asks for a ring, and takes one that has come for the last time. More than one is rare, and costs
// a wake-up for nothing.
void Arm(std::atomic<std::uint32_t>& armed, int bell) {
  (void)TakeRing(bell);
  armed.store(1);
}

std::size_t ChannelBytes(std::uint32_t largest_ring) {
  return kRingsAt + 2 * std::size_t{largest_ring};
}

void CopyIn(MutableByteSpan ring, std::uint64_t at, ByteSpan bytes) {
  const std::size_t begin = at & (ring.size() - 1);
  const std::size_t first = std::min(bytes.size(), ring.size() - begin);
  std::memcpy(ring.data() + begin, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(ring.data(), bytes.data() + first, bytes.size() - first);
}

void CopyOut(ByteSpan ring, std::uint64_t at, MutableByteSpan out) {
  const std::size_t begin = at & (ring.size() - 1);
  const std::size_t first = std::min(out.size(), ring.size() - begin);
  std::memcpy(out.data(), ring.data() + begin, first);
  if (first < out.size()) std::memcpy(out.data() + first, ring.data(), out.size() - first);
}

}  // namespace

Result<Channel> Channel::Create(std::uint32_t largest_ring) {
  if (!AllowedRing(largest_ring, kMostRingBytes)) {
    return Status(Code::kInvalidArgument, "a ring of a size that the protocol does not know");
  }
  RDFS_ASSIGN_OR_RETURN(
      std::shared_ptr<SharedMemory> memory,
      SharedMemory::Create("rdsock", ChannelBytes(largest_ring), SharedMemory::Peers::kMayWrite));
  const MutableByteSpan bytes = memory->bytes();
  // Unlike memory that a NIC writes to: children go on with the connection, and most of a ring is
  // never touched.
  (void)madvise(bytes.data(), bytes.size(), MADV_DOFORK);
  (void)madvise(bytes.data(), bytes.size(), MADV_NOHUGEPAGE);
  ChannelHeader header;
  header.largest_ring = largest_ring;
  std::memcpy(bytes.data(), &header, sizeof(header));
  Channel channel(std::move(memory), largest_ring);
  for (std::size_t i = 0; i < 2; ++i) {
    new (channel.At(i).words) DirectionWords{};
    channel.At(i).words->gate = Gate::kInitial;
  }
  return channel;
}

Result<Channel> Channel::Adopt(Fd fd, std::uint32_t largest_ring) {
  if (!AllowedRing(largest_ring, kMostRingBytes)) {
    return Status(Code::kProtocolError, "the peer offers a ring of an impossible size");
  }
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                        SharedMemory::Adopt(std::move(fd), ChannelBytes(largest_ring),
                                            SharedMemory::Peers::kMayWrite));
  ChannelHeader header;
  const ChannelHeader expected;
  std::memcpy(&header, memory->bytes().data(), sizeof(header));
  if (header.magic != expected.magic || header.version != expected.version ||
      header.largest_ring != largest_ring) {
    return Status(Code::kProtocolError, "the peer sent memory that is no channel of this version");
  }
  return Channel(std::move(memory), largest_ring);
}

Direction Channel::At(std::size_t index) const {
  std::byte* const base = memory_->bytes().data();
  std::byte* const words = base + kCacheLine + index * sizeof(DirectionWords);
  return {.words = std::launder(reinterpret_cast<DirectionWords*>(words)),
          .ring = {base + kRingsAt + index * largest_ring_, largest_ring_}};
}

void Ring(int bell) {
  if (bell < 0) return;
  const int saved = errno;
  (void)send(bell, kBellPacket.data(), kBellPacket.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  errno = saved;
}

bool TakeRing(int bell) {
  if (bell < 0) return true;
  const int saved = errno;
  std::array<std::byte, 4> packet;
  const ssize_t got = recv(bell, packet.data(), packet.size(), MSG_DONTWAIT);
  const bool open = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  errno = saved;
  return open;
}

bool Empty(int bell) {
  if (bell < 0) return true;
  const int saved = errno;
  std::array<std::byte, 64> packet;
  ssize_t got = 1;
  for (int i = 0; i < kMostRings && (got > 0 || (got < 0 && errno == EINTR)); ++i) {
    got = recv(bell, packet.data(), packet.size(), MSG_DONTWAIT);
  }
  const bool open = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  errno = saved;
  return open;
}

SenderView LookAsSender(const Direction& direction, const Found& found) {
  const DirectionWords& words = *direction.words;
  SenderView view;
  const bool carried = found.far == Far::kCarrier;
  view.lost = carried && found.hung_up;
  view.gone = (!carried && found.hung_up) || found.failed || words.abandoned.load() != 0;
  view.gate.bits = words.gate.load();
  view.consumed = words.consumed.load() & ~kTakenBack;
  view.passed = words.passed.load();
  view.tcp_reads = words.tcp_reads.load();
  view.reader_armed = words.reader_armed.load() != 0;
  return view;
}

ReceiverView LookAsReceiver(const Direction& direction, const Found& found) {
  const DirectionWords& words = *direction.words;
  ReceiverView view;
  const bool carried = found.far == Far::kCarrier;
  view.hung_up = found.hung_up || (found.failed && !carried);
  view.tcp_ended = found.tcp_ended;
  view.complete = carried && (found.failed || words.complete.load() != 0);
  view.taken_back = (words.consumed.load() & kTakenBack) != 0;
  view.opens = words.opens.load();
  view.gate.bits = words.gate.load();
  view.open_at = words.open_at.load();
  view.ring_bytes = words.ring_bytes.load();
  view.writer_armed = words.writer_armed.load() != 0;
  view.returned = words.returned.load() != 0;
  view.kept = words.kept.load();
  return view;
}

bool Carry(const Direction& direction, Sender& sender, const Sender::Action& action, ByteSpan bytes,
           const Bells& bells, std::size_t& moved) {
  using Step = Sender::Step;
  DirectionWords& words = *direction.words;
  moved = 0;
  switch (action.step) {
    case Step::kPut: {
      CopyIn(direction.ring.first(sender.ring_bytes()), action.at, bytes.first(action.count));
      std::uint64_t expected = Gate::At(action.at);
      if (words.gate.compare_exchange_strong(expected, Gate::At(action.at + action.count))) {
        moved = action.count;
      }
      break;
    }
    case Step::kOpenGate:
      words.ring_bytes.store(action.count);
      words.open_at.store(action.at);
      words.gate.fetch_and(~Gate::kSenderShut);
      break;
    case Step::kAnnounce:
      words.opens.store(action.at);
      break;
    case Step::kShutGate:
      words.gate.fetch_or(Gate::kSenderShut);
      break;
    case Step::kArm:
      Arm(words.writer_armed, bells.room);
      break;
    case Step::kRingBell:
      if (words.reader_armed.exchange(0) != 0) Ring(bells.data);
      break;
    case Step::kNudge:
      Ring(bells.data);
      break;
    case Step::kTakeBack:
      sender.Done(words.consumed.fetch_or(kTakenBack) & ~kTakenBack);
      return true;
    case Step::kReturned:
      words.returned.store(1);
      Ring(bells.data);
      break;
    case Step::kKeep:
      words.kept.store(action.at);
      break;
    default:
      return false;
  }
  sender.Done(moved);
  return true;
}

bool Carry(const Direction& direction, Receiver& receiver, const Receiver::Action& action,
           MutableByteSpan bytes, const Bells& bells, TimePoint now, std::size_t& moved) {
  using Step = Receiver::Step;
  DirectionWords& words = *direction.words;
  moved = 0;
  switch (action.step) {
    case Step::kTake:
      CopyOut(direction.ring.first(receiver.ring_bytes()), action.at, bytes.first(action.count));
      if (std::uint64_t expected = action.at;
          words.consumed.compare_exchange_strong(expected, action.at + action.count)) {
        moved = action.count;
      }
      break;
    case Step::kFollow:
      words.gate.fetch_and(~Gate::kReceiverShut);
      break;
    case Step::kRefuse:
      words.gate.fetch_or(Gate::kReceiverShut);
      break;
    case Step::kBeginRead:
    case Step::kEndRead:
      words.tcp_reads.store(action.at);
      break;
    case Step::kPass:
      words.passed.store(action.at);
      break;
    case Step::kAbandon:
      words.abandoned.store(1);
      Ring(bells.room);
      Ring(bells.data);  // the sender may sleep as a reader
      break;
    case Step::kAskEnd:
      words.asks_end.store(1);
      Ring(bells.room);
      break;
    case Step::kArm:
      Arm(words.reader_armed, bells.data);
      break;
    case Step::kRingBell:
      if (words.writer_armed.exchange(0) != 0) Ring(bells.room);
      break;
    case Step::kNudge:
      Ring(bells.room);
      break;
    default:
      return false;
  }
  receiver.Done(moved, now);
  return true;
}

std::array<ByteSpan, 2> Pieces(const Direction& direction, std::uint64_t ring_bytes,
                               std::uint64_t at, std::uint64_t count) {
  const ByteSpan ring = direction.ring.first(ring_bytes);
  count = std::min<std::uint64_t>(count, ring.size());  // a hostile peer's cursor
  const std::size_t begin = at & (ring.size() - 1);
  const std::size_t first = std::min<std::size_t>(count, ring.size() - begin);
  return {ring.subspan(begin, first), ring.first(count - first)};
}

}  // namespace rdfs::sock
