// What reaches a peer: each step on the way to each transport, in order, with the first that fails
// named and what to do about it. Blocks at most for the time given; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/rdinfo/fact.h"
#include "transport/base/status.h"
#include "transport/session/key.h"

namespace rdfs::rdinfo {

struct PeerOptions {
  std::string host;
  std::uint16_t port = 0;
  transport::Key key;
  std::string export_name;  // empty: none is looked at
  std::chrono::milliseconds timeout{5000};
};

// "HOST", "HOST:PORT", "[ADDRESS]:PORT" or "rdfs://HOST[:PORT]/EXPORT" into host, port and export.
Status ParsePeer(std::string_view text, PeerOptions& options);

// The section's facts are the steps: name, address, TCP port, path, authentication, clock, then
// each transport with what it can do (about a second for all).
Section DescribePeer(const PeerOptions& options);

}  // namespace rdfs::rdinfo
