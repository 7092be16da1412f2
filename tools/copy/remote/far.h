// The far end: what ssh starts on the other machine, as `rdcp --far`.
//
// Blocks until the caller is served or gone; the process's only work.
#pragma once

namespace rdfs::copy {

// Speaks with its caller through standard input and output, and then over the best lane. Returns
// the exit status, which only says whether it served: what became of the files, the caller tells.
int RunFar();

}  // namespace rdfs::copy
