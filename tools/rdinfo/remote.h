// What reaches a peer: each step on the way to each transport, in order, with the first that fails
// named and what to do about it. Blocks at most for the time given; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/rdinfo/local.h"
#include "transport/session/key.h"

namespace rdfs::rdinfo {

struct PeerOptions {
  std::string host;
  std::uint16_t port = 0;
  transport::Key key;
  std::chrono::milliseconds timeout{5000};
};

// The section's facts are the steps: name, address, TCP port, authentication, then each transport.
Section DescribePeer(const PeerOptions& options);

}  // namespace rdfs::rdinfo
