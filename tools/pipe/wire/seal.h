// Seal: AES-256-GCM over one direction of a stream.
//
// The key is the session's (both ends proved the user's key and drew nonces), so it is never used
// twice; the nonce is the record's number, so none repeats under it, and a record moved, dropped or
// repeated does not open. Payload over verbs and shm is not encrypted otherwise. Copies are
// independent; const calls by any thread. OpenSSL 3 (EVP_EncryptInit(3)), which uses AES-NI.
#pragma once

#include <array>
#include <cstdint>

#include "tools/pipe/wire/protocol.h"
#include "transport/session/derive.h"

namespace rdfs::pipe {

enum class Direction : std::uint8_t { kFromSender, kFromReceiver };

class Seal {
 public:
  // `exporter` is the session's; see transport/session/session.h.
  Seal(const transport::session::Secret32& exporter, Direction direction);

  // Writes plain.size() bytes to `sealed` (which may be `plain` itself) and the tag. Errors:
  // kInternal, when OpenSSL has no AES-256-GCM.
  Status Close(std::uint64_t number, ByteSpan bound, ByteSpan plain, MutableByteSpan sealed,
               SealTag& tag) const;
  // The reverse. kProtocolError unless tag, number, bound part and bytes belong together; `plain`
  // holds nothing to rely on then. `sealed` must be memory that no peer can write.
  Status Open(std::uint64_t number, ByteSpan bound, ByteSpan sealed, const SealTag& tag,
              MutableByteSpan plain) const;

 private:
  transport::session::Secret32 key_;
};

}  // namespace rdfs::pipe
