#include "tools/sock/packet.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace rdfs::sock {
namespace {

// The beginning of a file of the kernel's; empty when it cannot be read.
std::array<char, 64> Text(const char* path) {
  std::array<char, 64> text{};
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || read(fd.get(), text.data(), text.size() - 1) < 0) text = {};
  return text;
}

// Whether that number may stand for users that have none in this user namespace, all alike
// (user_namespaces(7), "Unmapped user and group IDs"). Looked up each time: a process may have
// entered another one.
bool IsAnybody(uid_t uid) {
  unsigned first = 0;
  unsigned outside = 0;
  unsigned count = 0;
  if (sscanf(Text("/proc/self/uid_map").data(), "%u %u %u", &first, &outside, &count) == 3 &&
      count == UINT_MAX) {
    return false;  // every user has one
  }
  uid_t overflow = 65534;
  (void)sscanf(Text("/proc/sys/kernel/overflowuid").data(), "%u", &overflow);
  return uid == overflow;
}

}  // namespace

Result<Fd> MakePacketSocket() {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno(errno, "a UNIX socket");
  return fd;
}

socklen_t AbstractAddress(std::string_view name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: a zero byte first
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::optional<uid_t> PartnerOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  if (IsAnybody(credentials.uid)) return std::nullopt;
  return credentials.uid;
}

bool IsPacketSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

Result<std::size_t> ReceivePacket(int socket, MutableByteSpan out, std::array<Fd, 2>& fds) {
  iovec vector{out.data(), out.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::size_t{0};
  if (got <= 0) return Status(Code::kDisconnected, "the other end went away");
  // Whatever came is ours to close, wanted or not.
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      Fd owned(fd);
      if (i < fds.size()) fds[i] = std::move(owned);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Status(Code::kProtocolError, "the partner does not speak this protocol");
  }
  return static_cast<std::size_t>(got);
}

Status SendPacket(int socket, ByteSpan packet, int first, int second) {
  iovec vector{const_cast<std::byte*>(packet.data()), packet.size()};
  const std::array<int, 2> fds = {first, second};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fds))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (first >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(fds));
  }
  if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return {Code::kDisconnected, errno, "the other end went away"};
  }
  return {};
}

}  // namespace rdfs::sock
