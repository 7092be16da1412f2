#include "fs/fuse/content/writes_behind.h"

#include <algorithm>

namespace rdfs::fs::fuse {

WritesBehind::Number WritesBehind::Begin(NodeId node, std::uint64_t offset, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  const Piece piece{.node = node, .offset = offset, .end = offset + length};
  if (pieces_.size() >= kMost || bytes_ + length > kMostBytes) return 0;
  const bool free = std::ranges::none_of(pieces_, [&](const auto& other) {
    return other.second.node == node && other.second.offset < piece.end &&
           piece.offset < other.second.end;
  });
  if (!free) return 0;
  pieces_.emplace(next_, piece);
  bytes_ += length;
  count_.store(pieces_.size(), std::memory_order_release);
  return next_++;
}

void WritesBehind::End(Number number) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(number);
  if (found == pieces_.end()) return;
  bytes_ -= found->second.end - found->second.offset;
  pieces_.erase(found);
  count_.store(pieces_.size(), std::memory_order_release);
}

WritesBehind::Wait WritesBehind::NowFor(NodeId node) const {
  const std::lock_guard lock(mutex_);
  Wait wait{.node = node, .last = 0};
  for (const auto& [number, piece] : pieces_) {
    if (node == kAnyNode || piece.node == node) wait.last = number;
  }
  return wait;
}

bool WritesBehind::IsOver(const Wait& wait) const {
  const std::lock_guard lock(mutex_);
  return std::none_of(pieces_.begin(), pieces_.upper_bound(wait.last), [&](const auto& other) {
    return wait.node == kAnyNode || other.second.node == wait.node;
  });
}

}  // namespace rdfs::fs::fuse
