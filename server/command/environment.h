// The environment, which is read before there is a thread that changes it.
#pragma once

#include <cstdlib>
#include <string>

namespace rdfs::server {

// Empty where it is not set.
inline std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace rdfs::server
