// What a fuzz target is made of: bytes that somebody hostile wrote, and what must hold of them.
//
// Each target is one program of tests/fuzz/NAME.cc, which defines Run and Seeds, and main.cc. The
// seeds are what correct peers say; `fuzz_NAME --seeds FOLDER` writes them out, and those in the
// tree (corpus/NAME) are these. libFuzzer calls Run on one thread, with inputs grown from them.
// Source: https://llvm.org/docs/LibFuzzer.html
#pragma once

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"

namespace rdfs::fuzz {

using Bytes = std::vector<std::byte>;

// Of each target. Run keeps nothing that changes what the next input does.
void Run(ByteSpan input);
std::vector<Bytes> Seeds();

// What holds whatever the input is. A failure ends the program, which saves the input.
void Require(bool holds, std::string_view what);

inline bool Equal(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

template <WireStruct T>
void Put(Bytes& out, const T& value) {
  const auto bytes = std::as_bytes(std::span<const T, 1>(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}
inline void Put(Bytes& out, ByteSpan bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
inline void PutSized16(Bytes& out, ByteSpan bytes) {
  Put(out, Le16(static_cast<std::uint16_t>(bytes.size())));
  Put(out, bytes);
}

// An input of several decoders: the first byte says whose the rest is.
inline Bytes Of(std::uint8_t decoder, ByteSpan rest) {
  Bytes out{std::byte{decoder}};
  Put(out, rest);
  return out;
}

// `encode` of what was understood must be understood again, and as the same: nothing that a decoder
// lets through is ambiguous.
template <typename Decode, typename Encode>
void Stable(ByteSpan input, Decode decode, Encode encode, std::string_view what) {
  const auto value = decode(input);
  if (!value.ok()) return;
  const Bytes first = encode(*value);
  const auto again = decode(ByteSpan(first));
  Require(again.ok(), what);
  Require(Equal(encode(*again), first), what);
}

// An input of several messages, each behind its length, the last of which may be cut short.
class Pieces {
 public:
  explicit Pieces(ByteSpan input) : rest_(input) {}
  [[nodiscard]] bool empty() const { return rest_.empty(); }
  std::uint8_t Byte() { return Read<Le<std::uint8_t>>(); }
  ByteSpan Next() {
    std::size_t length = Byte();
    length |= static_cast<std::size_t>(Byte()) << 8U;
    return Span(length);
  }
  ByteSpan Span(std::size_t most) {
    const ByteSpan piece = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(piece.size());
    return piece;
  }
  // Zero behind the input's end.
  template <WireStruct T>
  T Read() {
    T value{};
    const ByteSpan bytes = Span(sizeof(T));
    if (!bytes.empty()) std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    return value;
  }

 private:
  ByteSpan rest_;
};

}  // namespace rdfs::fuzz
