// Loners: servers whose connections have lately met nobody, so that a program whose other ends are
// not under rdsock does not pay for an early attempt to meet on each of its connections. Many in a
// row make one; then only every sixteenth connection looks early, and the first that meets ends it.
// A server is told by where it listens, of the program's own side or the other; two may share a
// place, for it is only about when to look.
//
// Any thread, and signal handlers: no lock, and what is counted is about right.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/sock/peer_socket.h"

namespace rdfs::sock {

class Loners {
 public:
  static constexpr std::uint32_t kMany = 8;
  static constexpr std::uint32_t kEach = 16;
  using Place = std::uint32_t;

  // Of the server that this program is, or has connected to.
  static Place PlaceOf(const TcpPlace& server, bool ours) {
    std::uint32_t hash = ours ? 2166136261U : 2166136262U;  // FNV-1a
    const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 16777619U; };
    for (const std::uint8_t byte : server.address) add(byte);
    add(static_cast<std::uint8_t>(server.port >> 8U));
    add(static_cast<std::uint8_t>(server.port & 0xffU));
    return (hash ^ hash >> 16U) % kPlaces;
  }

  // Asked once for each connection.
  [[nodiscard]] bool IsWorthLooking(Place place) {
    At& at = places_.at(place);
    if (at.in_a_row.load(std::memory_order_relaxed) < kMany) return true;
    return at.since.fetch_add(1, std::memory_order_relaxed) % kEach == kEach - 1;
  }
  void Met(Place place) { places_.at(place).in_a_row.store(0, std::memory_order_relaxed); }
  void MetNobody(Place place) {
    std::atomic<std::uint32_t>& in_a_row = places_.at(place).in_a_row;
    const std::uint32_t now = in_a_row.load(std::memory_order_relaxed);
    if (now < kMany) in_a_row.store(now + 1, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlaces = 64;
  struct At {
    std::atomic<std::uint32_t> in_a_row{0};
    std::atomic<std::uint32_t> since{0};  // connections that did not look, but for each sixteenth
  };
  std::array<At, kPlaces> places_{};
};

}  // namespace rdfs::sock
