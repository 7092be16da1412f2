// A number that is the whole of a text, without a sign (but '-' where T has one) and blanks.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace rdfs {

// Nothing for what is none, goes on behind it, or does not fit.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace rdfs
