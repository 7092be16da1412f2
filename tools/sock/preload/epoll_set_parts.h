// What the pieces of EpollSet (epoll_set.h) are made with: epoll_set.cc, epoll_bells.cc and
// epoll_wait.cc alone include it.
#pragma once

#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/epoll_set.h"
#include "transport/base/random.h"

namespace rdfs::sock {

inline constexpr std::uint32_t kIn = EPOLLIN | EPOLLRDNORM;
inline constexpr std::uint32_t kOut = EPOLLOUT | EPOLLWRNORM;
inline constexpr std::uint32_t kAlways = EPOLLERR | EPOLLHUP;
inline constexpr std::uint32_t kModes = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP;
inline constexpr std::uint32_t kBells = 0xffffffffU;  // in place of a descriptor

// What the kernel gives back for entries of ours, above a descriptor and its entry's arming: not a
// pointer, not a small number, and another one in every process.
inline constexpr unsigned kArmingShift = 20;
inline constexpr std::uint32_t kDescriptor = DescriptorTable::kMost - 1;
static_assert(kDescriptor < 1U << kArmingShift);
inline std::uint64_t Mark() {
  static const std::uint64_t mark = (RandomU64() | (1ULL << 63U)) & ~std::uint64_t{kBells};
  return mark;
}
inline std::uint64_t Marked(std::uint32_t what) { return Mark() | what; }
inline std::uint64_t Marked(int fd, std::uint8_t arming) {
  return Mark() | std::uint32_t{arming} << kArmingShift | static_cast<std::uint32_t>(fd);
}
inline bool IsMarked(std::uint64_t data) { return (data & ~std::uint64_t{kBells}) == Mark(); }

// Holds the lock, with which nobody may be cancelled, unless this very thread does already and a
// signal handler has come between.
class Locked {
 public:
  explicit Locked(pthread_mutex_t& lock) : lock_(lock), held_(pthread_mutex_lock(&lock_) == 0) {}
  ~Locked() {
    if (held_) pthread_mutex_unlock(&lock_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  const NotCancelled not_cancelled_;
  pthread_mutex_t& lock_;
  const bool held_;
};

}  // namespace rdfs::sock
