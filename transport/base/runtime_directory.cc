#include "transport/base/runtime_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>

#include "transport/base/parse_number.h"

namespace rdfs {
namespace {

constexpr std::string_view kLogins = "/run/user/";
constexpr std::string_view kOfOthers = "rdfs-";

// Empty: there is none, or it is another user's.
std::string OwnVariable() {
  const char* variable = std::getenv("XDG_RUNTIME_DIR");
  struct stat about {};
  if (variable == nullptr || variable[0] != '/' || stat(variable, &about) != 0) return {};
  return about.st_uid == geteuid() ? variable : std::string();
}

bool NamesItsOwnPlace(uid_t user, std::string_view variable) {
  while (variable.ends_with('/')) variable.remove_suffix(1);
  return !variable.empty() && variable != fmt::format("{}{}", kLogins, user);
}

bool IsOnlyTheirs(const struct stat& about, uid_t user) {
  return S_ISDIR(about.st_mode) && about.st_uid == user && (about.st_mode & 077U) == 0;
}

// Nothing where it is not only theirs.
Fd OpenDirectoryOf(uid_t user, const std::string& path) {
  Fd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!directory.valid() || fstat(directory.get(), &about) != 0 || !IsOnlyTheirs(about, user)) {
    return {};
  }
  return directory;
}

std::optional<uid_t> NumberIn(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return ParseNumber<uid_t>(name.substr(prefix.size()));
}

void AddForeign(const std::string& folder, std::string_view prefix, std::string_view below,
                std::vector<ForeignDirectory>& out) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (listing == nullptr) return;
  while (const dirent* entry = readdir(listing.get())) {
    const auto user = NumberIn(entry->d_name, prefix);
    if (!user || *user == geteuid()) continue;
    Fd directory = OpenDirectoryOf(*user, fmt::format("{}/{}{}", folder, entry->d_name, below));
    if (directory.valid()) out.push_back({*user, std::move(directory)});
  }
}

}  // namespace

std::vector<std::string> RuntimeDirectoriesOf(uid_t user, std::string_view variable) {
  if (NamesItsOwnPlace(user, variable)) return {fmt::format("{}/rdfs", variable)};
  if (user == 0) return {"/run/rdfs"};
  const std::string login = fmt::format("{}{}/rdfs", kLogins, user);
  const std::string other = fmt::format("/tmp/{}{}", kOfOthers, user);
  if (variable.empty()) return {other, login};
  return {login, other};
}

std::vector<std::string> RuntimeDirectories() {
  return RuntimeDirectoriesOf(geteuid(), OwnVariable());
}

Status CheckRuntimeDirectory(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) return Status::FromErrno(errno, path);
  if (IsOnlyTheirs(about, geteuid())) return {};
  return {Code::kInvalidArgument, path + " must be a directory of yours with mode 0700; remove it"};
}

Result<std::string> MakeRuntimeDirectory() {
  std::string path = RuntimeDirectories().front();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::FromErrno(errno, "cannot make " + path);
  }
  RDFS_RETURN_IF_ERROR(CheckRuntimeDirectory(path));
  return path;
}

std::vector<ForeignDirectory> ForeignRuntimeDirectories(const std::string& root) {
  std::vector<ForeignDirectory> out;
  if (NamesItsOwnPlace(geteuid(), OwnVariable())) return out;
  AddForeign(root + "/run/user", "", "/rdfs", out);
  AddForeign(root + "/tmp", kOfOthers, "", out);
  return out;
}

}  // namespace rdfs
