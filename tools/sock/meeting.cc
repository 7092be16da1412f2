#include "tools/sock/meeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tools/sock/meeting_wire.h"
#include "tools/sock/packet.h"

namespace rdfs::sock {
namespace {

using Type = MeetingType;

constexpr int kAcceptsATime = 16;

Status Nonsense() { return {Code::kProtocolError, "the partner does not speak this protocol"}; }

std::string NameOf(std::uint64_t one, std::uint64_t other) {
  std::array<char, 48> name;
  const int length = snprintf(name.data(), name.size(), "rdsock1-%016llx-%016llx",
                              static_cast<unsigned long long>(std::min(one, other)),
                              static_cast<unsigned long long>(std::max(one, other)));
  return {name.data(), static_cast<std::size_t>(length)};
}

// Asked again of who had not been accepted when it was found: a partner that comes has been.
std::optional<uid_t> OwnerOf(const PeerSocket& peer) {
  if (peer.owner) return peer.owner;
  const auto now = FindSocket(peer.places);
  if (!now.ok() || !*now || (*now)->cookie != peer.cookie) return std::nullopt;
  return (*now)->owner;
}

bool PartnerIs(int socket, const PeerSocket& peer) {
  const std::optional<uid_t> partner = PartnerOf(socket);
  const std::optional<uid_t> owner = OwnerOf(peer);
  return partner && owner && MayAttach(*partner, *owner);
}

}  // namespace

struct Meeting::Packet {
  MeetingWire wire;
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
  RDFS_ASSIGN_OR_RETURN(Fd fd, MakePacketSocket());
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), 4) != 0) {
    return Status::FromErrno(errno, "the name where both ends meet");
  }
  listener_ = std::move(fd);
  host_ = true;
  return {};
}

Status Meeting::Connect(const std::string& name) {
  RDFS_ASSIGN_OR_RETURN(socket_, MakePacketSocket());
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, address);
  if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return {Code::kNotFound, errno, "the other end is not ready to be met"};
  }
  // Who listens is not who owns the TCP socket: somebody has taken the name.
  if (!PartnerIs(socket_.get(), peer_)) {
    return {Code::kAuthenticationFailed, "another user waits where the other end should"};
  }
  Packet hello;
  hello.wire.type = Type::kHello;
  hello.wire.cookie = mine_;
  hello.wire.flags = Flags();
  hello.size = kHelloBytes;
  return Send(hello, -1, -1);
}

// A partner that the kernel vouches for; others are shown out and waiting goes on, a few of them at
// a time: who hammers the name must not hold the program.
bool Meeting::AcceptPartner() {
  // Mostly there is nobody, and accept4 makes a socket before it finds that out.
  pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  for (int i = 0; i < kAcceptsATime; ++i) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return false;
    if (!PartnerIs(fd.get(), peer_)) continue;
    socket_ = std::move(fd);
    listener_.Reset();
    return true;
  }
  return false;
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
  const MutableByteSpan out = std::as_writable_bytes(std::span(&packet.wire, 1));
  RDFS_ASSIGN_OR_RETURN(packet.size, ReceivePacket(socket_.get(), out, packet.fds));
  return packet.size > 0;
}

Status Meeting::Send(const Packet& packet, int first, int second) {
  const ByteSpan bytes = std::as_bytes(std::span(&packet.wire, 1));
  return SendPacket(socket_.get(), bytes.first(packet.size), first, second);
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
  const MeetingWire& hello = packet.wire;
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
  answer.size = sizeof(MeetingWire);
  channel_ = std::move(channel);
  return Send(answer, channel_->fd(), theirs.get());
}

Status Meeting::OnChannel(Packet& packet) {
  const MeetingWire& offer = packet.wire;
  if (offer.type != Type::kChannel || packet.size != sizeof(offer) ||
      offer.cookie != peer_.cookie || !packet.fds[1].valid()) {
    return Nonsense();
  }
  if (offer.version != kProtocolVersion) return {Code::kVersionMismatch, "another version"};
  RDFS_RETURN_IF_ERROR(AgreeOnOpened(offer.flags));
  RDFS_ASSIGN_OR_RETURN(Channel channel,
                        Channel::Adopt(std::move(packet.fds[0]), offer.largest_ring));
  if (!IsPacketSocket(packet.fds[1].get())) return Nonsense();
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

void Meeting::CloseUnfreed() {
  listener_.Reset();
  socket_.Reset();
  room_.Reset();
  const Fd memory(channel_ ? channel_->fd() : -1);
}

void Meeting::Result::CloseUnfreed() {
  data.Reset();
  room.Reset();
  const Fd memory(channel.fd());
}

}  // namespace rdfs::sock
