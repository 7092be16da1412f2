#include "tools/sock/peer_socket.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/bytes.h"
#include "transport/base/fd.h"

namespace rdfs::sock {
namespace {

// An address as inet_diag has it: IPv4 in the first word. What IPv6 says of an IPv4 address is the
// IPv4 address, since the two ends of one connection may be of either family.
struct Place {
  int family = AF_UNSPEC;
  std::array<std::uint32_t, 4> address{};
  std::uint16_t port = 0;  // network order
  bool operator==(const Place&) const = default;
};

Place Normal(int family, const void* address, std::uint16_t port) {
  Place place{.family = family, .port = port};
  if (family == AF_INET) {
    std::memcpy(place.address.data(), address, sizeof(in_addr));
    return place;
  }
  in6_addr six;
  std::memcpy(&six, address, sizeof(six));
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    place.family = AF_INET;
    std::memcpy(place.address.data(), &six.s6_addr[12], sizeof(in_addr));
  } else {
    std::memcpy(place.address.data(), &six, sizeof(six));
  }
  return place;
}

// As the kernel is asked for it.
Place PlaceOf(const TcpPlace& place) {
  return Normal(AF_INET6, place.address.data(), htons(place.port));
}

template <typename GetName>
Result<TcpPlace> NameOf(int tcp, GetName get_name) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (get_name(tcp, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return Status::FromErrno(errno, "the ends of a TCP connection");
  }
  TcpPlace place;
  if (storage.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &storage, sizeof(four));
    place.address[10] = place.address[11] = 0xff;
    std::memcpy(&place.address[12], &four.sin_addr, sizeof(four.sin_addr));
    place.port = ntohs(four.sin_port);
    return place;
  }
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 six;
    std::memcpy(&six, &storage, sizeof(six));
    std::memcpy(place.address.data(), &six.sin6_addr, sizeof(six.sin6_addr));
    place.port = ntohs(six.sin6_port);
    return place;
  }
  return Status::FromErrno(EAFNOSUPPORT, "the ends of a TCP connection");
}

struct Request {
  nlmsghdr header{};
  inet_diag_req_v2 body{};
};

Request MakeRequest(const Place& theirs, const Place& ours) {
  Request request;
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = static_cast<std::uint8_t>(theirs.family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  inet_diag_sockid& id = request.body.id;
  id.idiag_sport = theirs.port;
  id.idiag_dport = ours.port;
  std::memcpy(id.idiag_src, theirs.address.data(), sizeof(id.idiag_src));
  std::memcpy(id.idiag_dst, ours.address.data(), sizeof(id.idiag_dst));
  id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return request;
}

// What the kernel says behind the answer's fixed part: which halves are shut down, bit 0 what it
// receives and bit 1 what it sends; all of them from the beginning of a close, before FIN goes.
// 0 where it does not say.
std::uint8_t ShutHalves(ByteSpan attributes) {
  constexpr std::size_t kHead = sizeof(nlattr);
  while (attributes.size() > kHead) {
    nlattr head;
    std::memcpy(&head, attributes.data(), kHead);
    const std::size_t length = head.nla_len;
    if (length <= kHead || length > attributes.size()) break;
    if (head.nla_type == INET_DIAG_SHUTDOWN) {
      return std::to_integer<std::uint8_t>(attributes[kHead]);
    }
    constexpr std::size_t kAlign = NLA_ALIGNTO;
    attributes =
        attributes.subspan(std::min((length + kAlign - 1) / kAlign * kAlign, attributes.size()));
  }
  return 0;
}

}  // namespace

Result<TcpPlaces> PlacesOf(int tcp) {
  RDFS_ASSIGN_OR_RETURN(const TcpPlace here, NameOf(tcp, getsockname));
  RDFS_ASSIGN_OR_RETURN(const TcpPlace there, NameOf(tcp, getpeername));
  return TcpPlaces{here, there};
}

Result<std::optional<PeerSocket>> FindPeerSocket(int tcp) {
  RDFS_ASSIGN_OR_RETURN(const TcpPlaces places, PlacesOf(tcp));
  return FindSocket(places.Reversed());
}

Result<std::optional<PeerSocket>> FindSocket(const TcpPlaces& places) {
  const Place theirs = PlaceOf(places.here);
  const Place ours = PlaceOf(places.there);
  const Fd netlink(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const Request request = MakeRequest(theirs, ours);
  // The kernel answers before send returns.
  if (!netlink.valid() || send(netlink.get(), &request, sizeof(request), 0) < 0) {
    return Status(Code::kUnavailable, errno, "this kernel has no sock_diag");
  }
  struct {
    nlmsghdr header;
    inet_diag_msg body;
    std::array<std::byte, 4096> attributes;
  } answer{};
  const ssize_t got = recv(netlink.get(), &answer, sizeof(answer), MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) {
    return Status(Code::kUnavailable, "this kernel does not answer sock_diag");
  }
  const std::optional<PeerSocket> nobody;
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      got < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(inet_diag_msg))) {
    return nobody;
  }
  // When no connection matches, a listener answers.
  const inet_diag_sockid& id = answer.body.id;
  const int family = answer.body.idiag_family;
  if (answer.body.idiag_state == TCP_LISTEN ||
      Normal(family, id.idiag_src, id.idiag_sport) != theirs ||
      Normal(family, id.idiag_dst, id.idiag_dport) != ours) {
    return nobody;
  }
  PeerSocket found{.cookie = (std::uint64_t{id.idiag_cookie[1]} << 32U) | id.idiag_cookie[0],
                   .owner = std::nullopt,
                   .over = false,
                   .half_closed = false,
                   .places = places};
  // Who accepts a socket gives it an inode, who closes it takes that away and sends FIN.
  const int state = answer.body.idiag_state;
  if (answer.body.idiag_inode != 0) {
    found.owner = answer.body.idiag_uid;
    constexpr std::uint8_t kSends = 2;
    const auto size = static_cast<std::size_t>(got) - sizeof(nlmsghdr) - sizeof(inet_diag_msg);
    found.half_closed = ShutHalves(ByteSpan(answer.attributes).first(size)) == kSends;
  } else {
    found.over = state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT && state != TCP_SYN_RECV;
  }
  return std::optional(found);
}

Result<std::uint64_t> CookieOf(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) {
    return Status::FromErrno(errno, "SO_COOKIE");
  }
  return cookie;
}

}  // namespace rdfs::sock
