// TCP sockets: connecting under a deadline, listening, and where the peer is.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/base/resolve.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::tcp {
namespace {

// The least that one address of several is given to answer: a few round trips across the world.
constexpr std::chrono::milliseconds kLeastTry{250};

std::string Where(const std::string& host, std::uint16_t port) {
  return Endpoint{Kind::kTcp, host, port}.ToString().substr(std::strlen("tcp://"));
}

Status ConnectFailure(int error, const std::string& where) {
  switch (error) {
    case ECONNREFUSED:
      return {Code::kDisconnected,
              "nothing listens on " + where +
                  "; check that the server runs there, on this port, and that no firewall refuses "
                  "it"};
    case ETIMEDOUT:
      return {Code::kDeadlineExceeded,
              where +
                  " does not answer; check that the machine is up and that no firewall drops "
                  "this port"};
    case ENETUNREACH:
    case EHOSTUNREACH:
      return {Code::kDisconnected, error,
              where + " cannot be reached from this machine (" + strerrordesc_np(error) +
                  "); check the network and routes"};
    default:
      return Status::FromErrno(error, "cannot connect to " + where);
  }
}

// A port that nobody listens on can be the very one that the kernel picks for our end: then the
// socket is connected to itself.
bool IsConnectedToItself(int socket) {
  sockaddr_storage local{};
  sockaddr_storage remote{};
  socklen_t local_size = sizeof local;
  socklen_t remote_size = sizeof remote;
  return getsockname(socket, reinterpret_cast<sockaddr*>(&local), &local_size) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr*>(&remote), &remote_size) == 0 &&
         local_size == remote_size && std::memcmp(&local, &remote, local_size) == 0;
}

// 0, or the errno that says why this address did not do.
int TryOne(const addrinfo& address, Deadline deadline, Fd& out) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    pollfd entry{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    int ready = 0;
    do {
      ready = poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
    } while (ready < 0 && errno == EINTR);
    if (ready < 0) return errno;
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  if (IsConnectedToItself(socket.get())) return ECONNREFUSED;
  out = std::move(socket);
  return 0;
}

Status CannotListen(int error, const std::string& where) {
  switch (error) {
    case EADDRINUSE:
      return Status(
          Code::kErrno, error,
          "cannot listen on " + where + ": another program holds the port (see `ss -ltnp`)");
    case EADDRNOTAVAIL:
      return Status(
          Code::kErrno, error,
          "cannot listen on " + where + ": this machine has no such address (see `ip address`)");
    case EACCES:
      return Status(Code::kErrno, error,
                    "cannot listen on " + where +
                        ": only root may listen on a port that low; choose one above 1023");
    default:
      return Status::FromErrno(error, "cannot listen on " + where);
  }
}

Result<Fd> ListenOn(const addrinfo& address, const std::string& where) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return Status::FromErrno(errno, "cannot make a socket");
  const int on = 1;
  const int off = 0;
  (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) {  // the wildcard takes IPv4 too, whatever the sysctl says
    (void)setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    return CannotListen(error, where);
  }
  return socket;
}

// An address without its port; IPv4 seen through an IPv6 socket as IPv4.
std::vector<std::uint8_t> BareAddress(const sockaddr_storage& storage) {
  const auto bytes = [](const auto& address) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(&address);
    return std::vector<std::uint8_t>(first, first + sizeof address);
  };
  if (storage.ss_family == AF_INET) {
    return bytes(reinterpret_cast<const sockaddr_in&>(storage).sin_addr);
  }
  if (storage.ss_family != AF_INET6) return {};
  const auto& six = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  std::vector<std::uint8_t> out = bytes(six);
  if (IN6_IS_ADDR_V4MAPPED(&six)) out.erase(out.begin(), out.begin() + 12);
  return out;
}

bool IsLoopback(const std::vector<std::uint8_t>& address) {
  if (address.size() == 4) return address[0] == 127;
  return std::count(address.begin(), address.end(), 0) == 15 && address.back() == 1;
}

}  // namespace

Result<Fd> ConnectSocket(const std::string& host, std::uint16_t port, Deadline deadline) {
  const std::string where = Where(host, port);
  RDFS_ASSIGN_OR_RETURN(const AddressList addresses, ResolveHost(host, port, 0, deadline));
  int left = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) ++left;
  int first_error = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next, --left) {
    // An address that drops packets must leave time for those behind it.
    const TimePoint now = BootClock::now();
    const auto share = std::max<std::chrono::nanoseconds>((deadline - now) / left, kLeastTry);
    Fd socket;
    const int error = TryOne(*a, std::min(deadline, now + share), socket);
    if (error == 0) return socket;
    // The first address is the one that the system prefers: what it says tells most.
    if (first_error == 0) first_error = error;
    if (BootClock::now() >= deadline) break;
  }
  return ConnectFailure(first_error, where);
}

Result<Fd> ListenSocket(const std::string& host, std::uint16_t port) {
  const std::string where = host.empty() ? "port " + std::to_string(port) : Where(host, port);
  RDFS_ASSIGN_OR_RETURN(const AddressList addresses,
                        ResolveHost(host, port, AI_PASSIVE, DeadlineAfter(kResolveTime)));
  std::vector<const addrinfo*> order;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) order.push_back(a);
  if (host.empty()) {  // the IPv6 wildcard covers both; where there is no IPv6, the other one
    std::stable_partition(order.begin(), order.end(),
                          [](const addrinfo* a) { return a->ai_family == AF_INET6; });
  }
  Status failure(Code::kNotFound, "the host '" + host + "' has no address");
  for (const addrinfo* address : order) {
    auto socket = ListenOn(*address, where);
    if (socket.ok()) return socket;
    failure = socket.status();
    if (failure.errno_value() == EADDRINUSE) break;
  }
  return failure;
}

Result<std::uint16_t> LocalPort(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return Status::FromErrno(errno, "getsockname");
  }
  if (storage.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  }
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
  return Status(Code::kInvalidArgument, "a socket without a port");
}

bool IsLocalPeer(int socket) {
  sockaddr_storage local{};
  sockaddr_storage remote{};
  socklen_t local_size = sizeof local;
  socklen_t remote_size = sizeof remote;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&local), &local_size) != 0 ||
      getpeername(socket, reinterpret_cast<sockaddr*>(&remote), &remote_size) != 0) {
    return false;
  }
  if (remote.ss_family == AF_UNIX) return true;
  const std::vector<std::uint8_t> peer = BareAddress(remote);
  return !peer.empty() && (IsLoopback(peer) || peer == BareAddress(local));
}

}  // namespace rdfs::transport::tcp
