// Which file systems this host alone changes: what its kernel knows of them is always the truth.
// Pure; any thread.
#pragma once

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace rdfs {

// `about`: of statfs(2). Others may be local all the same.
inline bool IsOfThisHost(const struct statfs& about) {
  // linux/magic.h has these only in newer versions, or not at all.
  constexpr std::uint32_t kZfs = 0x2fc12fc1, kBcachefs = 0xca451a4e, kXfs = 0x58465342,
                          kRamfs = 0x858458f6;
  constexpr std::array<std::uint32_t, 8> kLocal{
      EXT4_SUPER_MAGIC, kXfs, BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
      F2FS_SUPER_MAGIC, kZfs, kBcachefs,         kRamfs};
  const auto type = static_cast<std::uint32_t>(about.f_type);
  return std::find(kLocal.begin(), kLocal.end(), type) != kLocal.end();
}

}  // namespace rdfs
