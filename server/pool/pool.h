// BlockPool: the memory of one access class that its sessions may READ, cut into extents.
//
// A pool is made of arenas: sealed memory that peers can map or READ, never write. Next to each
// arena lies its generation arena, one little-endian word for each page of 4 KiB; the word of an
// extent's first page is the extent's generation. It is bumped when the extent is freed, before its
// memory can hold anything else, and it is never 0, so whoever READs the bytes and then the word
// knows whether the bytes were still those that were granted.
//
// A pool belongs to one domain for life: memory never crosses from one access class to another
// while the process runs, and goes back to the kernel, which clears it, when the pool ends.
//
// Threads: Allocate, Free, Add and the counts need the owner's lock (ExtentStore's). MakeArena
// makes system calls and may pin memory, so it is called without that lock, by any thread. An Arena
// and its memory stay where they are until the pool ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/pool/extent_allocator.h"
#include "transport/base/status.h"
#include "transport/domain.h"

namespace rdfs::server {

struct PoolOptions {
  std::size_t pool_bytes = 0;   // at most; 0: DefaultPoolBytes()
  std::size_t arena_bytes = 0;  // each; 0: 64 MiB. A multiple of kMaxExtentBytes
  // Of the first arena, when memory that may be pinned is scarce (RLIMIT_MEMLOCK without
  // CAP_IPC_LOCK): an arena that small still registers with an RDMA device, the later ones are then
  // read over shared memory and TCP only. 0: as arena_bytes.
  std::size_t first_arena_bytes = 0;
};

// An eighth of the machine's memory, at least 16 MiB and at most 4 GiB.
std::size_t DefaultPoolBytes();
// PoolOptions for a machine that can pin `pinnable_bytes`, `pool_bytes` as in PoolOptions. A
// quarter of scarce memory goes to the first arena; the rest is the lanes'.
PoolOptions PoolOptionsFor(std::size_t pool_bytes, std::size_t pinnable_bytes);

class BlockPool;

class Arena {
 public:
  // Numbers of ArenaMessage, unique in the pool: this memory's and that of its generation words.
  [[nodiscard]] std::uint32_t number() const { return 2 * index_; }
  [[nodiscard]] std::uint32_t generation_number() const { return 2 * index_ + 1; }
  [[nodiscard]] const transport::MemoryRegion& memory() const { return *memory_; }
  [[nodiscard]] const transport::MemoryRegion& generations() const { return *generations_; }

 private:
  friend class BlockPool;
  Arena(std::uint32_t index, std::unique_ptr<transport::MemoryRegion> memory,
        std::unique_ptr<transport::MemoryRegion> generations);

  std::uint32_t index_;
  std::unique_ptr<transport::MemoryRegion> memory_;
  std::unique_ptr<transport::MemoryRegion> generations_;
  ExtentAllocator allocator_;
};

// A piece of an arena. A value; names memory only between Allocate and Free.
struct Block {
  Arena* arena = nullptr;
  std::uint32_t page = 0;
  std::uint8_t order = 0;

  [[nodiscard]] std::uint64_t offset() const { return std::uint64_t{page} * kExtentPageBytes; }
  [[nodiscard]] std::size_t bytes() const { return ExtentBytes(order); }
  [[nodiscard]] MutableByteSpan memory() const {
    return arena->memory().bytes().subspan(offset(), bytes());
  }
  [[nodiscard]] std::uint64_t generation_offset() const { return std::uint64_t{page} * 8; }
};

class BlockPool {
 public:
  static std::unique_ptr<BlockPool> Create(std::shared_ptr<transport::Domain> domain,
                                           const PoolOptions& options);

  // A block of 2^order pages with whatever was in it before, or nothing: then Add an arena or free
  // something.
  std::optional<Block> Allocate(unsigned order);
  // Bumps the block's generation, then gives the memory back.
  void Free(const Block& block);
  // The same in two steps, for memory that must rest until a lease has run out.
  void BumpGeneration(const Block& block);
  void FreeBumped(const Block& block);
  [[nodiscard]] std::uint64_t Generation(const Block& block) const;
  // Leaves the words alone from now on, so that a test can show what they are for.
  void BreakGenerationsForTest() { bump_ = false; }

  // Whether another arena is still allowed.
  [[nodiscard]] bool MayGrow() const;
  // Errors: kErrno, kResourceExhausted (no memory or descriptors). Not being able to register with
  // an RDMA device is no error: sharing the arena over it fails then.
  Result<std::unique_ptr<Arena>> MakeArena(std::uint32_t index);
  // Has the kernel back the arena's memory with pages now: cheaper in one go than fault by fault
  // under the reads that fill it. Takes about a millisecond a MiB; without the lock.
  static void Populate(SharedMemory& memory);
  // The index for MakeArena; taken, so that two threads never make the same arena.
  std::uint32_t TakeIndex();
  void Add(std::unique_ptr<Arena> arena);
  void GiveUpIndex() { ++failed_; }

  [[nodiscard]] std::size_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] std::size_t allocated_bytes() const { return allocated_bytes_; }
  // In arenas that are there.
  [[nodiscard]] std::size_t free_bytes() const { return arena_bytes_ - allocated_bytes_; }

 private:
  BlockPool(std::shared_ptr<transport::Domain> domain, const PoolOptions& options);
  [[nodiscard]] std::size_t ArenaBytes(std::uint32_t index) const;

  const std::shared_ptr<transport::Domain> domain_;
  const PoolOptions options_;
  const std::size_t capacity_bytes_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::size_t planned_bytes_ = 0;  // of arenas made and being made
  std::uint32_t next_index_ = 0;
  std::uint32_t failed_ = 0;
  std::size_t arena_bytes_ = 0;
  std::size_t allocated_bytes_ = 0;
  std::size_t allocate_hint_ = 0;  // the arena that had room last
  bool bump_ = true;
};

}  // namespace rdfs::server
