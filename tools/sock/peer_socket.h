// Which socket of this host is at the other end of a TCP connection: asked of the kernel
// (sock_diag(7)), in this network namespace only. Non-blocking; any thread; keeps nothing.
#pragma once

#include <sys/types.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>

#include "transport/base/status.h"

namespace rdfs::sock {

// One end of a connection. IPv4 addresses stand as IPv6 has them (::ffff:a.b.c.d), since the two
// ends of one connection may be of either family.
struct TcpPlace {
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;
  auto operator<=>(const TcpPlace&) const = default;
};
struct TcpPlaces {
  TcpPlace here, there;
  [[nodiscard]] TcpPlaces Reversed() const { return {there, here}; }
  auto operator<=>(const TcpPlaces&) const = default;
};
struct PeerSocket {
  std::uint64_t cookie = 0;  // SO_COOKIE of that socket: unique on this host since it was booted
  // Whose it is. Nobody's before somebody has accepted it: the kernel then says root, or whoever
  // listens (Linux 6.17 and later), who need not be the one that accepts.
  std::optional<uid_t> owner;
  // Nobody has it any more: its last descriptor is closed, or its process dead, and what it had to
  // send may still be on its way.
  bool over = false;
  // It has shut its sending half down (SHUT_WR), and that alone: it is open.
  bool half_closed = false;
  TcpPlaces places;  // seen from that socket
};

// Errors: kErrno (no connected TCP socket).
Result<TcpPlaces> PlacesOf(int tcp);

// The socket with these two ends, `here` its own. None when there is none in this network
// namespace. Errors: kUnavailable (the kernel has no sock_diag).
Result<std::optional<PeerSocket>> FindSocket(const TcpPlaces& places);

// None when the other end is not on this host or in another network namespace, or does not exist
// any more. Errors: kErrno (no connected TCP socket), kUnavailable (the kernel has no sock_diag).
Result<std::optional<PeerSocket>> FindPeerSocket(int tcp);

// SO_COOKIE. Errors: kErrno.
Result<std::uint64_t> CookieOf(int socket);

}  // namespace rdfs::sock
