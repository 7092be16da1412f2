// Loners: servers whose connections have lately met nobody, so that a program whose other ends are
// not under rdsock, or on hosts to which nobody carries, does not pay for an early attempt to meet
// on each of its connections. Many in a row make one; then only about one connection in sixteen
// looks early, and the first that meets ends it. Which ones, both ends of a connection see alike,
// for each may have loners of its own, and two that look on different ones would never meet. A
// server is told by where it listens, of the program's own side or the other; two may share a
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
    const std::uint32_t hash = Hash(server, ours ? 2166136261U : 2166136262U);
    return (hash ^ hash >> 16U) % kPlaces;
  }

  // Of a connection with a server at `place`.
  [[nodiscard]] bool IsWorthLooking(Place place, const TcpPlaces& connection) const {
    return in_a_row_.at(place).load(std::memory_order_relaxed) < kMany || IsOneInEach(connection);
  }
  void Met(Place place) { in_a_row_.at(place).store(0, std::memory_order_relaxed); }
  // `elsewhere`: its end is where nobody could come from.
  void MetNobody(Place place, bool elsewhere = false) {
    elsewhere_.at(place).store(elsewhere, std::memory_order_relaxed);
    std::atomic<std::uint32_t>& in_a_row = in_a_row_.at(place);
    const std::uint32_t now = in_a_row.load(std::memory_order_relaxed);
    if (now < kMany) in_a_row.store(now + 1, std::memory_order_relaxed);
  }

  // The last one that met nobody.
  [[nodiscard]] bool WasElsewhere(Place place) const {
    return elsewhere_.at(place).load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kPlaces = 64;

  // FNV-1a.
  static std::uint32_t Hash(const TcpPlace& place, std::uint32_t hash) {
    const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 16777619U; };
    for (const std::uint8_t byte : place.address) add(byte);
    add(static_cast<std::uint8_t>(place.port >> 8U));
    add(static_cast<std::uint8_t>(place.port & 0xffU));
    return hash;
  }
  // From either end the same. The ports that a client gets come one after the other, or each second
  // one, and the low bits of FNV-1a are of low bits alone: so they are mixed (MurmurHash3, fmix32).
  static bool IsOneInEach(const TcpPlaces& connection) {
    constexpr std::uint32_t kSeed = 2166136261U;
    std::uint32_t hash = Hash(connection.here, kSeed) + Hash(connection.there, kSeed);
    hash = (hash ^ hash >> 16U) * 0x85ebca6bU;
    hash = (hash ^ hash >> 13U) * 0xc2b2ae35U;
    return (hash ^ hash >> 16U) % kEach == 0;
  }

  std::array<std::atomic<std::uint32_t>, kPlaces> in_a_row_{};
  std::array<std::atomic<bool>, kPlaces> elsewhere_{};
};

}  // namespace rdfs::sock
