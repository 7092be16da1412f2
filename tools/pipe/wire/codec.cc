#include "tools/pipe/wire/codec.h"

#include <zstd.h>

#include <cstdlib>
#include <cstring>

#include "tools/pipe/wire/digest.h"

namespace rdfs::pipe {
namespace {

RecordWire HeaderOf(RecordKind kind, std::uint64_t sequence, std::uint64_t offset,
                    std::uint64_t length) {
  RecordWire record{};
  record.type = static_cast<std::uint8_t>(MessageType::kRecord);
  record.kind = static_cast<std::uint8_t>(kind);
  record.sequence = sequence;
  record.offset = offset;
  record.length = length;
  return record;
}

}  // namespace

RecordMaker::RecordMaker(std::optional<int> level, std::optional<Seal> seal, std::size_t slot_bytes)
    : level_(level), seal_(std::move(seal)) {
  if (level_ || seal_) plain_.resize(slot_bytes);
  if (!level_) return;
  compressed_.resize(slot_bytes);
  context_ = ZSTD_createCCtx();
  if (context_ == nullptr) std::abort();
  (void)ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, *level_);
}

RecordMaker::~RecordMaker() { ZSTD_freeCCtx(context_); }

MutableByteSpan RecordMaker::Place(MutableByteSpan slot) {
  return plain_.empty() ? slot : MutableByteSpan(plain_).first(slot.size());
}

Result<RecordWire> RecordMaker::Make(std::uint64_t sequence, std::uint64_t offset,
                                     std::size_t length, MutableByteSpan slot) {
  RecordWire record = HeaderOf(RecordKind::kBytes, sequence, offset, length);
  ByteSpan from = ByteSpan(Place(slot)).first(length);
  record.digest = DigestOf(from);
  if (level_) {
    // Room for one byte less than the piece: what does not become smaller travels as it is.
    const std::size_t size =
        ZSTD_compress2(context_, compressed_.data(), length - 1, from.data(), length);
    if (ZSTD_isError(size) == 0 && size < length) {
      record.flags = RecordWire::kCompressed;
      from = ByteSpan(compressed_).first(size);
    }
  }
  record.wire_bytes = static_cast<std::uint32_t>(from.size());
  RDFS_RETURN_IF_ERROR(SealRecord(record, from, slot));
  return record;
}

Result<RecordWire> RecordMaker::MakeHole(std::uint64_t sequence, std::uint64_t offset,
                                         std::uint64_t length) {
  RecordWire record = HeaderOf(RecordKind::kHole, sequence, offset, length);
  RDFS_RETURN_IF_ERROR(SealRecord(record, {}, {}));
  return record;
}

Status RecordMaker::SealRecord(RecordWire& record, ByteSpan from, MutableByteSpan slot) {
  if (seal_) {
    return seal_->Close(record.sequence, BoundPart(record), from, slot.first(from.size()),
                        record.tag);
  }
  if (from.data() != slot.data() && !from.empty()) {
    std::memcpy(slot.data(), from.data(), from.size());
  }
  return {};
}

RecordTaker::RecordTaker(std::optional<Seal> seal, std::size_t slot_bytes)
    : seal_(std::move(seal)), copy_(slot_bytes), context_(ZSTD_createDCtx()) {
  if (context_ == nullptr) std::abort();
}

RecordTaker::~RecordTaker() { ZSTD_freeDCtx(context_); }

Result<ByteSpan> RecordTaker::Take(const RecordWire& record, ByteSpan slot) {
  ByteSpan bytes = slot.first(record.wire_bytes);
  const bool compressed = record.flags == RecordWire::kCompressed;
  if (seal_ || compressed) {
    const MutableByteSpan copy = MutableByteSpan(copy_).first(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    bytes = copy;
    if (seal_) {
      RDFS_RETURN_IF_ERROR(seal_->Open(record.sequence, BoundPart(record), copy, record.tag, copy));
    }
  }
  if (record.kind == static_cast<std::uint8_t>(RecordKind::kHole)) return ByteSpan();
  if (compressed) {
    RDFS_ASSIGN_OR_RETURN(bytes, Decompress(record, bytes));
  }
  if (DigestOf(bytes) != record.digest) {
    return Status(Code::kProtocolError,
                  "the checksum of a record is wrong: it was damaged on the way");
  }
  return bytes;
}

Result<ByteSpan> RecordTaker::Decompress(const RecordWire& record, ByteSpan compressed) {
  if (plain_.empty()) plain_.resize(copy_.size());
  const std::size_t size = ZSTD_decompressDCtx(context_, plain_.data(), record.length,
                                               compressed.data(), compressed.size());
  if (ZSTD_isError(size) != 0 || size != record.length) {
    return Status(Code::kProtocolError, "a compressed record is damaged");
  }
  return ByteSpan(plain_).first(size);
}

}  // namespace rdfs::pipe
