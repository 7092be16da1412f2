#include "transport/tcp/output.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rdfs::transport::tcp {
namespace {

// Room for many small frames; a message of the largest size takes a few.
constexpr std::size_t kChunkBytes = 64 * 1024;
// Half of IOV_MAX: with header and payload apart that is every answer of a full queue.
constexpr std::size_t kMaxParts = 512;
// Of one WriteTo, and of one call of it: a fast reader on another CPU could keep either busy for as
// long as there is something. The largest payload goes at once.
constexpr std::size_t kMaxBytesAtOnce = (1 << 20) + kChunkBytes;

}  // namespace

void OutputQueue::AddChunk() {
  if (spare_.bytes == nullptr)
    spare_.bytes = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
  chunks_.push_back(std::exchange(spare_, Chunk{}));
}

void OutputQueue::Append(ByteSpan bytes) {
  while (!bytes.empty()) {
    if (chunks_.empty() || chunks_.back().used == kChunkBytes) AddChunk();
    Chunk& chunk = chunks_.back();
    const std::size_t size = std::min(bytes.size(), kChunkBytes - chunk.used);
    std::byte* place = chunk.bytes.get() + chunk.used;
    std::memcpy(place, bytes.data(), size);
    chunk.used += size;
    const bool grows_last = first_ < segments_.size() && segments_.back().copied &&
                            segments_.back().data + segments_.back().size == place;
    if (grows_last) {
      segments_.back().size += size;
    } else {
      segments_.push_back({place, size, nullptr, true, true});
    }
    queued_ += size;
    backlog_ += size;
    kept_ += size;
    bytes = bytes.subspan(size);
  }
}

void OutputQueue::Refer(ByteSpan bytes, std::shared_ptr<SharedMemory> keep, Backlog backlog) {
  if (bytes.empty()) return;
  const bool counted = backlog == Backlog::kCounts;
  if (counted) backlog_ += bytes.size();
  queued_ += bytes.size();
  segments_.push_back({bytes.data(), bytes.size(), std::move(keep), false, counted});
}

std::size_t OutputQueue::Gather(std::span<iovec> parts, std::size_t most,
                                std::size_t& count) const {
  std::size_t total = 0;
  for (count = 0; count < parts.size() && first_ + count < segments_.size() && total < most;
       ++count) {
    const Segment& segment = segments_[first_ + count];
    const std::size_t size = std::min(segment.size, most - total);
    parts[count] = {const_cast<std::byte*>(segment.data), size};  // iovec has no const
    total += size;
  }
  return total;
}

Status OutputQueue::WriteTo(ByteStream& stream) {
  std::size_t budget = kMaxBytesAtOnce;
  while (!empty() && budget > 0) {
    std::array<iovec, kMaxParts> parts;
    std::size_t count = 0;
    const std::size_t offered = Gather(parts, budget, count);
    RDFS_ASSIGN_OR_RETURN(const std::size_t taken, stream.Write(std::span(parts).first(count)));
    Sent(taken);
    // Short: the wire is full, and the descriptor will tell when it is not.
    if (taken < offered) break;
    budget -= taken;
  }
  return {};
}

void OutputQueue::Sent(std::size_t size) {
  sent_ += size;
  while (!answer_ends_.empty() && answer_ends_.front() <= sent_) answer_ends_.pop_front();
  while (size > 0) {
    Segment& segment = segments_[first_];
    const std::size_t part = std::min(size, segment.size);
    if (segment.counted) backlog_ -= part;
    if (segment.copied) ChunkSent(part);
    segment.data += part;
    segment.size -= part;
    size -= part;
    if (segment.size > 0) break;
    segment.keep.reset();
    ++first_;
  }
  if (first_ == segments_.size()) {
    segments_.clear();
    first_ = 0;
  } else if (first_ > kMaxParts && first_ > segments_.size() / 2) {
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

// Copied bytes leave in order; those of one segment never span two chunks.
void OutputQueue::ChunkSent(std::size_t size) {
  kept_ -= size;
  Chunk& chunk = chunks_.front();
  chunk.sent += size;
  if (chunk.sent < chunk.used) return;
  if (chunks_.size() == 1) {
    chunk.used = chunk.sent = 0;
    return;
  }
  spare_.bytes = std::move(chunk.bytes);
  chunks_.pop_front();
}

void OutputQueue::Clear() {
  segments_.clear();
  first_ = 0;
  chunks_.clear();
  answer_ends_.clear();
  sent_ = queued_;
  backlog_ = kept_ = 0;
}

}  // namespace rdfs::transport::tcp
