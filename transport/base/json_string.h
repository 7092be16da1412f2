// Strings of JSON (RFC 8259, section 7) and labels of Prometheus, of any bytes: names need not be
// UTF-8. Characters that may be shown are kept, a line stays a line, and nothing in it steers a
// terminal. No I/O, any thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace rdfs {

// How many bytes the text begins with that are one character of UTF-8 (RFC 3629, section 4) and no
// control character, be it ASCII's or one of U+0080 to U+009F; 0: none.
constexpr std::size_t ShownCharacter(std::string_view text) {
  const auto at = [text](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = at(1);
  const bool control = first == 0xc2 && second < 0xa0;
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool beyond = first == 0xf4 && second >= 0x90;
  return control || overlong || surrogate || beyond ? 0 : length;
}

// In quotes; `escape` says what stands for a byte that is not kept.
template <typename Escape>
std::string Quoted(std::string_view text, Escape escape) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t kept = ShownCharacter(text);
    if (text.front() == '"' || text.front() == '\\') out += '\\';
    if (kept == 0) {
      out += escape(static_cast<unsigned char>(text.front()));
    } else {
      out += text.substr(0, kept);
    }
    text.remove_prefix(std::max<std::size_t>(kept, 1));
  }
  return out + '"';
}

// A '?' for each byte that is not kept.
inline std::string JsonString(std::string_view text) {
  return Quoted(text, [](unsigned char) { return '?'; });
}

// The value of a label: what is not kept has a number, so that two names do not become one series.
inline std::string LabelString(std::string_view text) {
  return Quoted(text, [](unsigned char byte) { return fmt::format("\\\\x{:02x}", byte); });
}

}  // namespace rdfs
