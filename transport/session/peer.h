// What the kernel can tell about this process and about the peer of a socket.
//
// System calls that do not block; any thread. Nothing here trusts the peer's own word.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "transport/session/messages.h"
#include "transport/session/rate_limit.h"

namespace rdfs::transport::session {

// This process's: the kernel's boot id and its network namespace (proc(5), namespaces(7)). Zero
// where they cannot be read.
HostIdentity ReadHostIdentity();

// For the limits; zero for anything but a TCP socket.
PeerAddress AddressOf(int socket);
// "10.0.0.2", "fe80::1%ib0": what connects to the same machine again. Empty for anything else.
std::string NumericHostOf(int socket);
// "10.0.0.2:51342" for logs.
std::string PeerName(int socket);
// The user at the other end of a UNIX socket (SO_PEERCRED, unix(7)).
std::optional<uid_t> PeerUser(int socket);

// A vestibule carries nothing for hours: lets the kernel find out within half a minute that the
// other host is gone (tcp(7)).
void KeepAlive(int socket);

}  // namespace rdfs::transport::session
