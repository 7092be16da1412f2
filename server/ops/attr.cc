#include "server/ops/attr.h"

#include <fcntl.h>

#include <cerrno>

#include "server/inode/handle.h"

namespace rdfs::server {
namespace {

// The finaliser of SplitMix64: a bijection, so that mixing loses nothing.
std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

fs::TimeWire ToTime(const statx_timestamp& time) { return {time.tv_sec, time.tv_nsec}; }

}  // namespace

int StatFd(int fd, struct statx& out) {
  return ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_SYNC_AS_STAT, kStatxMask, &out) == 0 ? 0 : errno;
}

int StatFdAtOnce(int fd, struct statx& out) {
  return ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kStatxMask, &out) == 0 ? 0 : errno;
}

std::uint64_t ChangeValue(const FileVersion& seen, std::uint64_t version) {
  return seen.Change() ^ Mix(version);
}

std::uint64_t ChangeOf(const struct statx& stat, std::uint64_t version) {
  return ChangeValue(FileVersion::From(stat), version);
}

std::uint64_t ClientInode(std::uint64_t inode, std::uint64_t device, std::uint64_t root_device) {
  return device == root_device ? inode : inode ^ Mix(device + 1);
}

fs::AttrWire ToAttr(const struct statx& stat, std::uint64_t version, const AttrContext& context) {
  fs::AttrWire attr;
  attr.ino = ClientInode(stat.stx_ino, DeviceOf(stat), context.root_device);
  attr.size = stat.stx_size;
  attr.blocks = stat.stx_blocks;
  attr.atime = ToTime(stat.stx_atime);
  attr.mtime = ToTime(stat.stx_mtime);
  attr.ctime = ToTime(stat.stx_ctime);
  if ((stat.stx_mask & STATX_BTIME) != 0) attr.btime = ToTime(stat.stx_btime);
  attr.mode = std::uint32_t{stat.stx_mode};
  attr.nlink = stat.stx_nlink;
  attr.uid = context.ids.ToClientUid(stat.stx_uid);
  attr.gid = context.ids.ToClientGid(stat.stx_gid);
  attr.rdev_major = stat.stx_rdev_major;
  attr.rdev_minor = stat.stx_rdev_minor;
  attr.block_size = stat.stx_blksize;
  attr.lease_ms = context.lease_ms;
  attr.change = ChangeOf(stat, version);
  return attr;
}

}  // namespace rdfs::server
