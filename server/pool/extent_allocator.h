// ExtentAllocator: which pages of one arena are in use. A binary buddy allocator.
//
// Pure: page numbers go in and out, no memory is touched. Owned by its arena; the owner of the
// arena holds a lock around every call. Blocks are naturally aligned powers of two, 4 KiB to 1 MiB,
// so that a block's first page names it and its neighbour is found by one exclusive or.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rdfs::server {

inline constexpr std::size_t kExtentPageBytes = 4096;
inline constexpr unsigned kMaxExtentOrder = 8;
inline constexpr std::size_t kMaxExtentBytes = kExtentPageBytes << kMaxExtentOrder;  // 1 MiB
constexpr std::size_t ExtentBytes(unsigned order) { return kExtentPageBytes << order; }
// The smallest order whose extents hold `bytes`, at most kMaxExtentOrder.
unsigned ExtentOrderFor(std::uint64_t bytes);

class ExtentAllocator {
 public:
  // `pages` need not be a power of two.
  explicit ExtentAllocator(std::uint32_t pages);

  // The first page of a free block of 2^order pages, or nothing.
  std::optional<std::uint32_t> Allocate(unsigned order);
  // Gives back exactly what Allocate(order) returned; anything else aborts the process, because the
  // memory of two files would overlap.
  void Free(std::uint32_t page, unsigned order);

  [[nodiscard]] std::uint32_t free_pages() const { return free_pages_; }
  [[nodiscard]] std::uint32_t pages() const { return static_cast<std::uint32_t>(state_.size()); }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffU;
  enum class State : std::uint8_t { kInside, kFree, kUsed };  // kInside: not a block's first page
  struct Page {
    State state = State::kInside;
    std::uint8_t order = 0;
    std::uint32_t previous = kNone, next = kNone;  // in the free list of its order
  };
  void Push(std::uint32_t page, unsigned order);
  void Unlink(std::uint32_t page);

  std::vector<Page> state_;
  std::array<std::uint32_t, kMaxExtentOrder + 1> free_;  // heads of the lists
  std::uint32_t free_pages_ = 0;
};

}  // namespace rdfs::server
