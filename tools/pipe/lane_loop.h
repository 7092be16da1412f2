// What both drivers do with their lane: sleep until it or something else has news, and part from it
// so that the last words arrive. One thread, the lane's.
#pragma once

#include <span>
#include <string>

#include "transport/transport.h"

namespace rdfs::pipe {

// Blocks until the lane may have something, one of `others` is readable, `writable` (-1: none)
// takes something, or `deadline`.
Status SleepUntil(transport::Connection& lane, std::span<const int> others, Deadline deadline,
                  int writable = -1);

// Gets what was sent out to the peer and waits, for 2 s at most, until it has gone: ending a
// connection on which something comes in may cost the peer our last words (RFC 1122, 4.2.2.13).
void Part(transport::Connection& lane);

// "interrupted" if `interrupts` says so (a signalfd(2), or an eventfd(2) of a thread that wants an
// end; or -1), else ok.
Status CheckInterrupt(int interrupts);

}  // namespace rdfs::pipe
