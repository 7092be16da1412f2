// What rdcp does when it is started: the local form, with all that a process needs around it.
#pragma once

#include "tools/copy/options.h"

namespace rdfs::copy {

// Copies from this machine to this machine; returns the exit status. To be called once, by main,
// before there is any other thread: takes over umask, signals and the limit of open files.
int RunLocal(CopyOptions& options);

}  // namespace rdfs::copy
