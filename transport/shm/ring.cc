#include "transport/shm/ring.h"

#include <algorithm>
#include <bit>

namespace rdfs::transport::shm {
namespace {

Status ImpossibleCursor() {
  return {Code::kProtocolError, "the peer on this host wrote an impossible position into a ring"};
}

}  // namespace

void RingWriter::CopyIn(std::uint64_t at, ByteSpan bytes) {
  if (bytes.empty()) return;
  const std::size_t begin = at & (data_.size() - 1);
  const std::size_t first = std::min(bytes.size(), data_.size() - begin);
  std::memcpy(data_.data() + begin, bytes.data(), first);
  if (first < bytes.size()) std::memcpy(data_.data(), bytes.data() + first, bytes.size() - first);
}

Result<bool> RingWriter::Write(std::span<const ByteSpan> parts, std::size_t length,
                               std::uint32_t tag) {
  const std::size_t needed = RecordBytes(length);
  if (data_.size() - (written_ - consumed_seen_) < needed) {
    // Sequentially consistent: see RingReader::Take.
    const std::uint64_t consumed = cursors_.consumed.load(std::memory_order_seq_cst);
    // Seen from the last position (modulo 2^64), the reader has come no further than was published.
    if (consumed - consumed_seen_ > published_ - consumed_seen_) return ImpossibleCursor();
    consumed_seen_ = consumed;
    if (data_.size() - (written_ - consumed_seen_) < needed) return false;
  }
  const RecordHeader header{.length = static_cast<std::uint32_t>(length), .tag = tag};
  CopyIn(written_, std::as_bytes(std::span<const RecordHeader, 1>(&header, 1)));
  std::uint64_t at = written_ + sizeof(header);
  for (const ByteSpan part : parts) {
    CopyIn(at, part);
    at += part.size();
  }
  written_ += needed;
  return true;
}

bool RingWriter::Publish() {
  if (published_ == written_) return false;
  published_ = written_;
  cursors_.produced.store(published_, std::memory_order_seq_cst);
  return true;
}

void RingReader::CopyOut(std::uint64_t at, MutableByteSpan out) const {
  if (out.empty()) return;
  const std::size_t begin = at & (data_.size() - 1);
  const std::size_t first = std::min(out.size(), data_.size() - begin);
  std::memcpy(out.data(), data_.data() + begin, first);
  if (first < out.size()) std::memcpy(out.data() + first, data_.data(), out.size() - first);
}

Result<RecordHeader> RingReader::Peek() {
  if (produced_seen_ == read_) {
    const std::uint64_t produced = cursors_.produced.load(std::memory_order_acquire);
    if (produced == read_) return RecordHeader{.length = kNone, .tag = 0};
    const std::uint64_t available = produced - read_;
    if (available > data_.size() || available % kCacheLine != 0) return ImpossibleCursor();
    produced_seen_ = produced;
  }
  RecordHeader header;
  CopyOut(read_, std::as_writable_bytes(std::span<RecordHeader, 1>(&header, 1)));
  if (header.length > longest_ || RecordBytes(header.length) > produced_seen_ - read_) {
    return Status(Code::kProtocolError,
                  "the peer on this host sent a message of an impossible length");
  }
  return header;
}

bool RingReader::Take(const RecordHeader& header, MutableByteSpan out) {
  CopyOut(read_ + sizeof(header), out);
  read_ += RecordBytes(header.length);
  // A quarter of the ring at a time: the writer's look at this cursor, and our store to it, each
  // cost a cache miss. An empty ring still shows three quarters as free, which fits any record.
  if (read_ - given_back_ < data_.size() / 4) return false;
  given_back_ = read_;
  // A writer that waits for room sets its flag, then looks here; we store here, then look at the
  // flag. Sequential consistency makes one of the two see the other.
  cursors_.consumed.store(given_back_, std::memory_order_seq_cst);
  return true;
}

}  // namespace rdfs::transport::shm
