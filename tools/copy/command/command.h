// What rdcp does when it is started without another rdcp to talk to: the local form, with all that
// a process needs around it.
#pragma once

#include "tools/copy/command/options.h"

namespace rdfs::copy {

// Copies between this machine and exports, in any direction; returns the exit status. To be called
// once, by main, before there is any other thread: takes over umask, signals and the limit of open
// files.
int RunLocal(CopyOptions& options);

}  // namespace rdfs::copy
