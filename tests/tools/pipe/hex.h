// Bytes as hexadecimal digits, for golden tests.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "transport/base/bytes.h"

namespace rdfs::pipe {

inline std::string Hex(ByteSpan bytes) {
  std::string out;
  for (const std::byte byte : bytes) out += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return out;
}

}  // namespace rdfs::pipe
