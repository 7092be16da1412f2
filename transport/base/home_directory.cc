#include "transport/base/home_directory.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace rdfs {

std::string HomeDirectory() {
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return home;
  passwd entry{};
  passwd* found = nullptr;
  // Not getpwuid(3): we may be loaded into a program that reads what that returned to it.
  std::array<char, 16'384> buffer{};
  const int error = getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found);
  const bool known =
      error == 0 && found != nullptr && found->pw_dir != nullptr && *found->pw_dir == '/';
  return known ? found->pw_dir : "";
}

std::string WithHomeDirectory(const std::string& path) {
  const std::string home = path.starts_with("~/") ? HomeDirectory() : "";
  return home.empty() ? path : home + path.substr(1);
}

}  // namespace rdfs
