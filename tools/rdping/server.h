// rdping's server: echoes messages, offers memory, echoes plain TCP beside it. A thread for the
// acceptor, one for each lane and each TCP connection; each sleeps while nothing arrives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/base/status.h"
#include "transport/session/key.h"

namespace rdfs::rdping {

struct ServerOptions {
  std::string address;     // empty: every address
  std::uint16_t port = 0;  // 0: a free one
  transport::Key key;      // empty: whoever comes may measure
};

// Prints the client's command once it listens, then serves until SIGINT or SIGTERM.
Status Serve(const ServerOptions& options);

}  // namespace rdfs::rdping
