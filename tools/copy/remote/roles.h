// What a task means to the parts that carry it out at the far end: the walk of one that sends, the
// settings of one that receives.
//
// Pure; any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "tools/copy/filter.h"
#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/remote/walk.h"
#include "tools/copy/remote/wire.h"

namespace rdfs::copy {

Rules RulesOf(const Task& task);
// `rules` outlives the walk.
WalkOptions WalkFor(const Task& task, const Found& found, Rules& rules);
// `destination`: DST as the task names it. `rules` outlives the receiver.
ReceiverSettings ReceiverFor(const Task& task, const std::string& destination, Rules& rules,
                             mode_t mask);

}  // namespace rdfs::copy
