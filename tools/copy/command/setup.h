// What every form of rdcp needs around it: the process's limits, and what is at DST.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/copy/command/operand.h"
#include "tools/copy/file/file.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// Once, by main's thread, before there is any other. A closed pipe becomes an error of write(2), as
// many descriptors as are allowed may be open, and files get just the modes that they are made
// with: returns the umask that was.
mode_t SetUpProcess();

// PlaceTargets for a DST from the directory `from` on. One that is a symlink is resolved, so that
// what it leads to is replaced, and not it.
Result<Targets> PlaceHere(const std::vector<SourceFacts>& sources, std::string destination,
                          const FilePtr& from = Here());

}  // namespace rdfs::copy
