#include "transport/metrics/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/base/log.h"

namespace rdfs::metrics {
namespace {

constexpr int kBacklog = 16;
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

Status InUse(const Address& address) {
  return {Code::kUnavailable, EADDRINUSE,
          fmt::format("cannot listen for metrics on {}: another program does; name another place",
                      ToString(address))};
}

Status Failed(const Address& address) {
  if (errno == EADDRINUSE) return InUse(address);
  if (errno == EADDRNOTAVAIL) {
    return {Code::kUnavailable, errno,
            fmt::format("cannot listen for metrics on {}: it is no address of this host; see `ip "
                        "addr`",
                        ToString(address))};
  }
  return Status::FromErrno(errno,
                           fmt::format("cannot listen for metrics on {}", ToString(address)));
}

Result<std::uint16_t> PortOf(const Fd& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return Status::FromErrno(errno, "getsockname");
  }
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

Result<Fd> ListenOnPort(Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("cannot listen for metrics on {}: '{}' is not an IP address",
                              ToString(address), address.host));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> release(found, freeaddrinfo);
  Fd socket(::socket(found->ai_family, kSocketFlags, 0));
  if (!socket.valid()) return Failed(address);
  const int yes = 1;
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (found->ai_family == AF_INET6) {
    (void)setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  }
  if (bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return Failed(address);
  }
  RDFS_ASSIGN_OR_RETURN(address.port, PortOf(socket));
  // One address has many spellings ("0:0::1", "2130706433"): from here on it is the usual one.
  std::array<char, NI_MAXHOST> usual{};
  if (getnameinfo(found->ai_addr, found->ai_addrlen, usual.data(), usual.size(), nullptr, 0,
                  NI_NUMERICHOST) == 0) {
    address.host = usual.data();
  }
  if (!IsLoopback(address)) {
    LogWarn("whoever reaches {} can read the metrics", ToString(address));
  }
  return socket;
}

// Whether something may be made there: what a killed program left is taken away.
Status MakeRoom(const Address& address, const sockaddr_un& at) {
  struct stat about {};
  if (lstat(address.path.c_str(), &about) != 0) return {};
  if (!S_ISSOCK(about.st_mode)) {
    return {Code::kUnavailable, EEXIST,
            fmt::format("cannot listen for metrics on {}: what is there is no socket; remove it or "
                        "name another path",
                        address.path)};
  }
  const Fd socket(::socket(AF_UNIX, kSocketFlags, 0));
  if (!socket.valid()) return Failed(address);
  const bool refused =
      connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 &&
      errno == ECONNREFUSED;
  if (!refused) return InUse(address);
  if (unlink(address.path.c_str()) != 0 && errno != ENOENT) return Failed(address);
  return {};
}

Result<Fd> ListenOnPath(const Address& address) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (address.path.size() >= sizeof at.sun_path) {
    return Status(Code::kInvalidArgument,
                  fmt::format("cannot listen for metrics on {}: the path is longer than {} bytes",
                              address.path, sizeof at.sun_path - 1));
  }
  std::memcpy(at.sun_path, address.path.c_str(), address.path.size() + 1);
  RDFS_RETURN_IF_ERROR(MakeRoom(address, at));
  Fd socket(::socket(AF_UNIX, kSocketFlags, 0));
  // Before the bind: what it makes is nobody else's at any moment (unix(7) takes the socket's
  // mode).
  if (!socket.valid() || fchmod(socket.get(), 0600) != 0 ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return Failed(address);
  }
  return socket;
}

}  // namespace

Result<Fd> Listen(Address& address) {
  return address.path.empty() ? ListenOnPort(address) : ListenOnPath(address);
}

}  // namespace rdfs::metrics
