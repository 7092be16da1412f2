// The first bytes of a stream that Transport::Connect makes: the token there, a verdict back. A
// session does not use this: it has a handshake of its own.
//
//   client: Preface, token     server: Verdict, words (only when refused)
#pragma once

#include <string>

#include "transport/tcp/frame.h"

namespace rdfs::transport::tcp {

inline constexpr std::uint32_t kPrefaceMagic = 0x50464452;  // "RDFP" on the wire
inline constexpr std::uint8_t kPrefaceVersion = 1;
inline constexpr std::size_t kMaxVerdictWords = 512;

struct Preface {
  Le32 magic;
  Le8 version;
  Le8 token_bytes;
  Le16 reserved;  // zero
};
static_assert(sizeof(Preface) == 8 && alignof(Preface) == 1);

struct Verdict {
  Le32 magic;
  Le8 version;
  Le8 code;  // a Code of ours; kOk: accepted
  Le16 words_bytes;
};
static_assert(sizeof(Verdict) == 8 && alignof(Verdict) == 1);

// The token's length. kProtocolError, or kVersionMismatch.
Result<std::size_t> CheckPreface(const Preface& preface);
// The length of the words behind it; errors as above.
Result<std::size_t> CheckVerdict(const Verdict& verdict);

std::string EncodePreface(ByteSpan token);
// Cuts the message where it is too long.
std::string EncodeVerdict(const Status& status);
// What a refused client reports.
Status VerdictStatus(const Verdict& verdict, std::string_view words);

}  // namespace rdfs::transport::tcp
