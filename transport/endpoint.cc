#include <algorithm>

#include "transport/base/parse_number.h"
#include "transport/transport.h"

namespace rdfs::transport {

std::string Endpoint::ToString() const {
  std::string out(Name(kind));
  out += "://";
  if (kind == Kind::kShm) return out + "/" + host;
  const bool brackets = host.find(':') != std::string::npos;
  out += brackets ? "[" + host + "]" : host;
  return out + ":" + std::to_string(port);
}

Result<Endpoint> Endpoint::Parse(std::string_view text) {
  const Status malformed(Code::kInvalidArgument,
                         "'" + std::string(text) +
                             "' is not an endpoint; write tcp://HOST:PORT, verbs://HOST:PORT or "
                             "shm:///NAME");
  const std::size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) return malformed;
  const std::optional<Kind> kind = KindFromName(text.substr(0, scheme_end));
  if (!kind) return malformed;
  std::string_view rest = text.substr(scheme_end + 3);
  Endpoint endpoint;
  endpoint.kind = *kind;
  if (*kind == Kind::kShm) {
    if (rest.size() < 2 || rest[0] != '/') return malformed;
    endpoint.host = rest.substr(1);
    return endpoint;
  }
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return malformed;
  std::string_view host = rest.substr(0, colon);
  const auto port = ParseNumber<std::uint16_t>(rest.substr(colon + 1));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed;  // an IPv6 address without its brackets: which colon begins the port?
  }
  if (!port) return malformed;
  endpoint.port = *port;
  endpoint.host = host;
  return endpoint;
}

Result<HostAndPort> HostAndPort::Parse(std::string_view text, std::uint16_t default_port) {
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (bracketed) text = text.substr(1, text.size() - 2);
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (bracketed || (colons != 1 && !text.starts_with('[') && !text.empty())) {
    return HostAndPort{.host = std::string(text), .port = default_port};
  }
  const auto endpoint = Endpoint::Parse("tcp://" + std::string(text));
  if (!endpoint.ok() || endpoint->host.empty() || endpoint->port == 0) {
    return Status(Code::kInvalidArgument,
                  "'" + std::string(text) +
                      "' is not HOST, HOST:PORT or [ADDRESS]:PORT with a port from 1 to 65535");
  }
  return HostAndPort{.host = endpoint->host, .port = endpoint->port};
}

}  // namespace rdfs::transport
