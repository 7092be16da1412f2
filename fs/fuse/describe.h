// What a mount says of itself, to `rdfs status`, to Prometheus and to the log. Any thread, as long
// as the Filesystem and the Workers that it is given live.
#pragma once

#include <string>

#include "fs/client/client.h"
#include "fs/fuse/filesystem.h"
#include "fs/fuse/worker/workers.h"
#include "transport/base/rates.h"
#include "transport/base/snapshot.h"

namespace rdfs::fs::fuse {

// All but where it answers Prometheus and its rates.
Snapshot DescribeMount(const std::string& mount_point, const std::string& source,
                       const Filesystem& filesystem, const Workers& workers);
Rates::Totals TotalsOf(const client::Counters& counters);

// Its figures as one line for the log, those that are 0 too; round trips come last, by operation.
// Pure.
std::string DescribeCounters(const Snapshot& snapshot);

}  // namespace rdfs::fs::fuse
