// From statx(2) to the wire: attributes, and the change value that caches are checked by.
//
// Pure; any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "fs/protocol.h"
#include "server/identity/idmap.h"
#include "server/pool/extent_version.h"

namespace rdfs::server {

inline constexpr unsigned kStatxMask = STATX_BASIC_STATS | STATX_BTIME;

// statx of the inode `fd` refers to (O_PATH will do). Returns an errno, 0 on success.
int StatFd(int fd, struct statx& out);
// The same, by what this host knows: a file server behind its mount is not asked, and so not waited
// for. What it tells may be old, and is given to nobody with a lease.
int StatFdAtOnce(int fd, struct statx& out);

// Differs whenever content or attributes may have changed: what stat(2) tells, and `version`, which
// the server counts up with each change of its own clients', because two changes within one tick of
// the kernel's coarse clock have the same change time.
std::uint64_t ChangeValue(const FileVersion& seen, std::uint64_t version);
std::uint64_t ChangeOf(const struct statx& stat, std::uint64_t version);

// The inode number as clients see it: the true one on the export's own device, mixed with the
// device elsewhere, so that two files of one export never show the same number by design of their
// file systems.
std::uint64_t ClientInode(std::uint64_t inode, std::uint64_t device, std::uint64_t root_device);

struct AttrContext {
  const IdMap& ids;
  std::uint64_t root_device = 0;
  std::uint32_t lease_ms = 0;
};
fs::AttrWire ToAttr(const struct statx& stat, std::uint64_t version, const AttrContext& context);

}  // namespace rdfs::server
