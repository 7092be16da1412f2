// ExtentCache: which pieces of which files the pool holds, and which of them may go.
//
// Pure but for the memory that it hands out: no file is read here, events and the time go in. An
// extent is at first being filled, then ready and immutable until it is detached: found no more,
// its generation bumped. A detached extent's memory is given back when nobody has it pinned, no
// fill is writing to it, and the last lease on it has run out.
//
//            Begin              Finish                 Detach (change, eviction)
//   (none) ---------> filling ---------> ready ----------------------------------> resting -->
//   freed
//                        |  Detach: resting until Finish or Abort                    ^
//                        +-----------------------------------------------------------+
//
// Replacement resists scans: an extent starts in probation, first in first out, and moves to the
// protected ring when it was used again later than kCorrelated after it came; the ring is a CLOCK.
// A scan flushes probation only.
//
// Owned by an ExtentStore, under its lock. Extents and files stay where they are while pinned.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "server/pool/extent_version.h"
#include "server/pool/grant_table.h"
#include "server/pool/pool.h"
#include "transport/base/clock.h"

namespace rdfs::server {

struct CachedFile;

// Called when a fill is over, with the loop (whatever the store means by it) that filled.
using Waiter = std::function<void(const void* loop)>;

struct Extent {
  enum class State : std::uint8_t { kFilling, kReady, kResting };

  [[nodiscard]] std::uint64_t end() const { return start + block.bytes(); }
  [[nodiscard]] std::uint64_t valid_end() const { return start + valid; }

  CachedFile* file = nullptr;
  std::uint64_t start = 0;  // in the file, a multiple of the extent's size
  Block block;
  std::uint32_t valid = 0;  // bytes of the file; zeroes behind them
  std::uint32_t pins = 0;
  State state = State::kFilling;
  bool filling = true;  // somebody writes to the memory, whatever the state
  bool referenced = false;
  bool in_protected = false;
  std::uint64_t number = 0;      // never reused
  std::uint64_t generation = 0;  // what a grant names
  TimePoint filled_at{};
  std::vector<Waiter> waiters;  // for Finish or Abort; the store's
  std::list<Extent*>::iterator place;
};

struct CachedFile {
  FileId id;
  FileVersion version;
  bool known = false;    // version was seen
  bool changed = false;  // by us since it was seen: the next look cannot tell ours from others'
  bool racy = false;     // version was seen too soon after its change time to prove anything
  TimePoint checked_at{};
  std::uint64_t changes = 0;  // counts Change and versions dropped: a fill compares it
  // Extents by start, in groups of kMaxExtentBytes of the file.
  std::unordered_map<std::uint64_t, std::vector<Extent*>> groups;
  std::size_t extents = 0;  // attached
  std::size_t users = 0;    // reads in progress that hold a pointer
  // How the file system lets a read not wait; learnt by the first fill, without the lock.
  enum class Nowait : std::uint8_t { kUntried, kWorks, kNeverWaits, kMayWait };
  std::atomic<Nowait> nowait{Nowait::kUntried};
  // The megabyte whose fill failed last, which may have taken a disk long: until then what is asked
  // for in it is read past the pool.
  std::uint64_t unreadable = 0;
  TimePoint unreadable_until{};
  // The access pattern: where the last read ended, and how long the run of reads is.
  std::uint64_t next_offset = 0;
  std::uint64_t run_bytes = 0;
};

class ExtentCache {
 public:
  static constexpr std::chrono::milliseconds kCorrelated{1000};
  // Reads of this much, with what is wanted ahead, get the largest extents at once.
  static constexpr std::uint64_t kLongRead = 128 << 10;

  ExtentCache(BlockPool& pool, const GrantTable::Options& grants);
  ~ExtentCache();
  ExtentCache(const ExtentCache&) = delete;
  ExtentCache& operator=(const ExtentCache&) = delete;

  // The file, made when unknown; LeaveFile for each UseFile.
  CachedFile& UseFile(const FileId& id);
  void LeaveFile(CachedFile& file);
  // Null when nothing is known of it.
  CachedFile* FindFile(const FileId& id);

