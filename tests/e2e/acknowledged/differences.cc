#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/e2e/acknowledged/model.h"

namespace rdfs::acknowledged {
namespace {

constexpr std::size_t kMostLines = 12;

std::string FirstDifference(const std::string& found, const std::string& due) {
  std::size_t at = 0;
  while (at < found.size() && at < due.size() && found[at] == due[at]) ++at;
  const auto shown = [at](const std::string& bytes) {
    std::string text = at < bytes.size() ? bytes.substr(at, 32) : "the end";
    for (char& byte : text) {
      if (byte < ' ' || byte > '~') byte = byte == '\0' ? '0' : '?';
    }
    return text;
  };
  return fmt::format("{} bytes, {} were due; at {} '{}', not '{}'", found.size(), due.size(), at,
                     shown(found), shown(due));
}

// Each byte is of one of the two: a write may have been done in part, and have made the file longer
// by as much.
bool IsEither(const std::string& found, const std::string& one, const std::string& other) {
  const bool in_part = found.size() > one.size() && found.size() < other.size();
  if (found.size() != one.size() && found.size() != other.size() && !in_part) return false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool fits =
        (i < one.size() && found[i] == one[i]) || (i < other.size() && found[i] == other[i]);
    if (!fits) return false;
  }
  return true;
}

std::string ContentDifference(const Model::File& file, const std::string& path) {
  if (file.bytes_unsure) return {};
  std::ifstream in(path, std::ios::binary);
  if (!in) return fmt::format("cannot be opened: {}", std::strerror(errno));
  const std::string found{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (file.or_else ? IsEither(found, file.bytes, *file.or_else) : found == file.bytes) return {};
  return FirstDifference(found, file.bytes);
}

std::string FileDifference(const Model::File& file, const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return fmt::format("is lost: {}", std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return "is no file";
  if (!file.mode_unsure && (found.st_mode & 0777) != file.mode) {
    return fmt::format("has mode {:o}, not {:o}", found.st_mode & 0777, file.mode);
  }
  if (!file.links_unsure && found.st_nlink != static_cast<nlink_t>(file.links)) {
    return fmt::format("has {} names, not {}", found.st_nlink, file.links);
  }
  return ContentDifference(file, path);
}

std::set<std::string> NamesIn(const std::string& directory) {
  std::set<std::string> names;
  DIR* const open = ::opendir(directory.c_str());
  if (open == nullptr) return names;
  while (const dirent* const entry = ::readdir(open)) names.insert(entry->d_name);
  ::closedir(open);
  names.erase(".");
  names.erase("..");
  return names;
}

}  // namespace

std::vector<std::string> Differences(const Model& model, const std::string& directory) {
  std::vector<std::string> out;
  const auto note = [&out](std::string line) {
    if (out.size() < kMostLines) out.push_back(std::move(line));
  };
  for (int below = 0; below < kDirectories; ++below) {
    const std::string here = below == 0 ? directory : directory + "/" + DirectoryName(below);
    if (!model.DirectoryIsSure(below)) continue;
    struct stat found {};
    const bool there = ::stat(here.c_str(), &found) == 0;
    if (there != model.DirectoryIsThere(below)) {
      note(fmt::format("{}: {}", here, there ? "is there, and must not be" : "is lost"));
    }
    if (!there) continue;
    std::set<std::string> names = NamesIn(here);
    for (int other = 1; below == 0 && other < kDirectories; ++other) {
      names.erase(DirectoryName(other));
    }
    for (int name = below * kNamesEach; name < (below + 1) * kNamesEach; ++name) {
      const std::string path = directory + "/" + FileName(name);
      const bool listed = names.erase(path.substr(path.rfind('/') + 1)) > 0;
      if (!model.NameIsSure(name)) continue;
      const Model::FilePtr file = model.Find(name);
      if (listed != (file != nullptr)) {
        note(fmt::format("{}: {}", path, listed ? "is listed, and must not be" : "is not listed"));
      }
      if (file == nullptr) continue;
      if (const std::string what = FileDifference(*file, path); !what.empty()) {
        note(fmt::format("{}: {}", path, what));
      }
    }
    for (const std::string& name : names) note(fmt::format("{}/{}: nobody made it", here, name));
  }
  return out;
}

}  // namespace rdfs::acknowledged
