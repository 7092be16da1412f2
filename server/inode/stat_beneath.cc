#include "server/inode/stat_beneath.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "server/ops/attr.h"

namespace rdfs::server {
namespace {

bool IsMountRoot(const struct statx& stat) {
  return (stat.stx_attributes_mask & stat.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

std::string MountInfo() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

bool IsOurMount(std::string_view mountinfo, unsigned major, unsigned minor) {
  const std::string device = fmt::format(" {}:{} ", major, minor);
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    // The third word; further to the right stand paths, which may hold anything but a space.
    std::size_t word = line.find(' ');
    if (word != line.npos) word = line.find(' ', word + 1);
    if (word == line.npos || line.substr(word, device.size()) != device) continue;
    const std::size_t type = line.find(" - ");
    if (type != line.npos && line.substr(type + 3).starts_with("fuse.rdfs ")) return true;
  }
  return false;
}

int StatBeneath(const Export& exported, int directory, const std::string& name, struct statx& out) {
  const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name.empty() ? AT_EMPTY_PATH : 0);
  const auto look = [&](int sync) {
    return ::statx(directory, name.c_str(), flags | sync, kStatxMask, &out) == 0 ? 0 : errno;
  };
  if (const int error = look(AT_STATX_DONT_SYNC); error != 0) return error;
  const bool in_export = DeviceOf(out) == exported.root_device();
  // A file system on a block device of this host has no other truth than what it knows.
  if (in_export ? exported.is_local() : out.stx_dev_major != 0) return 0;
  if (!in_export && IsMountRoot(out) &&
      IsOurMount(MountInfo(), out.stx_dev_major, out.stx_dev_minor)) {
    return EREMOTE;
  }
  return look(AT_STATX_SYNC_AS_STAT);
}

}  // namespace rdfs::server
