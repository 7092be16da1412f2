// What an export of a running rdfsd is like to a client: whether it is there, and has room. Blocks
// at most for the time given; one thread, and one of the client's own.
#pragma once

#include "tools/rdinfo/remote.h"

namespace rdfs::rdinfo {

Section DescribeExport(const PeerOptions& options);

}  // namespace rdfs::rdinfo
