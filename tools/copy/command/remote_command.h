// What rdcp does when SRC or DST is on another machine.
#pragma once

#include "tools/copy/command/options.h"

namespace rdfs::copy {

// Copies to or from other machines; returns the exit status. To be called once, by main, before
// there is any other thread: takes over umask, signals and the limit of open files.
int RunRemote(CopyOptions& options);

}  // namespace rdfs::copy
