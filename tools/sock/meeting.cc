#include "tools/sock/meeting.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

namespace rdfs::sock {
namespace {

enum class Type : std::uint8_t { kHello = 1, kChannel = 2, kJoined = 3, kRefused = 4 };

// Every packet has this shape, as far as its type goes.
struct Wire {
  Type type = Type::kHello;
  std::array<std::byte, 3> zero{};
  Le32 version = kProtocolVersion;
  Le64 cookie = 0;
  Le32 flags = 0;
  Le32 largest_ring = 0;
};
static_assert(sizeof(Wire) == 24);
constexpr std::size_t kHelloBytes = 20;
constexpr std::size_t kJoinedBytes = 4;

constexpr std::uint32_t kFlagOpened = 1;
constexpr std::uint32_t kFlagUnknown = 2;

Status Nonsense() { return {Code::kProtocolError, "the partner does not speak this protocol"}; }

std::string NameOf(std::uint64_t one, std::uint64_t other) {
  std::array<char, 48> name;
  const int length = snprintf(name.data(), name.size(), "rdsock1-%016llx-%016llx",
                              static_cast<unsigned long long>(std::min(one, other)),
                              static_cast<unsigned long long>(std::max(one, other)));
  return {name.data(), static_cast<std::size_t>(length)};
}

socklen_t MakeAddress(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: a zero byte first
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

rdfs::Result<Fd> MakeSocket() {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno(errno, "a UNIX socket");
  return fd;
}

bool PartnerIs(int socket, uid_t owner) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         MayAttach(credentials.uid, owner);
}

}  // namespace

struct Meeting::Packet {
  Wire wire;
  std::size_t size = 0;
  std::array<Fd, 2> fds;
};

Opened Settle(Opened here, Opened there) {
  if (here == Opened::kUnknown) {
    if (there == Opened::kUnknown) return Opened::kUnknown;
    return there == Opened::kHere ? Opened::kThere : Opened::kHere;
  }
  return here == there ? Opened::kUnknown : here;
}

rdfs::Result<std::unique_ptr<Meeting>> Meeting::Begin(std::uint64_t mine, const PeerSocket& peer,
                                                      Opened opened, std::uint32_t largest_ring,
                                                      TimePoint now) {
  std::unique_ptr<Meeting> meeting(new Meeting(mine, peer, opened, largest_ring, now));
  const std::string name = NameOf(mine, peer.cookie);
  const Status bound = meeting->Bind(name);
  if (bound.ok()) return meeting;
  if (bound.errno_value() != EADDRINUSE) return bound;
  RDFS_RETURN_IF_ERROR(meeting->Connect(name));
  return meeting;
}

Status Meeting::Bind(const std::string& name) {
  RDFS_ASSIGN_OR_RETURN(Fd fd, MakeSocket());
  sockaddr_un address;
  const socklen_t length = MakeAddress(name, address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), 4) != 0) {
    return Status::FromErrno(errno, "the name where both ends meet");
  }
  listener_ = std::move(fd);
  host_ = true;
  return {};
}

Status Meeting::Connect(const std::string& name) {
  RDFS_ASSIGN_OR_RETURN(socket_, MakeSocket());
  sockaddr_un address;
  const socklen_t length = MakeAddress(name, address);
  if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return {Code::kNotFound, errno, "the other end is not ready to be met"};
  }
  // Who listens is not who owns the TCP socket: somebody has taken the name.
  if (!PartnerIs(socket_.get(), peer_.uid)) {
    return {Code::kAuthenticationFailed, "another user waits where the other end should"};
  }
  Packet hello;
  hello.wire.type = Type::kHello;
  hello.wire.cookie = mine_;
  hello.wire.flags = Flags();
  hello.size = kHelloBytes;
  return Send(hello, -1, -1);
}

// A partner that the kernel vouches for; others are shown out and waiting goes on.
bool Meeting::AcceptPartner() {
  for (;;) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return false;
    if (!PartnerIs(fd.get(), peer_.uid)) continue;
    socket_ = std::move(fd);
    listener_.Reset();
    return true;
  }
}

