#include "tools/sock/asking.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tools/sock/packet.h"

namespace rdfs::sock {
namespace {

struct Answer {
  MeetingWire wire;
  std::array<Fd, 2> fds;
};

std::optional<far::Refusal> RefusalIn(ByteSpan packet) {
  ByteReader reader(packet);
  const auto wire = reader.Read<far::RefusedWire>();
  if (!reader.ok() || wire.type != far::AskType::kRefused) return std::nullopt;
  return static_cast<far::Refusal>(std::uint32_t{wire.reason});
}

// What the carrier sent, if it is a channel that can be used.
std::optional<Meeting::Result> ChannelIn(Answer& answer, std::size_t size, const far::Ask& ask) {
  const MeetingWire& offer = answer.wire;
  if (offer.type != MeetingType::kChannel || size != sizeof(offer) ||
      offer.version != kProtocolVersion || offer.cookie != ask.cookie || !answer.fds[0].valid() ||
      !answer.fds[1].valid() || !IsPacketSocket(answer.fds[1].get())) {
    return std::nullopt;
  }
  auto channel = Channel::Adopt(std::move(answer.fds[0]), offer.largest_ring);
  if (!channel.ok()) return std::nullopt;
  const auto opened = [](std::uint32_t flags) {
    if ((flags & kFlagUnknown) != 0) return Opened::kUnknown;
    return (flags & kFlagOpened) != 0 ? Opened::kHere : Opened::kThere;
  };
  const Opened settled = Settle(opened(ask.flags), opened(offer.flags));
  if (settled == Opened::kUnknown) return std::nullopt;
  return Meeting::Result{.channel = *std::move(channel),
                         .role = Channel::Role::kGuest,
                         .data = Fd(),
                         .room = std::move(answer.fds[1]),
                         .opened = settled == Opened::kHere,
                         .far = Far::kCarrier};
}

}  // namespace

Result<std::unique_ptr<Asking>> Asking::Begin(std::string_view name, uid_t user,
                                              const far::Ask& ask, TimePoint now) {
  RDFS_ASSIGN_OR_RETURN(Fd socket, MakePacketSocket());
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    const Code code = errno == EAGAIN ? Code::kBusy : Code::kNotFound;
    return Status(code, errno, "no carrier of this user's listens here");
  }
  if (PartnerOf(socket.get()) != user) {
    return Status(Code::kNotFound, "another user listens where this user's carrier should");
  }
  const far::AskWire wire = far::Encode(ask);
  RDFS_RETURN_IF_ERROR(SendPacket(socket.get(), std::as_bytes(std::span(&wire, 1))));
  return std::unique_ptr<Asking>(new Asking(std::move(socket), ask, now));
}

Meeting::State Asking::Go(TimePoint now) {
  if (state_ != Meeting::State::kWaiting) return state_;
  Answer answer;
  const MutableByteSpan out = std::as_writable_bytes(std::span(&answer.wire, 1));
  const Result<std::size_t> size = ReceivePacket(socket_.get(), out, answer.fds);
  if (!size.ok()) return Over();
  if (*size == 0) return now < deadline_ ? state_ : Over();
  refusal_ = RefusalIn(out.first(*size));
  if (refusal_) return Over();
  met_ = ChannelIn(answer, *size, ask_);
  MeetingWire joined;
  joined.type = MeetingType::kJoined;
  const ByteSpan bytes = std::as_bytes(std::span(&joined, 1)).first(kJoinedBytes);
  if (!met_ || !SendPacket(socket_.get(), bytes).ok()) return Over();
  met_->data = std::move(socket_);
  return state_ = Meeting::State::kMet;
}

Meeting::State Asking::Over() {
  socket_.Reset();
  met_.reset();
  return state_ = Meeting::State::kOver;
}

Meeting::Result Asking::Take() { return *std::move(met_); }

void Asking::CloseUnfreed() {
  socket_.Reset();
  if (met_) met_->CloseUnfreed();
}

}  // namespace rdfs::sock
