// The tcp transport: the interface of ../transport.h over any byte stream, frames as in frame.h.
//
// One-sided operations are frames that the passive end answers from its registered memory while it
// polls (Capabilities::passive_progress). Standing alone, Listen and Connect speak plain TCP and
// carry the token in the stream's first bytes; a session (../session/) makes the stream itself,
// with TLS where the peer is on another host, and hands it to MakeConnection.
#pragma once

#include <memory>

#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace rdfs::transport::tcp {

std::unique_ptr<Transport> MakeTransport();

// A connection over an established stream whose two ends both call this. Sends nothing by itself.
// `description` is what Describe() says.
Result<std::unique_ptr<Connection>> MakeConnection(std::unique_ptr<ByteStream> stream,
                                                   const std::shared_ptr<Domain>& domain,
                                                   std::string description);

// Connects a TCP socket to each address of `host` in turn (IPv4 and IPv6, as getaddrinfo(3) orders
// them) until one answers or `deadline`. kNotFound for an unknown host, kDisconnected when refused:
// the message names host, port and what to check.
Result<Fd> ConnectSocket(const std::string& host, std::uint16_t port, Deadline deadline);

// Listens on `host` (empty: every address, IPv6 and IPv4 alike) and `port` (0: a free one).
Result<Fd> ListenSocket(const std::string& host, std::uint16_t port);
Result<std::uint16_t> LocalPort(int socket);
// Whether both ends of a connected socket are on this host: loopback, or the same address.
bool IsLocalPeer(int socket);

}  // namespace rdfs::transport::tcp
