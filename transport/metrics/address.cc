#include "transport/metrics/address.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/parse_number.h"
#include "transport/transport.h"

namespace rdfs::metrics {
namespace {

// Of addresses, and of names, which the listener refuses by name.
bool IsHostCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
         c == ':' || c == '-' || c == '_' || c == '%';
}

}  // namespace

Result<Address> ParseAddress(std::string_view text) {
  const Status bad(Code::kInvalidArgument,
                   fmt::format("'{}' is no place for metrics: write PORT, ADDRESS:PORT (an IPv6 "
                               "address in brackets) or the absolute path of a socket",
                               text));
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
    return bad;
  }
  Address out;
  if (text.starts_with('/')) {
    out.path = text;
    return text.ends_with('/') ? Result<Address>(bad) : Result<Address>(std::move(out));
  }
  if (const auto port = ParseNumber<std::uint16_t>(text)) {
    out.port = *port;
    return out;
  }
  const auto named = transport::HostAndPort::Parse(text, 0);
  if (!named.ok() || named->host.empty() || named->port == 0 ||
      !std::ranges::all_of(named->host, IsHostCharacter)) {
    return bad;
  }
  out.host = named->host == "localhost" ? "127.0.0.1" : named->host;
  out.port = named->port;
  return out;
}

std::string ToString(const Address& address) {
  if (!address.path.empty()) return address.path;
  const bool brackets = address.host.find(':') != address.host.npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", address.host, brackets ? "]" : "",
                     address.port);
}

bool IsLoopback(const Address& address) {
  return address.path.empty() && (address.host == "::1" || address.host.starts_with("127."));
}

}  // namespace rdfs::metrics
