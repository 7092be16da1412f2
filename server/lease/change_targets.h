// Which inodes and names a request is about to change, or which its answer will tell of: the
// LeaseService asks the clients that have leases on them first. Looks at the file system with the
// caller's rights, changes nothing; what cannot be found is left out, since the request will fail
// on it. The loop's thread.
#pragma once

#include <string>
#include <vector>

#include "server/inode/inode_table.h"
#include "server/lease/lease_service.h"
#include "server/ops/call.h"

namespace rdfs::server {

// With kRecallName, `name` in it.
LeaseService::Target MakeTarget(const Inode& inode, std::uint32_t parts, std::string name = {});

bool ChangesSomething(const Call& call);
std::vector<LeaseService::Target> TargetsOf(const Call& call);
// Of one that changes something, or only looks.
LeaseTable::Purpose PurposeOf(const Call& call);
// Of which inodes the answer tells size, times or content, but for a listing's.
std::vector<LeaseService::Target> LookedAt(const Call& call);

}  // namespace rdfs::server
