// A copy between this far end and another, which their caller has started on another machine: this
// one reaches the other, and sends to it or fetches from it.
//
//   Met to the caller (from here on something may be copied) --> Sender or Receiver with the other
//   --> Done to the caller --> its Farewell
//
// Blocks; the process's only work. What either end tells of single files goes to the caller.
#pragma once

#include <sys/types.h>

#include "tools/copy/remote/errand.h"
#include "tools/copy/remote/talk.h"

namespace rdfs::copy {

// `task`: of the role kForwards or kFetches. `interrupts`, `mask`: see RemoteOptions.
Status RunAcross(Talk& caller, const Task& task, const Meeting& meeting, int interrupts,
                 mode_t mask);

}  // namespace rdfs::copy
