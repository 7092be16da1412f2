// What the server does about a change by another process of its host (outside_watch.h): it recalls
// the clients' leases on the inode, and drops what it has cached of the content.
//
// Any thread; no system call.
#pragma once

#include <span>

#include "server/core.h"
#include "server/inode/inode_table.h"
#include "server/lease/outside_watch.h"

namespace rdfs::server {

void OnChangedOutside(Core& core, InodeTable& inodes,
                      std::span<const OutsideWatch::Change> changes);
// Some of them were not told.
void OnLostOutside(Core& core, InodeTable& inodes);

}  // namespace rdfs::server
