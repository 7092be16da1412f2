// KeptOpens: files and directories that are open at the server and not in use at the moment: the
// next open of the same by the same user takes one, and needs no message.
//
// Files stay here when programs have closed them; one will do where nothing can have changed
// meanwhile, because the lease holds (InodeTable::PagesAreCurrent). Directories are here between
// two requests of a program that lists them, and after the last one. Whoever asks decides whether
// one will do; here they are only kept: at most kMost, for a second each.
//
// What is recalled, or is about to lose its name or its permissions, is given up at once: Drop.
// Given up means that TakeDropped returns it, and its worker tells the server.
//
// Any thread; one short lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fs/fuse/open/open_table.h"

namespace rdfs::fs::fuse {

class KeptOpens {
 public:
  static constexpr std::size_t kMost = 512;
  static constexpr std::chrono::seconds kKeep{1};  // as long as a lease, at most

  struct Kept {
    client::CallContext closer;
    std::shared_ptr<Open> open;
    TimePoint until{};
  };

  void Keep(const client::CallContext& closer, std::shared_ptr<Open> open, TimePoint now);
  // One that was opened with `flags` (kOpen...) by this user, and will do; null: there is none.
  using WillDo = std::function<bool(const Open&)>;
  std::shared_ptr<Open> Take(NodeId node, const client::CallContext& opener, std::uint32_t flags,
                             TimePoint now, const WillDo& will_do = nullptr);
  void Drop(NodeId node);
  void DropAll();
  [[nodiscard]] bool Has(NodeId node);

  // When there may be something to take next.
  [[nodiscard]] TimePoint next() const { return next_.load(std::memory_order_relaxed); }
  std::vector<Kept> TakeDropped(TimePoint now);

 private:
  using Order = std::list<Kept>;  // oldest first
  void DropLocked(Order::iterator kept);
  void EraseLocked(Order::iterator kept);
  void SetNextLocked();

  std::mutex mutex_;
  Order order_;
  std::unordered_multimap<NodeId, Order::iterator> by_node_;
  std::vector<Kept> dropped_;
  std::atomic<TimePoint> next_{TimePoint::max()};
};

}  // namespace rdfs::fs::fuse