  // Whether `file`'s version may be believed without asking the kernel.
  static bool Fresh(const CachedFile& file, TimePoint now, std::chrono::nanoseconds attr_lease);
  // The file was seen with `version`; extents of another one (or of an unprovable one) are dropped.
  // `asked_at` is from before the stat(2), `changes` what file.changes was then: a Change in
  // between makes the answer worthless, and false is returned.
  bool Observe(CachedFile& file, const FileVersion& version, std::uint64_t changes,
               TimePoint asked_at, std::chrono::nanoseconds realtime);
  // [offset, offset + length) has changed through us: drops what overlaps. `after` is the version
  // that the file has now, and counts when it is the latest; else the next read asks.
  void Change(CachedFile& file, std::uint64_t offset, std::uint64_t length,
              const FileVersion* after, TimePoint now);
  // Drops one extent that is of no use any more.
  void Drop(Extent& extent, TimePoint now);
  // Whether `extent` holds all that the file has in its range. A tail that was read before the file
  // grew does not.
  static bool Complete(const Extent& extent);

  // The extent that covers `offset`, being filled or ready; or null.
  static Extent* Find(const CachedFile& file, std::uint64_t offset);
  // The order for a new extent at `offset`, from how the file is being read. Notes the read.
  static unsigned ChooseOrder(CachedFile& file, std::uint64_t offset, std::uint64_t length,
                              std::uint64_t ahead);
  // The smallest order up to `order` that holds as much of a file of `size` bytes.
  static unsigned ClipOrder(std::uint64_t size, std::uint64_t offset, unsigned order);
  // A new extent of at most 2^order pages that covers `offset` and overlaps no extent being filled
  // (small ready ones in its place are dropped when that makes a much larger one). Evicts. Pinned
  // once. Null when the pool has nothing to give, or what is there cannot be replaced.
  Extent* Begin(CachedFile& file, std::uint64_t offset, unsigned order, TimePoint now);
  // The fill is over: `valid` bytes stand in the extent, zeroes behind. False when the extent was
  // detached meanwhile (then its bytes are nobody's). The waiters are handed over.
  bool Finish(Extent& extent, std::uint32_t valid, TimePoint now, std::vector<Waiter>* waiters);
  void Abort(Extent& extent, TimePoint now, std::vector<Waiter>* waiters);

  static void Pin(Extent& extent) { ++extent.pins; }
  void Unpin(Extent& extent, TimePoint now);
  // A read used it.
  static void Touch(Extent& extent, TimePoint now);

  // A lease on a ready extent; false when a bound stands in the way.
  bool Grant(const Extent& extent, std::uint64_t session, TimePoint now,
             std::chrono::nanoseconds lease);
  [[nodiscard]] const GrantTable& grants() const { return grants_; }

  // Frees memory whose leases have run out. Begin calls it when it needs some.
  void Sweep(TimePoint now);

  // Whether another arena would help: Begin could not find memory without evicting.
  [[nodiscard]] bool WantsArena() const { return wants_arena_ && pool_.MayGrow(); }
  void ArenaComes() { wants_arena_ = false; }

  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] std::uint64_t evicted() const { return evicted_; }
  [[nodiscard]] std::size_t files() const { return files_.size(); }

 private:
  struct Resting {
    TimePoint until;
    Extent* extent;
    friend bool operator>(const Resting& a, const Resting& b) { return a.until > b.until; }
  };
  void Detach(Extent& extent, TimePoint now);
  void DropAll(CachedFile& file, TimePoint now);
  void TryFree(Extent& extent, TimePoint now);
  bool EvictOne(TimePoint now);
  bool EvictFrom(std::list<Extent*>& queue, TimePoint now, int* looked_at);
  std::optional<Block> AllocateBlock(unsigned order, TimePoint now);
  static bool MayTake(const CachedFile& file, std::uint64_t start, unsigned order,
                      std::vector<Extent*>* replaced);
  void PruneFile(CachedFile& file);
  void Insert(CachedFile& file, Extent& extent);

  BlockPool& pool_;
  GrantTable grants_;
  std::unordered_map<FileId, std::unique_ptr<CachedFile>, FileIdHash> files_;
  std::unordered_map<const Extent*, std::unique_ptr<Extent>> extents_;
  std::list<Extent*> probation_, protected_;  // front: next to go
  std::size_t probation_bytes_ = 0, protected_bytes_ = 0;
  std::priority_queue<Resting, std::vector<Resting>, std::greater<>> resting_;
  std::uint64_t next_number_ = 1;
  std::uint64_t dropped_ = 0, evicted_ = 0;
  bool wants_arena_ = false;
};

}  // namespace rdfs::server
