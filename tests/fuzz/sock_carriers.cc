// What carriers of rdsock hear: records of another carrier, under the relay that obeys them while
// the program here writes anything into its channel; what ends ask; the file of pairings.
#include <array>

#include "tests/fuzz/fuzz.h"
#include "tools/sock/far/ask.h"
#include "tools/sock/far/pairs.h"
#include "tools/sock/far/relay.h"

namespace rdfs::fuzz {
namespace {

using namespace sock::far;

constexpr std::uint64_t kLargest = 8192;

Bytes Encoded(const Record& record) {
  Bytes buffer(kMostMessageBytes);
  ByteWriter out(buffer);
  Require(sock::far::Append(record, out), "a record fits");
  buffer.resize(out.size());
  return buffer;
}

void RunRecords(ByteSpan input) {
  ByteReader in(input);
  while (in.remaining() > 0) {
    const ByteSpan before = in.rest();
    const auto record = DecodeRecord(in);
    if (!record.ok()) return;
    const ByteSpan taken = before.first(before.size() - in.remaining());
    Require(Equal(Encoded(*record), taken), "a record is written in one way");
  }
}

// What the effects promise to those who carry them out.
void Check(const Effects& effects, std::uint64_t& in_ring) {
  for (const Effect& effect : effects.all()) {
    using Kind = Effect::Kind;
    if (effect.kind == Kind::kShip || effect.kind == Kind::kSend || effect.kind == Kind::kPut) {
      Require(
          effect.ring_bytes <= kLargest && effect.count <= effect.ring_bytes && effect.count > 0,
          "what is shipped, sent or put is in the ring");
    }
    if (effect.kind == Effect::Kind::kOpenPhase) {
      Require(effect.ring_bytes <= kLargest, "a ring is in its memory");
    }
    if (effect.kind == Effect::Kind::kAdvance) {
      in_ring += effect.count;
      Require(effect.count <= kLargest, "no more comes than the ring holds");
    }
  }
}

void Disturb(Relay::View& view, Pieces& pieces) {
  const std::array<std::uint64_t*, 7> all{
      &view.from.gate.bits, &view.from.opens, &view.from.open_at, &view.from.ring_bytes,
      &view.to.consumed,    &view.to.passed,  &view.to.tcp_reads};
  const std::uint8_t which = pieces.Byte();
  if (which < 64) {
    *all[which % all.size()] += pieces.Byte();
  } else if (which < 96) {
    *all[which % all.size()] = pieces.Read<Le64>();
  }
  const std::uint8_t flags = pieces.Byte();
  view.hung_up = view.hung_up || (flags & 128U) != 0;
  view.to.abandoned = (flags & 64U) != 0;
  view.to.asks_end = (flags & 32U) != 0;
  view.to.receiver_shut = (flags & 16U) != 0;
  view.from.returned = (flags & 8U) != 0;
}

void RunRelay(Pieces pieces) {
  Relay relay(kLargest);
  Relay::View view;
  std::uint64_t in_ring = 0;
  while (!pieces.empty()) {
    Effects effects;
    const std::uint8_t what = pieces.Byte();
    if (what % 2 == 0) {
      Disturb(view, pieces);
      if (!relay.Look(view, (what & 2U) != 0, effects).ok()) relay.Break(effects);
    } else {
      const Word word{static_cast<Type>(16 + pieces.Byte() % 17), pieces.Read<Le16>(),
                      std::uint32_t{4096} << (what >> 6U)};
      if (!relay.On(word, effects).ok()) return;
    }
    Check(effects, in_ring);
  }
}

void RunPairs(ByteSpan input) {
  Stable(
      input, [](ByteSpan bytes) { return ParsePairs(AsText(bytes)); },
      [](const Pairs& pairs) {
        Bytes out;
        Put(out, AsBytes(Format(pairs)));
        return out;
      },
      "pairings");
}

void RunAsk(ByteSpan input) {
  const auto ask = DecodeAsk(input);
  if (!ask) return;
  const AskWire wire = Encode(*ask);
  Require(Equal(std::as_bytes(std::span(&wire, 1)), input), "an ask is written in one way");
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<unsigned>(input[0]) % 4) {
    case 0:
      return RunRecords(rest);
    case 1:
      return RunRelay(Pieces(rest));
    case 2:
      return RunPairs(rest);
    default:
      return RunAsk(rest);
  }
}

std::vector<Bytes> Seeds() {
  Bytes records;
  for (const Record& record :
       {Record{0, Beat{}}, Record{0, Wanted{}}, Record{1, Open{{}, 1, 8192, {1, 2, 3}}},
        Record{1, Opened{{1, 2, 3}}}, Record{1, Refused{5}}, Record{1, Word{Type::kPhase, 9, 4096}},
        Record{1, Word{Type::kCursor, 7}}, Record{1, sock::far::Bytes{{AsBytes("few"), {}}}},
        Record{1, Word{Type::kShut}}, Record{1, Word{Type::kGone, 1}}}) {
    Put(records, Encoded(record));
  }
  // A phase comes, with bytes, and is read.
  Bytes relay;
  const auto word = [&](Type type, std::uint16_t value) {
    relay.push_back(std::byte{1});
    relay.push_back(static_cast<std::byte>(static_cast<unsigned>(type) - 16));
    Put(relay, Le16(value));
  };
  const auto look = [&](std::uint8_t which, std::uint8_t more) {
    for (const unsigned byte : {2U, unsigned{which}, unsigned{more}, 0U}) {
      relay.push_back(static_cast<std::byte>(byte));
    }
  };
  word(Type::kPhase, 0);
  word(Type::kCursor, 16);
  look(4, 16);
  word(Type::kShut, 0);
  look(5, 1);
  word(Type::kFollow, 0);
  look(3, 0);
  const AskWire ask = Encode(Ask{});
  return {Of(0, records), Of(1, relay),
          Of(2, AsBytes("rdsock-pairs 1\nlisten 7340\nover tcp\npair a b 7 10.0.0.1 ::1\n")),
          Of(3, std::as_bytes(std::span(&ask, 1)))};
}

}  // namespace rdfs::fuzz
