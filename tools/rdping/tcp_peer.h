// The peer that transports are compared with: kernel TCP sockets, used the plain way (TCP_NODELAY,
// blocking send(2) and recv(2)).
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

#include "tools/rdping/protocol.h"
#include "tools/rdping/statistics.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::rdping {

// The server's side of one connection, until the client leaves, has not the `pass`, or `stop`.
void AnswerTcp(int socket, const Pass& pass, const std::stop_token& stop);

// The client's side. Both make a connection of their own.
struct TcpServer {
  std::string host;
  std::uint16_t port = 0;
  Pass pass{};
};
Result<LatencySummary> MeasureTcpLatency(const TcpServer& server, std::size_t size,
                                         std::chrono::nanoseconds duration);
// Bytes a second, sent by calls of `size` bytes, until all have arrived.
Result<double> MeasureTcpBandwidth(const TcpServer& server, std::size_t size,
                                   std::chrono::nanoseconds duration);

}  // namespace rdfs::rdping
