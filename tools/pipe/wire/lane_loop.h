// What both drivers do with their lane: sleep until it or something else has news, and part from it
// so that the last words arrive. One thread, the lane's.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "transport/base/adaptive_spin.h"
#include "transport/base/processors.h"
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
// As CheckInterrupt, but leaves the signal pending.
bool IsInterrupted(int interrupts);

// The turns of a driver: whether its user wants an end, and what it does between them: it looks
// again for as long as that pays, and then sleeps.
class Turns {
 public:
  explicit Turns(int interrupts) : interrupts_(interrupts) {}
  // CheckInterrupt, after each sleep and now and then besides: a look costs as much as hashing
  // 50 KiB.
  Status CheckInterrupt();
  // A turn found nothing to do but to wait for the lane's peer. True: the next turn is to come now,
  // rather than after a sleep (adaptive_spin.h): waking a sleeper would take the peer's time, if it
  // is on this host. May block for a moment. For a driver that no thread of its own waits for.
  bool LookAgain(const transport::Connection& lane);
  // A turn found something to do.
  void Came() { spin_.Came(); }
  // SleepUntil, also until the user wants an end, and 200 ms at most: there is progress to draw.
  // -1 among `readable` is nothing, nor is a null lane.
  Status Sleep(transport::Connection* lane, std::initializer_list<int> readable, int writable,
               Deadline next);

 private:
  const int interrupts_;
  std::uint64_t looks_ = 0;
  bool slept_ = false;  // since the last look
  const bool gives_way_ = !RoomForAChain();
  AdaptiveSpin spin_{std::chrono::microseconds(300)};
};

}  // namespace rdfs::pipe