Meeting::State Meeting::Go(TimePoint now) {
  if (state_ != State::kWaiting) return state_;
  if (!socket_.valid() && !AcceptPartner()) {
    if (now < deadline_) return state_;
    return Over({Code::kDeadlineExceeded, "the other end did not come"});
  }
  Packet packet;
  for (;;) {
    const rdfs::Result<bool> came = Receive(packet);
    if (!came.ok()) return Over(came.status());
    if (!*came) break;
    const bool joined = host_ && channel_.has_value() && packet.size == kJoinedBytes &&
                        packet.wire.type == Type::kJoined;
    if (joined) return state_ = State::kMet;
    if (channel_.has_value()) return Over(Nonsense());
    const Status status = host_ ? OnHello(packet) : OnChannel(packet);
    if (!status.ok()) return Over(status);
    if (!host_) return state_ = State::kMet;
  }
  if (now < deadline_) return state_;
  return Over({Code::kDeadlineExceeded, "the other end does not answer"});
}

Meeting::State Meeting::Over(Status why) {
  why_ = std::move(why);
  listener_.Reset();
  socket_.Reset();
  room_.Reset();
  channel_.reset();
  return state_ = State::kOver;
}

rdfs::Result<bool> Meeting::Receive(Packet& packet) {
  packet = Packet();
  iovec vector{&packet.wire, sizeof(packet.wire)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return Status(Code::kDisconnected, "the other end went away");
  // Whatever came is ours to close, wanted or not.
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      Fd owned(fd);
      if (i < packet.fds.size()) packet.fds[i] = std::move(owned);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Nonsense();
  packet.size = static_cast<std::size_t>(got);
  return true;
}

Status Meeting::Send(const Packet& packet, int first, int second) {
  iovec vector{const_cast<Wire*>(&packet.wire), packet.size};
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
  if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return {Code::kDisconnected, errno, "the other end went away"};
  }
  return {};
}

std::uint32_t Meeting::Flags() const {
  if (opened_ == Opened::kUnknown) return kFlagUnknown;
  return opened_ == Opened::kHere ? kFlagOpened : 0;
}

Status Meeting::AgreeOnOpened(std::uint32_t flags) {
  const Opened there = (flags & kFlagUnknown) != 0  ? Opened::kUnknown
                       : (flags & kFlagOpened) != 0 ? Opened::kHere
                                                    : Opened::kThere;
  opened_ = Settle(opened_, there);
  if (opened_ != Opened::kUnknown) return {};
  return {Code::kUnsupported, "neither end is sure who opened the connection"};
}

Status Meeting::OnHello(const Packet& packet) {
  const Wire& hello = packet.wire;
  if (hello.type != Type::kHello || packet.size != kHelloBytes || hello.cookie != peer_.cookie) {
    return Nonsense();
  }
  if (hello.version != kProtocolVersion) return {Code::kVersionMismatch, "another version"};
  Packet answer;
  answer.wire.flags = Flags();
  RDFS_RETURN_IF_ERROR(AgreeOnOpened(hello.flags));
  RDFS_ASSIGN_OR_RETURN(Channel channel, Channel::Create(largest_ring_));
  int room[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, room) != 0) {
    return Status::FromErrno(errno, "the room bell");
  }
  room_.Reset(room[0]);
  const Fd theirs(room[1]);
  answer.wire.type = Type::kChannel;
  answer.wire.cookie = mine_;
  answer.wire.largest_ring = largest_ring_;
  answer.size = sizeof(Wire);
  channel_ = std::move(channel);
  return Send(answer, channel_->fd(), theirs.get());
}

Status Meeting::OnChannel(Packet& packet) {
  const Wire& offer = packet.wire;
  if (offer.type != Type::kChannel || packet.size != sizeof(Wire) || offer.cookie != peer_.cookie ||
      !packet.fds[1].valid()) {
    return Nonsense();
  }
  if (offer.version != kProtocolVersion) return {Code::kVersionMismatch, "another version"};
  RDFS_RETURN_IF_ERROR(AgreeOnOpened(offer.flags));
  RDFS_ASSIGN_OR_RETURN(Channel channel,
                        Channel::Adopt(std::move(packet.fds[0]), offer.largest_ring));
  // The room bell has to be a socket like ours, or waiting on it could do anything.
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(packet.fds[1].get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      type != SOCK_SEQPACKET) {
    return Nonsense();
  }
  room_ = std::move(packet.fds[1]);
  channel_ = std::move(channel);
  Packet joined;
  joined.wire.type = Type::kJoined;
  joined.size = kJoinedBytes;
  return Send(joined, -1, -1);
}

Meeting::Result Meeting::Take() {
  return {.channel = *std::move(channel_),
          .role = host_ ? Channel::Role::kHost : Channel::Role::kGuest,
          .data = std::move(socket_),
          .room = std::move(room_),
          .opened = opened_ == Opened::kHere};
}

}  // namespace rdfs::sock
