// Text of a peer's that ends up on a terminal or in a log: nothing in it may steer either. Bytes of
// 0x80 and more stay, which are letters in UTF-8. No I/O, any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace rdfs {

// A control character of ASCII (RFC 20, section 4.1), in any locale.
constexpr bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// The text with a '?' for each control character.
inline std::string Printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(out, IsControl, '?');
  return out;
}

}  // namespace rdfs
