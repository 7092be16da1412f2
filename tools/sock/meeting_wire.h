// The packets of a meeting, as they lie in memory: PROTOCOL.md, "Meeting, on one host". A carrier
// answers with the same Channel (far/ask.h). Values only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/bytes.h"

namespace rdfs::sock {

inline constexpr std::uint32_t kProtocolVersion = 1;

enum class MeetingType : std::uint8_t { kHello = 1, kChannel = 2, kJoined = 3, kRefused = 4 };

// Every packet has this shape, as far as its type goes.
struct MeetingWire {
  MeetingType type = MeetingType::kHello;
  std::array<std::byte, 3> zero{};
  Le32 version = kProtocolVersion;
  Le64 cookie = 0;
  Le32 flags = 0;
  Le32 largest_ring = 0;
};
static_assert(sizeof(MeetingWire) == 24);
inline constexpr std::size_t kHelloBytes = 20;
inline constexpr std::size_t kJoinedBytes = 4;

// Who called connect(2).
inline constexpr std::uint32_t kFlagOpened = 1;
inline constexpr std::uint32_t kFlagUnknown = 2;

}  // namespace rdfs::sock
