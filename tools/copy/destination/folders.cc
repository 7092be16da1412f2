// Directories: entering and leaving them, and what is set when the last file in one is finished.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "tools/copy/destination/destination_impl.h"
#include "tools/copy/file/beneath.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

// Directories that stay open; of the others the way to them is walked again.
constexpr std::size_t kMostOpen = 256;
// When the last file of a chain of directories is finished, they are finished one in the other: on
// the stack.
constexpr std::size_t kMostLevels = 8192;
constexpr const char* kDefaultAcl = "system.posix_acl_default";

// The copy of a copy of a copy, as a symlink with -L or a bind mount would make it.
Status IntoItself() { return {Code::kInvalidArgument, "a directory cannot be copied into itself"}; }

// Some number anew what the kernel has forgotten. (linux/magic.h names them only in newer
// versions.)
bool KeepsInodeNumbers(const File& directory) {
  struct statfs info {};
  if (directory.descriptor() < 0 || fstatfs(directory.descriptor(), &info) != 0) return true;
  switch (static_cast<std::uint32_t>(info.f_type)) {
    case 0x65735546:  // FUSE: libfuse, as sshfs uses it
    case 0x794C7630:  // overlayfs above several file systems
    case 0x4D44:      // FAT
    case 0x2011BAB0:  // exFAT
    case 0xFF534D42:  // CIFS, without the server's numbers
    case 0xFE534D42:  // SMB 2, likewise
      return false;
    default:
      return true;
  }
}

}  // namespace

bool Destination::HasDefaultAcl(File& directory) {
  return directory.GetXattr("", kDefaultAcl, nullptr, 0) > 0;
}

std::optional<gid_t> Destination::GroupOf(const struct stat& directory) {
  if ((directory.st_mode & S_ISGID) == 0) return std::nullopt;
  return directory.st_gid;
}

Destination::NodePtr Destination::NewNode() {
  return NodePtr(new Node, [this](Node* node) { FinishNode(node); });
}

Status Destination::Enter(const Entry& entry) {
  if (entry.kind != Kind::kDirectory) return {Code::kProtocolError, "this is no directory"};
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  if (options_.same_machine && IsMade(entry)) return IntoItself();
  const NodePtr node = NewNode();
  if (path.empty()) {
    const std::lock_guard lock(mutex_);
    Known& known = nodes_[""];
    NodePtr& root = known.entered;
    if (root->parent) return {Code::kProtocolError, "this directory was announced twice"};
    node->parent = root;
    node->id = root->id;
    node->inherits = root->inherits;
    node->group = root->group;
    node->entry = entry;
    known.node = node;
    root = node;
    return {};
  }
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  node->path = path;
  node->name = place.name;
  node->parent = place.folder;
  node->depth = place.folder->depth + 1;
  if (node->depth > kMostLevels) {
    return {Code::kUnsupported, fmt::format("more than {} directories deep", kMostLevels)};
  }
  Status entered = EnterAt(place, entry, *node);
  if (entered.ok()) entered = AddNode(node, entry);
  if (!entered.ok() && node->restore) (void)place.in->SetMode(node->name, *node->restore);
  return entered;
}

// Whether it is one of those that things are made in. In another way it is seen with the change
// time that it has now.
bool Destination::IsMade(const Entry& entry) {
  NodePtr node;
  {
    const std::lock_guard lock(mutex_);
    if (ids_.contains(entry.id)) return true;
    const auto found = ids_.find({device_, entry.id.inode});
    if (!AreTwoWays(entry.id.device, device_) || found == ids_.end()) return false;
    node = found->second.lock();
  }
  if (!node) return false;
  const auto file = OpenedFolder(*node);
  struct stat now {};
  return file.ok() && (*file)->Stat("", true, now) == 0 && IsItself(entry, now);
}

Status Destination::AddNode(const NodePtr& node, const Entry& entry) {
  const std::lock_guard lock(mutex_);
  Known& known = nodes_[node->path];
  if (known.entered) return {Code::kProtocolError, "this directory was announced twice"};
  known = {node, node};
  ids_[node->id] = node;
  node->entry = entry;
  return {};
}

Status Destination::EnterAt(const Place& place, const Entry& entry, Node& node) {
  const mode_t umask = place.folder->inherits ? 0 : options_.umask;
  const mode_t mode = options_.keep.mode ? 0700 : (((entry.mode & 0777U) & ~umask) | 0700U);
  if (place.in->MakeDirectory(place.name, mode) == 0) {
    node.fresh = true;
  } else if (errno != EEXIST) {
    return Status::FromErrno(errno, "cannot make the directory");
  }
  RDFS_RETURN_IF_ERROR(OpenNode(place, entry, node));
  node.inherits = node.fresh ? place.folder->inherits : HasDefaultAcl(*node.file);
  return {};
}

