// This very program on another machine, for one start: --bootstrap.
//
//   ssh HOST sh -c SCRIPT: same system and processor? --> the program, through its stdin, into a
//   file of its own, mode 0700, in TMPDIR or /tmp --> does it run there? --> its path
//
// The far rdcp removes the file as soon as it runs (RemoveOwnBinary), so that nothing is left
// whatever becomes of it; the script does so when it does not come to that.
//
// Any thread; blocks for as long as ssh may have questions.
#pragma once

#include <string>

#include "transport/base/clock.h"
#include "transport/base/status.h"
#include "transport/ssh/launch.h"

namespace rdfs::copy {

// How the far end is started then, instead of as `launch` has it.
inline constexpr std::string_view kFarAndGone = "--far --remove";

// The path there. Errors: kUnavailable, with why it cannot run there and what to do.
Result<std::string> SendOwnBinary(const transport::ssh::Launch& launch, Deadline deadline);
// It was never started after all.
void RemoveThere(const transport::ssh::Launch& launch, const std::string& path, Deadline deadline);
// At the far end: of a file that SendOwnBinary made; of any other nothing.
void RemoveOwnBinary();

// Pure. What the script has said, behind whatever a login shell prints; `machine`: ours.
Result<std::string> ParseSent(const std::string& destination, std::string_view machine,
                              std::string_view said);

}  // namespace rdfs::copy
