// Whether two files have the same content.
//
// Any thread; blocks in the file system, or until the export's server has answered.
#pragma once

#include <atomic>
#include <cstdint>

#include "tools/copy/file/file.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// The first `size` bytes of both; a file that is shorter differs. kErrno EINTR soon after `stop`.
Result<bool> SameContent(File& one, File& other, std::uint64_t size, const std::atomic<bool>& stop);

// Makes sure that what is read of the file from now on comes from where it is kept, as far as the
// kernel allows: writes it out and drops what is cached.
Status DropCache(File& file);

}  // namespace rdfs::copy
