// ExtentStore: reads files for the sessions of one access class, through its block pool.
//
// A read is answered from extents: pieces of files held in the pool, immutable while they are
// there. What is missing is read straight into a fresh extent, at once if the kernel has it in
// memory, else through the loop's FileIo. The answer grants the extents to the session, so that it
// READs them itself, or names bytes to send inside the reply where a grant is not worth it or not
// possible.
//
// Coherence. Whoever changes a file through this server calls Changed after the change and before
// it is acknowledged: extents of that range are dropped, their generations bumped, and a fill that
// was under way is thrown away. Changes behind the server's back are seen by comparing the
// FileVersion, at most one attr lease after they happened, or when somebody calls NoteVersion with
// a stat(2) of its own (open does). Memory of a dropped extent rests until the last lease on it has
// run out.
//
// Threads: any loop; one mutex for each store, never held across a system call. Callbacks run on
// the thread of the FileIo that the read was started with. The store outlives every FileIo that it
// was given: their destructors wait for what still writes to its memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fs/protocol.h"
#include "server/loop/file_io.h"
#include "server/pool/extent_cache.h"
#include "server/pool/extent_version.h"
#include "server/pool/grant_lane.h"
#include "server/pool/grant_table.h"
#include "server/pool/pool.h"
#include "transport/base/clock.h"

namespace rdfs::server {

struct StoreRead {
  FileId file;
  // Readable, a regular file, without O_DIRECT. Held until the fills that this read started are
  // done, which may be after its answer.
  std::shared_ptr<const Fd> fd;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;      // clamped to fs::kMaxTransferBytes
  std::uint32_t want_ahead = 0;  // clamped to kMaxAheadBytes
  bool no_grants = false;
  std::uint64_t session = 0;
  std::shared_ptr<GrantLane> lane;  // null: no grants
};

// What ReadReply says. Valid during the callback only: the bytes are the pool's.
struct StoreReadResult {
  int error = 0;  // errno; the rest is empty then
  std::uint64_t file_size = 0;
  FileVersion version{};
  std::span<const fs::GrantWire> grants{};  // whole extents, without gap from `offset` on
  // Content of the file behind what the grants cover from `offset` on: to be sent in the reply, in
  // this order. At most fs::kMaxInlineDataBytes together. When a grant was due and not possible
  // (pool full, memlock), a long read is answered in part: up to the end of these bytes, and the
  // client asks for the rest, since file_size says that there is more.
  std::span<const ByteSpan> bytes{};
  std::uint32_t bytes_length = 0;
};
using StoreReadDone = std::function<void(const StoreReadResult&)>;

struct StoreOptions {
  PoolOptions pool;
  std::chrono::milliseconds lease{1000};       // of grants
  std::chrono::milliseconds attr_lease{1000};  // how long a version is believed without stat(2)
  std::size_t session_bytes = 0;  // granted to one session at most; 0: three quarters of the pool
  unsigned never_granted_percent = 12;
  // Memory in which reads past the pool wait, all together; those beyond it are answered in parts
  // of a page.
  std::size_t past_bytes = std::size_t{64} << 20U;
};

struct StoreStats {
  std::uint64_t hits = 0, misses = 0;  // extents, as reads found them
  std::uint64_t fills_at_once = 0;     // without waiting
  std::uint64_t fills_waited = 0;      // through FileIo
  std::uint64_t grants = 0, inline_bytes = 0, refused_grants = 0;
  std::uint64_t dropped = 0, evicted = 0;
  std::size_t cached_bytes = 0, leased_bytes = 0, capacity_bytes = 0;
};

class ExtentStore {
 public:
  static constexpr std::uint32_t kMaxAheadBytes = 16 << 20;
  static constexpr std::uint64_t kToEnd = ~std::uint64_t{0};

  ExtentStore(std::shared_ptr<transport::Domain> domain, const StoreOptions& options,
              const Clock& clock);
  ~ExtentStore();
  ExtentStore(const ExtentStore&) = delete;
  ExtentStore& operator=(const ExtentStore&) = delete;

  // Answers through `done`, exactly once: before it returns when nothing must be waited for, else
  // from io.Poll(). Never blocks. Errors are the errno of read(2) or fstat(2).
  void Read(FileIo& io, StoreRead read, StoreReadDone done);

  // [offset, offset + length) of `file` has changed (kToEnd: and all behind it). A truncation or a
  // fallocate that moves bytes is a change from the lower end to kToEnd. Between the change and its
  // acknowledgement. Cheap when nothing of the file is cached. `after` is a stat(2)
  // from behind the change: without it the next read drops all of the file and reads it afresh,
  // with it that happens once in an attr lease.
  void Changed(const FileId& file, std::uint64_t offset, std::uint64_t length,
               const FileVersion* after = nullptr);
  // Somebody has seen this version of the file just now: drops what was read of another one. What
  // was read of this one, too soon after its change time to prove anything, is in doubt: unless
  // changes that leave that time as it was are told of.
  enum class Racy : std::uint8_t { kDoubtful, kProves };
  void NoteVersion(const FileId& file, const FileVersion& version, Racy racy = Racy::kDoubtful);
  // The file is gone, or its blocks are wanted back: drops all of it.
  void Forget(const FileId& file) { Changed(file, 0, kToEnd); }

  [[nodiscard]] StoreStats stats() const;
  // Leaves the generation words alone, so that a test can show what they are for.
  void BreakGenerationsForTest() { pool_->BreakGenerationsForTest(); }

 private:
  friend class ExtentStoreRead;
  // Makes one more arena, unless there are enough. System calls; without the lock.
  void GrowPool(FileIo& io);
  // The same in the background, when little is left of those that there are.
  void GrowAhead(FileIo& io);
  void AddArena(Result<std::unique_ptr<Arena>> arena);
  // Fills [from, to) when the loop has nothing better to do.
  void FillAhead(FileIo& io, const FileId& file, FileIo::SharedFd fd, std::uint64_t from,
                 std::uint64_t to);
  std::uint64_t FillOneAhead(FileIo& io, const FileId& id, const FileIo::SharedFd& fd,
                             std::uint64_t from, std::uint64_t to);

  const StoreOptions options_;
  const Clock& clock_;
  const std::unique_ptr<BlockPool> pool_;
  mutable std::mutex mutex_;  // guards what follows and pool_'s allocation
  ExtentCache cache_;
  StoreStats stats_;
  std::size_t past_bytes_ = 0;  // in which reads wait
  bool growing_ = false;        // in the background
};

// All stores of a server: a change made through one access class is a change for all of them.
// Add at start or under no concurrent use of the vector's owner; the rest is any thread.
class ExtentStores {
 public:
  void Add(std::shared_ptr<ExtentStore> store);
  void Remove(const ExtentStore* store);
  void Changed(const FileId& file, std::uint64_t offset, std::uint64_t length,
               const FileVersion* after = nullptr) const;
  void NoteVersion(const FileId& file, const FileVersion& version,
                   ExtentStore::Racy racy = ExtentStore::Racy::kDoubtful) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ExtentStore>> stores_;
};

}  // namespace rdfs::server
