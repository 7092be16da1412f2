// Hexadecimal for vectors and golden bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"

namespace rdfs {

inline std::vector<std::byte> FromHex(std::string_view hex) {
  std::vector<std::byte> out;
  unsigned digits = 0;
  unsigned value = 0;
  for (const char c : hex) {
    if (c == ' ') continue;
    const auto digit = static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    value = value * 16 + digit;
    if (++digits % 2 == 0) {
      out.push_back(static_cast<std::byte>(value));
      value = 0;
    }
  }
  return out;
}

inline std::string ToHex(ByteSpan bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : bytes) {
    out += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    out += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return out;
}

}  // namespace rdfs
