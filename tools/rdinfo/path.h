// The way to a peer, as the kernel's TCP sees it: what an ordinary user may know without sending
// anything of his own but a connection. Blocks at most until the deadline; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/rdinfo/fact.h"
#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs::rdinfo {

// Of a connected TCP socket.
struct PathFacts {
  std::uint32_t mtu = 0;  // of this end's route, bytes
  std::uint32_t peer_mtu =
      0;  // the largest packet that the peer takes from us, as it said; 0: unknown
  std::chrono::microseconds round_trip{};
};
PathFacts MeasurePath(int socket);

// "path": MTU and round trip; not good when the two ends differ.
Fact DescribePath(const PathFacts& path);

// Whether somebody answered who would not be connected to, rather than nobody at all; of what
// ConnectSocket says.
bool IsRefusal(const Status& failure);
// Whether the machine answers on a port that hardly any leaves unanswered.
bool MachineAnswers(const std::string& host, Deadline deadline);
// Why a port that does not answer does not. A sentence.
std::string WhyNoAnswer(bool machine_answers);

}  // namespace rdfs::rdinfo
