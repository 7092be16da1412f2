#include "server/pool/extent_allocator.h"

#include <bit>
#include <cstdlib>

#include "transport/base/log.h"

namespace rdfs::server {

unsigned ExtentOrderFor(std::uint64_t bytes) {
  const std::uint64_t pages = bytes / kExtentPageBytes + (bytes % kExtentPageBytes != 0 ? 1 : 0);
  if (pages <= 1) return 0;
  const auto order = static_cast<unsigned>(std::bit_width(pages - 1));
  return order < kMaxExtentOrder ? order : kMaxExtentOrder;
}

ExtentAllocator::ExtentAllocator(std::uint32_t pages) : state_(pages) {
  free_.fill(kNone);
  free_pages_ = pages;
  // The largest aligned blocks that fit, back to front so that low pages are handed out first.
  std::uint32_t end = pages;
  while (end > 0) {
    const auto order =
        std::min<unsigned>(kMaxExtentOrder, static_cast<unsigned>(std::countr_zero(end)));
    end -= 1U << order;
    Push(end, order);
  }
}

void ExtentAllocator::Push(std::uint32_t page, unsigned order) {
  Page& head = state_[page];
  head = {.state = State::kFree,
          .order = static_cast<std::uint8_t>(order),
          .previous = kNone,
          .next = free_[order]};
  if (head.next != kNone) state_[head.next].previous = page;
  free_[order] = page;
}

void ExtentAllocator::Unlink(std::uint32_t page) {
  Page& head = state_[page];
  if (head.previous != kNone) {
    state_[head.previous].next = head.next;
  } else {
    free_[head.order] = head.next;
  }
  if (head.next != kNone) state_[head.next].previous = head.previous;
  head.state = State::kInside;
}

std::optional<std::uint32_t> ExtentAllocator::Allocate(unsigned order) {
  unsigned from = order;
  while (from <= kMaxExtentOrder && free_[from] == kNone) ++from;
  if (from > kMaxExtentOrder) return std::nullopt;
  const std::uint32_t page = free_[from];
  Unlink(page);
  while (from > order) {
    --from;
    Push(page + (1U << from), from);  // the upper half
  }
  state_[page].state = State::kUsed;
  state_[page].order = static_cast<std::uint8_t>(order);
  free_pages_ -= 1U << order;
  return page;
}

void ExtentAllocator::Free(std::uint32_t page, unsigned order) {
  if (page >= state_.size() || state_[page].state != State::kUsed || state_[page].order != order) {
    LogError("an extent of order {} at page {} was freed that is not in use", order, page);
    std::abort();
  }
  free_pages_ += 1U << order;
  state_[page].state = State::kInside;
  while (order < kMaxExtentOrder) {
    const std::uint32_t buddy = page ^ (1U << order);
    if (buddy >= state_.size() || state_[buddy].state != State::kFree ||
        state_[buddy].order != order) {
      break;
    }
    Unlink(buddy);
    page &= ~(1U << order);
    ++order;
  }
  Push(page, order);
}

}  // namespace rdfs::server
