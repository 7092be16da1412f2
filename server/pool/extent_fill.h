// ExtentFill: reads one piece of a file into an extent.
//
// At once when the kernel has the bytes in memory, else through the loop's FileIo. Part of
// ExtentStore; the thread of one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "server/loop/file_io.h"
#include "server/pool/extent_cache.h"

namespace rdfs::server {

class ExtentFill {
 public:
  // `filled`: bytes of the file in the extent (zeroes stand behind them), or a negative errno.
  using Done = std::function<void(std::int64_t filled)>;

  // `size` is the file's, as far as known: a read that gets there asks no more. `file` and the
  // extent's memory stay until `done`, which is called exactly once, possibly before Start returns.
  // Returns whether it was.
  static bool Start(FileIo& io, FileIo::SharedFd fd, CachedFile& file, std::uint64_t start,
                    MutableByteSpan memory, std::uint64_t size, Done done);
};

// One read(2) that does not wait: bytes, or -errno; -EAGAIN when it would have to.
std::int64_t ReadWithoutWaiting(int fd, std::atomic<CachedFile::Nowait>& nowait, MutableByteSpan to,
                                std::uint64_t offset);

}  // namespace rdfs::server
