// What is in a file, read by blocks: by bytes, a large one takes thread sanitizer seconds.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace rdfs {

inline std::string ContentOf(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(out).str();
}

}  // namespace rdfs
