// The calls that may hand on descriptors.
#pragma once

#include <sys/socket.h>

namespace rdfs::sock {

// SYS_sendmsg or SYS_sendmmsg, as the C library's function for it goes. `a`: its arguments.
long SendBySystemCall(long number, const long* a);

// A message is about to be sent. Sockets that another program is given with it have to be TCP's.
void LetGo(const msghdr& message);

// Whether the program has sent with MSG_ZEROCOPY: those that ask for it (SO_ZEROCOPY) stay on TCP
// from then on. That option alone says little: some set it everywhere.
bool SendsZeroCopy();

}  // namespace rdfs::sock
