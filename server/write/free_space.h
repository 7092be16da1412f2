// FreeSpace: whether a file system has so much room left that writes which are on their way will
// find some. Where it has, a client may be let tell its programs that they are done (ops.h,
// WriteLeaseOf); where it is nearly full, each write tells of that itself. Quotas it does not know.
//
// Any thread; one short lock, never held over a system call.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "transport/base/clock.h"

namespace rdfs::server {

class FreeSpace {
 public:
  // More than all clients can have on their way, and than is written before the next look.
  static constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;
  static constexpr std::chrono::milliseconds kLookEvery{100};

  // Of the file system that `fd` is on, whose device is `device`.
  bool HasPlenty(int fd, std::uint64_t device, TimePoint now);

 private:
  struct Seen {
    TimePoint until{};
    bool plenty = false;
  };
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Seen> seen_;  // by device
};

}  // namespace rdfs::server
