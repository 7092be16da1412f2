// What a host's name stands for: getaddrinfo(3) under a deadline.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// For who listens, and has no deadline.
inline constexpr std::chrono::seconds kResolveTime{10};

// The addresses of `host` with `port`, for stream sockets, in getaddrinfo(3)'s order; at least one.
// With AI_PASSIVE in `flags` an empty name stands for the wildcards. Any thread; blocks until
// `deadline`. A numeric address asks nobody. A name is asked about by a thread of its own, which
// goes on behind the deadline for as long as resolv.conf(5) lets it. Errors: kNotFound,
// kDeadlineExceeded, kErrno.
Result<AddressList> ResolveHost(const std::string& host, std::uint16_t port, int flags,
                                Deadline deadline);

}  // namespace rdfs
