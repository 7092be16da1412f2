// --delete: what goes at the destination because SRC lacks it.
#include <fcntl.h>

#include <cerrno>

#include "tools/copy/beneath.h"
#include "tools/copy/destination_impl.h"
#include "tools/copy/metadata.h"
#include "tools/copy/names.h"

namespace rdfs::copy {

Status Destination::Prune(const Entry& entry, const Keeps& keeps, const Gone& gone) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  NodePtr node;
  {
    const std::lock_guard lock(mutex_);
    const auto known = nodes_.find(path);
    if (known != nodes_.end()) node = known->second.entered;
  }
  if (!node) return {Code::kProtocolError, "this directory is not open"};
  if (node->fresh) return {};
  RDFS_ASSIGN_OR_RETURN(const FilePtr file, OpenedFolder(*node));
  return PruneIn(*file, path, keeps, gone, false);
}

Status Destination::PeekPrune(const Entry& entry, const Keeps& keeps, const Gone& gone) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  const FilePtr file = root_->OpenBeneath(path, O_RDONLY | O_DIRECTORY);
  if (file == nullptr) return {};  // it is not there, or not a directory: said elsewhere
  return PruneIn(*file, path, keeps, gone, true);
}

Status Destination::PruneIn(File& directory, const std::string& path, const Keeps& keeps,
                            const Gone& gone, bool dry_run) {
  struct stat own {};
  if (directory.Stat("", true, own) != 0) {
    return Status::FromErrno(errno, "cannot look at the directory");
  }
  RDFS_ASSIGN_OR_RETURN(const std::deque<std::string> names, NamesIn(directory));
  Removal how;
  how.dry_run = dry_run;
  how.keeps = [&](const std::string& beneath, const struct stat& info) {
    if (S_ISDIR(info.st_mode) && options_.one_file_system && info.st_dev != own.st_dev) return true;
    return keeps(beneath, S_ISDIR(info.st_mode));
  };
  Status first;
  std::vector<std::string> went;
  for (const std::string& name : names) {
    if (IsOurs(name)) continue;
    went.clear();
    Status status = RemoveTree(directory, name, how, went);
    for (const std::string& each : went) gone(Joined(path, each));
    if (!status.ok() && first.ok()) first = status.WithContext("cannot delete");
  }
  return first;
}

}  // namespace rdfs::copy
