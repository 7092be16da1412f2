// The token of a lane: 48 bytes (a verbs connect has room for 55) that prove to the server that the
// connection belongs to a session, without a word that helps anybody else.
//
// The counter rises with every lane of a session, so a server that remembers the highest one
// refuses replays for ever in eight bytes; it also makes the key of the lane's own TLS unlike any
// other. The kind is covered: a token seen on one transport opens nothing on another. Pure; any
// thread.
#pragma once

#include <array>
#include <cstdint>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/session/derive.h"
#include "transport/transport.h"

namespace rdfs::transport::session {

using TokenMac = std::array<std::byte, 24>;  // of a Mac32: 192 bits

struct LaneTokenWire {
  std::array<char, 2> magic;  // "RL"
  std::uint8_t version, kind;
  Le32 flags;  // zero
  Le64 session_id;
  Le64 counter;
  TokenMac mac;
};
static_assert(sizeof(LaneTokenWire) == 48 && alignof(LaneTokenWire) == 1);
static_assert(sizeof(LaneTokenWire) <= kMaxTokenBytes);

using LaneTokenBytes = std::array<std::byte, sizeof(LaneTokenWire)>;

struct LaneClaim {
  Kind kind = Kind::kTcp;
  std::uint64_t session_id = 0;
  std::uint64_t counter = 0;

  // The key of the lane's TLS, where it has one.
  [[nodiscard]] Secret32 TlsKey(const Secret32& session_secret) const;
};

LaneTokenBytes IssueLaneToken(const LaneClaim& claim, const Secret32& session_secret);
// What a token says of itself; nothing of it is proved. kProtocolError when it is none.
Result<LaneClaim> ParseLaneToken(ByteSpan token);
// Whether a token that parsed was issued with this secret. Constant time.
[[nodiscard]] bool VerifyLaneToken(ByteSpan token, const Secret32& session_secret);

}  // namespace rdfs::transport::session
