// Where a MetricsServer listens: a port of this host's loopback, a port of an address that is
// named, or a UNIX socket. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/status.h"

namespace rdfs::metrics {

struct Address {
  std::string path;                // of a socket; empty: host and port
  std::string host = "127.0.0.1";  // an address, without brackets
  std::uint16_t port = 0;          // 0: a free one
};

// "9464", "10.0.0.7:9464", "[::1]:9464", "/run/user/1000/metrics". kInvalidArgument.
Result<Address> ParseAddress(std::string_view text);
std::string ToString(const Address& address);
// Only this host's own programs reach it, by a port. The host as Listen leaves it: see there.
bool IsLoopback(const Address& address);

}  // namespace rdfs::metrics
