#include "tools/copy/remote/sources.h"

#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tools/copy/file/names.h"
#include "tools/copy/source/pattern.h"
#include "transport/base/home_directory.h"
#include "transport/session/peer.h"

namespace rdfs::copy {
namespace {

std::string_view LastComponent(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return NameOf(path);
}

// The paths that one name of the task leads to.
std::vector<std::string> LeadHere(const std::string& asked) {
  const FilePtr here = Here();
  struct stat info {};
  if (here->Stat(asked, false, info) == 0) return {asked};
  return Lead(*here, ExpandHome(asked));
}

Status CheckSource(const std::string& asked, const Begin::Source& source) {
  const std::string expected = NameAtDestination(asked);
  const bool pattern = HasPattern(LastComponent(asked));
  const bool fits = source.name == expected ||
                    (pattern && !source.name.empty() && Matches(LastComponent(asked), source.name));
  return fits ? Status() : NotAskedFor(source.name);
}

// Each directory on the way, too.
bool FilterTakes(Filter& filter, const Entry& entry) {
  const std::string_view path = entry.path;
  for (std::size_t at = path.find('/'); at != path.npos; at = path.find('/', at + 1)) {
    if (!filter.Takes(path.substr(0, at), true)) return false;
  }
  return path.empty() || filter.Takes(path, entry.kind == Kind::kDirectory);
}

}  // namespace

std::string NameAtDestination(std::string_view path) {
  const std::string_view name = LastComponent(path);
  if (name == "." || name == ".." || path == "~" || path == "~/") return {};
  return std::string(name);
}

Status CheckSources(const std::vector<std::string>& asked, const Begin& begin, std::uint64_t told) {
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
  const auto silent = static_cast<std::uint64_t>(std::ranges::count(answered, false));
  if (silent > begin.problems || begin.problems > told) {
    return {Code::kProtocolError,
            "the other end leaves out what was asked for, and does not say why"};
  }
  return {};
}

Status NamesTaken::Take(const Begin& begin) {
  for (const Begin::Source& source : begin.sources) {
    const auto before = taken_.find(source.name);
    if (before == taken_.end() || (source.is_directory && before->second)) continue;
    return {Code::kErrno, EEXIST,
            "'" + Shown(source.name) +
                "' of another machine is there already, and would be replaced: nothing of this "
                "machine was copied; copy them one by one"};
  }
  for (const Begin::Source& source : begin.sources) {
    if (!source.name.empty()) taken_.emplace(source.name, source.is_directory);
  }
  return {};
}

bool WasAskedFor(const Entry& entry, const ScanOptions& asked, const Keep& keep) {
  switch (entry.kind) {
    case Kind::kFile:
      break;
    case Kind::kDirectory:
      if (!asked.recurse) return false;
      break;
    case Kind::kSymlink:
      if (asked.follow || (asked.follow_source && entry.path.empty())) return false;
      break;
    default:
      if (!keep.specials) return false;
  }
  if (!asked.recurse && !entry.path.empty()) return false;
  return asked.filter == nullptr || FilterTakes(*asked.filter, entry);
}

Status NotAskedFor(const std::string& name) {
  return {Code::kProtocolError, "the other end sends '" + Shown(name) +
                                    "', which was not asked for: nothing of it was written"};
}

std::string ExpandHome(const std::string& path) {
  if (path.empty()) return ".";
  if (!path.starts_with('~')) return path;
  const std::size_t end = std::min(path.find('/'), path.size());
  if (end > 1) {
    const passwd* user = getpwnam(path.substr(1, end - 1).c_str());
    return user == nullptr ? path : user->pw_dir + path.substr(end);
  }
  const std::string home = HomeDirectory();
  return (home.empty() ? "." : home) + path.substr(end);
}

Found FindSources(const std::vector<std::string>& asked, bool follow, bool expand,
                  const std::function<void(const std::string& path, const Status&)>& tell) {
  Found out;
  out.begin.boot = transport::session::ReadHostIdentity().boot_id;
  for (std::uint32_t i = 0; i < asked.size(); ++i) {
    std::vector<std::string> paths{asked[i]};
    if (expand) paths = LeadHere(asked[i].empty() ? "." : asked[i]);
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
