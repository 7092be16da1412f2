// What the far end is told in its first line, through ssh: the ports it may listen on and, when it
// is to send to another far end, how to reach that.
//
//   PORTS | PORTS HOST PORT KEY
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/copy/remote/ports.h"
#include "transport/base/status.h"
#include "transport/session/key.h"

namespace rdfs::copy {

struct Meeting {
  std::string host;
  std::uint16_t port = 0;
  transport::Key key;
};

struct FirstLine {
  PortRange ports;
  std::optional<Meeting> meeting;

  // Errors: kInvalidArgument.
  static Result<FirstLine> Parse(std::string_view text);
  [[nodiscard]] std::string ToString() const;
};

}  // namespace rdfs::copy
