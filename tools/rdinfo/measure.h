// How fast a lane of the service "probe" is: round trips of messages and READs, and bandwidth.
// Blocks for about the time given, and some seconds more when the peer stops answering. One thread,
// the caller's.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace rdfs::rdinfo {

struct Speed {
  double message_us = 0;        // there and back, the median
  double read_us = 0;           // 64 bytes one-sided; 0: no memory to READ was offered
  double bytes_per_second = 0;  // READs of large pieces
};

// Memory to READ into, in the domain of the session.
Result<std::unique_ptr<transport::MemoryRegion>> MakeBuffer(transport::Domain& domain);

// Errors: what the lane says; kUnavailable from a server that does not measure (an older one);
// kDeadlineExceeded when small messages pass and READs of large pieces do not come.
Result<Speed> MeasureLane(transport::Connection& lane, const transport::MemoryRegion& buffer,
                          std::chrono::milliseconds duration);

// "12.3 us a message, 14.1 us a READ, 2.10 GB/s"
std::string ToString(const Speed& speed);

}  // namespace rdfs::rdinfo
