#include "transport/shm/transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/base/printable.h"
#include "transport/shm/connection.h"
#include "transport/shm/listener.h"
#include "transport/shm/socket.h"

namespace rdfs::transport::shm {
namespace {

Status TooLate(const std::string& name) {
  return {Code::kDeadlineExceeded,
          fmt::format("nobody answered at shm:///{} before the deadline", name)};
}

// Connects with a blocking connect(2), bounded by SO_SNDTIMEO: a full accept queue is waited for in
// the kernel.
Result<Fd> ConnectSocket(const std::string& name, Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(const AbstractAddress address, MakeAbstractAddress(name));
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot make a UNIX socket");
  while (true) {
    const int left_ms = PollTimeoutMs(deadline, BootClock::now());
    if (left_ms == 0) return TooLate(name);
    const timeval limit{.tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) ==
        0) {
      return fd;
    }
    if (errno == ECONNREFUSED) {
      return Status(Code::kDisconnected, errno,
                    fmt::format("nobody listens at shm:///{} on this host", name));
    }
    if (errno != EINTR && errno != EAGAIN) {
      return Status(Code::kDisconnected, errno, fmt::format("cannot connect to shm:///{}", name));
    }
  }
}

Status RejectedWith(ByteSpan packet) {
  ByteReader reader(packet);
  const auto wire = reader.Read<RejectWire>();
  const ByteSpan message = reader.ReadBytes(wire.message_bytes);
  const auto code = static_cast<Code>(wire.code);
  if (!reader.ok() || reader.remaining() != 0 || code == Code::kOk || CodeName(code) == "unknown") {
    return {Code::kProtocolError, "the peer on this host sent a malformed refusal"};
  }
  return {code, static_cast<int>(wire.errno_value & 0xfffU), Printable(AsText(message))};
}

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::size_t peer_regions) : peer_regions_(peer_regions) {}

  [[nodiscard]] Kind kind() const override { return Kind::kShm; }

  [[nodiscard]] Viability Probe() const override {
    // The newest that is needed is the seal that keeps peers from writing (Linux 5.1).
    const auto memory = SharedMemory::Create("rdfs-probe", 1, SharedMemory::Peers::kReadOnly);
    if (memory.ok()) return {true, "sealed shared memory works on this machine"};
    return {false, fmt::format("shared memory needs memfd_create and F_SEAL_FUTURE_WRITE, use "
                               "Linux 5.1 or newer ({})",
                               memory.status().message())};
  }

  Result<std::unique_ptr<Listener>> Listen(const Endpoint& endpoint) override {
    return ShmListener::Create(endpoint.host, peer_regions_);
  }

  Result<std::unique_ptr<Connection>> Connect(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline) override {
    if (token.size() > kMaxTokenBytes) {
      return Status(Code::kInvalidArgument, "a token above 56 bytes");
    }
    RDFS_ASSIGN_OR_RETURN(Fd fd, ConnectSocket(endpoint.host, deadline));
    PacketSocket socket(std::move(fd));
    std::array<std::byte, sizeof(PrefaceWire) + kMaxTokenBytes> buffer;
    ByteWriter writer(buffer);
    writer.Write(PrefaceWire{.token_bytes = static_cast<std::uint8_t>(token.size())});
    writer.WriteBytes(token);
    RDFS_ASSIGN_OR_RETURN(const bool sent, socket.Send(writer.written(), -1));
    if (!sent) return Status(Code::kDisconnected, "the UNIX socket takes no first packet");
    Packet answer;
    RDFS_RETURN_IF_ERROR(AwaitAnswer(socket, answer, endpoint.host, deadline));
    return Open(endpoint.host, domain, std::move(socket), std::move(answer));
  }

 private:
  static Status AwaitAnswer(PacketSocket& socket, Packet& answer, const std::string& name,
                            Deadline deadline) {
    while (true) {
      RDFS_ASSIGN_OR_RETURN(const PacketSocket::Event event, socket.Receive(answer));
      if (event == PacketSocket::Event::kPacket) return {};
      if (event == PacketSocket::Event::kEnd) {
        return {Code::kDisconnected,
                fmt::format("shm:///{} closed the connection without a word", name)};
      }
      const int left_ms = PollTimeoutMs(deadline, BootClock::now());
      if (left_ms == 0) return TooLate(name);
      pollfd entry{.fd = socket.fd(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, left_ms) < 0 && errno != EINTR) {
        return Status::FromErrno(errno, "poll on a UNIX socket");
      }
    }
  }

  static Result<std::unique_ptr<Connection>> Open(const std::string& name,
                                                  const std::shared_ptr<Domain>& domain,
                                                  PacketSocket socket, Packet answer) {
    if (answer.type() == PacketType::kReject) return RejectedWith(answer.bytes());
    ByteReader reader(answer.bytes());
    const auto wire = reader.Read<AcceptWire>();
    if (!reader.ok() || reader.remaining() != 0 || wire.type != PacketType::kAccept ||
        wire.channel_bytes != sizeof(ChannelLayout) || !answer.fd.valid()) {
      return Status(Code::kProtocolError,
                    fmt::format("what listens at shm:///{} is not rdfs of this version", name));
    }
    RDFS_ASSIGN_OR_RETURN(
        std::shared_ptr<SharedMemory> channel,
        AdoptFromPeer(std::move(answer.fd), sizeof(ChannelLayout), SharedMemory::Peers::kMayWrite));
    RDFS_ASSIGN_OR_RETURN(const uid_t uid, socket.PeerUid());
    return ShmConnection::Create(Role::kConnector, domain, std::move(socket), std::move(channel),
                                 fmt::format("shm {} uid {}", name, uid));
  }

  const std::size_t peer_regions_;
};

}  // namespace

std::unique_ptr<Transport> MakeTransport(std::size_t peer_regions) {
  return std::make_unique<ShmTransport>(std::min(peer_regions, kMaxRegions));
}

}  // namespace rdfs::transport::shm
