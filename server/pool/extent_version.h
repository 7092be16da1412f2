// FileId and FileVersion: which file, and whether it still has the content that we saw.
//
// Values; any thread. A version is what stat(2) can tell: the change time is the kernel's and
// cannot be set back by a user. Two changes within one tick of the kernel's clock may leave it the
// same (before Linux 6.13), so a version seen while its change time is younger than kRacyWindow
// proves nothing later: see RacyAt.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace rdfs::server {

// An inode for life, as the kernel of the server knows it.
struct FileId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t generation = 0;  // tells a reused inode number apart; 0 where it cannot be had
  friend auto operator<=>(const FileId&, const FileId&) = default;
};

struct FileIdHash {
  std::size_t operator()(const FileId& id) const noexcept;
};

struct FileVersion {
  std::uint64_t size = 0;
  std::chrono::nanoseconds ctime{};  // since 1970
  std::chrono::nanoseconds mtime{};

  // The kernel's clock for time stamps advances once a tick, at most 10 ms (CONFIG_HZ=100).
  static constexpr std::chrono::milliseconds kRacyWindow{20};

  static FileVersion From(const struct stat& st);
  static FileVersion From(const struct statx& stx);  // needs STATX_SIZE | STATX_CTIME | STATX_MTIME
  friend bool operator==(const FileVersion&, const FileVersion&) = default;

  // A file system that is itself of another host's has that host's clock, which may be so far
  // ahead (of a guest that has slept, hours). What is farther ahead was changed before our own
  // clock was set back, and a change that is made now gets another time.
  static constexpr std::chrono::hours kClockAhead{24};

  // Whether the file may still change without another change time. `realtime` is CLOCK_REALTIME.
  [[nodiscard]] bool RacyAt(std::chrono::nanoseconds realtime) const {
    return ctime + kRacyWindow >= realtime && ctime <= realtime + kClockAhead;
  }
  // For AttrWire::change and its kin: differs (but for a hash's luck) whenever the version does.
  [[nodiscard]] std::uint64_t Change() const;
};

}  // namespace rdfs::server
