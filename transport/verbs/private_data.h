// What travels in the connection manager's messages, before a queue pair stands.
//
// Connect carries the token, reject why. InfiniBand pads both with zeros to their full size (56
// bytes of a request with RDMA_PS_TCP, 148 of a rejection, rdma_cm(7)); iWARP does not. So both say
// their length. Everything here is read before the peer has proved anything. Pure; any thread.
#pragma once

#include <optional>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::transport::verbs {

inline constexpr std::size_t kMaxConnectBytes = 56;
inline constexpr std::size_t kMaxRejectBytes = 148;

// One byte of length, then the token.
struct ConnectData {
  std::uint8_t length = 0;
  std::array<std::byte, kMaxTokenBytes> token{};
};
static_assert(sizeof(ConnectData) == kMaxConnectBytes && alignof(ConnectData) == 1);

// `token` is at most kMaxTokenBytes long.
ConnectData EncodeConnect(ByteSpan token);
// The token, or nullopt when the length lies. A view of `bytes`.
std::optional<ByteSpan> DecodeConnect(ByteSpan bytes);

struct RejectData {
  Le16 magic = kMagic;
  std::uint8_t code = 0;
  std::uint8_t length = 0;
  std::array<char, kMaxRejectBytes - 4> message{};

  static constexpr std::uint16_t kMagic = 0x4a52;  // "RJ"
};
static_assert(sizeof(RejectData) == kMaxRejectBytes && alignof(RejectData) == 1);

// A message that is too long is cut.
RejectData EncodeReject(const Status& why);
// What the peer rejected with, or nullopt when it was not our code that rejected.
std::optional<Status> DecodeReject(ByteSpan bytes);

}  // namespace rdfs::transport::verbs
