// A range of ports, as --port A-B gives it: for machines behind a firewall that lets these in.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/status.h"

namespace rdfs::copy {

// Zero: any free port.
struct PortRange {
  std::uint16_t first = 0, last = 0;

  // "any", "7000" or "7000-7010". Errors: kInvalidArgument, in a sentence.
  static Result<PortRange> Parse(std::string_view text);
  [[nodiscard]] std::string ToString() const;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

}  // namespace rdfs::copy
