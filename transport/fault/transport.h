// The fault decorator: wraps a Connection or a Transport of any kind and injects what goes wrong in
// the field, from a seed, so that a failing schedule can be run again.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace rdfs::transport::fault {

// Chances are in parts of 10,000 for each call or completion.
struct Plan {
  std::uint64_t seed = 1;
  std::uint32_t drop_connection = 0;   // a call fails with kDisconnected, and so do all after it
  std::uint32_t delay_completion = 0;  // held back for delay_polls calls of Poll, order kept
  std::uint32_t delay_polls = 8;
  std::uint32_t busy = 0;          // Read or Write answers kBusy
  std::uint32_t fail_connect = 0;  // Connect fails with kUnavailable
  std::uint64_t drop_after_operations =
      0;  // not 0: exactly the n-th operation breaks the connection
};

std::unique_ptr<Connection> Wrap(std::unique_ptr<Connection> inner, const Plan& plan);
std::unique_ptr<Transport> Wrap(std::unique_ptr<Transport> inner, const Plan& plan);

}  // namespace rdfs::transport::fault
