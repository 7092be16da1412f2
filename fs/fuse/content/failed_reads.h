// FailedReads: reads into the kernel's pages that no server has answered in time.
//
// The kernel hides from a program that a readahead has failed, and asks anew for the page that the
// program waits for; for one of a mapping once more, since it has let go of a lock meanwhile. With
// a deadline for each of them the program would wait two and three times as long as one. So what
// the same thread asks for again right behind that is told the same at once. Whoever uses this does
// so only where the server is still away.
//
// Decides only, but for its lock. Any thread: another worker may be asked.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "fs/fuse/names/inode_table.h"
#include "transport/base/clock.h"

namespace rdfs::fs::fuse {

class FailedReads {
 public:
  struct Read {
    NodeId node = 0;
    // As the kernel calls it; 0 is any that the mount's pid namespace does not have.
    std::uint32_t thread = 0;
    std::uint64_t offset = 0, length = 0;
  };
  // The kernel asks again as soon as the thread runs. A program's own next read counts as that,
  // too.
  static constexpr std::chrono::milliseconds kAgain{100};
  // As many as may fail at a time; of others a second deadline is waited for.
  static constexpr std::size_t kMost = 1024;

  void Failed(const Read& read, TimePoint now) {
    if (read.thread == 0) return;  // as IsAskedAgain
    const std::lock_guard lock(mutex_);
    while (!failed_.empty() && (failed_.size() >= kMost || IsOver(failed_.front(), now))) {
      failed_.pop_front();
    }
    failed_.push_back({read, now});
  }
  // Whether all of it has just failed.
  [[nodiscard]] bool IsAskedAgain(const Read& read, TimePoint now) const {
    if (read.thread == 0) return false;
    const std::lock_guard lock(mutex_);
    return std::any_of(failed_.begin(), failed_.end(), [&](const Entry& entry) {
      return !IsOver(entry, now) && Contains(entry.read, read);
    });
  }

 private:
  struct Entry {
    Read read;
    TimePoint at;
  };
  static bool IsOver(const Entry& entry, TimePoint now) { return now >= entry.at + kAgain; }
  static bool Contains(const Read& failed, const Read& read) {
    return failed.node == read.node && failed.thread == read.thread &&
           read.offset >= failed.offset && read.length <= failed.length &&
           read.offset - failed.offset <= failed.length - read.length;
  }

  mutable std::mutex mutex_;
  std::deque<Entry> failed_;
};

}  // namespace rdfs::fs::fuse
