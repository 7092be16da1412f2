#include "tools/copy/file/compare.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tools/copy/file/data.h"
#include "transport/base/bytes.h"

namespace rdfs::copy {
namespace {

constexpr std::size_t kBuffer = 256 << 10;

// Where data begin again, from `at` on: what lies between is a hole, and reads as zeros.
std::uint64_t NextData(File& file, std::uint64_t at, std::uint64_t size) {
  const off_t data = file.Seek(at, SEEK_DATA);
  if (data < 0) return errno == ENXIO ? size : at;
  return std::min(size, static_cast<std::uint64_t>(data));
}

Result<bool> LongEnough(File& file, std::uint64_t size) {
  struct stat info {};
  if (file.Stat("", true, info) != 0) return Status::FromErrno(errno, "cannot look at it");
  return static_cast<std::uint64_t>(info.st_size) >= size;
}

}  // namespace

Result<bool> SameContent(File& one, File& other, std::uint64_t size,
                         const std::atomic<bool>& stop) {
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
                          ReadFully(one, at, MutableByteSpan(a).first(length), stop));
    RDFS_ASSIGN_OR_RETURN(const std::size_t in_other,
                          ReadFully(other, at, MutableByteSpan(b).first(length), stop));
    if (in_one != length || in_other != length) return false;
    if (std::memcmp(a.data(), b.data(), length) != 0) return false;
    at += length;
  }
  return true;
}

Status DropCache(File& file) {
  if (file.Sync() != 0) return Status::FromErrno(errno, "cannot write it out");
  return {};
}

}  // namespace rdfs::copy
