// rdfs_pread and rdfs_pwrite: any length, from and into any memory, by way of the queue's own.
//
// Several pieces are under way at once, so that copying one overlaps with the next one's way. Any
// thread; blocks until it is over.
#pragma once

#include <sys/types.h>

#include <string>

#include "fs/library/queue.h"

namespace rdfs::fs::library {

// How many bytes, fewer only at the end of the file; or a negative errno when there was none
// before.
ssize_t ReadInto(rdfs_queue& queue, rdfs_file& file, const std::string& what, MutableByteSpan to,
                 std::uint64_t offset);
// How many bytes, fewer only where there is no space; or a negative errno.
ssize_t WriteFrom(rdfs_queue& queue, rdfs_file& file, const std::string& what, ByteSpan from,
                  std::uint64_t offset);

}  // namespace rdfs::fs::library
