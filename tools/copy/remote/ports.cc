#include "tools/copy/remote/ports.h"

#include "transport/base/parse_number.h"

namespace rdfs::copy {

Result<PortRange> PortRange::Parse(std::string_view text) {
  PortRange out;
  if (text == "any") return out;
  const std::size_t dash = text.find('-');
  const std::string_view last = dash == text.npos ? text : text.substr(dash + 1);
  out.first = ParseNumber<std::uint16_t>(text.substr(0, dash)).value_or(0);
  out.last = ParseNumber<std::uint16_t>(last).value_or(0);
  if (out.first == 0 || out.last < out.first) {
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
