// What happens to a piece between its file and its slot: digest, compression, encryption; and back.
//
//   making:   piece --digest--> [zstd] --> [seal] --> our slot
//   taking:   ring slot --> copy, [open], [zstd] --> piece --digest compared-->
//
// One of each per worker thread (they own scratch memory). Nothing blocks. Plain pieces are read
// into the slot and written from it: no copy. Anything else leaves the ring, which the peer can
// write, before it is looked at twice.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tools/pipe/wire/protocol.h"
#include "tools/pipe/wire/seal.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace rdfs::pipe {

class RecordMaker {
 public:
  // `level`: zstd's, nullopt for none.
  RecordMaker(std::optional<int> level, std::optional<Seal> seal, std::size_t slot_bytes);
  RecordMaker(const RecordMaker&) = delete;
  RecordMaker& operator=(const RecordMaker&) = delete;
  ~RecordMaker();

  // Where the piece is to be read to: the slot itself, or scratch memory of its size.
  [[nodiscard]] MutableByteSpan Place(MutableByteSpan slot);
  // Makes the record of the first `length` bytes of Place(slot); what travels is in `slot` then.
  Result<RecordWire> Make(std::uint64_t sequence, std::uint64_t offset, std::size_t length,
                          MutableByteSpan slot);
  Result<RecordWire> MakeHole(std::uint64_t sequence, std::uint64_t offset, std::uint64_t length);

 private:
  Status SealRecord(RecordWire& record, ByteSpan from, MutableByteSpan slot);

  const std::optional<int> level_;
  const std::optional<Seal> seal_;
  std::vector<std::byte> plain_, compressed_;
  ZSTD_CCtx_s* context_ = nullptr;
};

class RecordTaker {
 public:
  RecordTaker(std::optional<Seal> seal, std::size_t slot_bytes);
  RecordTaker(const RecordTaker&) = delete;
  RecordTaker& operator=(const RecordTaker&) = delete;
  ~RecordTaker();

  // The stream's bytes of `record`, valid until the next call or, of a plain record, as long as the
  // slot is. A hole has none, and is only checked. Errors: kProtocolError (damaged).
  Result<ByteSpan> Take(const RecordWire& record, ByteSpan slot);

 private:
  Result<ByteSpan> Decompress(const RecordWire& record, ByteSpan compressed);

  const std::optional<Seal> seal_;
  std::vector<std::byte> copy_, plain_;
  ZSTD_DCtx_s* context_ = nullptr;
};

}  // namespace rdfs::pipe
