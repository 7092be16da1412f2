// Text of a peer's that ends up on a terminal or in a log: nothing in it may steer either. Bytes of
// 0x80 and more stay, which are letters in UTF-8, but for its control characters from U+0080 to
// U+009F, which terminals obey, too. No I/O, any thread.
#pragma once

#include <string>
#include <string_view>

namespace rdfs {

// A control character of ASCII (RFC 20, section 4.1), in any locale.
constexpr bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// The text with a '?' for each control character that is none of `kept`.
inline std::string Printable(std::string_view text, std::string_view kept = {}) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool of_two_bytes = c == '\xc2' && i + 1 < text.size() &&
                              (static_cast<unsigned char>(text[i + 1]) & 0xe0U) == 0x80;
    const bool control = of_two_bytes || (IsControl(c) && kept.find(c) == kept.npos);
    out += control ? '?' : c;
    if (of_two_bytes) ++i;
  }
  return out;
}

}  // namespace rdfs
