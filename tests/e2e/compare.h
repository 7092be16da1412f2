// Compare: runs one sequence of system calls in a fresh directory on a local file system and in one
// on the mount, and expects the same transcript.
//
// The two roots come from the environment: RDFS_E2E_LOCAL and RDFS_E2E_MOUNT (tests/e2e/with-mount
// sets them). One thread; a case may fork.
#pragma once

#include <functional>

#include "tests/e2e/transcript.h"

namespace rdfs::e2e {

void Compare(const std::function<void(Transcript&)>& calls);

// The mount's root, for cases that need no twin.
std::string MountRoot();

}  // namespace rdfs::e2e
