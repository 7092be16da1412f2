#include "transport/session/peer.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "transport/base/fd.h"

namespace rdfs::transport::session {
namespace {

std::array<std::byte, 16> ReadBootId() {
  std::array<std::byte, 16> id{};
  const Fd fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 36> text{};
  if (!fd.valid() || read(fd.get(), text.data(), text.size()) != 36) return id;
  std::size_t digits = 0;
  for (const char c : text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const std::size_t value = kDigits.find(c);
    if (value == std::string_view::npos || digits >= 32) continue;
    auto& byte = id[digits / 2];
    byte = (byte << 4) | static_cast<std::byte>(value);
    ++digits;
  }
  return digits == 32 ? id : std::array<std::byte, 16>{};
}

std::optional<sockaddr_storage> PeerOf(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) return std::nullopt;
  return storage;
}

struct HostAndPort {
  std::string host, port;
};

HostAndPort Numeric(const sockaddr_storage& storage) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const socklen_t size = storage.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, host.data(), host.size(),
                  port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  HostAndPort out{host.data(), port.data()};
  // An IPv4 peer of an IPv6 socket: everybody writes it as IPv4.
  constexpr std::string_view kMapped = "::ffff:";
  if (out.host.starts_with(kMapped)) out.host.erase(0, kMapped.size());
  return out;
}

}  // namespace

HostIdentity ReadHostIdentity() {
  HostIdentity out;
  struct stat info {};
  if (stat("/proc/self/ns/net", &info) != 0) return out;
  out.boot_id = ReadBootId();
  out.netns_device = info.st_dev;
  out.netns_inode = info.st_ino;
  return out;
}

PeerAddress AddressOf(int socket) {
  PeerAddress out{};
  const auto storage = PeerOf(socket);
  if (!storage) return out;
  if (storage->ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(*storage).sin_addr;
    std::copy_n(reinterpret_cast<const std::byte*>(&four), 4, out.begin() + 12);
    return out;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(*storage).sin6_addr;
  const auto* bytes = reinterpret_cast<const std::byte*>(&six);
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    std::copy_n(bytes + 12, 4, out.begin() + 12);
  } else {
    std::copy_n(bytes, 8, out.begin());  // one host has a whole /64 to pick from
  }
  return out;
}

std::string NumericHostOf(int socket) {
  const auto storage = PeerOf(socket);
  return storage ? Numeric(*storage).host : std::string();
}

std::string PeerName(int socket) {
  const auto storage = PeerOf(socket);
  if (!storage) return "a local peer";
  const HostAndPort peer = Numeric(*storage);
  const bool brackets = peer.host.find(':') != std::string::npos;
  return (brackets ? "[" + peer.host + "]" : peer.host) + ":" + peer.port;
}

std::optional<uid_t> PeerUser(int socket) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) {
    return std::nullopt;
  }
  ucred credentials{};
  size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials.uid;
}

void KeepAlive(int socket) {
  const auto set = [&](int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace rdfs::transport::session
