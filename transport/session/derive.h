// Secrets and how one is made from another: HKDF (RFC 5869) with HMAC-SHA-512, and MACs.
//
// Values and pure functions; any thread. A Secret wipes itself when it dies; it is compared in
// constant time only.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "transport/base/bytes.h"

namespace rdfs::transport::session {

void Wipe(MutableByteSpan bytes);
// Takes as long for equal bytes as for different ones; false when the sizes differ.
[[nodiscard]] bool EqualInConstantTime(ByteSpan a, ByteSpan b);

template <std::size_t N>
class Secret {
 public:
  Secret() = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { Wipe(bytes_); }
  [[nodiscard]] ByteSpan bytes() const { return bytes_; }
  [[nodiscard]] MutableByteSpan bytes() { return bytes_; }
  [[nodiscard]] const unsigned char* data() const {
    return reinterpret_cast<const unsigned char*>(bytes_.data());
  }
  [[nodiscard]] unsigned char* data() { return reinterpret_cast<unsigned char*>(bytes_.data()); }
  static constexpr std::size_t size() { return N; }

 private:
  std::array<std::byte, N> bytes_{};
};

using Secret32 = Secret<32>;
using Secret64 = Secret<64>;
using Hash64 = std::array<std::byte, 64>;
using Mac32 = std::array<std::byte, 32>;

[[nodiscard]] Hash64 Sha512(ByteSpan first, ByteSpan second = {});

// HKDF-Extract: a uniform key from `material`, bound to `salt`.
[[nodiscard]] Secret64 Extract(ByteSpan salt, ByteSpan material);
// HKDF-Expand to 32 bytes. `label` says what the key is for; `context` tells keys of one purpose
// apart.
[[nodiscard]] Secret32 Expand(ByteSpan key, std::string_view label, ByteSpan context = {});

// HMAC-SHA-512, its first 32 bytes, over label || first || second.
[[nodiscard]] Mac32 MacOf(const Secret32& key, std::string_view label, ByteSpan first,
                          ByteSpan second = {});

}  // namespace rdfs::transport::session
