// What both programs do to their process before anything else, and how they report at the end.
#pragma once

#include <string_view>

#include "tools/pipe/command/options.h"
#include "tools/pipe/command/progress.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::pipe {

// Logging as -v says; a closed pipe becomes an error of write(2) instead of a signal.
void SetUpProcess(const char* name, const CommonOptions& options);
// A descriptor that SIGINT, SIGTERM and SIGHUP, unless that is ignored, make readable once they are
// blocked; until then they end the process.
Result<Fd> WatchInterrupts();
// In this thread and in those that it starts: so the peer is told, and nothing half-made is left.
void BlockInterrupts();
// Both.
Result<Fd> TakeInterrupts();
// Whether to draw progress.
bool ShowsProgress(const CommonOptions& options, int stream);
// Threads that share the work on pieces: one for a stream as it is, more where there is something
// to compute, or ranges to read.
int CrewSize(bool computes, bool ranged);
// One sentence, exit status 1.
int Report(std::string_view name, const Status& status);

}  // namespace rdfs::pipe
