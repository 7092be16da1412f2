// Bytes on a wire: little-endian fields of alignment 1, and a bounded reader and writer.
//
// Wire structs are made of Le<T>, so that they have no padding and can be copied to and from any
// buffer. A peer is hostile: ByteReader copies out, checks every length, and once it has failed it
// stays failed, so that a decoder checks once at its end. Values; no threads of their own.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rdfs {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view AsText(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An integer stored little-endian at any address.
template <std::integral T>
class Le {
 public:
  Le() = default;
  Le(T value) { *this = value; }  // NOLINT(google-explicit-constructor)
  Le& operator=(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (auto& byte : bytes_) {
      byte = static_cast<std::byte>(bits & 0xffU);
      if constexpr (sizeof(T) > 1) bits = static_cast<std::make_unsigned_t<T>>(bits >> 8U);
    }
    return *this;
  }
  operator T() const {  // NOLINT(google-explicit-constructor)
    std::make_unsigned_t<T> bits = 0;
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(&bits, bytes_.data(), sizeof(T));
    } else {
      for (std::size_t i = sizeof(T); i-- > 0;) {
        bits = static_cast<std::make_unsigned_t<T>>((bits << 8U) | std::to_integer<T>(bytes_[i]));
      }
    }
    return static_cast<T>(bits);
  }

 private:
  std::array<std::byte, sizeof(T)> bytes_{};
};

using Le16 = Le<std::uint16_t>;
using Le32 = Le<std::uint32_t>;
using Le64 = Le<std::uint64_t>;
using LeI64 = Le<std::int64_t>;

template <typename T>
concept WireStruct = std::is_trivially_copyable_v<T> && alignof(T) == 1;

class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : rest_(bytes) {}

  // The next sizeof(T) bytes, copied out; zeroes when there are fewer (and ok() turns false).
  template <WireStruct T>
  T Read() {
    T value{};
    const ByteSpan bytes = ReadBytes(sizeof(T));
    if (bytes.size() == sizeof(T)) std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(T));
    return value;
  }
  // A view of the next `count` bytes; empty when there are fewer (and ok() turns false).
  ByteSpan ReadBytes(std::size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const ByteSpan out = rest_.first(count);
    rest_ = rest_.subspan(count);
    return out;
  }
  // A Le16 length, then that many bytes; fails when the length is above `max`.
  ByteSpan ReadSized16(std::size_t max) {
    const std::size_t length = Read<Le16>();
    if (length > max) ok_ = false;
    return ReadBytes(length);
  }
  // A Le32 length, then that many bytes; fails when the length is above `max`.
  ByteSpan ReadSized32(std::size_t max) {
    const std::size_t length = Read<Le32>();
    if (length > max) ok_ = false;
    return ReadBytes(length);
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t remaining() const { return rest_.size(); }
  [[nodiscard]] ByteSpan rest() const { return rest_; }
  void Fail() { ok_ = false; }

 private:
  ByteSpan rest_;
  bool ok_ = true;
};

// Appends to a caller's buffer of fixed size; once something did not fit, ok() stays false.
class ByteWriter {
 public:
  explicit ByteWriter(MutableByteSpan buffer) : buffer_(buffer) {}

  template <WireStruct T>
  void Write(const T& value) {
    WriteBytes(std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
  void WriteBytes(ByteSpan bytes) {
    if (!ok_ || bytes.size() > buffer_.size() - used_) {
      ok_ = false;
      return;
    }
    if (!bytes.empty()) std::memcpy(buffer_.data() + used_, bytes.data(), bytes.size());
    used_ += bytes.size();
  }
  void WriteSized16(ByteSpan bytes) {
    if (bytes.size() > 0xffff) ok_ = false;
    Write(Le16(static_cast<std::uint16_t>(bytes.size())));
    WriteBytes(bytes);
  }
  void WriteSized32(ByteSpan bytes) {
    if (bytes.size() > 0xffffffffU) ok_ = false;
    Write(Le32(static_cast<std::uint32_t>(bytes.size())));
    WriteBytes(bytes);
  }
  // Reserves `count` bytes to be filled by the caller; empty when they do not fit.
  MutableByteSpan Reserve(std::size_t count) {
    if (!ok_ || count > buffer_.size() - used_) {
      ok_ = false;
      return {};
    }
    used_ += count;
    return buffer_.subspan(used_ - count, count);
  }
  // Takes back everything behind `size`, to undo a record that turned out not to fit.
  void TruncateTo(std::size_t size) {
    if (size <= used_) used_ = size;
    ok_ = true;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t size() const { return used_; }
  [[nodiscard]] std::size_t room() const { return buffer_.size() - used_; }
  [[nodiscard]] ByteSpan written() const { return buffer_.first(used_); }

 private:
  MutableByteSpan buffer_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

}  // namespace rdfs
