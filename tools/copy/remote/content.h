// Digests of what files hold, for --checksum and --verify between machines.
//
// Any thread; blocks in the file system.
#pragma once

#include <cstdint>
#include <span>

#include "tools/copy/destination/destination.h"
#include "tools/copy/remote/wire.h"
#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {

// Of the first `size` bytes: both ends take it alike. kErrno ENODATA when there are fewer, EINTR
// soon after `stop`.
Result<Digest> ContentDigest(File& file, std::uint64_t size, const pipe::StopFlag& stop);

// What was written to a file, and where.
struct Written {
  std::uint64_t offset = 0, length = 0;
  Digest digest{};
};
// Reads all of it again, from where it is kept as far as the kernel allows. `size`: of the file. A
// kErrno EIO when it is not what was written.
Status CheckWritten(OutputFile& file, std::uint64_t size, std::span<const Written> written,
                    const pipe::StopFlag& stop);

}  // namespace rdfs::copy
