#include "server/write/free_space.h"

#include <sys/statvfs.h>

namespace rdfs::server {

bool FreeSpace::HasPlenty(int fd, std::uint64_t device, TimePoint now) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = seen_.find(device);
    if (found != seen_.end() && now < found->second.until) return found->second.plenty;
  }
  struct statvfs stat {};
  const bool plenty =
      ::fstatvfs(fd, &stat) == 0 && std::uint64_t{stat.f_bavail} * stat.f_frsize >= kPlenty;
  const std::lock_guard lock(mutex_);
  seen_[device] = {.until = now + kLookEvery, .plenty = plenty};
  return plenty;
}

}  // namespace rdfs::server
