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
  bool port_is_given = false;  // beside the host
  transport::Key key;
  Status key_problem;       // why there is none, though a file was named
  std::string export_name;  // empty: none is looked at
  std::chrono::milliseconds timeout{5000};
};

// "HOST", "HOST:PORT", "[ADDRESS]:PORT" or "rdfs://HOST[:PORT]/EXPORT" into host, port and export.
// What ssh reaches ("[USER@]HOST:DIR") is refused with a sentence that names its host, and so is a
// port that is not the one given.
Status ParsePeer(std::string_view text, PeerOptions& options);

// What is wrong with the key's file, where nobody is asked who would want the key.
Section DescribeKey(const Status& key_problem);

// The section's facts are the steps: name, address, TCP port, path, authentication, clock, then
// each transport with what it can do (about a second for all).
Section DescribePeer(const PeerOptions& options);

}  // namespace rdfs::rdinfo
