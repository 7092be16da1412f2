#include "tools/copy/destination.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "tools/copy/beneath.h"
#include "tools/copy/destination_impl.h"
#include "tools/copy/metadata.h"
#include "tools/copy/names.h"
#include "transport/base/random.h"

namespace rdfs::copy {
namespace {

constexpr std::string_view kTemporaryPrefix = ".rdcp-";
// Directories that stay open; of the others the way to them is walked again.
constexpr std::size_t kMostDescriptors = 256;
// When the last file of a chain of directories is finished, they are finished one in the other: on
// the stack.
constexpr std::size_t kMostLevels = 8192;
constexpr const char* kDefaultAcl = "system.posix_acl_default";

bool HasDefaultAcl(int directory) { return fgetxattr(directory, kDefaultAcl, nullptr, 0) > 0; }

FileId IdOf(const struct stat& info) { return {info.st_dev, info.st_ino}; }

Result<std::optional<struct stat>> StatIn(int directory, const std::string& name) {
  struct stat now {};
  if (fstatat(directory, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0) {
    return std::optional<struct stat>(now);
  }
  if (errno == ENOENT) return std::optional<struct stat>();
  return Status::FromErrno(errno, "cannot look at the destination");
}

// The copy of a copy of a copy, as a symlink with -L or a bind mount would make it.
Status IntoItself() { return {Code::kInvalidArgument, "a directory cannot be copied into itself"}; }

mode_t TypeOf(Kind kind) {
  switch (kind) {
    case Kind::kFile:
      return S_IFREG;
    case Kind::kDirectory:
      return S_IFDIR;
    case Kind::kSymlink:
      return S_IFLNK;
    case Kind::kFifo:
      return S_IFIFO;
    case Kind::kSocket:
      return S_IFSOCK;
    case Kind::kCharDevice:
      return S_IFCHR;
    case Kind::kBlockDevice:
      return S_IFBLK;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Destination>> Destination::Open(const std::string& root,
                                                       DestinationOptions options) {
  Fd fd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(errno, "cannot open the directory " + Shown(root));
  return std::unique_ptr<Destination>(new Destination(std::move(fd), std::move(options)));
}

Destination::Destination(Fd root, DestinationOptions options)
    : options_(std::move(options)),
      root_(std::make_shared<const Fd>(std::move(root))),
      run_(fmt::format("{:08x}", static_cast<std::uint32_t>(RandomU64()))) {
  const NodePtr node = NewNode();
  node->inherits = HasDefaultAcl(root_->get());
  struct stat info {};
  if (fstat(root_->get(), &info) == 0) node->id = IdOf(info);
  ids_.insert(node->id);
  nodes_[""] = {node, node};
}

Destination::~Destination() {
  for (auto& [id, group] : groups_) {
    for (const LinkGroup::Waiting& each : group.waiting) {
      options_.report(each.path, {Code::kErrno, ECANCELED, "what it is a link to never came"});
    }
  }
  groups_.clear();
  const auto last = std::move(nodes_);  // finished when this goes, without the lock
}

Status Destination::AddTarget(std::uint32_t source, const std::string& name) {
  if (!name.empty()) RDFS_RETURN_IF_ERROR(CheckName(name));
  const std::lock_guard lock(mutex_);
  targets_[source] = name;
  return {};
}

std::string Destination::TemporaryName() {
  return fmt::format("{}{}{:08x}", kTemporaryPrefix, run_, temporaries_.fetch_add(1));
}

// ---- where an entry goes ----------------------------------------------------------------------

Result<std::string> Destination::PathOf(const Entry& entry) {
  RDFS_RETURN_IF_ERROR(CheckPath(entry.path));
  const std::lock_guard lock(mutex_);
  const auto target = targets_.find(entry.source);
  if (target == targets_.end()) {
    return Status(Code::kProtocolError, fmt::format("nobody asked for source {}", entry.source));
  }
  return Joined(target->second, entry.path);
}

Result<Destination::NodePtr> Destination::FolderFor(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto known = nodes_.find(std::string(FolderOf(path)));
  if (known != nodes_.end()) {
    NodePtr node = known->second.entered ? known->second.entered : known->second.node.lock();
    if (node) return node;
  }
  return Status(Code::kProtocolError, "the directory that it is in was not announced");
}

Result<Destination::Pin> Destination::Hold(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  RDFS_ASSIGN_OR_RETURN(const NodePtr node, FolderFor(path));
  return Pin(node);
}

Result<Destination::Place> Destination::PlaceOf(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  Place out;
  out.name = NameOf(path);
  if (out.name.empty()) return Status(Code::kInvalidArgument, "it would replace DST itself");
  RDFS_ASSIGN_OR_RETURN(out.folder, FolderFor(path));
  RDFS_ASSIGN_OR_RETURN(out.fd, Descriptor(*out.folder));
  return out;
}

Result<Destination::Place> Destination::PlaceFor(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(Place place, PlaceOf(entry));
  if (place.folder->fresh) return place;
  RDFS_ASSIGN_OR_RETURN(place.now, StatIn(place.fd->get(), place.name));
  if (!place.now) return place;
  const Kind there = KindOf(place.now->st_mode);
  if (there == Kind::kDirectory) {
    return Status(Code::kErrno, EISDIR, "a directory of that name is in the way");
  }
  if (options_.same_machine && entry.id == IdOf(*place.now)) {
    return Status(Code::kInvalidArgument, "source and destination are the same file");
  }
  // Who replaces /dev/null by a file has no machine left.
  if (there != Kind::kFile && there != Kind::kSymlink && there != entry.kind) {
    return Status(Code::kErrno, EEXIST, "a device, FIFO or socket of that name is in the way");
  }
  return place;
}

Result<std::optional<struct stat>> Destination::Look(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  if (place.folder->fresh) return std::optional<struct stat>();
  return StatIn(place.fd->get(), place.name);
}

Result<std::optional<struct stat>> Destination::Peek(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  if (path.empty()) return StatIn(root_->get(), ".");
  auto folder = OpenBeneath(root_->get(), std::string(FolderOf(path)), O_PATH | O_DIRECTORY);
  if (folder.ok()) return StatIn(folder->get(), std::string(NameOf(path)));
  const int error = folder.status().errno_value();
  if (error == ENOENT || error == ENOTDIR || error == ELOOP) return std::optional<struct stat>();
  return folder.status();
}

Result<Fd> Destination::OpenExisting(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  Fd fd(openat(place.fd->get(), place.name.c_str(),
               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return Status::FromErrno(errno, "cannot read what is at the destination");
  }
  if (S_ISREG(info.st_mode)) return fd;
  return Status(Code::kErrno, EEXIST, "it is of another kind at the destination");
}

Result<std::string> Destination::ReadExistingLink(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  return ReadLinkAt(place.fd->get(), place.name);
}

bool Destination::IsIn(const FileId& directory) const {
  Fd above;
  int at = root_->get();
  struct stat info {};
  for (FileId last; fstat(at, &info) == 0; last = IdOf(info)) {
    if (IdOf(info) == directory) return true;
    if (IdOf(info) == last) return false;  // "/.." is "/"
    above = Fd(openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!above.valid()) return false;
    at = above.get();
  }
  return false;
}

// ---- directories ------------------------------------------------------------------------------

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
    NodePtr& root = nodes_[""].entered;
    if (root->parent) return {Code::kProtocolError, "this directory was announced twice"};
    node->parent = root;
    node->id = root->id;
    node->inherits = root->inherits;
    node->entry = entry;
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
  if (path.empty()) known->second = {left->parent, left->parent};
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

// ---- everything else --------------------------------------------------------------------------

Status Destination::Make(const Entry& entry) {
  bool made = false;
  const Status status = [&]() -> Status {
    if (entry.kind == Kind::kFile || entry.kind == Kind::kDirectory) {
      return {Code::kProtocolError, "this has content"};
    }
    RDFS_ASSIGN_OR_RETURN(const Place place, PlaceFor(entry));
    return MakeAt(place, entry, made);
  }();
  Settle(entry, made);
  return status;
}

Status Destination::MakeAt(const Place& place, const Entry& entry, bool& is_there) {
  const bool direct = !place.now;
  const std::string name = direct ? place.name : TemporaryName();
  const int folder = place.fd->get();
  int made = -1;
  if (entry.kind == Kind::kSymlink) {
    if (entry.target.empty() || entry.target.find('\0') != std::string::npos) {
      return {Code::kProtocolError, "this symlink leads nowhere"};
    }
    made = symlinkat(entry.target.c_str(), folder, name.c_str());
  } else {
    const mode_t umask = place.folder->inherits ? 0 : options_.umask;
    const mode_t mode = options_.keep.mode ? 0600 : entry.mode & 0777U & ~umask;
    made =
        mknodat(folder, name.c_str(), TypeOf(entry.kind) | mode, makedev(entry.major, entry.minor));
  }
  if (made != 0) return Status::FromErrno(errno, "cannot make it");
  const Subject subject{
      .directory = folder, .name = name.c_str(), .fresh = !place.folder->inherits};
  const Status status = Apply(subject, entry, options_.keep);
  if (!direct && renameat(folder, name.c_str(), folder, place.name.c_str()) != 0) {
    const int error = errno;
    (void)unlinkat(folder, name.c_str(), 0);
    return Status::FromErrno(error, "cannot give it its name");
  }
  is_there = true;
  return status;
}

Status Destination::Touch(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  struct stat now {};
  if (fstatat(place.fd->get(), place.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) {
    return Status::FromErrno(errno, "cannot look at the destination");
  }
  if ((now.st_mode & S_IFMT) != TypeOf(entry.kind)) {
    return {Code::kErrno, EEXIST, "it is of another kind at the destination"};
  }
  return Apply(
      {.directory = place.fd->get(), .name = place.name.c_str(), .now = &now, .fresh = false},
      entry, options_.keep);
}

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
  RDFS_ASSIGN_OR_RETURN(const FdPtr fd, Descriptor(*node));
  RDFS_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(fd->get()));
  const std::string ours = std::string(kTemporaryPrefix) + run_;
  Status first;
  for (const std::string& name : names) {
    RDFS_ASSIGN_OR_RETURN(const auto now, StatIn(fd->get(), name));
    if (!now || name.starts_with(ours) || keeps(name, S_ISDIR(now->st_mode))) continue;
    Status status = RemoveTree(fd->get(), name);
    if (status.ok()) gone(Joined(path, name));
    if (!status.ok() && first.ok()) first = status.WithContext("cannot delete");
  }
  return first;
}

Status Destination::PeekPrune(const Entry& entry, const Keeps& keeps, const Gone& gone) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  const auto fd = OpenBeneath(root_->get(), path, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return {};  // it is not there, or not a directory: said elsewhere
  RDFS_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(fd->get()));
  for (const std::string& name : names) {
    RDFS_ASSIGN_OR_RETURN(const auto now, StatIn(fd->get(), name));
    if (now && !keeps(name, S_ISDIR(now->st_mode))) gone(Joined(path, name));
  }
  return {};
}

}  // namespace rdfs::copy
