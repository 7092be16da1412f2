// Which socket of this host is at the other end of a TCP connection: asked of the kernel
// (sock_diag(7)), in this network namespace only. Non-blocking; any thread; keeps nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "transport/base/status.h"

namespace rdfs::sock {

struct PeerSocket {
  std::uint64_t cookie = 0;  // SO_COOKIE of that socket: unique on this host since it was booted
  uid_t uid = 0;             // whose it is
};

// None when the other end is not on this host or in another network namespace, or does not exist
// any more. Errors: kErrno (no connected TCP socket), kUnavailable (the kernel has no sock_diag).
Result<std::optional<PeerSocket>> FindPeerSocket(int tcp);

// SO_COOKIE. Errors: kErrno.
Result<std::uint64_t> CookieOf(int socket);

}  // namespace rdfs::sock
