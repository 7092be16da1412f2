#include "tools/sock/far/askers.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "tools/sock/packet.h"

namespace rdfs::sock::far {
namespace {

constexpr int kBacklog = 128;
constexpr std::size_t kMostHolds = 4096;

bool IsHold(ByteSpan packet) {
  ByteReader reader(packet);
  const auto wire = reader.Read<HoldWire>();
  return reader.ok() && reader.remaining() == 0 && wire.type == AskType::kHold &&
         wire.version == kAskVersion;
}

}  // namespace

Result<Askers> Askers::Listen(const std::string& name) {
  RDFS_ASSIGN_OR_RETURN(Fd fd, MakePacketSocket());
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return Status(Code::kBusy, "another carrier of this user's runs");
    return Status::FromErrno(errno, "the carrier's name");
  }
  if (listen(fd.get(), kBacklog) != 0) return Status::FromErrno(errno, "the carrier's name");
  return Askers(std::move(fd));
}

Askers::Came Askers::Accept(TimePoint now, Asker*& asker) {
  Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    const bool none = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    return none ? Came::kNobody : Came::kNoRoom;
  }
  if (PartnerOf(fd.get()) != geteuid() || askers_.size() == kMost) return Came::kStranger;
  askers_.push_back({.socket = std::move(fd),
                     .ask = std::nullopt,
                     .look = 0,
                     .pair = {},
                     .told = false,
                     .until = now + kPatience});
  asker = &askers_.back();
  return Came::kAsker;
}

bool Askers::Hear(Asker& asker) {
  std::array<std::byte, sizeof(AskWire)> packet;
  std::array<Fd, 2> fds;
  const auto got = ReceivePacket(asker.socket.get(), packet, fds);
  if (!got.ok()) return false;
  if (*got == 0) return true;
  const ByteSpan bytes = ByteSpan(packet).first(*got);
  if (IsHold(bytes)) {
    Hold(asker.socket.get());
    return false;
  }
  const bool again = asker.ask.has_value();
  asker.ask = DecodeAsk(bytes);
  if (!again && asker.ask) return true;
  Refuse(asker.socket, Refusal::kNonsense);
  return false;
}

void Askers::Hold(int socket) {
  ucred who{};
  socklen_t size = sizeof(who);
  if (holds_.size() == kMostHolds ||
      getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return;
  }
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
  if (process.valid()) holds_.push_back(std::move(process));
}

void Askers::DropHold(int fd) {
  std::erase_if(holds_, [&](const Fd& hold) { return hold.get() == fd; });
}

Asker* Askers::Find(const TcpPlaces& places) {
  const auto found = std::ranges::find_if(
      askers_, [&](const Asker& a) { return a.ask && a.ask->places == places; });
  return found == askers_.end() ? nullptr : &*found;
}

void Askers::Forget(const Asker& asker) {
  askers_.remove_if([&](const Asker& a) { return &a == &asker; });
}

void Refuse(const Fd& socket, Refusal reason) {
  RefusedWire wire;
  wire.reason = static_cast<std::uint32_t>(reason);
  (void)SendPacket(socket.get(), std::as_bytes(std::span(&wire, 1)));
}

}  // namespace rdfs::sock::far
