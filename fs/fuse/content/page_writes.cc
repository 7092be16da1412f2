#include "fs/fuse/content/page_writes.h"

#include <algorithm>

#include "fs/client/buffer.h"

namespace rdfs::fs::fuse {

PageWrites::Piece PageWrites::PagesOf(NodeId node, std::uint64_t offset, std::uint64_t length) {
  constexpr std::uint64_t kPage = client::Buffer::kPageBytes;
  return {.node = node,
          .first = offset / kPage,
          .last = (offset + std::max<std::uint64_t>(length, 1) - 1) / kPage};
}

void PageWrites::Begin(std::uint64_t unique, NodeId node, std::uint64_t offset,
                       std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  if (!under_way_.emplace(unique, next_).second) return;
  pieces_.emplace_hint(pieces_.end(), next_++, PagesOf(node, offset, length));
}

void PageWrites::End(std::uint64_t unique) {
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(unique);
  if (found == under_way_.end()) return;
  pieces_.at(found->second).over = true;
  under_way_.erase(found);
  Forget();
}

PageWrites::Number PageWrites::UnderWay(NodeId node, std::uint64_t offset,
                                        std::uint64_t length) const {
  const std::lock_guard lock(mutex_);
  if (under_way_.empty()) return 0;
  const Piece wanted = PagesOf(node, offset, length);
  Number last = 0;
  for (const auto& [unique, number] : under_way_) {
    if (number > last && pieces_.at(number).Meets(wanted)) last = number;
  }
  return last;
}

bool PageWrites::IsOver(Number number) const {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(number);
  return found == pieces_.end() || found->second.over;
}

PageWrites::Number PageWrites::ReadBegins() {
  const std::lock_guard lock(mutex_);
  reads_.insert(next_);
  return next_;
}

bool PageWrites::ReadEnds(Number read, NodeId node, std::uint64_t offset, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  const Piece wanted = PagesOf(node, offset, length);
  const bool met = std::any_of(pieces_.lower_bound(read), pieces_.end(),
                               [&](const auto& piece) { return piece.second.Meets(wanted); });
  const bool known = read > forgotten_;
  reads_.erase(reads_.find(read));
  Forget();
  return known && !met;
}

void PageWrites::Forget() {
  const Number oldest = reads_.empty() ? next_ : *reads_.begin();
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const bool wanted = piece->first >= oldest;
    if (wanted && pieces_.size() <= kMost) return;
    if (!piece->second.over) {
      ++piece;
      continue;
    }
    if (wanted) forgotten_ = piece->first;
    piece = pieces_.erase(piece);
  }
}

}  // namespace rdfs::fs::fuse
