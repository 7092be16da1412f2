#include "tools/copy/remote/ports.h"

#include <charconv>

namespace rdfs::copy {
namespace {

bool ParsePort(std::string_view text, std::uint16_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out > 0;
}

}  // namespace

Result<PortRange> PortRange::Parse(std::string_view text) {
  PortRange out;
  if (text == "any") return out;
  const std::size_t dash = text.find('-');
  const std::string_view last = dash == text.npos ? text : text.substr(dash + 1);
  if (!ParsePort(text.substr(0, dash), out.first) || !ParsePort(last, out.last) ||
      out.last < out.first) {
    return Status(Code::kInvalidArgument,
                  "'" + std::string(text) + "' is no range of ports: write --port 7000-7010");
  }
  return out;
}

std::string PortRange::ToString() const {
  if (first == 0) return "any";
  return std::to_string(first) + "-" + std::to_string(last);
}

}  // namespace rdfs::copy
