#include "transport/session/lane_token.h"

#include <algorithm>
#include <cstddef>

namespace rdfs::transport::session {
namespace {

constexpr std::array<char, 2> kTokenMagic = {'R', 'L'};
constexpr std::uint8_t kTokenVersion = 1;
constexpr std::size_t kCovered = offsetof(LaneTokenWire, mac);

TokenMac MacOfToken(ByteSpan covered, const Secret32& session_secret) {
  const Mac32 full =
      MacOf(Expand(session_secret.bytes(), "rdfs 1 lane token"), "rdfs lane", covered);
  TokenMac out{};
  std::copy_n(full.begin(), out.size(), out.begin());
  return out;
}

}  // namespace

Secret32 LaneClaim::TlsKey(const Secret32& session_secret) const {
  const Le64 bytes(counter);
  return Expand(session_secret.bytes(), "rdfs 1 lane tls",
                std::as_bytes(std::span<const Le64, 1>(&bytes, 1)));
}

LaneTokenBytes IssueLaneToken(const LaneClaim& claim, const Secret32& session_secret) {
  LaneTokenWire wire{kTokenMagic,
                     kTokenVersion,
                     static_cast<std::uint8_t>(claim.kind),
                     std::uint32_t{0},
                     claim.session_id,
                     claim.counter,
                     {}};
  wire.mac = MacOfToken(std::as_bytes(std::span<const LaneTokenWire, 1>(&wire, 1)).first(kCovered),
                        session_secret);
  LaneTokenBytes out{};
  std::memcpy(out.data(), &wire, sizeof(wire));
  return out;
}

Result<LaneClaim> ParseLaneToken(ByteSpan token) {
  ByteReader reader(token);
  const auto wire = reader.Read<LaneTokenWire>();
  const bool known_kind = wire.kind >= static_cast<std::uint8_t>(Kind::kTcp) &&
                          wire.kind <= static_cast<std::uint8_t>(Kind::kVerbs);
  if (!reader.ok() || wire.magic != kTokenMagic || wire.version != kTokenVersion ||
      wire.flags != 0 || !known_kind || reader.remaining() != 0) {
    return Status(Code::kProtocolError, "a connection came without a lane's token");
  }
  return LaneClaim{static_cast<Kind>(wire.kind), wire.session_id, wire.counter};
}

bool VerifyLaneToken(ByteSpan token, const Secret32& session_secret) {
  if (token.size() != sizeof(LaneTokenWire)) return false;
  const TokenMac expected = MacOfToken(token.first(kCovered), session_secret);
  return EqualInConstantTime(token.subspan(kCovered), expected);
}

}  // namespace rdfs::transport::session
