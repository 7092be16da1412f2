// A byte ring in shared memory: one writer in one process, one reader in another, records in order.
//
// Two cursors count bytes since the beginning and never wrap; a record is a header and its bytes,
// padded to whole cache lines, and may lie across the ring's end. The writer fills records and then
// publishes its cursor once for all of them; the reader gives room back in large pieces, so that a
// ping-pong moves no more than the cursor and the record between two processors.
//
// The peer's process is hostile: it may store anything anywhere in this memory at any time. Each
// end keeps its own cursor privately, checks the peer's against what is possible, and the reader
// copies a record out once, header first, before anybody looks at it.
//
// Owned by a Connection, used by its thread. Blocks never, allocates never, makes no system calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::transport::shm {

inline constexpr std::size_t kCacheLine = 64;

// Each cursor is written by one process only and has a cache line of its own.
struct RingCursors {
  alignas(kCacheLine) std::atomic<std::uint64_t> produced{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> consumed{0};
};
static_assert(sizeof(RingCursors) == 2 * kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct RecordHeader {
  std::uint32_t length = 0;  // of what follows, without padding
  std::uint32_t tag = 0;     // the caller's
};
static_assert(sizeof(RecordHeader) == 8 && kCacheLine % sizeof(RecordHeader) == 0);

// What a record of `length` bytes takes.
constexpr std::size_t RecordBytes(std::size_t length) {
  return (sizeof(RecordHeader) + length + kCacheLine - 1) / kCacheLine * kCacheLine;
}

class RingWriter {
 public:
  // `data`: a power of two, at least a few cache lines. Both arguments outlive the writer.
  RingWriter(RingCursors& cursors, MutableByteSpan data) : cursors_(cursors), data_(data) {}

  // Puts a record behind those written before, without publishing it. False when there is no room
  // now. kProtocolError when the peer's cursor cannot be. The parts together fit the ring.
  Result<bool> Write(std::span<const ByteSpan> parts, std::size_t length, std::uint32_t tag);
  // Shows the reader what was written; true when there was something to show. Sequentially
  // consistent, so that a flag the reader sets before it looks at the ring is seen afterwards.
  bool Publish();

 private:
  void CopyIn(std::uint64_t at, ByteSpan bytes);

  RingCursors& cursors_;
  const MutableByteSpan data_;
  std::uint64_t written_ = 0;        // end of what has been written
  std::uint64_t published_ = 0;      // end of what the reader may see
  std::uint64_t consumed_seen_ = 0;  // the reader's cursor, as last looked at
};

class RingReader {
 public:
  // `longest`: of a record; anything longer is a protocol error.
  RingReader(RingCursors& cursors, ByteSpan data, std::size_t longest)
      : cursors_(cursors), data_(data), longest_(longest) {}

  // The next record's header, checked; length kNone when there is none. kProtocolError when the
  // peer's cursor or the length cannot be.
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  Result<RecordHeader> Peek();
  // Copies the record that Peek showed into `out` (exactly its length) and goes on to the next.
  // True when room was given back to the writer just now, who may be waiting for it.
  bool Take(const RecordHeader& header, MutableByteSpan out);
  // Whether a record may be there, seen sequentially consistent: for a reader about to sleep.
  [[nodiscard]] bool MayHaveRecord() const {
    return cursors_.produced.load(std::memory_order_seq_cst) != read_;
  }

 private:
  void CopyOut(std::uint64_t at, MutableByteSpan out) const;

  RingCursors& cursors_;
  const ByteSpan data_;
  const std::size_t longest_;
  std::uint64_t read_ = 0;           // end of what has been taken
  std::uint64_t given_back_ = 0;     // end of what the writer knows to be free
  std::uint64_t produced_seen_ = 0;  // the writer's cursor, as last looked at
};

}  // namespace rdfs::transport::shm
