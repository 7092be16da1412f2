#include "transport/shm/listener.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/shm/connection.h"

namespace rdfs::transport::shm {
namespace {

constexpr std::size_t kMaxSilent = 64;
constexpr std::chrono::seconds kPatience{5};
constexpr int kBacklog = 128;

bool Watch(const Fd& epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void SendReject(PacketSocket& socket, const Status& why) {
  const std::string_view message = std::string_view(why.message()).substr(0, kMaxRejectMessage);
  std::array<std::byte, kMaxPacketBytes> buffer;
  ByteWriter writer(buffer);
  writer.Write(RejectWire{.code = static_cast<std::uint8_t>(why.code()),
                          .message_bytes = static_cast<std::uint16_t>(message.size()),
                          .errno_value = static_cast<std::uint32_t>(why.errno_value())});
  writer.WriteBytes(AsBytes(message));
  // The socket is empty, so it takes the packet; a peer that has gone needs none.
  (void)socket.Send(writer.written(), -1);
}

}  // namespace

std::optional<uid_t> PeerUid(const Incoming& incoming) {
  const auto* const ours = dynamic_cast<const ShmIncoming*>(&incoming);
  if (ours == nullptr) return std::nullopt;
  return ours->uid();
}

ShmIncoming::ShmIncoming(PacketSocket socket, uid_t uid, ByteSpan token, std::string name,
                         std::size_t peer_regions)
    : socket_(std::move(socket)),
      uid_(uid),
      token_bytes_(token.size()),
      name_(std::move(name)),
      peer_regions_(peer_regions) {
  std::ranges::copy(token, token_.begin());
}

Result<std::unique_ptr<Connection>> ShmIncoming::Accept(const std::shared_ptr<Domain>& domain) {
  if (!socket_) return Status(Code::kInvalidArgument, "this peer was answered already");
  PacketSocket socket = std::move(*socket_);
  socket_.reset();
  if (peer_regions_ > 0) AllowDescriptors(socket.fd(), true);
  RDFS_ASSIGN_OR_RETURN(
      std::shared_ptr<SharedMemory> channel,
      SharedMemory::Create("rdfs-channel", sizeof(ChannelLayout), SharedMemory::Peers::kMayWrite));
  ::new (channel->bytes().data()) ChannelLayout;
  const AcceptWire wire{.channel_bytes = static_cast<std::uint32_t>(channel->size())};
  RDFS_ASSIGN_OR_RETURN(
      const bool sent,
      socket.Send(std::as_bytes(std::span<const AcceptWire, 1>(&wire, 1)), channel->fd()));
  if (!sent) return Status(Code::kDisconnected, "the peer on this host does not read its socket");
  return ShmConnection::Create(Role::kAcceptor, domain, std::move(socket), std::move(channel),
                               fmt::format("shm {} {}", name_, peer()), peer_regions_);
}

void ShmIncoming::Reject(const Status& why) {
  if (socket_) SendReject(*socket_, why);
  socket_.reset();
}

Result<std::unique_ptr<Listener>> ShmListener::Create(const std::string& name,
                                                      std::size_t peer_regions) {
  const std::string taken =
      !name.empty() ? name : fmt::format("rdfs-{:016x}{:016x}", RandomU64(), RandomU64());
  RDFS_ASSIGN_OR_RETURN(const AbstractAddress address, MakeAbstractAddress(taken));
  Fd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd.valid()) {
    return Status(Code::kUnavailable, errno, "this kernel offers no UNIX sockets to shm");
  }
  if (bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) !=
      0) {
    return Status::FromErrno(errno, fmt::format("cannot take the shm name '{}'", taken));
  }
  AllowDescriptors(socket_fd.get(), false);
  if (listen(socket_fd.get(), kBacklog) != 0) return Status::FromErrno(errno, "listen for shm");
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  Fd timer(timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!epoll.valid() || !timer.valid() || !Watch(epoll, socket_fd.get()) ||
      !Watch(epoll, timer.get())) {
    return Status::FromErrno(errno, "cannot wait for shm peers");
  }
  return std::unique_ptr<Listener>(new ShmListener(taken, peer_regions, std::move(socket_fd),
                                                   std::move(epoll), std::move(timer)));
}

ShmListener::Heard ShmListener::Hear(PacketSocket& socket, std::unique_ptr<Incoming>& out) const {
  Packet packet;
  const auto event = socket.ReceiveBytes(packet);
  if (!event.ok() || *event == PacketSocket::Event::kEnd) return Heard::kNonsense;
  if (*event == PacketSocket::Event::kNothing) return Heard::kNothing;
  ByteReader reader(packet.bytes());
  const auto preface = reader.Read<PrefaceWire>();
  const ByteSpan token = reader.ReadBytes(preface.token_bytes);
  if (preface.type != PacketType::kPreface || preface.magic != kMagic) return Heard::kNonsense;
  if (preface.version != kVersion) {
    SendReject(socket, Status(Code::kVersionMismatch,
                              fmt::format("this end speaks version {} of shm and the other {}; "
                                          "install the same rdfs for both",
                                          kVersion, std::uint16_t{preface.version})));
    return Heard::kNonsense;
  }
  if (!reader.ok() || reader.remaining() != 0 || token.size() > kMaxTokenBytes) {
    return Heard::kNonsense;
  }
  const auto uid = socket.PeerUid();
  if (!uid.ok()) return Heard::kNonsense;
  out = std::make_unique<ShmIncoming>(std::move(socket), *uid, token, name_, peer_regions_);
  return Heard::kPreface;
}

void ShmListener::DropLateOnes() {
  const TimePoint now = BootClock::now();
  while (!silent_.empty() && (silent_.size() > kMaxSilent || silent_.front().deadline <= now)) {
    LogDebug("shm {}: dropped a peer that sent no token", name_);
    silent_.pop_front();
  }
  itimerspec when{};  // zero disarms
  if (!silent_.empty()) {
    const auto at = silent_.front().deadline.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    when.it_value.tv_sec = seconds.count();
    when.it_value.tv_nsec = (at - seconds).count();
  }
  // Setting it also clears its readiness.
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

Status ShmListener::AcceptSockets() {
  // No more at once than may wait: the rest stays in the kernel's queue and keeps fd() readable.
  for (std::size_t i = 0; i < kMaxSilent; ++i) {
    Fd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return {Code::kResourceExhausted, errno,
              "no descriptor is left for a peer on this host; raise the limit of open files "
              "(ulimit -n)"};
    }
    if (!Watch(epoll_, fd.get())) continue;
    silent_.push_back({PacketSocket(std::move(fd)), DeadlineAfter(kPatience)});
  }
  return {};
}

Result<std::unique_ptr<Incoming>> ShmListener::Accept() {
  const Status accepted = AcceptSockets();
  std::unique_ptr<Incoming> found;
  for (auto it = silent_.begin(); it != silent_.end() && !found;) {
    // A socket that goes on to be a connection must leave the epoll set while its number is ours.
    const int fd = it->socket.fd();
    const Heard heard = Hear(it->socket, found);
    if (heard == Heard::kPreface) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    it = heard == Heard::kNothing ? std::next(it) : silent_.erase(it);
  }
  DropLateOnes();
  if (!found && !accepted.ok()) return accepted;
  return found;
}

}  // namespace rdfs::transport::shm
