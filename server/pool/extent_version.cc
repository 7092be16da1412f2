#include "server/pool/extent_version.h"

#include <xxhash.h>

#include <array>

namespace rdfs::server {
namespace {

// Beyond the year 2262 it wraps around, which is as good for telling versions apart.
std::chrono::nanoseconds Since1970(std::int64_t seconds, std::int64_t nanoseconds) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::uint64_t sum =
      static_cast<std::uint64_t>(seconds) * kSecond + static_cast<std::uint64_t>(nanoseconds);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(sum));
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
