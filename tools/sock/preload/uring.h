// What programs give to io_uring, whose work no library sees.
#pragma once

namespace rdfs::sock {

// SYS_io_uring_enter or SYS_io_uring_register is about to be made, on a ring of liburing's. `a`:
// its arguments.
void BeforeUringCall(long number, const long* a);

// Whether a connection was given to io_uring here: it will not have been the last, and one that is
// moved before that may be reset when it goes back (PROTOCOL.md, "exec without the shim").
bool GivesConnectionsToUring();

}  // namespace rdfs::sock
