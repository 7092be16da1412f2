#include "tools/sock/far/carried.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <span>
#include <utility>

#include "tools/sock/meeting_wire.h"
#include "tools/sock/packet.h"
#include "transport/base/log.h"

namespace rdfs::sock::far {
namespace {

using transport::Access;
using transport::MemoryRegion;

// Looks at an end that is inside a system call, before its other processes are woken: it may have
// been killed in there.
constexpr unsigned kSoonToNudge = 64;
// Our end is told anew which processor we are on with one advance in so many: a stale one costs it
// a short spin at most.
constexpr unsigned kAdvancesPerCpu = 16;

// The carrier is the channel's host.
Direction FromEndOf(const Channel& channel) { return channel.Incoming(Channel::Role::kHost); }
Direction ToEndOf(const Channel& channel) { return channel.Outgoing(Channel::Role::kHost); }

// Where in its ring the effect's bytes lie: two pieces where the ring ends between them.
struct Pieces {
  std::uint64_t begin = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;  // at the ring's begin
};

Pieces PiecesOf(const Effect& effect) {
  const std::uint64_t begin = effect.at & (effect.ring_bytes - 1);
  const std::uint64_t first = std::min(effect.count, effect.ring_bytes - begin);
  return {.begin = begin, .first = first, .second = effect.count - first};
}

Result<std::unique_ptr<MemoryRegion>> RegisterRing(const Channel& channel, std::size_t index,
                                                   Access access, transport::Domain& domain) {
  RDFS_ASSIGN_OR_RETURN(auto memory,
                        SharedMemory::Part(channel.fd(), kRingsAt + index * channel.largest_ring(),
                                           channel.largest_ring()));
  return domain.Register(std::move(memory), access);
}

}  // namespace

Carried::Carried(std::uint32_t id, Channel channel, std::unique_ptr<MemoryRegion> source,
                 std::unique_ptr<MemoryRegion> sink, Fd room, Fd their_room)
    : id_(id),
      channel_(std::move(channel)),
      from_(FromEndOf(channel_)),
      to_(ToEndOf(channel_)),
      source_(std::move(source)),
      sink_(std::move(sink)),
      room_(std::move(room)),
      their_room_(std::move(their_room)),
      relay_(channel_.largest_ring()) {
  from_.words->tcp_reads = FromEnd::kFirstReads;
}

Result<std::unique_ptr<Carried>> Carried::Create(std::uint32_t id,
                                                 const std::shared_ptr<transport::Domain>& domain,
                                                 std::uint32_t largest_ring) {
  RDFS_ASSIGN_OR_RETURN(Channel channel, Channel::Create(largest_ring));
  // Direction 0 is the host's, which goes to our end.
  RDFS_ASSIGN_OR_RETURN(auto sink, RegisterRing(channel, 0, Access::kRemoteWrite, *domain));
  RDFS_ASSIGN_OR_RETURN(auto source, RegisterRing(channel, 1, Access::kLocal, *domain));
  int room[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, room) != 0) {
    return Status::FromErrno(errno, "the room bell");
  }
  return std::unique_ptr<Carried>(new Carried(id, std::move(channel), std::move(source),
                                              std::move(sink), Fd(room[0]), Fd(room[1])));
}

void Carried::Begin(std::uint32_t flags, const transport::RemoteRegion& ring) {
  begun_ = true;
  remote_ring_ = ring;
  MeetingWire answer;
  answer.type = MeetingType::kChannel;
  answer.cookie = cookie_;
  answer.flags = flags;
  answer.largest_ring = channel_.largest_ring();
  const Status sent = SendPacket(data_.get(), std::as_bytes(std::span(&answer, 1)), channel_.fd(),
                                 their_room_.get());
  their_room_.Reset();
  if (!sent.ok()) CloseBells();
}

void WaitersFirst(std::vector<Carried*>& connections) {
  const auto waits = [](const Carried* connection) { return connection->HadToWait(); };
  if (std::ranges::is_partitioned(connections, waits)) return;
  std::stable_partition(connections.begin(), connections.end(), waits);
}

void Carried::CloseBells() {
  hung_up_ = true;
  data_.Reset();
  room_.Reset();
}

void Carried::Hear(int bell, bool hung_up) {
  if (hung_up_) return;
  Disarm();
  (bell == data_.get() ? rung_data_ : rung_room_) = false;
  // It may have been said of another bell that had this number just now.
  const bool open = hung_up ? Empty(bell) : TakeRing(bell);
  if (!open) CloseBells();
}

// A ring that comes only after it was looked for costs a wake-up for nothing.
void Carried::Arm() {
  if (hung_up_) return;
  Disarm();
  const bool data = !std::exchange(rung_data_, false) || TakeRing(data_.get());
  const bool room = !std::exchange(rung_room_, false) || TakeRing(room_.get());
  if (!data || !room) return CloseBells();
  from_.words->reader_armed = 1;
  to_.words->writer_armed = 1;
  armed_ = true;
}

// Who rings takes the flag first: where it is gone a ring has come, or will.
void Carried::Disarm() {
  if (!std::exchange(armed_, false)) return;
  rung_data_ = from_.words->reader_armed.exchange(0) == 0 || rung_data_;
  rung_room_ = to_.words->writer_armed.exchange(0) == 0 || rung_room_;
}

