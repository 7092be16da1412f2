// What must be right on this machine before anything is mounted. Each failure is one sentence that
// says what to do; nothing is changed here.
//
// Blocking only as file-system calls are. Any thread. The paths that a test replaces (the list of
// mounts, fuse.conf) are arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/status.h"

namespace rdfs::fs::fuse {

// The mount point as an absolute path without symlinks: an empty directory, ours to mount on, and
// not a mount point already; or one of autofs, for root. ENOTCONN when it is a mount whose program
// is gone.
Result<std::string> CheckMountPoint(const std::string& path,
                                    const std::string& mounts = "/proc/self/mountinfo");

// What is mounted on `path` (absolute, without symlinks) by the text of /proc/self/mountinfo
// (proc(5)): of several the last, which hides the others. Its views point into the text. Pure.
struct MountEntry {
  std::string_view device;  // "0:45", as stat(2) tells it of the files in it
  std::string_view type;    // "fuse.rdfs"
};
std::optional<MountEntry> FindMount(std::string_view mountinfo, std::string_view path);
// Whether a file system of this device is mounted anywhere. Pure.
bool IsDeviceMounted(std::string_view mountinfo, std::string_view device);
// The kernel's text at this moment; empty where /proc is not there.
std::string ReadMountInfo();

// The path of a mount point that cannot be entered, without symlinks: its parent's is what counts.
std::string PathOfStaleMount(const std::string& path);

// /dev/fuse, and fusermount3 where it is needed to mount (by everybody but root).
Status CheckFuse(const std::string& device = "/dev/fuse");
Status CheckFusermount(const std::string& search_path);  // as in $PATH

// Whether an ordinary user may give allow_other, by the text of /etc/fuse.conf. Pure.
bool AllowsOthers(std::string_view fuse_conf);
Status CheckAllowOther(const std::string& fuse_conf = "/etc/fuse.conf");

// For a mount that insists on RDMA: whether enough memory may be locked for one lane.
Status CheckMemlock(std::uint64_t memlock_bytes);

}  // namespace rdfs::fs::fuse
