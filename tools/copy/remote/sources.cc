#include "tools/copy/remote/sources.h"

#include <fnmatch.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "tools/copy/names.h"
#include "transport/session/peer.h"

namespace rdfs::copy {
namespace {

std::string_view LastComponent(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return NameOf(path);
}

class Matches {
 public:
  explicit Matches(const std::string& pattern) {
    found_ = glob(pattern.c_str(), GLOB_TILDE, nullptr, &glob_) == 0;
  }
  Matches(const Matches&) = delete;
  Matches& operator=(const Matches&) = delete;
  ~Matches() { globfree(&glob_); }
  [[nodiscard]] std::vector<std::string> paths() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; found_ && i < glob_.gl_pathc; ++i) out.emplace_back(glob_.gl_pathv[i]);
    return out;
  }

 private:
  glob_t glob_{};
  bool found_ = false;
};

bool IsThere(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

// The paths that one name of the task leads to.
std::vector<std::string> Lead(const std::string& asked) {
  if (IsThere(asked)) return {asked};
  const std::string path = ExpandHome(asked);
  if (IsThere(path)) return {path};
  if (!HasPattern(asked)) return {};
  return Matches(asked).paths();
}

Status CheckSource(const std::string& asked, const Begin::Source& source) {
  const std::string expected = NameAtDestination(asked);
  const bool pattern = HasPattern(LastComponent(asked));
  const bool fits = source.name == expected || (pattern && !source.name.empty() &&
                                                fnmatch(std::string(LastComponent(asked)).c_str(),
                                                        source.name.c_str(), FNM_PERIOD) == 0);
  if (fits) return {};
  return {Code::kProtocolError, "the other end sends '" + Shown(source.name) +
                                    "', which was not asked for: nothing of it was written"};
}

}  // namespace

std::string NameAtDestination(std::string_view path) {
  const std::string_view name = LastComponent(path);
  if (name == "." || name == ".." || path == "~" || path == "~/") return {};
  return std::string(name);
}

bool HasPattern(std::string_view path) {
  return path.find_first_of("*?[") != std::string_view::npos;
}

Status CheckSources(const std::vector<std::string>& asked, const Begin& begin) {
  std::vector<bool> answered(asked.size());
  for (const Begin::Source& source : begin.sources) {
    if (source.asked >= asked.size()) {
      return {Code::kProtocolError, "the other end sends what was not asked for"};
    }
    const std::string& path = asked[source.asked];
    if (answered[source.asked] && !HasPattern(path)) {
      return {Code::kProtocolError, "the other end sends more than was asked for"};
    }
    answered[source.asked] = true;
    RDFS_RETURN_IF_ERROR(CheckSource(path, source));
  }
  return {};
}

std::string ExpandHome(const std::string& path) {
  if (path.empty()) return ".";
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = getenv("HOME");
  return (home == nullptr ? std::string(".") : std::string(home)) + path.substr(1);
}

Found FindSources(const std::vector<std::string>& asked, bool follow, bool expand,
                  const std::function<void(const std::string& path, const Status&)>& tell) {
  Found out;
  out.begin.boot = transport::session::ReadHostIdentity().boot_id;
  for (std::uint32_t i = 0; i < asked.size(); ++i) {
    std::vector<std::string> paths{asked[i]};
    if (expand) paths = Lead(asked[i].empty() ? "." : asked[i]);
    if (paths.empty()) {
      ++out.begin.problems;
      tell(asked[i], Status::FromErrno(ENOENT, "cannot find it"));
    }
    for (const std::string& path : paths) {
      struct stat info {};
      const int error = follow ? stat(path.c_str(), &info) : lstat(path.c_str(), &info);
      if (error != 0) {
        ++out.begin.problems;
        tell(path, Status::FromErrno(errno, "cannot look at it"));
        continue;
      }
      // A name that means the home directory has none of its own there.
      const bool literal = !expand || !HasPattern(asked[i]);
      out.paths.push_back(path);
      out.begin.sources.push_back({.asked = i,
                                   .is_directory = S_ISDIR(info.st_mode),
                                   .name = NameAtDestination(literal ? asked[i] : path)});
    }
  }
  return out;
}

}  // namespace rdfs::copy
