// A keeper: a process of our own that stays with a connection which a program had to leave while
// bytes for it were in the ring, and the other end's program makes no call in which it could send
// them again. It waits, however long that takes, so that the program need not, and resets the
// connection when the other end dies first. Meanwhile the kernel's socket drops FIN, which the
// other end's kernel repeats: no reader may find an end where bytes are missing.
//
// It holds the connection's descriptors and no other, and its slot, so that the end's memory is no
// other connection's when the program has closed what it had. It belongs to no session, and is
// nobody's child: the program sees no SIGCHLD and nothing to wait for.
#pragma once

#include <cstdint>

#include "tools/sock/end.h"

namespace rdfs::sock {

// After End::Leave has said kOwed; `slot` is the connection's. Where the kernel lets only root
// filter sockets there can be none, and this blocks for the bytes, until 10 s after `since`. False
// when the connection has to be reset. All signals are blocked meanwhile.
bool StartKeeper(int tcp, End& end, std::uint32_t slot, TimePoint since);

}  // namespace rdfs::sock
