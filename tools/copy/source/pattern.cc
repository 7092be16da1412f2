#include "tools/copy/source/pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <deque>

#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

std::string WithoutBackslashes(std::string_view component) {
  std::string out;
  for (std::size_t i = 0; i < component.size(); ++i) {
    if (component[i] == '\\' && i + 1 < component.size()) ++i;
    out += component[i];
  }
  return out;
}

// Adds what one component leads to: from `folder` on, which ends with a slash or is empty.
void Step(File& from, const std::string& folder, std::string_view component,
          std::vector<std::string>& out) {
  struct stat info {};
  if (component.empty()) {  // a slash at the end: directories are meant
    if (from.Stat(folder, true, info) == 0 && S_ISDIR(info.st_mode)) out.push_back(folder);
    return;
  }
  if (!HasPattern(component)) {
    std::string path = folder + WithoutBackslashes(component);
    if (from.Stat(path, false, info) == 0) out.push_back(std::move(path));
    return;
  }
  const FilePtr directory = from.Open(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  if (directory == nullptr) return;
  std::deque<std::string> names;
  for (int more = 1; more > 0;) {
    more = directory->ReadNames(names);
    for (const std::string& name : names) {
      // A server may lie.
      if (CheckName(name).ok() && Matches(component, name)) out.push_back(folder + name);
    }
    names.clear();
  }
}

}  // namespace

bool HasPattern(std::string_view path) {
  return path.find_first_of("*?[") != std::string_view::npos;
}

bool Matches(std::string_view component, const std::string& name) {
  return fnmatch(std::string(component).c_str(), name.c_str(), FNM_PERIOD) == 0;
}

std::vector<std::string> Expand(File& from, std::string_view pattern) {
  std::vector<std::string> out{""};
  while (!pattern.empty()) {
    const std::size_t slashes = std::min(pattern.find_first_not_of('/'), pattern.size());
    const std::string_view component =
        pattern.substr(slashes).substr(0, pattern.substr(slashes).find('/'));
    std::vector<std::string> further;
    for (const std::string& path : out) {
      Step(from, path + std::string(pattern.substr(0, slashes)), component, further);
    }
    out = std::move(further);
    pattern.remove_prefix(slashes + component.size());
  }
  std::ranges::sort(out);
  return out;
}

std::vector<std::string> Lead(File& from, const std::string& path) {
  struct stat info {};
  if (from.Stat(path, false, info) == 0) return {path};
  return HasPattern(path) ? Expand(from, path) : std::vector<std::string>();
}

}  // namespace rdfs::copy
