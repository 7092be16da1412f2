// OutputQueue: what a connection still has to write, in order: bytes that it copied (frame headers,
// messages) and references to registered memory (WRITEs, answers to READs), gathered into one
// writev without copying.
//
// Owned by one Connection, used by its thread. Bounded by its user, who is told how much waits.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/shared_memory.h"
#include "transport/base/status.h"
#include "transport/tcp/stream.h"

namespace rdfs::transport::tcp {

class OutputQueue {
 public:
  // Queues a copy of `bytes`.
  void Append(ByteSpan bytes);
  // Queues `bytes` themselves: they are read when the wire takes them, and `keep` holds their
  // memory until then.
  enum class Backlog : std::uint8_t { kCounts, kDoesNotCount };
  void Refer(ByteSpan bytes, std::shared_ptr<SharedMemory> keep, Backlog backlog);
  // An answer to the peer ends with what was queued last; unsent_answers() counts those.
  void EndAnswer() { answer_ends_.push_back(queued_); }

  [[nodiscard]] bool empty() const { return queued_ == sent_; }
  // Since the beginning.
  [[nodiscard]] std::uint64_t queued_bytes() const { return queued_; }
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_; }
  [[nodiscard]] std::size_t backlog_bytes() const { return backlog_; }
  [[nodiscard]] std::size_t kept_bytes() const { return kept_; }  // those that were copied
  [[nodiscard]] std::size_t unsent_answers() const { return answer_ends_.size(); }

  // Writes until everything is out or the stream takes no more (or has taken a good deal: others
  // want to be served too).
  Status WriteTo(ByteStream& stream);
  // Forgets everything: the stream is broken.
  void Clear();

 private:
  struct Segment {
    const std::byte* data;
    std::size_t size;
    std::shared_ptr<SharedMemory> keep;
    bool copied;   // lies in the oldest chunk
    bool counted;  // is part of backlog_
  };
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t used = 0;
    std::size_t sent = 0;
  };

  std::size_t Gather(std::span<iovec> parts, std::size_t most, std::size_t& count) const;
  void Sent(std::size_t size);
  void ChunkSent(std::size_t size);
  void AddChunk();

  std::vector<Segment> segments_;  // those from first_ on wait
  std::size_t first_ = 0;
  std::deque<Chunk> chunks_;  // the copied bytes, in order
  Chunk spare_;               // one empty chunk, so that a steady flow allocates nothing
  std::deque<std::uint64_t> answer_ends_;
  std::uint64_t queued_ = 0;
  std::uint64_t sent_ = 0;
  std::size_t backlog_ = 0, kept_ = 0;
};

}  // namespace rdfs::transport::tcp
