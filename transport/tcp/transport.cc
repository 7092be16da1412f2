#include "transport/tcp/transport.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <utility>

#include "transport/tcp/listener.h"
#include "transport/tcp/preface.h"

namespace rdfs::transport::tcp {
namespace {

Status TooLate(const std::string& peer) {
  return {Code::kDeadlineExceeded, peer + " took the connection but did not answer in time"};
}

Status WaitFor(int fd, short events, const std::string& peer, Deadline deadline) {
  const int timeout = PollTimeoutMs(deadline, BootClock::now());
  if (timeout == 0) return TooLate(peer);
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  if (poll(&entry, 1, timeout) < 0 && errno != EINTR) return Status::FromErrno(errno, "poll");
  return {};
}

Status ReadAll(ByteStream& stream, MutableByteSpan out, Deadline deadline) {
  while (!out.empty()) {
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, stream.Read(out));
    out = out.subspan(count);
    if (count > 0) continue;
    RDFS_RETURN_IF_ERROR(WaitFor(stream.read_fd(), stream.read_events(), stream.peer(), deadline));
  }
  return {};
}

Status WriteAll(ByteStream& stream, std::string text, Deadline deadline) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const iovec part{text.data() + sent, text.size() - sent};
    RDFS_ASSIGN_OR_RETURN(const std::size_t count, stream.Write(std::span(&part, 1)));
    sent += count;
    if (count > 0) continue;
    RDFS_RETURN_IF_ERROR(
        WaitFor(stream.write_fd(), stream.write_events(), stream.peer(), deadline));
  }
  return {};
}

Status AwaitVerdict(ByteStream& stream, Deadline deadline) {
  std::array<std::byte, sizeof(Verdict) + kMaxVerdictWords> bytes{};
  const MutableByteSpan all(bytes);
  RDFS_RETURN_IF_ERROR(ReadAll(stream, all.first(sizeof(Verdict)), deadline));
  ByteReader reader(bytes);
  const auto verdict = reader.Read<Verdict>();
  RDFS_ASSIGN_OR_RETURN(const std::size_t words_bytes, CheckVerdict(verdict));
  const MutableByteSpan words = all.subspan(sizeof(Verdict), words_bytes);
  RDFS_RETURN_IF_ERROR(ReadAll(stream, words, deadline));
  return VerdictStatus(verdict, AsText(words));
}

class TcpTransport final : public Transport {
 public:
  [[nodiscard]] Kind kind() const override { return Kind::kTcp; }
  [[nodiscard]] Viability Probe() const override { return {.viable = true, .reason = ""}; }

  Result<std::unique_ptr<Listener>> Listen(const Endpoint& endpoint) override {
    return TcpListener::Create(endpoint);
  }

  Result<std::unique_ptr<Connection>> Connect(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline) override {
    if (token.size() > kMaxTokenBytes) {
      return Status(Code::kInvalidArgument, "a token above the largest size that is carried");
    }
    RDFS_ASSIGN_OR_RETURN(Fd socket, ConnectSocket(endpoint.host, endpoint.port, deadline));
    const std::string peer = endpoint.ToString().substr(std::string_view("tcp://").size());
    auto stream = MakeSocketStream(std::move(socket), peer);
    RDFS_RETURN_IF_ERROR(WriteAll(*stream, EncodePreface(token), deadline));
    RDFS_RETURN_IF_ERROR(AwaitVerdict(*stream, deadline));
    return MakeConnection(std::move(stream), domain, "tcp " + peer);
  }
};

}  // namespace

std::unique_ptr<Transport> MakeTransport() { return std::make_unique<TcpTransport>(); }

}  // namespace rdfs::transport::tcp
