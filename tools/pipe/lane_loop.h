// What both drivers do with their lane: sleep until it or something else has news, and part from it
// so that the last words arrive. One thread, the lane's.
#pragma once

#include <cstdint>
#include <initializer_list>
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
// The same, and it goes on saying so.
bool IsInterrupted(int interrupts);

// The turns of a driver: whether its user wants an end, and its sleep between them.
class Turns {
 public:
  explicit Turns(int interrupts) : interrupts_(interrupts) {}
  // CheckInterrupt, after each sleep and now and then besides: a look costs as much as hashing
  // 50 KiB.
  Status CheckInterrupt();
  // SleepUntil, also until the user wants an end, and 200 ms at most: there is progress to draw.
  // -1 among `readable` is nothing, nor is a null lane.
  Status Sleep(transport::Connection* lane, std::initializer_list<int> readable, int writable,
               Deadline next);

 private:
  const int interrupts_;
  std::uint64_t looks_ = 0;
  bool slept_ = false;  // since the last look
};

}  // namespace rdfs::pipe
