#include "tools/copy/compare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/base/bytes.h"

namespace rdfs::copy {
namespace {

constexpr std::size_t kBuffer = 256 << 10;

// As much of [offset, offset + out.size()) as there is.
Result<std::size_t> ReadFully(int fd, std::uint64_t offset, MutableByteSpan out) {
  std::size_t have = 0;
  while (have < out.size()) {
    const ssize_t got = pread(fd, &out[have], out.size() - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "cannot read");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

// Where data begin again, from `at` on: what lies between is a hole, and reads as zeros.
std::uint64_t NextData(int fd, std::uint64_t at, std::uint64_t size) {
  const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
  if (data < 0) return errno == ENXIO ? size : at;
  return std::min(size, static_cast<std::uint64_t>(data));
}

Result<bool> LongEnough(int fd, std::uint64_t size) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return Status::FromErrno(errno, "cannot look at it");
  return static_cast<std::uint64_t>(info.st_size) >= size;
}

}  // namespace

Result<bool> SameContent(int one, int other, std::uint64_t size, const std::atomic<bool>& stop) {
  RDFS_ASSIGN_OR_RETURN(const bool one_is, LongEnough(one, size));
  RDFS_ASSIGN_OR_RETURN(const bool other_is, LongEnough(other, size));
  // A file of /proc says that it is empty, and is read to its end.
  if (!other_is) return false;
  std::vector<std::byte> a(std::min<std::uint64_t>(kBuffer, size));
  std::vector<std::byte> b(a.size());
  for (std::uint64_t at = 0; at < size;) {
    if (stop) return Status::FromErrno(EINTR, "stopped");
    at = one_is ? std::min(NextData(one, at, size), NextData(other, at, size)) : at;
    const std::size_t length = std::min<std::uint64_t>(a.size(), size - at);
    RDFS_ASSIGN_OR_RETURN(const std::size_t in_one,
                          ReadFully(one, at, MutableByteSpan(a).first(length)));
    RDFS_ASSIGN_OR_RETURN(const std::size_t in_other,
                          ReadFully(other, at, MutableByteSpan(b).first(length)));
    if (in_one != length || in_other != length) return false;
    if (std::memcmp(a.data(), b.data(), length) != 0) return false;
    at += length;
  }
  return true;
}

Status DropCache(int fd) {
  if (fdatasync(fd) != 0) return Status::FromErrno(errno, "cannot write it out");
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return {};
}

}  // namespace rdfs::copy
