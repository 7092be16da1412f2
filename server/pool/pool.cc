#include "server/pool/pool.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace rdfs::server {
namespace {

constexpr std::size_t kArenaBytes = 64 << 20;
constexpr std::size_t kLeastPoolBytes = 16 << 20;
constexpr std::size_t kMostPoolBytes = std::size_t{4} << 30;

std::size_t RoundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The generation word in the order of bytes that the wire has.
std::uint64_t LittleEndian(std::uint64_t value) {
  if constexpr (std::endian::native == std::endian::little) return value;
  return __builtin_bswap64(value);
}

std::atomic_ref<std::uint64_t> WordOf(const Block& block) {
  std::byte* at = block.arena->generations().bytes().data() + block.generation_offset();
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
}

}  // namespace

std::size_t DefaultPoolBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return kLeastPoolBytes;
  const auto machine = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  return std::clamp(machine / 8, kLeastPoolBytes, kMostPoolBytes);
}

PoolOptions PoolOptionsFor(std::size_t pool_bytes, std::size_t pinnable_bytes) {
  PoolOptions options{.pool_bytes = pool_bytes, .arena_bytes = kArenaBytes};
  // Twice: an arena is pinned for each device that its domain is attached to.
  if (pinnable_bytes < 8 * kArenaBytes) {
    options.first_arena_bytes =
        std::max(kMaxExtentBytes, pinnable_bytes / 4 / kMaxExtentBytes * kMaxExtentBytes);
  }
  return options;
}

Arena::Arena(std::uint32_t index, std::unique_ptr<transport::MemoryRegion> memory,
             std::unique_ptr<transport::MemoryRegion> generations)
    : index_(index),
      memory_(std::move(memory)),
      generations_(std::move(generations)),
      allocator_(static_cast<std::uint32_t>(memory_->size() / kExtentPageBytes)) {}

std::unique_ptr<BlockPool> BlockPool::Create(std::shared_ptr<transport::Domain> domain,
                                             const PoolOptions& options) {
  PoolOptions checked = options;
  if (checked.arena_bytes == 0) checked.arena_bytes = kArenaBytes;
  if (checked.pool_bytes == 0) checked.pool_bytes = DefaultPoolBytes();
  checked.arena_bytes = RoundUp(checked.arena_bytes, kMaxExtentBytes);
  checked.pool_bytes = std::max(checked.pool_bytes, kMaxExtentBytes);
  checked.arena_bytes = std::min(checked.arena_bytes, RoundUp(checked.pool_bytes, kMaxExtentBytes));
  if (checked.first_arena_bytes == 0) checked.first_arena_bytes = checked.arena_bytes;
  checked.first_arena_bytes = RoundUp(checked.first_arena_bytes, kMaxExtentBytes);
  return std::unique_ptr<BlockPool>(new BlockPool(std::move(domain), checked));
}

BlockPool::BlockPool(std::shared_ptr<transport::Domain> domain, const PoolOptions& options)
    : domain_(std::move(domain)),
      options_(options),
      capacity_bytes_(options.pool_bytes / kMaxExtentBytes * kMaxExtentBytes) {}

std::size_t BlockPool::ArenaBytes(std::uint32_t index) const {
  return index == 0 ? options_.first_arena_bytes : options_.arena_bytes;
}

bool BlockPool::MayGrow() const {
  return failed_ == 0 && planned_bytes_ + kMaxExtentBytes <= capacity_bytes_;
}

std::uint32_t BlockPool::TakeIndex() {
  const std::uint32_t index = next_index_++;
  planned_bytes_ += ArenaBytes(index);
  return index;
}

Result<std::unique_ptr<Arena>> BlockPool::MakeArena(std::uint32_t index) {
  const std::size_t bytes = ArenaBytes(index);
  const std::string name = fmt::format("rdfs-arena-{}", index);
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                        SharedMemory::Create(name, bytes, SharedMemory::Peers::kReadOnly));
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> words,
                        SharedMemory::Create(name + "-generations", bytes / kExtentPageBytes * 8,
                                             SharedMemory::Peers::kReadOnly));
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<transport::MemoryRegion> memory_region,
                        domain_->Register(memory, transport::Access::kRemoteRead));
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<transport::MemoryRegion> words_region,
                        domain_->Register(words, transport::Access::kRemoteRead));
  std::unique_ptr<Arena> arena(new Arena(index, std::move(memory_region), std::move(words_region)));
  for (std::uint32_t page = 0; page < bytes / kExtentPageBytes; ++page) {
    WordOf({arena.get(), page, 0}).store(LittleEndian(1), std::memory_order_relaxed);
  }
  return arena;
}

void BlockPool::Populate(SharedMemory& memory) {
  constexpr std::size_t kStep = 2 << 20;  // so that faults of others come in between
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif
  const MutableByteSpan bytes = memory.bytes();
  for (std::size_t at = 0; at < bytes.size(); at += kStep) {
    const std::size_t length = std::min(kStep, bytes.size() - at);
    // An older kernel, or no memory left: the pages come as they are touched.
    if (madvise(bytes.data() + at, length, MADV_POPULATE_WRITE) != 0) return;
  }
}

void BlockPool::Add(std::unique_ptr<Arena> arena) {
  arena_bytes_ += arena->memory().size();
  allocate_hint_ = arenas_.size();
  arenas_.push_back(std::move(arena));
}

std::optional<Block> BlockPool::Allocate(unsigned order) {
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    const std::size_t at = (allocate_hint_ + i) % arenas_.size();
    Arena& arena = *arenas_[at];
    if (arena.allocator_.free_pages() < 1U << order) continue;
    const std::optional<std::uint32_t> page = arena.allocator_.Allocate(order);
    if (!page) continue;
    allocate_hint_ = at;
    allocated_bytes_ += ExtentBytes(order);
    return Block{&arena, *page, static_cast<std::uint8_t>(order)};
  }
  return std::nullopt;
}

void BlockPool::Free(const Block& block) {
  BumpGeneration(block);
  FreeBumped(block);
}

void BlockPool::BumpGeneration(const Block& block) {
  if (!bump_) return;
  const std::atomic_ref<std::uint64_t> word = WordOf(block);
  std::uint64_t next = LittleEndian(word.load(std::memory_order_relaxed)) + 1;
  if (next == 0) next = 1;
  // An exchange, not a store: what is written into the memory later must not become visible before
  // it. The bytes follow from a system call or behind the owner's lock.
  word.exchange(LittleEndian(next), std::memory_order_seq_cst);
}

void BlockPool::FreeBumped(const Block& block) {
  block.arena->allocator_.Free(block.page, block.order);
  allocated_bytes_ -= block.bytes();
}

std::uint64_t BlockPool::Generation(const Block& block) const {
  return LittleEndian(WordOf(block).load(std::memory_order_relaxed));
}

}  // namespace rdfs::server
