// Which inodes and names a request is about to change, for the clients that believe something about
// them (lease_service.h). Looks at the file system as the caller, changes nothing; what cannot be
// found is left out, since the request will fail on it. The loop's thread.
#pragma once

#include <vector>

#include "server/call.h"
#include "server/lease_service.h"

namespace rdfs::server {

bool ChangesSomething(const Call& call);
std::vector<LeaseService::Target> TargetsOf(const Call& call);

}  // namespace rdfs::server
