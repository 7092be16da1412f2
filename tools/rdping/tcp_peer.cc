#include "tools/rdping/tcp_peer.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "tools/rdping/laps.h"
#include "tools/rdping/protocol.h"
#include "transport/session/derive.h"
#include "transport/tcp/transport.h"

namespace rdfs::rdping {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono_literals::operator""s;

// Blocking, but never for ever: a peer that stops answering ends the measurement.
Status MakePlain(int socket) {
  const int flags = fcntl(socket, F_GETFL);
  if (flags < 0 || fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return Status::FromErrno(errno, "fcntl of a socket");
  }
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return {};
}

bool SendAll(int socket, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool ReceiveAll(int socket, MutableByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

Result<Fd> Connect(const TcpServer& server, Op op, std::size_t size) {
  RDFS_ASSIGN_OR_RETURN(Fd socket,
                        transport::tcp::ConnectSocket(server.host, server.port, DeadlineAfter(5s)));
  RDFS_RETURN_IF_ERROR(MakePlain(socket.get()));
  const TcpHello hello{static_cast<std::uint32_t>(op), static_cast<std::uint32_t>(size),
                       server.pass};
  if (!SendAll(socket.get(), std::as_bytes(std::span<const TcpHello, 1>(&hello, 1)))) {
    return Status::FromErrno(errno, "sending to the TCP echo port");
  }
  return socket;
}

const Status& Gone() {
  static const Status status(Code::kDisconnected, "the server stopped answering on plain TCP");
  return status;
}

}  // namespace

void AnswerTcp(int socket, const Pass& pass, const std::stop_token& stop) {
  if (!MakePlain(socket).ok()) return;
  TcpHello hello{};
  if (!ReceiveAll(socket, std::as_writable_bytes(std::span<TcpHello, 1>(&hello, 1)))) return;
  if (!transport::session::EqualInConstantTime(std::as_bytes(std::span(hello.pass)),
                                               std::as_bytes(std::span(pass))))
    return;
  const std::size_t size = hello.size;
  if (size == 0 || size > (16U << 20U)) return;
  Bytes buffer(size);
  if (hello.op == static_cast<std::uint32_t>(Op::kEcho)) {
    while (!stop.stop_requested() && ReceiveAll(socket, buffer) && SendAll(socket, buffer)) {
    }
    return;
  }
  while (!stop.stop_requested() && recv(socket, buffer.data(), buffer.size(), 0) > 0) {
  }
  SendAll(socket, ByteSpan(buffer).first(1));
}

Result<LatencySummary> MeasureTcpLatency(const TcpServer& server, std::size_t size,
                                         std::chrono::nanoseconds duration) {
  RDFS_ASSIGN_OR_RETURN(const Fd socket, Connect(server, Op::kEcho, size));
  Bytes buffer(size);
  Laps laps(duration);
  do {
    if (!SendAll(socket.get(), buffer) || !ReceiveAll(socket.get(), buffer)) return Gone();
  } while (laps.More());
  return laps.Summarise();
}

Result<double> MeasureTcpBandwidth(const TcpServer& server, std::size_t size,
                                   std::chrono::nanoseconds duration) {
  RDFS_ASSIGN_OR_RETURN(const Fd socket, Connect(server, Op::kStream, size));
  const Bytes buffer(size);
  const TimePoint start = BootClock::now();
  double sent = 0;
  while (BootClock::now() - start < duration) {
    if (!SendAll(socket.get(), buffer)) return Gone();
    sent += static_cast<double>(size);
  }
  shutdown(socket.get(), SHUT_WR);
  std::byte last{};
  if (!ReceiveAll(socket.get(), {&last, 1})) return Gone();
  return sent / std::chrono::duration<double>(BootClock::now() - start).count();
}

}  // namespace rdfs::rdping
