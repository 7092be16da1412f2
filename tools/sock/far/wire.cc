#include "tools/sock/far/wire.h"

#include <array>
#include <type_traits>

namespace rdfs::sock::far {
namespace {

struct Head {
  Le16 type;
  Le16 zero = 0;
  Le32 connection;
};
static_assert(sizeof(Head) == 8);

struct PlacesWire {
  std::array<std::uint8_t, 16> here{}, there{};
  Le16 here_port, there_port;
};
struct WantedWire {
  PlacesWire places;
  Le32 flags;
  Le32 largest_ring;
};
static_assert(sizeof(WantedWire) == 44);
struct OpenWire {
  PlacesWire places;
  Le32 flags;
  Le32 largest_ring;
  transport::RemoteRegionWire ring;
};
static_assert(sizeof(OpenWire) == 68);
struct PhaseWire {
  Le64 at;
  Le32 ring_bytes;
};
static_assert(sizeof(PhaseWire) == 12);

constexpr std::uint32_t kKnownFlags = 3;

PlacesWire ToWire(const TcpPlaces& places) {
  return {.here = places.here.address,
          .there = places.there.address,
          .here_port = places.here.port,
          .there_port = places.there.port};
}

TcpPlaces FromWire(const PlacesWire& wire) {
  return {.here = {.address = wire.here, .port = wire.here_port},
          .there = {.address = wire.there, .port = wire.there_port}};
}

enum class Shape : std::uint8_t { kNone, kNothing, kValue, kPhase };

// Of a Word's body.
Shape ShapeOf(Type type) {
  switch (type) {
    case Type::kPhase:
      return Shape::kPhase;
    case Type::kCursor:
    case Type::kConsumed:
    case Type::kPassed:
    case Type::kQuiet:
    case Type::kAbandoned:
    case Type::kGone:
      return Shape::kValue;
    case Type::kShut:
    case Type::kFlushed:
    case Type::kReturned:
    case Type::kWish:
    case Type::kFollow:
    case Type::kFlush:
      return Shape::kNothing;
    default:
      return Shape::kNone;
  }
}

struct Encoder {
  std::uint32_t connection;
  ByteWriter& out;

  void Begin(Type type) const {
    Head head;
    head.type = static_cast<std::uint16_t>(type);
    head.connection = connection;
    out.Write(head);
  }
  void operator()(const Word& word) const {
    Begin(word.type);
    const Shape shape = ShapeOf(word.type);
    if (shape == Shape::kPhase) {
      out.Write(PhaseWire{.at = word.value, .ring_bytes = word.ring_bytes});
    } else if (shape == Shape::kValue) {
      out.Write(Le64(word.value));
    }
  }
  void operator()(const Bytes& bytes) const {
    Begin(Type::kBytes);
    out.Write(Le32(static_cast<std::uint32_t>(bytes.pieces[0].size() + bytes.pieces[1].size())));
    for (const ByteSpan piece : bytes.pieces) out.WriteBytes(piece);
  }
  void operator()(const Beat&) const { Begin(Type::kBeat); }
  void operator()(const Wanted& wanted) const {
    Begin(Type::kAsk);
    out.Write(WantedWire{.places = ToWire(wanted.places),
                         .flags = wanted.flags,
                         .largest_ring = wanted.largest_ring});
  }
  void operator()(const Open& open) const {
    Begin(Type::kOpen);
    out.Write(OpenWire{.places = ToWire(open.places),
                       .flags = open.flags,
                       .largest_ring = open.largest_ring,
                       .ring = transport::RemoteRegionWire::From(open.ring)});
  }
  void operator()(const Opened& opened) const {
    Begin(Type::kOpened);
    out.Write(transport::RemoteRegionWire::From(opened.ring));
  }
  void operator()(const Refused& refused) const {
    Begin(Type::kRefused);
    out.Write(Le32(refused.reason));
  }
};

Status Nonsense() { return {Code::kProtocolError, "the other host's carrier talks nonsense"}; }

Result<Word> DecodeWord(Type type, ByteReader& in) {
  Word word{.type = type};
  switch (ShapeOf(type)) {
    case Shape::kNone:
      return Nonsense();
    case Shape::kNothing:
      return word;
    case Shape::kValue:
      word.value = in.Read<Le64>();
      return word;
    case Shape::kPhase: {
      const auto phase = in.Read<PhaseWire>();
      word.value = phase.at;
      word.ring_bytes = phase.ring_bytes;
      return word;
    }
  }
  return Nonsense();
}

}  // namespace

bool Append(const Record& record, ByteWriter& out) {
  const std::size_t before = out.size();
  std::visit(Encoder{record.connection, out}, record.body);
  if (out.ok()) return true;
  out.TruncateTo(before);
  return false;
}

Result<Record> DecodeRecord(ByteReader& in) {
  const auto head = in.Read<Head>();
  if (!in.ok() || head.zero != 0) return Nonsense();
  Record record{.connection = head.connection, .body = {}};
  const auto type = static_cast<Type>(static_cast<std::uint16_t>(head.type));
  bool flags_known = true;
  switch (type) {
    case Type::kBeat:
      record.body = Beat{};
      break;
    case Type::kAsk: {
      const auto wire = in.Read<WantedWire>();
      flags_known = wire.flags <= kKnownFlags;
      record.body = Wanted{
          .places = FromWire(wire.places), .flags = wire.flags, .largest_ring = wire.largest_ring};
      break;
    }
    case Type::kOpen: {
      const auto wire = in.Read<OpenWire>();
      flags_known = wire.flags <= kKnownFlags;
      record.body = Open{.places = FromWire(wire.places),
                         .flags = wire.flags,
                         .largest_ring = wire.largest_ring,
                         .ring = wire.ring.ToRegion()};
      break;
    }
    case Type::kOpened:
      record.body = Opened{in.Read<transport::RemoteRegionWire>().ToRegion()};
      break;
    case Type::kRefused:
      record.body = Refused{in.Read<Le32>()};
      break;
    case Type::kBytes: {
      const ByteSpan bytes = in.ReadSized32(kMostInRecord);
      if (bytes.empty()) return Nonsense();
      record.body = Bytes{{bytes, ByteSpan()}};
      break;
    }
    default: {
      RDFS_ASSIGN_OR_RETURN(const Word word, DecodeWord(type, in));
      record.body = word;
    }
  }
  const bool of_lane = type == Type::kBeat || type == Type::kAsk;
  if (!in.ok() || !flags_known || of_lane != (record.connection == 0)) return Nonsense();
  return record;
}

}  // namespace rdfs::sock::far
