#include "tools/pipe/wire/digest.h"

#include <xxhash.h>

// Whether or not we are built for it, the library may use what this processor has: with AVX-512 it
// hashes four times as fast (45 GB/s of 1 MiB pieces) as with SSE2.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <bit>
#include <cstdlib>
#include <cstring>

namespace rdfs::pipe {
namespace {

Digest Canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return std::bit_cast<Digest>(canonical);
}

XXH3_state_t* NewState() {
  XXH3_state_t* const state = XXH3_createState();
  if (state == nullptr) std::abort();  // half a kilobyte of memory
  XXH3_128bits_reset(state);
  return state;
}

struct PieceWire {
  Le64 offset, length;
  Digest digest;
};

}  // namespace

Digest DigestOf(ByteSpan bytes) { return Canonical(XXH3_128bits(bytes.data(), bytes.size())); }

BlockDigest::BlockDigest() : state_(NewState()) {}

BlockDigest::~BlockDigest() { XXH3_freeState(state_); }

void BlockDigest::Add(ByteSpan bytes) { XXH3_128bits_update(state_, bytes.data(), bytes.size()); }

Digest BlockDigest::Take() {
  const Digest digest = Canonical(XXH3_128bits_digest(state_));
  XXH3_128bits_reset(state_);
  return digest;
}

StreamDigest::StreamDigest() : state_(NewState()) {}

StreamDigest::~StreamDigest() { XXH3_freeState(state_); }

void StreamDigest::Add(std::uint64_t offset, std::uint64_t length, const Digest& digest) {
  const PieceWire piece{offset, length, digest};
  XXH3_128bits_update(state_, &piece, sizeof piece);
}

Digest StreamDigest::Value() const { return Canonical(XXH3_128bits_digest(state_)); }

}  // namespace rdfs::pipe
