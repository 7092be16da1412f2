#include "tools/copy/decide.h"

#include <sys/sysmacros.h>

#include "tools/copy/metadata.h"

namespace rdfs::copy {
namespace {

// A file system that counts seconds, or two of them, cannot hold what the source's can.
bool SameTime(const timespec& source, const timespec& there) {
  return source.tv_sec == there.tv_sec && (source.tv_nsec == there.tv_nsec || there.tv_nsec == 0);
}

bool Newer(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

}  // namespace

Verdict Decide(const Entry& entry, const std::optional<struct stat>& now, const Policy& policy) {
  if (!now) return Verdict::kCopy;
  if (policy.update && !Newer(entry.mtime, now->st_mtim)) return Verdict::kLeave;
  if (!policy.sync && !policy.checksum) return Verdict::kCopy;
  if (entry.kind != KindOf(now->st_mode)) return Verdict::kCopy;
  if (entry.kind == Kind::kSymlink) return Verdict::kCompare;
  if (entry.kind != Kind::kFile) {
    const bool same = makedev(entry.major, entry.minor) == now->st_rdev;
    return same ? Verdict::kSame : Verdict::kCopy;
  }
  if (static_cast<std::uint64_t>(now->st_size) != entry.size) return Verdict::kCopy;
  if (policy.checksum) return Verdict::kCompare;
  return SameTime(entry.mtime, now->st_mtim) ? Verdict::kSame : Verdict::kCopy;
}

}  // namespace rdfs::copy
