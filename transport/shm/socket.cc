#include "transport/shm/socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>

namespace rdfs::transport::shm {
namespace {

// The most descriptors that the control buffer of Receive can hold; the rest the kernel drops.
constexpr std::size_t kMostFds = 4;

// SO_PASSRIGHTS (include/uapi/asm-generic/socket.h, Linux 6.16), which C libraries may not have.
constexpr int kPassRights = 83;

// Takes every descriptor out of `message`, so that none can leak; returns how many there were.
std::size_t CollectFds(msghdr& message, Fd& first) {
  std::size_t count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i) {
      int raw = -1;
      std::memcpy(&raw, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      Fd fd(raw);
      if (count++ == 0) first = std::move(fd);
    }
  }
  return count;
}

}  // namespace

Result<PacketSocket::Event> PacketSocket::Receive(Packet& packet) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  return Receive(packet, control);
}

Result<PacketSocket::Event> PacketSocket::ReceiveBytes(Packet& packet) {
  return Receive(packet, {});
}

Result<PacketSocket::Event> PacketSocket::Receive(Packet& packet, std::span<char> control) {
  packet.fd.Reset();
  packet.size = 0;
  iovec part{.iov_base = packet.buffer.data(), .iov_len = packet.buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got;
  do {
    got = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // A peer that closed with packets unread leaves ECONNRESET, once, in front of what it sent.
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Event::kNothing;
    return Status(Code::kDisconnected, errno, "the socket to the peer on this host failed");
  }
  const std::size_t fds = CollectFds(message, packet.fd);
  if ((message.msg_flags & MSG_CTRUNC) != 0 && fds == 0 && !control.empty()) {
    return Status(Code::kResourceExhausted, EMFILE,
                  "no descriptor is left for memory that the peer shares; raise the limit of open "
                  "files (ulimit -n)");
  }
  if (fds > 1 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Status(Code::kProtocolError, "the peer on this host sent a malformed packet");
  }
  packet.size = static_cast<std::size_t>(got);
  return got == 0 ? Event::kEnd : Event::kPacket;
}

Result<bool> PacketSocket::Send(ByteSpan packet, int fd) {
  // The kernel reads through both pointers only.
  iovec part{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return false;
  if (errno == ETOOMANYREFS) {
    return Status(Code::kResourceExhausted, errno,
                  "too many descriptors are on their way to other processes; raise the limit of "
                  "open files (ulimit -n)");
  }
  return Status(Code::kDisconnected, errno, "the peer on this host has gone away");
}

Result<uid_t> PacketSocket::PeerUid() const {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return Status::FromErrno(errno, "cannot tell who the peer on this host is");
  }
  return credentials.uid;
}

void AllowDescriptors(int socket, bool allowed) {
  const int on = allowed ? 1 : 0;
  (void)setsockopt(socket, SOL_SOCKET, kPassRights, &on, sizeof(on));
}

Result<AbstractAddress> MakeAbstractAddress(const std::string& name) {
  AbstractAddress out;
  if (name.empty() || name.size() > sizeof(out.address.sun_path) - 1) {
    return Status(Code::kInvalidArgument, "the name of a shm endpoint has 1 to 107 bytes, not " +
                                              std::to_string(name.size()));
  }
  out.address.sun_family = AF_UNIX;
  // sun_path[0] stays 0: that makes the name an abstract one.
  std::memcpy(out.address.sun_path + 1, name.data(), name.size());
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

}  // namespace rdfs::transport::shm
