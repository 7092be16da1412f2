#include "tools/copy/destination/decide.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "tools/copy/file/metadata.h"

namespace rdfs::copy {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// What file systems count in, in nanoseconds: NTFS and SMB, UDF, exFAT, HFS+ and old NFS, FAT.
constexpr std::array<std::int64_t, 5> kGrains{100, 1'000, 10'000'000, kSecond, 2 * kSecond};

bool LiesOn(const timespec& time, std::int64_t grain) {
  if (grain < kSecond) return time.tv_nsec % grain == 0;
  return time.tv_nsec == 0 && time.tv_sec % (grain / kSecond) == 0;
}

bool Later(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

// A file system that counts more coarsely than the source's cuts the times that it is given, and
// its own, `changed` among them.
bool SameTime(const timespec& source, const timespec& there, const timespec& changed) {
  if (Later(there, source)) return false;
  // Unsigned: the two may be as far apart as any.
  const auto seconds =
      static_cast<std::uint64_t>(source.tv_sec) - static_cast<std::uint64_t>(there.tv_sec);
  if (seconds > 2) return false;
  const std::int64_t behind =
      static_cast<std::int64_t>(seconds) * kSecond + source.tv_nsec - there.tv_nsec;
  return behind == 0 || std::ranges::any_of(kGrains, [&](std::int64_t grain) {
           return behind < grain && LiesOn(there, grain) && LiesOn(changed, grain);
         });
}

bool Newer(const timespec& source, const struct stat& there) {
  return Later(source, there.st_mtim) && !SameTime(source, there.st_mtim, there.st_ctim);
}

}  // namespace

Verdict Decide(const Entry& entry, const std::optional<struct stat>& now, const Policy& policy) {
  if (!now) return Verdict::kCopy;
  if (policy.update && !Newer(entry.mtime, *now)) return Verdict::kLeave;
  if (!policy.sync && !policy.checksum) return Verdict::kCopy;
  if (entry.kind != KindOf(now->st_mode)) return Verdict::kCopy;
  if (entry.kind == Kind::kSymlink) return Verdict::kCompare;
  if (entry.kind != Kind::kFile) {
    const bool same = makedev(entry.major, entry.minor) == now->st_rdev;
    return same ? Verdict::kSame : Verdict::kCopy;
  }
  if (static_cast<std::uint64_t>(now->st_size) != entry.size) return Verdict::kCopy;
  if (policy.checksum) return Verdict::kCompare;
  const bool same = SameTime(entry.mtime, now->st_mtim, now->st_ctim);
  return same ? Verdict::kSame : Verdict::kCopy;
}

}  // namespace rdfs::copy