// In the order that relay.h asks for.
Relay::View Carried::View(bool rests) const {
  const DirectionWords& from = *from_.words;
  const DirectionWords& to = *to_.words;
  Relay::View view;
  view.hung_up = hung_up_;
  view.to.abandoned = to.abandoned != 0;
  view.to.asks_end = to.asks_end != 0;
  view.to.passed = to.passed;
  view.to.consumed = to.consumed;
  view.to.receiver_shut = Gate{to.gate}.receiver_shut();
  view.to.tcp_reads = to.tcp_reads;
  view.to.rests = rests;
  view.from.opens = from.opens;
  view.from.gate.bits = from.gate;
  view.from.open_at = from.open_at;
  view.from.ring_bytes = from.ring_bytes;
  view.from.returned = from.returned != 0;
  view.from.kept = from.kept;
  return view;
}

Result<bool> Carried::Look(Road& road, bool rests) {
  if (!begun_) return false;
  effects_.Clear();
  const bool may_ship = road.MayShip();
  const Status status = relay_.Look(View(rests), may_ship, effects_);
  if (!status.ok()) {
    LogDebug("a connection is given up: its program did what no shim does: {}", status.message());
    relay_.Break(effects_);
  }
  had_to_wait_ = !may_ship && relay_.Waits();
  soon_ = relay_.Soon() ? soon_ + 1 : 0;
  if (soon_ == kSoonToNudge) Ring(data_.get());
  RDFS_RETURN_IF_ERROR(CarryOut(effects_, road));
  return !effects_.empty();
}

Status Carried::On(const Word& word, Road& road) {
  if (!begun_) return {Code::kProtocolError, "a word of a connection that has not begun"};
  effects_.Clear();
  RDFS_RETURN_IF_ERROR(relay_.On(word, effects_));
  return CarryOut(effects_, road);
}

Status Carried::On(const Bytes& bytes, Road& road) {
  came_ = bytes.pieces[0];
  return On(Word{.type = Type::kBytes, .value = came_.size()}, road);
}

Status Carried::CarryOut(const Effects& effects, Road& road) {
  using Kind = Effect::Kind;
  for (const Effect& effect : effects.all()) {
    switch (effect.kind) {
      case Kind::kTell:
        road.Tell(id_, effect.word);
        break;
      case Kind::kShip:
        RDFS_RETURN_IF_ERROR(Ship(effect, road));
        break;
      case Kind::kSend: {
        const Pieces pieces = PiecesOf(effect);
        road.Tell(id_, Bytes{{from_.ring.subspan(pieces.begin, pieces.first),
                              from_.ring.first(pieces.second)}});
        break;
      }
      case Kind::kCloseBells:
        CloseBells();
        break;
      case Kind::kPut:
        Put(effect);
        break;
      case Kind::kOpenPhase:
      case Kind::kAdvance:
      case Kind::kShut:
      case Kind::kComplete:
      case Kind::kReturned:
        StoreTo(effect);
        break;
      default:
        StoreFrom(effect);
    }
  }
  return {};
}

Status Carried::Ship(const Effect& effect, Road& road) {
  const Pieces pieces = PiecesOf(effect);
  RDFS_RETURN_IF_ERROR(road.Ship(*this, pieces.begin, pieces.first));
  return pieces.second == 0 ? Status::Ok() : road.Ship(*this, 0, pieces.second);
}

void Carried::Put(const Effect& effect) {
  const Pieces pieces = PiecesOf(effect);
  std::ranges::copy(came_.first(pieces.first), to_.ring.subspan(pieces.begin).begin());
  std::ranges::copy(came_.last(pieces.second), to_.ring.begin());
}

void Carried::RingData() {
  if (to_.words->reader_armed.exchange(0) != 0) Ring(data_.get());
}

void Carried::RingRoom() {
  if (from_.words->writer_armed.exchange(0) != 0) Ring(room_.get());
}

void Carried::StoreFrom(const Effect& effect) {
  using Kind = Effect::Kind;
  DirectionWords& words = *from_.words;
  switch (effect.kind) {
    case Kind::kStoreReads:
      words.tcp_reads = effect.at;
      break;
    case Kind::kStoreConsumed:
      words.consumed = effect.at;
      break;
    case Kind::kStorePassed:
      words.passed = effect.at;
      break;
    case Kind::kRefuse:
      words.gate.fetch_or(Gate::kReceiverShut);
      break;
    case Kind::kFollow:
      words.gate.fetch_and(~Gate::kReceiverShut);
      break;
    default:
      words.abandoned = 1;
      Ring(room_.get());
      Ring(data_.get());  // it may sleep as a reader
      return;
  }
  RingRoom();
}

void Carried::StoreTo(const Effect& effect) {
  using Kind = Effect::Kind;
  DirectionWords& words = *to_.words;
  switch (effect.kind) {
    case Kind::kOpenPhase:
      words.ring_bytes = effect.ring_bytes;
      words.open_at = effect.at;
      words.gate.fetch_and(~Gate::kSenderShut);
      words.opens = effect.count;
      return;  // bytes or its end come behind
    case Kind::kAdvance:
      if (advances_++ % kAdvancesPerCpu == 0) {
        words.sender_cpu.store(static_cast<std::uint32_t>(sched_getcpu()) + 1,
                               std::memory_order_relaxed);
      }
      words.gate.fetch_add(Gate::At(effect.count));
      break;
    case Kind::kShut:
      words.gate.fetch_or(Gate::kSenderShut);
      break;
    case Kind::kComplete:
      words.complete = 1;
      break;
    default:
      words.returned = 1;
      Ring(data_.get());
      return;
  }
  RingData();
}

}  // namespace rdfs::sock::far
