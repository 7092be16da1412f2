#include "server/supervisor/supervisor_packet.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace rdfs::server {
namespace {

struct PacketHeader {
  Le32 magic;
  Le16 type;
  Le16 key_bytes;
  Le32 state_bytes;
};
constexpr std::uint32_t kMagic = 0x76757372;

union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

// Waits until the peer has read something. A socket that holds too many descriptors of this user
// (ETOOMANYREFS) does not say when that is over, hence the short steps.
Status WaitToSend(int socket, int error, Deadline deadline) {
  const TimePoint now = BootClock::now();
  if (now >= deadline) {
    return Status(Code::kDeadlineExceeded, "the supervisor does not read what it is sent");
  }
  if (error == ETOOMANYREFS) {
    (void)poll(nullptr, 0, 1);
    return Status::Ok();
  }
  pollfd entry{.fd = socket, .events = POLLOUT, .revents = 0};
  (void)poll(&entry, 1, PollTimeoutMs(deadline, now));
  return Status::Ok();
}

Fd TakeDescriptor(msghdr& message) {
  Fd taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
    taken.Reset(fd);
  }
  return taken;
}

}  // namespace

Status SendPacket(int socket, PacketType type, ByteSpan key, ByteSpan state, int fd,
                  Deadline deadline) {
  PacketHeader header{.magic = kMagic,
                      .type = static_cast<std::uint16_t>(type),
                      .key_bytes = static_cast<std::uint16_t>(key.size()),
                      .state_bytes = static_cast<std::uint32_t>(state.size())};
  std::array<iovec, 3> parts{
      {{.iov_base = &header, .iov_len = sizeof(header)},
       {.iov_base = const_cast<std::byte*>(key.data()), .iov_len = key.size()},
       {.iov_base = const_cast<std::byte*>(state.data()), .iov_len = state.size()}}};
  Control control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (fd >= 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  }
  while (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EPIPE || error == ECONNRESET) {
      return Status(Code::kDisconnected, "the supervisor is gone");
    }
    if (error != EAGAIN && error != ETOOMANYREFS && error != ENOBUFS) {
      return Status::FromErrno(error, "cannot talk to the supervisor");
    }
    RDFS_RETURN_IF_ERROR(WaitToSend(socket, error, deadline));
  }
  return Status::Ok();
}

Result<std::optional<Packet>> ReceivePacket(int socket) {
  std::array<std::byte, sizeof(PacketHeader) + kMaxKeptKeyBytes + kMaxKeptStateBytes> buffer;
  iovec part{.iov_base = buffer.data(), .iov_len = buffer.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t received = 0;
  do {
    received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN) return std::optional<Packet>();
    if (errno == ECONNRESET) return Status(Code::kDisconnected, "the other process is gone");
    return Status::FromErrno(errno, "recvmsg between supervisor and worker");
  }
  if (received == 0) return Status(Code::kDisconnected, "the other process is gone");
  Packet packet;
  packet.fd = TakeDescriptor(message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(Code::kResourceExhausted,
                  "a kept descriptor did not fit under this process's limit: raise ulimit -n");
  }
  ByteReader reader(ByteSpan(buffer).first(static_cast<std::size_t>(received)));
  const auto header = reader.Read<PacketHeader>();
  const std::size_t key_bytes = header.key_bytes;
  const std::size_t state_bytes = header.state_bytes;
  const ByteSpan key = reader.ReadBytes(key_bytes);
  const ByteSpan state = reader.ReadBytes(state_bytes);
  if (!reader.ok() || reader.remaining() > 0 || header.magic != kMagic ||
      (message.msg_flags & MSG_TRUNC) != 0 || key_bytes > kMaxKeptKeyBytes ||
      state_bytes > kMaxKeptStateBytes) {
    return Status(Code::kProtocolError, "not a packet of supervisor and worker");
  }
  packet.type = static_cast<PacketType>(std::uint16_t{header.type});
  packet.key = AsText(key);
  packet.state.assign(state.begin(), state.end());
  return std::optional<Packet>(std::move(packet));
}

}  // namespace rdfs::server
