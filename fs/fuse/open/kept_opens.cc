#include "fs/fuse/open/kept_opens.h"

#include <iterator>
#include <utility>

namespace rdfs::fs::fuse {

void KeptOpens::SetNextLocked() {
  const TimePoint last = order_.empty() ? TimePoint::max() : order_.front().until;
  next_.store(dropped_.empty() ? last : TimePoint{}, std::memory_order_relaxed);
}

void KeptOpens::EraseLocked(Order::iterator kept) {
  const auto [begin, end] = by_node_.equal_range(kept->open->node);
  for (auto at = begin; at != end; ++at) {
    if (at->second != kept) continue;
    by_node_.erase(at);
    break;
  }
  order_.erase(kept);
}

void KeptOpens::DropLocked(Order::iterator kept) {
  dropped_.push_back(*kept);
  EraseLocked(kept);
}

void KeptOpens::Keep(const client::CallContext& closer, std::shared_ptr<Open> open, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const NodeId node = open->node;
  order_.push_back({.closer = closer, .open = std::move(open), .until = now + kKeep});
  by_node_.emplace(node, std::prev(order_.end()));
  if (order_.size() > kMost) DropLocked(order_.begin());
  SetNextLocked();
}

std::shared_ptr<Open> KeptOpens::Take(NodeId node, const client::CallContext& opener,
                                      std::uint32_t flags, TimePoint now, const WillDo& will_do) {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = by_node_.equal_range(node);
  for (auto at = begin; at != end; ++at) {
    const Kept& kept = *at->second;
    const client::OpenFile& file = *kept.open->file;
    // Who closes it, the kernel does not say.
    if (file.uid() != opener.uid || file.gid() != opener.gid || file.flags() != flags) continue;
    if (kept.until <= now || (will_do && !will_do(*kept.open))) continue;
    std::shared_ptr<Open> open = kept.open;
    EraseLocked(at->second);
    SetNextLocked();
    return open;
  }
  return nullptr;
}

bool KeptOpens::Has(NodeId node) {
  const std::lock_guard lock(mutex_);
  return by_node_.contains(node);
}

void KeptOpens::Drop(NodeId node) {
  if (next() == TimePoint::max()) return;  // nothing is kept
  const std::lock_guard lock(mutex_);
  while (true) {
    const auto found = by_node_.find(node);
    if (found == by_node_.end()) break;
    DropLocked(found->second);
  }
  SetNextLocked();
}

void KeptOpens::DropAll() {
  const std::lock_guard lock(mutex_);
  while (!order_.empty()) DropLocked(order_.begin());
  SetNextLocked();
}

std::vector<KeptOpens::Kept> KeptOpens::TakeDropped(TimePoint now) {
  const std::lock_guard lock(mutex_);
  while (!order_.empty() && order_.front().until <= now) DropLocked(order_.begin());
  std::vector<Kept> dropped = std::exchange(dropped_, {});
  SetNextLocked();
  return dropped;
}

}  // namespace rdfs::fs::fuse