Status Destination::OpenNode(const Place& place, const Entry& entry, Node& node) {
  struct stat now {};
  // A directory of ours that was closed to us, as an earlier copy may have left it.
  const auto is_itself = [&] { return options_.same_machine && IsItself(entry, now); };
  const auto open_to_us = [&] {
    if (place.in->Stat(node.name, false, now) != 0 || is_itself()) return;
    if (!S_ISDIR(now.st_mode) || now.st_uid != geteuid() || (now.st_mode & 0700U) == 0700) return;
    if (place.in->SetMode(node.name, (now.st_mode & 07777U) | 0700U) == 0) {
      node.restore = now.st_mode & 07777U;
    }
  };
  if (!node.fresh && !place.in->IsPrivileged()) open_to_us();
  FilePtr file = place.in->Open(node.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (file == nullptr) {
    if (errno == ENOTDIR || errno == ELOOP) {
      return {Code::kErrno, ENOTDIR, "what has its name at the destination is no directory"};
    }
    return Status::FromErrno(errno, "cannot open the directory at the destination");
  }
  if (file->Stat("", true, now) != 0) {
    return Status::FromErrno(errno, "cannot look at the directory");
  }
  if (is_itself()) {
    return {Code::kInvalidArgument, "source and destination are the same directory"};
  }
  node.id = IdOf(now);
  node.group = GroupOf(now);
  node.in_source = place.folder->in_source || IsSource(now);
  KeepOpen(node, std::move(file));
  return {};
}

Status Destination::Leave(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  NodePtr left;  // finished behind the lock, unless something in it is still being made
  const std::lock_guard lock(mutex_);
  const auto known = nodes_.find(path);
  if (known == nodes_.end() || !known->second.entered || !known->second.entered->parent) {
    return {Code::kProtocolError, "this directory was not announced"};
  }
  left = std::move(known->second.entered);
  if (path.empty()) known->second.entered = left->parent;
  return {};
}

Result<FilePtr> Destination::OpenedFolder(Node& node) {
  std::string way;
  FilePtr from = root_;
  {
    const std::lock_guard lock(mutex_);
    if (node.path.empty()) return root_;
    if (node.file) {
      if (node.recent != recent_.begin()) recent_.splice(recent_.begin(), recent_, node.recent);
      return node.file;
    }
    Node* above = node.parent.get();
    while (!above->path.empty() && !above->file) above = above->parent.get();
    if (above->file) from = above->file;
    way = node.path.substr(above->path.empty() ? 0 : above->path.size() + 1);
  }
  const FilePtr file = from->OpenBeneath(way, O_RDONLY | O_DIRECTORY);
  if (file == nullptr) {
    return Status::FromErrno(errno, "the directory at the destination is gone");
  }
  struct stat now {};
  if (file->Stat("", true, now) != 0) {
    return Status::FromErrno(errno, "cannot look at the directory");
  }
  // What is in another one was not made by us, nor looked at.
  if (IdOf(now) != node.id && KeepsInodeNumbers(*file)) {
    return Status(Code::kErrno, ESTALE, "the directory at the destination was replaced");
  }
  KeepOpen(node, file);
  return file;
}

void Destination::KeepOpen(Node& node, FilePtr file) {
  FilePtr dropped;  // closed behind the lock
  const std::lock_guard lock(mutex_);
  if (node.file) return;
  node.file = std::move(file);
  recent_.push_front(&node);
  node.recent = recent_.begin();
  if (recent_.size() <= kMostOpen) return;
  dropped = std::move(recent_.back()->file);
  recent_.pop_back();
}

void Destination::FinishNode(Node* node) {
  const std::unique_ptr<Node> owned(node);
  if (node->entry) {
    const Status status = ApplyToNode(*node);
    if (!status.ok()) options_.report(node->path, status);
  }
  FilePtr dropped;
  const std::lock_guard lock(mutex_);
  const auto known = nodes_.find(node->path);
  if (known != nodes_.end() && !known->second.entered && known->second.node.expired()) {
    nodes_.erase(known);
    ids_.erase(node->id);
  }
  if (!node->file) return;
  dropped = std::move(node->file);
  recent_.erase(node->recent);
}

Status Destination::ApplyToNode(Node& node) {
  const Keep& keep = options_.keep;
  const bool opened = (node.entry->mode & 0700U) != 0700 && node.fresh && !keep.mode;
  const bool any = keep.mode || keep.owner || keep.times || keep.acls || keep.xattrs;
  if (!any && !opened && !node.restore) return {};
  RDFS_ASSIGN_OR_RETURN(const FilePtr file, OpenedFolder(node));
  if (opened) (void)file->SetMode("", node.entry->mode & 0777U & ~options_.umask);
  if (node.restore && !keep.mode) (void)file->SetMode("", *node.restore);
  struct stat now {};
  if (file->Stat("", true, now) != 0) {
    return Status::FromErrno(errno, "cannot look at the directory");
  }
  const bool fresh = node.fresh && !node.inherits;
  return Apply({.file = *file, .now = &now, .fresh = fresh, .unwritten = true}, *node.entry, keep);
}

}  // namespace rdfs::copy
