#include "transport/session/derive.h"

#include <sodium.h>

#include <algorithm>

namespace rdfs::transport::session {
namespace {

const unsigned char* Raw(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

class Hmac512 {
 public:
  explicit Hmac512(ByteSpan key) { crypto_auth_hmacsha512_init(&state_, Raw(key), key.size()); }
  Hmac512(const Hmac512&) = delete;
  Hmac512& operator=(const Hmac512&) = delete;
  ~Hmac512() { sodium_memzero(&state_, sizeof(state_)); }
  Hmac512& Add(ByteSpan bytes) {
    crypto_auth_hmacsha512_update(&state_, Raw(bytes), bytes.size());
    return *this;
  }
  Secret64 Finish() {
    Secret64 out;
    crypto_auth_hmacsha512_final(&state_, out.data());
    return out;
  }

 private:
  crypto_auth_hmacsha512_state state_{};
};

}  // namespace

void Wipe(MutableByteSpan bytes) { sodium_memzero(bytes.data(), bytes.size()); }

bool EqualInConstantTime(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Hash64 Sha512(ByteSpan first, ByteSpan second) {
  Hash64 out{};
  crypto_hash_sha512_state state;
  crypto_hash_sha512_init(&state);
  crypto_hash_sha512_update(&state, Raw(first), first.size());
  crypto_hash_sha512_update(&state, Raw(second), second.size());
  crypto_hash_sha512_final(&state, reinterpret_cast<unsigned char*>(out.data()));
  return out;
}

Secret64 Extract(ByteSpan salt, ByteSpan material) { return Hmac512(salt).Add(material).Finish(); }

Secret32 Expand(ByteSpan key, std::string_view label, ByteSpan context) {
  // One block is enough for 32 bytes: T(1) = HMAC(key, info || 0x01) (RFC 5869, 2.3). The label
  // ends in a zero byte, so that no label and context read like another pair.
  constexpr std::array<std::byte, 1> kEnd{std::byte{0}};
  constexpr std::array<std::byte, 1> kFirstBlock{std::byte{1}};
  const Secret64 block =
      Hmac512(key).Add(AsBytes(label)).Add(kEnd).Add(context).Add(kFirstBlock).Finish();
  Secret32 out;
  std::ranges::copy(block.bytes().first(out.size()), out.bytes().begin());
  return out;
}

Mac32 MacOf(const Secret32& key, std::string_view label, ByteSpan first, ByteSpan second) {
  const Secret64 full = Hmac512(key.bytes()).Add(AsBytes(label)).Add(first).Add(second).Finish();
  Mac32 out{};
  std::ranges::copy(full.bytes().first(out.size()), out.begin());
  return out;
}

}  // namespace rdfs::transport::session
