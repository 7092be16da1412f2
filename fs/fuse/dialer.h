// How a mount reaches its server: straight, or by a server of its own at the far end of ssh.
#pragma once

#include <string>

#include "fs/client/client.h"
#include "fs/fuse/options.h"

namespace rdfs::fs::fuse {

struct Dialer {
  client::DialFunction dial;
  std::string export_name;
};

// For ssh, blocks until the far rdfsd is there, and may ask the user for a password meanwhile;
// later calls of `dial` launch ssh again, and ask nothing. For an export, reads the key file.
// Errors: one sentence each.
Result<Dialer> MakeDialer(const Options& options);

}  // namespace rdfs::fs::fuse
