// What rdfsd settles before it serves: its key, its secret, its limits, where it listens.
//
// Called once by main, before any thread.
#pragma once

#include <string>
#include <vector>

#include "server/command/options.h"
#include "server/inode/handle.h"
#include "transport/session/key.h"

namespace rdfs::server {

struct KeySetup {
  transport::Key key;
  std::string path;
  bool made = false;  // just now
};
// The key of `options.key_file`, or of ~/.config/rdfs/key, which is made with mode 0600 when it is
// missing. Errors: one sentence with what to do.
Result<KeySetup> SetUpKey(const Options& options);

// What handles are signed with, kept in $XDG_STATE_HOME/rdfs or ~/.local/state/rdfs (root:
// /var/lib/rdfs), so that they survive a restart; a random one where nothing can be kept.
HandleSecret SetUpHandleSecret();

// Loopback, both families as far as this machine has them.
std::vector<std::string> LoopbackAddresses();

// Warns of a pool that is larger than this machine's memory.
void WarnOfLargePool(const Options& options);

// As many descriptors as this process may have.
void RaiseDescriptorLimit();

// What a person types to mount `name`.
std::string MountCommand(const Options& options, const std::string& name, std::uint16_t port,
                         const std::string& key_path);

}  // namespace rdfs::server
