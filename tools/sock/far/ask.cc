#include "tools/sock/far/ask.h"

#include <algorithm>

namespace rdfs::sock::far {
namespace {

constexpr std::uint32_t kKnownFlags = 3;

}  // namespace

std::string CarrierName(uid_t user) { return "rdsock1-carrier-" + std::to_string(user); }

AskWire Encode(const Ask& ask) {
  AskWire wire;
  wire.cookie = ask.cookie;
  wire.flags = ask.flags;
  wire.here = ask.places.here.address;
  wire.there = ask.places.there.address;
  wire.here_port = ask.places.here.port;
  wire.there_port = ask.places.there.port;
  return wire;
}

std::optional<Ask> DecodeAsk(ByteSpan packet) {
  ByteReader reader(packet);
  const auto wire = reader.Read<AskWire>();
  const bool zeros = std::ranges::all_of(wire.zero, [](std::byte b) { return b == std::byte{0}; });
  if (!reader.ok() || reader.remaining() != 0 || wire.type != AskType::kAsk || !zeros ||
      wire.version != kAskVersion || wire.flags > kKnownFlags) {
    return std::nullopt;
  }
  return Ask{.cookie = wire.cookie,
             .flags = wire.flags,
             .places = {.here = {.address = wire.here, .port = wire.here_port},
                        .there = {.address = wire.there, .port = wire.there_port}}};
}

}  // namespace rdfs::sock::far
