// CPace over ristretto255 with SHA-512 (draft-irtf-cfrg-cpace-20, CPACE-RISTR255-SHA512): two ends
// that share a password agree on a strong key, and whoever listens or pretends to be one of them
// tests at most one guess of the password for each run.
//
// The arithmetic only, initiator and responder alike: messages, roles and key confirmation are
// handshake.h's. Pure functions on libsodium; any thread. Scalars are parameters, so that tests run
// the draft's vectors through the code that production uses.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/session/derive.h"

namespace rdfs::transport::session::cpace {

inline constexpr std::size_t kElementBytes = 32;
using Element = std::array<std::byte, kElementBytes>;  // an encoded group element: public
using Scalar = Secret32;
using SharedKey = Secret64;  // the draft's ISK

// Each part preceded by its length in LEB128 (the draft's lv_cat).
std::vector<std::byte> Concatenate(std::initializer_list<ByteSpan> parts);

// The draft's generator_string: password, channel identifier and session id, the password alone in
// the first block of the hash.
std::vector<std::byte> GeneratorString(ByteSpan password, ByteSpan channel, ByteSpan session_id);
Element Generator(ByteSpan password, ByteSpan channel, ByteSpan session_id);

// Uniform in [1, 2^252).
Scalar RandomScalar();
// What this end sends. Errors: kInternal (a scalar of zero).
Result<Element> Share(const Scalar& scalar, const Element& generator);
// The secret point. kProtocolError when the peer's share is no valid encoding or leads to the
// neutral element: then the peer would know the secret without the password.
Result<Secret32> SharedPoint(const Scalar& scalar, const Element& peer_share);

struct Side {
  Element share;
  ByteSpan associated;  // sent beside the share, authenticated with it
};
// The key of a run of initiator and responder (the draft's ISK with transcript_ir).
SharedKey SessionKey(ByteSpan session_id, const Secret32& point, const Side& initiator,
                     const Side& responder);

}  // namespace rdfs::transport::session::cpace
