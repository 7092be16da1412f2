// A JSON string (RFC 8259, section 7) of any bytes. Those that are not printable ASCII become '?':
// names need not be UTF-8, and a line stays a line.
#pragma once

#include <string>
#include <string_view>

namespace rdfs {

inline std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte > 0x7e ? '?' : c;
  }
  return out + '"';
}

}  // namespace rdfs
