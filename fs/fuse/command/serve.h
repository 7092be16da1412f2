// Serve: one mount from its checks to its unmount.
//
//   checks -> dial (ssh) -> session -> lanes -> kernel mount -> workers -> "mounted"
//          -> [signals, outside umount] -> workers end -> lanes, session, ssh end
//
// Threads: the caller's (starts everything, then waits), one for signals (signals.h), the mount's
// own (fs/client), one for each worker, one that waits for ssh, one for syslog, and one while an
// unmount that a signal asked for is under way.
#pragma once

#include "fs/fuse/command/daemon.h"
#include "fs/fuse/command/options.h"

namespace rdfs::fs::fuse {

// Blocks until the mount has ended; returns the exit status. `report` is told how the start went.
// Called once, before the process has a second thread.
int Serve(const Options& options, StartReport& report);

}  // namespace rdfs::fs::fuse
