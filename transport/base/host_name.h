// What this host calls itself, for the logs of others.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace rdfs {

// gethostname(2), or "unknown".
inline std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace rdfs
