// PageDrops: files whose pages the kernel is to let go of, in the order in which they came, one
// thread at most for a file: it waits in the kernel for reads of the file that are under way, and a
// second one would wait for the same. What comes meanwhile of the same file is done behind that, at
// once for all who ask for it.
//
// Decides only. One user at a time; whoever owns it has the lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

class PageDrops {
 public:
  struct Drop {
    NodeId node = 0;
    std::uint64_t change = 0;  // the cookie of the content that was known last (0: none)
    InodeTable::End end{};     // where the file ended last, if somebody is to go by it
    std::vector<std::function<void()>> done{};
  };

  void Add(NodeId node, std::uint64_t change, std::function<void()> done,
           const InodeTable::End& end = {}) {
    auto drop = std::find_if(waiting_.begin(), waiting_.end(),
                             [node](const Drop& other) { return other.node == node; });
    if (drop == waiting_.end()) drop = waiting_.insert(drop, Drop{.node = node});
    drop->change = change;
    if (end.at != 0 && end.asked >= drop->end.asked) drop->end = end;
    if (done) drop->done.push_back(std::move(done));
  }
  // How many may begin now.
  [[nodiscard]] std::size_t ready() const {
    return static_cast<std::size_t>(std::count_if(
        waiting_.begin(), waiting_.end(), [this](const Drop& drop) { return IsReady(drop); }));
  }
  // The first of those. Behind it, End.
  [[nodiscard]] std::optional<Drop> Begin() {
    const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                    [this](const Drop& drop) { return IsReady(drop); });
    if (first == waiting_.end()) return std::nullopt;
    Drop drop = std::move(*first);
    waiting_.erase(first);
    under_way_.push_back(drop.node);
    return drop;
  }
  void End(NodeId node) { std::erase(under_way_, node); }
  [[nodiscard]] std::size_t under_way() const { return under_way_.size(); }

 private:
  [[nodiscard]] bool IsReady(const Drop& drop) const {
    return std::find(under_way_.begin(), under_way_.end(), drop.node) == under_way_.end();
  }
  std::deque<Drop> waiting_;
  std::vector<NodeId> under_way_;
};

}  // namespace rdfs::fs::fuse
