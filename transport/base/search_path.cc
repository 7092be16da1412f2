#include "transport/base/search_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace rdfs {

std::string SearchPath() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

namespace {

std::string Find(std::string_view name, std::string_view path, int access_mode) {
  for (;;) {
    const std::size_t end = path.find(':');
    std::string file = fmt::format("{}/{}", path.substr(0, end), name);
    if (access(file.c_str(), access_mode) == 0) return file;
    if (end == path.npos) return "";
    path.remove_prefix(end + 1);
  }
}

}  // namespace

std::string FindProgram(std::string_view name, std::string_view path) {
  return Find(name, path, X_OK);
}

std::string FindFile(std::string_view name, std::string_view path) {
  return Find(name, path, F_OK);
}

}  // namespace rdfs
