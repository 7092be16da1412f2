#include "server/extent_version.h"

#include <xxhash.h>

#include <array>

namespace rdfs::server {
namespace {

std::chrono::nanoseconds Since1970(std::int64_t seconds, std::int64_t nanoseconds) {
  return std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanoseconds);
}

}  // namespace

std::size_t FileIdHash::operator()(const FileId& id) const noexcept {
  const std::array<std::uint64_t, 3> words{id.device, id.inode, id.generation};
  return XXH3_64bits(words.data(), sizeof(words));
}

FileVersion FileVersion::From(const struct stat& st) {
  return {.size = static_cast<std::uint64_t>(st.st_size),
          .ctime = Since1970(st.st_ctim.tv_sec, st.st_ctim.tv_nsec),
          .mtime = Since1970(st.st_mtim.tv_sec, st.st_mtim.tv_nsec)};
}

FileVersion FileVersion::From(const struct statx& stx) {
  return {.size = stx.stx_size,
          .ctime = Since1970(stx.stx_ctime.tv_sec, stx.stx_ctime.tv_nsec),
          .mtime = Since1970(stx.stx_mtime.tv_sec, stx.stx_mtime.tv_nsec)};
}

std::uint64_t FileVersion::Change() const {
  const std::array<std::uint64_t, 3> words{size, static_cast<std::uint64_t>(ctime.count()),
                                           static_cast<std::uint64_t>(mtime.count())};
  return XXH3_64bits(words.data(), sizeof(words));
}

}  // namespace rdfs::server
