// Unlocks: files that were closed and may have been locked, until the server has answered.
//
// The kernel does not wait for these answers, so close(2) returns before the locks that go with it
// are dropped. One worker tells the server in the order in which the kernel told it: who asks for a
// lock behind the close gets it. Of two workers the one may ask while the other one still has the
// close in its hands: who was refused then waits for what is here, and asks once more
// (Worker::PostponeForOrder).
//
// Any thread; one short lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace rdfs::fs::fuse {

class Unlocks {
 public:
  // By the kernel's number of the request. Once more of one that is here changes nothing.
  void Begin(std::uint64_t unique) {
    const std::lock_guard lock(mutex_);
    if (IsHere(unique)) return;
    under_way_.push_back(unique);
    count_ = under_way_.size();
  }
  // Of any request: nothing where it is none of these.
  void End(std::uint64_t unique) {
    if (!any()) return;
    const std::lock_guard lock(mutex_);
    std::erase(under_way_, unique);
    count_ = under_way_.size();
  }

  [[nodiscard]] bool any() const { return count_.load() > 0; }
  [[nodiscard]] std::vector<std::uint64_t> UnderWay() const {
    const std::lock_guard lock(mutex_);
    return under_way_;
  }
  // Whether all of these have ended.
  [[nodiscard]] bool AreOver(const std::vector<std::uint64_t>& these) const {
    const std::lock_guard lock(mutex_);
    return std::none_of(these.begin(), these.end(),
                        [this](std::uint64_t unique) { return IsHere(unique); });
  }

 private:
  [[nodiscard]] bool IsHere(std::uint64_t unique) const {
    return std::find(under_way_.begin(), under_way_.end(), unique) != under_way_.end();
  }

  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;  // guards the rest
  std::vector<std::uint64_t> under_way_;
};

}  // namespace rdfs::fs::fuse
