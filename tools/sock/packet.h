// Packets between processes of one host, over SOCK_SEQPACKET sockets at abstract names: how ends
// meet, and how they ask a carrier. Non-blocking; any thread; keeps nothing.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::sock {

// Close-on-exec and non-blocking. Errors: kErrno.
Result<Fd> MakePacketSocket();
// Returns the length for bind and connect. `name`: at most 100 bytes.
socklen_t AbstractAddress(std::string_view name, sockaddr_un& address);
// Whose process connected or listened there (SO_PEERCRED); none when the kernel does not say, as of
// a user who has no number in this user namespace.
std::optional<uid_t> PartnerOf(int socket);
// Whether it is a socket as ours are: waiting on anything else could do anything.
bool IsPacketSocket(int fd);

// One packet into `out`: how many bytes it has, 0 when there is none yet. Errors: kDisconnected,
// kProtocolError for one that is longer, or brings more descriptors.
Result<std::size_t> ReceivePacket(int socket, MutableByteSpan out, std::array<Fd, 2>& fds);
// With two descriptors, unless `first` is -1. Errors: kDisconnected.
Status SendPacket(int socket, ByteSpan packet, int first = -1, int second = -1);

}  // namespace rdfs::sock
