// What the opcode and the struct behind it say of a FUSE request before it is carried out: whether
// it changes something, and what it must not overtake. Pure; any thread. A message has its header
// at least; one that is shorter than its opcode's struct counts as if that were zeros, and is no
// short read. Source: linux/fuse.h.
#pragma once

#include <optional>

#include "fs/fuse/names/inode_table.h"
#include "fs/fuse/worker/request.h"

namespace rdfs::fs::fuse {

// Whether it changes names, attributes or content.
bool Changes(const Message& message);

// Whose bytes or size are among that.
std::optional<NodeId> ChangesContentOf(const Message& message);

// Whether it may make that one shorter.
bool Cuts(const Message& message);

// Whose writes that are on their way it must not overtake (WritesBehind::kAnyNode: anybody's); none
// for most. (A write looks for itself.)
std::optional<NodeId> Follows(const Message& message);

// Whether its answer may wait for those of others (short_reads.h).
bool IsShortRead(const Message& message);

}  // namespace rdfs::fs::fuse
