// Checksums: of one piece, and of a whole stream.
//
// XXH3-128 (libxxhash): it finds what goes wrong by accident, at memory speed; against an adversary
// there is --encrypt. The stream's digest is taken over what identifies its pieces, in order, so
// that the pieces can be hashed in parallel and a hole costs nothing. Values; any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/pipe/wire/protocol.h"

struct XXH3_state_s;

namespace rdfs::pipe {

[[nodiscard]] Digest DigestOf(ByteSpan bytes);

// As DigestOf says of all that was added since it was last taken.
class BlockDigest {
 public:
  BlockDigest();
  BlockDigest(const BlockDigest&) = delete;
  BlockDigest& operator=(const BlockDigest&) = delete;
  ~BlockDigest();

  void Add(ByteSpan bytes);
  // Begins anew.
  [[nodiscard]] Digest Take();

 private:
  XXH3_state_s* state_;
};

class StreamDigest {
 public:
  StreamDigest();
  StreamDigest(const StreamDigest&) = delete;
  StreamDigest& operator=(const StreamDigest&) = delete;
  ~StreamDigest();

  // A piece behind all others so far. `digest` is zero for a hole.
  void Add(std::uint64_t offset, std::uint64_t length, const Digest& digest);
  [[nodiscard]] Digest Value() const;

 private:
  XXH3_state_s* state_;
};

}  // namespace rdfs::pipe
