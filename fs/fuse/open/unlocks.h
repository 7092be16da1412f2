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
#include <cstdint>
#include <mutex>
#include <vector>

#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

class Unlocks {
 public:
  // By the kernel's number of the request. Once more of one that is here changes nothing.
  void Begin(std::uint64_t unique, NodeId node) {
    const std::lock_guard lock(mutex_);
    if (IsHere(unique)) return;
    under_way_.push_back({unique, node});
    any_ = true;
  }
  // Of any request: nothing where it is none of these.
  void End(std::uint64_t unique) {
    if (!any_.load()) return;
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [unique](const Unlock& unlock) { return unlock.unique == unique; });
    any_ = !under_way_.empty();
  }

  // Of this file.
  [[nodiscard]] bool any(NodeId node) const { return any_.load() && !UnderWay(node).empty(); }
  [[nodiscard]] std::vector<std::uint64_t> UnderWay(NodeId node) const {
    std::vector<std::uint64_t> these;
    const std::lock_guard lock(mutex_);
    for (const Unlock& unlock : under_way_) {
      if (unlock.node == node) these.push_back(unlock.unique);
    }
    return these;
  }
  // Whether all of these have ended.
  [[nodiscard]] bool AreOver(const std::vector<std::uint64_t>& these) const {
    const std::lock_guard lock(mutex_);
    return std::none_of(these.begin(), these.end(),
                        [this](std::uint64_t unique) { return IsHere(unique); });
  }

 private:
  struct Unlock {
    std::uint64_t unique;
    NodeId node;
  };
  [[nodiscard]] bool IsHere(std::uint64_t unique) const {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [unique](const Unlock& unlock) { return unlock.unique == unique; });
  }

  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::vector<Unlock> under_way_;
};

}  // namespace rdfs::fs::fuse
