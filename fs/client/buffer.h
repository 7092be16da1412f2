// Buffers of a lane: pieces of one registered region, handed out as whole pages.
//
// A Buffer is held by whoever receives a FUSE request into it or has a reply read into it. Giving
// it back never waits: pages that a device may still touch (operations in flight when a call timed
// out or its connection died) stay in quarantine until their completions, or until the Connection
// has been destroyed. One thread: the lane's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace rdfs::fs::client {

class BufferPool;

// Owns some pages of the pool; movable. Must die before its lane.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Reset(); }

  [[nodiscard]] bool valid() const { return pool_ != nullptr; }
  [[nodiscard]] std::size_t size() const { return std::size_t{pages_} * kPageBytes; }
  [[nodiscard]] MutableByteSpan bytes() const;
  // A part of it, for Lane::Read and Lane::Write. `offset + length` must not exceed size().
  [[nodiscard]] transport::LocalSlice Slice(std::size_t offset, std::size_t length) const;
  // Gives the pages behind the first `bytes` back: a request that turned out small.
  void ShrinkTo(std::size_t bytes);
  void Reset();

  static constexpr std::size_t kPageBytes = 4096;

 private:
  friend class BufferPool;
  Buffer(BufferPool* pool, std::uint32_t page, std::uint32_t pages)
      : pool_(pool), page_(page), pages_(pages) {}

  BufferPool* pool_ = nullptr;
  std::uint32_t page_ = 0;
  std::uint32_t pages_ = 0;
};

class BufferPool {
 public:
  // Up to this many pages a request counts as small: metadata, random reads and short writes.
  static constexpr std::size_t kSmallPages = 16;

  // `region` (kLocal) outlives the pool.
  explicit BufferPool(const transport::MemoryRegion& region);

  // Small ones come from the low end and large ones from the high end, so that small ones do not
  // cut the room for large ones to pieces. None when there is no room now: it comes back when a
  // Buffer is given back.
  std::optional<Buffer> Allocate(std::size_t bytes);
  // What lies in the first `bytes` of a large one. Little moves to a small one, so that whoever
  // holds it does not cut the room for large ones to pieces, and `from` stays as it is; of much
  // `from` is the front, and gives the rest back.
  Buffer TakeFront(Buffer& from, std::size_t bytes);
  // Any thread; only the lane's knows them exactly.
  [[nodiscard]] std::size_t free_bytes() const {
    return free_pages_.load(std::memory_order_relaxed) * Buffer::kPageBytes;
  }
  [[nodiscard]] std::size_t size_bytes() const { return pages_.size() * Buffer::kPageBytes; }

  // For the lane: whether `slice` lies in this pool's region, and the count of device operations
  // that touch its pages.
  [[nodiscard]] bool Contains(const transport::LocalSlice& slice) const;
  void BeginOperation(const transport::LocalSlice& slice);
  void EndOperation(const transport::LocalSlice& slice);

 private:
  friend class Buffer;
  struct Page {
    bool held = false;         // by a Buffer
    std::uint16_t in_use = 0;  // by device operations
  };
  void Release(std::uint32_t page, std::uint32_t pages);
  [[nodiscard]] bool IsFree(std::size_t page) const {
    return !pages_[page].held && pages_[page].in_use == 0;
  }
  std::optional<std::uint32_t> FindLow(std::size_t pages) const;
  std::optional<std::uint32_t> FindHigh(std::size_t pages) const;

  const transport::MemoryRegion& region_;
  std::vector<Page> pages_;
  // One writer: no read-modify-write needed.
  void CountFree(std::ptrdiff_t more) {
    const auto now = static_cast<std::ptrdiff_t>(free_pages_.load(std::memory_order_relaxed));
    free_pages_.store(static_cast<std::size_t>(now + more), std::memory_order_relaxed);
  }
  std::atomic<std::size_t> free_pages_;
};

// How much registered memory one lane takes: 16 MiB, but over verbs, which locks it, `lanes` of
// them share half of the memlock limit: 2 MiB for each of two at 8 MiB, never less than 1 MiB.
std::size_t LaneBufferBytes(transport::Kind kind, std::uint64_t memlock_bytes, unsigned lanes);

}  // namespace rdfs::fs::client
