// TimedMutex: a mutex that is waited for until a deadline at most. (std::timed_mutex waits by a
// call that the thread sanitizer of older compilers does not know.)
//
// Any thread; for what is held long, seconds: the mutex inside is not.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "transport/base/clock.h"

namespace rdfs::fs::client {

class TimedMutex {
 public:
  void lock() { (void)LockUntil(Deadline::max()); }
  bool try_lock() {
    const std::lock_guard guard(mutex_);
    return !std::exchange(locked_, true);
  }
  void unlock() {
    {
      const std::lock_guard guard(mutex_);
      locked_ = false;
    }
    free_.notify_one();
  }
  // Whether it has it.
  [[nodiscard]] bool LockUntil(Deadline deadline) {
    std::unique_lock guard(mutex_);
    while (locked_) {
      const TimePoint now = BootClock::now();
      if (now >= deadline) return false;
      free_.wait_for(guard, std::min<std::chrono::nanoseconds>(deadline - now, kRound));
    }
    locked_ = true;
    return true;
  }

 private:
  static constexpr std::chrono::hours kRound{1};
  std::mutex mutex_;
  std::condition_variable free_;
  bool locked_ = false;  // under mutex_
};

}  // namespace rdfs::fs::client
