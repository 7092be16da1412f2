// Directories: entering and leaving them, and what is set when the last file in one is finished.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "tools/copy/beneath.h"
#include "tools/copy/destination_impl.h"
#include "tools/copy/metadata.h"
#include "tools/copy/names.h"

namespace rdfs::copy {
namespace {

// Directories that stay open; of the others the way to them is walked again.
constexpr std::size_t kMostDescriptors = 256;
// When the last file of a chain of directories is finished, they are finished one in the other: on
// the stack.
constexpr std::size_t kMostLevels = 8192;
constexpr const char* kDefaultAcl = "system.posix_acl_default";

// The copy of a copy of a copy, as a symlink with -L or a bind mount would make it.
Status IntoItself() { return {Code::kInvalidArgument, "a directory cannot be copied into itself"}; }

}  // namespace

bool Destination::HasDefaultAcl(int directory) {
  return fgetxattr(directory, kDefaultAcl, nullptr, 0) > 0;
}

Destination::NodePtr Destination::NewNode() {
  return NodePtr(new Node, [this](Node* node) { FinishNode(node); });
}

Status Destination::Enter(const Entry& entry) {
  if (entry.kind != Kind::kDirectory) return {Code::kProtocolError, "this is no directory"};
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  if (options_.same_machine) {
    const std::lock_guard lock(mutex_);
    if (ids_.contains(entry.id)) return IntoItself();
  }
  const NodePtr node = NewNode();
  if (path.empty()) {
    const std::lock_guard lock(mutex_);
    Known& known = nodes_[""];
    NodePtr& root = known.entered;
    if (root->parent) return {Code::kProtocolError, "this directory was announced twice"};
    node->parent = root;
    node->id = root->id;
    node->inherits = root->inherits;
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
  RDFS_RETURN_IF_ERROR(EnterAt(place, entry, *node));
  const std::lock_guard lock(mutex_);
  Known& known = nodes_[path];
  if (known.entered) return {Code::kProtocolError, "this directory was announced twice"};
  known = {node, node};
  ids_.insert(node->id);
  node->entry = entry;
  return {};
}

Status Destination::EnterAt(const Place& place, const Entry& entry, Node& node) {
  const mode_t umask = place.folder->inherits ? 0 : options_.umask;
  const mode_t mode = options_.keep.mode ? 0700 : (((entry.mode & 0777U) & ~umask) | 0700U);
  if (mkdirat(place.fd->get(), place.name.c_str(), mode) == 0) {
    node.fresh = true;
  } else if (errno != EEXIST) {
    return Status::FromErrno(errno, "cannot make the directory");
  }
  RDFS_RETURN_IF_ERROR(OpenNode(place, node));
  node.inherits = node.fresh ? place.folder->inherits : HasDefaultAcl(node.fd->get());
  return {};
}

Status Destination::OpenNode(const Place& place, Node& node) {
  const auto open_it = [&] {
    return Fd(openat(place.fd->get(), node.name.c_str(),
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  };
  struct stat now {};
  // A directory of ours that was closed to us, as an earlier copy may have left it.
  const auto open_to_us = [&] {
    if (fstatat(place.fd->get(), node.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (!S_ISDIR(now.st_mode) || now.st_uid != geteuid() || (now.st_mode & 0700U) == 0700) return;
    if (fchmodat(place.fd->get(), node.name.c_str(), (now.st_mode & 07777U) | 0700U, 0) == 0) {
      node.restore = now.st_mode & 07777U;
    }
  };
  if (!node.fresh && geteuid() != 0) open_to_us();
  Fd fd = open_it();
  if (!fd.valid()) {
    if (errno == ENOTDIR || errno == ELOOP) {
      return {Code::kErrno, ENOTDIR, "what has its name at the destination is no directory"};
    }
    return Status::FromErrno(errno, "cannot open the directory at the destination");
  }
  if (fstat(fd.get(), &now) != 0) return Status::FromErrno(errno, "cannot look at the directory");
  node.id = IdOf(now);
  KeepOpen(node, std::make_shared<const Fd>(std::move(fd)));
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

Result<Destination::FdPtr> Destination::Descriptor(Node& node) {
  std::string way;
  FdPtr from = root_;
  {
    const std::lock_guard lock(mutex_);
    if (node.path.empty()) return root_;
    if (node.fd) {
      if (node.recent != recent_.begin()) recent_.splice(recent_.begin(), recent_, node.recent);
      return node.fd;
    }
    Node* above = node.parent.get();
    while (!above->path.empty() && !above->fd) above = above->parent.get();
    if (above->fd) from = above->fd;
    way = node.path.substr(above->path.empty() ? 0 : above->path.size() + 1);
  }
  auto fd = OpenBeneath(from->get(), way, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return fd.status().WithContext("the directory at the destination is gone");
  auto shared = std::make_shared<const Fd>(*std::move(fd));
  KeepOpen(node, shared);
  return FdPtr(shared);
}

void Destination::KeepOpen(Node& node, FdPtr fd) {
  FdPtr dropped;  // closed behind the lock
  const std::lock_guard lock(mutex_);
  if (node.fd) return;
  node.fd = std::move(fd);
  recent_.push_front(&node);
  node.recent = recent_.begin();
  if (recent_.size() <= kMostDescriptors) return;
  dropped = std::move(recent_.back()->fd);
  recent_.pop_back();
}

void Destination::FinishNode(Node* node) {
  const std::unique_ptr<Node> owned(node);
  if (node->entry) {
    const Status status = ApplyToNode(*node);
    if (!status.ok()) options_.report(node->path, status);
  }
  FdPtr dropped;
  const std::lock_guard lock(mutex_);
  const auto known = nodes_.find(node->path);
  if (known != nodes_.end() && !known->second.entered && known->second.node.expired()) {
    nodes_.erase(known);
    ids_.erase(node->id);
  }
  if (!node->fd) return;
  dropped = std::move(node->fd);
  recent_.erase(node->recent);
}

Status Destination::ApplyToNode(Node& node) {
  const Keep& keep = options_.keep;
  const bool opened = (node.entry->mode & 0700U) != 0700 && node.fresh && !keep.mode;
  const bool any = keep.mode || keep.owner || keep.times || keep.acls || keep.xattrs;
  if (!any && !opened && !node.restore) return {};
  RDFS_ASSIGN_OR_RETURN(const FdPtr fd, Descriptor(node));
  if (opened) (void)fchmod(fd->get(), node.entry->mode & 0777U & ~options_.umask);
  if (node.restore && !keep.mode) (void)fchmod(fd->get(), *node.restore);
  struct stat now {};
  if (fstat(fd->get(), &now) != 0) return Status::FromErrno(errno, "cannot look at the directory");
  return Apply({.fd = fd->get(), .now = &now, .fresh = node.fresh && !node.inherits}, *node.entry,
               keep);
}

}  // namespace rdfs::copy
