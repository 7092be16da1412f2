#include "fs/client/buffer.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace rdfs::fs::client {
namespace {

constexpr std::size_t kPageBytes = Buffer::kPageBytes;

std::size_t PagesOf(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes; }

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    page_ = other.page_;
    pages_ = std::exchange(other.pages_, 0);
  }
  return *this;
}

MutableByteSpan Buffer::bytes() const {
  return pool_->region_.bytes().subspan(page_ * kPageBytes, size());
}

transport::LocalSlice Buffer::Slice(std::size_t offset, std::size_t length) const {
  return {.region = &pool_->region_, .offset = page_ * kPageBytes + offset, .length = length};
}

void Buffer::ShrinkTo(std::size_t bytes) {
  const auto keep = static_cast<std::uint32_t>(std::max<std::size_t>(1, PagesOf(bytes)));
  if (pool_ == nullptr || keep >= pages_) return;
  pool_->Release(page_ + keep, pages_ - keep);
  pages_ = keep;
}

void Buffer::Reset() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->Release(page_, pages_);
  pages_ = 0;
}

BufferPool::BufferPool(const transport::MemoryRegion& region)
    : region_(region), pages_(region.size() / kPageBytes), free_pages_(pages_.size()) {}

std::optional<Buffer> BufferPool::Allocate(std::size_t bytes) {
  const std::size_t pages = std::max<std::size_t>(1, PagesOf(bytes));
  if (pages > free_pages_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::optional<std::uint32_t> first =
      pages <= kSmallPages ? FindLow(pages) : FindHigh(pages);
  if (!first) return std::nullopt;
  for (std::size_t i = 0; i < pages; ++i) pages_[*first + i].held = true;
  CountFree(-static_cast<std::ptrdiff_t>(pages));
  return Buffer(this, *first, static_cast<std::uint32_t>(pages));
}

Buffer BufferPool::TakeFront(Buffer& from, std::size_t bytes) {
  if (PagesOf(bytes) <= kSmallPages) {
    if (std::optional<Buffer> small = Allocate(bytes)) {
      std::memcpy(small->bytes().data(), from.bytes().data(), bytes);
      return std::move(*small);
    }
  }
  Buffer front = std::move(from);
  front.ShrinkTo(bytes);
  return front;
}

std::optional<std::uint32_t> BufferPool::FindLow(std::size_t pages) const {
  std::size_t run = 0;
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    run = IsFree(page) ? run + 1 : 0;
    if (run == pages) return static_cast<std::uint32_t>(page + 1 - pages);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> BufferPool::FindHigh(std::size_t pages) const {
  std::size_t run = 0;
  for (std::size_t page = pages_.size(); page-- > 0;) {
    run = IsFree(page) ? run + 1 : 0;
    if (run == pages) return static_cast<std::uint32_t>(page);
  }
  return std::nullopt;
}

void BufferPool::Release(std::uint32_t page, std::uint32_t pages) {
  for (std::uint32_t i = page; i < page + pages; ++i) {
    pages_[i].held = false;
    if (pages_[i].in_use == 0) CountFree(1);
  }
}

bool BufferPool::Contains(const transport::LocalSlice& slice) const {
  const std::size_t size = pages_.size() * kPageBytes;
  return slice.region == &region_ && slice.offset <= size && slice.length <= size - slice.offset;
}

void BufferPool::BeginOperation(const transport::LocalSlice& slice) {
  for (std::size_t i = slice.offset / kPageBytes; i < PagesOf(slice.offset + slice.length); ++i) {
    if (IsFree(i)) CountFree(-1);
    ++pages_[i].in_use;
  }
}

void BufferPool::EndOperation(const transport::LocalSlice& slice) {
  for (std::size_t i = slice.offset / kPageBytes; i < PagesOf(slice.offset + slice.length); ++i) {
    --pages_[i].in_use;
    if (IsFree(i)) CountFree(1);
  }
}

std::size_t LaneBufferBytes(transport::Kind kind, std::uint64_t memlock_bytes, unsigned lanes) {
  constexpr std::size_t kMost = 16 << 20;
  constexpr std::size_t kLeast = 1 << 20;
  const bool limited = memlock_bytes != std::numeric_limits<std::uint64_t>::max();
  if (kind != transport::Kind::kVerbs || !limited) return kMost;
  // Half for lanes, the rest for queues, staging of other sessions and what else locks memory; a
  // whole number of MiB, so that buffers of 1 MiB do not strand what is left.
  const std::uint64_t share = memlock_bytes / 2 / std::max(1U, lanes);
  return std::clamp<std::uint64_t>(share / kLeast * kLeast, kLeast, kMost);
}

}  // namespace rdfs::fs::client
