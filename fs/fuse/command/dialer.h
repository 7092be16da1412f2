// How a mount reaches its server: straight, or by a server of its own at the far end of ssh.
#pragma once

#include "fs/client/client.h"
#include "fs/fuse/command/options.h"

namespace rdfs::fs::fuse {

// What the options say of a mount: where it is, as whom, and its flags; the rest is the caller's.
// For ssh, blocks until the far rdfsd is there, and may ask the user for a password meanwhile;
// later calls of `dial` launch ssh again, and ask nothing. For an export, `key` is its server's
// (empty: one that asks for none). `to_background`: ssh must not keep our standard error, which the
// caller gives away. Errors: one sentence each.
Result<client::MountOptions> MakeMountOptions(const Options& options, const transport::Key& key,
                                              bool to_background = false);

// The key of options.key_file, or an empty one when none is given.
Result<transport::Key> ReadKey(const Options& options);

}  // namespace rdfs::fs::fuse
