// The system calls that may hand on descriptors, by number.
#pragma once

namespace rdfs::sock {

// SYS_sendmsg or SYS_sendmmsg, as the C library's function for it goes. `a`: its arguments.
long SendBySystemCall(long number, const long* a);

}  // namespace rdfs::sock
