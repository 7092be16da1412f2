// What follows from a change behind the server's back (outside_watch.h): who may believe otherwise
// is told, and what is cached of the content is read anew.
//
// Any thread; no system call.
#pragma once

#include <span>

#include "server/core.h"
#include "server/inode_table.h"
#include "server/outside_watch.h"

namespace rdfs::server {

void OnChangedOutside(Core& core, InodeTable& inodes,
                      std::span<const OutsideWatch::Change> changes);
// Some of them were not told.
void OnLostOutside(Core& core, InodeTable& inodes);

}  // namespace rdfs::server
