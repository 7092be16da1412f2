// --delete: what goes at the destination because SRC lacks it.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tools/copy/destination/destination_impl.h"
#include "tools/copy/destination/folded.h"
#include "tools/copy/file/beneath.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

Status StaysFor(const std::string& path) {
  return {Code::kInvalidArgument,
          "'" + Shown(path) +
              "' is part of what is copied, and --delete leaves it: choose a DST "
              "that SRC does not lie in"};
}

}  // namespace

void Destination::AddSource(const Entry& entry, Again again) {
  if (!options_.same_machine) return;
  const std::lock_guard lock(mutex_);
  sources_.emplace(entry.id.inode, Origin{entry, std::move(again)});
}

bool Destination::IsSource(const struct stat& info) {
  std::vector<Origin> alike;
  {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = sources_.equal_range(info.st_ino);
    for (auto at = begin; at != end; ++at) alike.push_back(at->second);
  }
  return std::ranges::any_of(alike, [&](const Origin& each) {
    if (IsItself(each.entry, info)) return true;
    if (!AreTwoWays(each.entry.id.device, info.st_dev) || !each.again) return false;
    // One that has changed since has had any change time meanwhile: it may be this one.
    const auto now = each.again();
    return !now || now->ctime.tv_sec != each.entry.ctime.tv_sec ||
           now->ctime.tv_nsec != each.entry.ctime.tv_nsec;
  });
}

Status Destination::Prune(const Entry& entry, const Names& seen, const Keeps& keeps,
                          const Gone& gone, const std::atomic<bool>* stop) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  NodePtr node;
  {
    const std::lock_guard lock(mutex_);
    const auto known = nodes_.find(path);
    if (known != nodes_.end()) node = known->second.entered;
  }
  if (!node) return {Code::kProtocolError, "this directory is not open"};
  if (node->fresh) return {};
  if (node->in_source) return StaysFor(path);
  RDFS_ASSIGN_OR_RETURN(const FilePtr file, OpenedFolder(*node));
  return PruneIn(*file, path, seen, keeps, gone, stop, false);
}

Status Destination::PeekPrune(const Entry& entry, const Names& seen, const Keeps& keeps,
                              const Gone& gone, const std::atomic<bool>* stop) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  const FilePtr file = root_->OpenBeneath(path, O_RDONLY | O_DIRECTORY);
  if (file == nullptr) return {};  // it is not there, or not a directory: said elsewhere
  FilePtr at = file;
  for (std::string_view way = path; at != nullptr && !way.empty(); way = FolderOf(way)) {
    struct stat info {};
    if (at->Stat("", true, info) == 0 && IsSource(info)) return StaysFor(path);
    at = at->Open("..", O_PATH | O_DIRECTORY);
  }
  return PruneIn(*file, path, seen, keeps, gone, stop, true);
}

Status Destination::PruneIn(File& directory, const std::string& path, const Names& seen,
                            const Keeps& keeps, const Gone& gone, const std::atomic<bool>* stop,
                            bool dry_run) {
  struct stat own {};
  if (directory.Stat("", true, own) != 0) {
    return Status::FromErrno(errno, "cannot look at the directory");
  }
  RDFS_ASSIGN_OR_RETURN(const std::deque<std::string> names, NamesIn(directory));
  std::optional<Names> listed;  // when it is first wanted
  const auto look = [&](const std::string& name) -> std::optional<FileId> {
    struct stat info {};
    if (directory.Stat(name, false, info) != 0) return std::nullopt;
    return IdOf(info);
  };
  std::string source;
  Removal how;
  how.dry_run = dry_run;
  how.stop = stop;
  how.keeps = [&](const std::string& beneath, const struct stat& info) {
    if (S_ISDIR(info.st_mode) && options_.one_file_system && info.st_dev != own.st_dev) return true;
    if (keeps(beneath, S_ISDIR(info.st_mode))) return true;
    if (!IsSource(info)) return false;
    source = Joined(path, beneath);
    return true;
  };
  Status first;
  std::vector<std::string> went;
  for (const std::string& name : names) {
    if (stop != nullptr && *stop) break;
    if (IsOurs(name) || seen.contains(name)) continue;
    if (!listed) listed.emplace(names.begin(), names.end());
    if (IsSpelledOtherwise(name, *listed, seen, look)) continue;
    went.clear();
    Status status = RemoveTree(directory, name, how, went);
    for (const std::string& each : went) gone(Joined(path, each));
    if (!status.ok() && first.ok()) first = status.WithContext("cannot delete");
  }
  if (first.ok() && !source.empty()) return StaysFor(source);
  return first;
}

}  // namespace rdfs::copy
