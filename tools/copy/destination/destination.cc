#include "tools/copy/destination/destination.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "tools/copy/destination/destination_impl.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"
#include "transport/base/random.h"

namespace rdfs::copy {
namespace {

constexpr std::string_view kTemporaryPrefix = ".rdcp-";

Result<std::optional<struct stat>> StatIn(File& directory, const std::string& name) {
  struct stat now {};
  if (directory.Stat(name, false, now) == 0) {
    return std::optional<struct stat>(now);
  }
  if (errno == ENOENT) return std::optional<struct stat>();
  return Status::FromErrno(errno, "cannot look at the destination");
}

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

// As an interrupted copy to SRC has left it: it would take the place of a file that is being made.
Status TakenByResume() {
  return {Code::kInvalidArgument,
          "--resume gives such names to what is not finished: remove it, or copy without --resume"};
}

}  // namespace

Result<std::unique_ptr<Destination>> Destination::Open(const std::string& root,
                                                       DestinationOptions options,
                                                       const FilePtr& from) {
  FilePtr file = from->Open(root, O_RDONLY | O_DIRECTORY);
  if (file == nullptr) {
    return Status::FromErrno(errno, "cannot open the directory " + Shown(root));
  }
  return std::unique_ptr<Destination>(new Destination(std::move(file), std::move(options)));
}

Destination::Destination(FilePtr root, DestinationOptions options)
    : options_(std::move(options)),
      root_(std::move(root)),
      run_(static_cast<std::uint32_t>(RandomU64())) {
  const NodePtr node = NewNode();
  node->inherits = HasDefaultAcl(*root_);
  struct stat info {};
  if (root_->Stat("", true, info) == 0) {
    node->id = IdOf(info);
    device_ = node->id.device;
    node->group = GroupOf(info);
  }
  ids_[node->id] = node;
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

std::uint64_t Destination::NextNumber() {
  return std::uint64_t{run_} << 32U | temporaries_.fetch_add(1);
}

std::string Destination::TemporaryName() {
  return fmt::format("{}{:016x}", kTemporaryPrefix, NextNumber());
}

Result<std::string> Destination::PathOf(const Entry& entry) {
  RDFS_RETURN_IF_ERROR(CheckPath(entry.path));
  const std::lock_guard lock(mutex_);
  const auto target = targets_.find(entry.source);
  if (target == targets_.end()) {
    return Status(Code::kProtocolError, fmt::format("nobody asked for source {}", entry.source));
  }
  std::string path = Joined(target->second, entry.path);
  if (options_.resume && IsPartialName(NameOf(path))) return TakenByResume();
  return path;
}

Result<Destination::NodePtr> Destination::FolderFor(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto known = nodes_.find(std::string(FolderOf(path)));
  if (known != nodes_.end()) {
    NodePtr node = known->second.node.lock();
    if (!node) node = known->second.entered;
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
  RDFS_ASSIGN_OR_RETURN(out.in, OpenedFolder(*out.folder));
  return out;
}

Result<Destination::Place> Destination::PlaceFor(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(Place place, PlaceOf(entry));
  if (place.folder->fresh) return place;
  RDFS_ASSIGN_OR_RETURN(place.now, StatIn(*place.in, place.name));
  if (!place.now) return place;
  const Kind there = KindOf(place.now->st_mode);
  if (there == Kind::kDirectory) {
    return Status(Code::kErrno, EISDIR, "a directory of that name is in the way");
  }
  if (options_.same_machine && IsItself(entry, *place.now)) {
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
  return StatIn(*place.in, place.name);
}

Result<std::optional<struct stat>> Destination::Peek(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, PathOf(entry));
  if (path.empty()) return StatIn(*root_, ".");
  const FilePtr folder = root_->OpenBeneath(std::string(FolderOf(path)), O_PATH | O_DIRECTORY);
  if (folder != nullptr) return StatIn(*folder, std::string(NameOf(path)));
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR || error == ELOOP) return std::optional<struct stat>();
  return Status::FromErrno(error, "cannot look at the destination");
}

bool Destination::PeekSameLink(const Entry& entry) {
  const auto path = PathOf(entry);
  if (!path.ok() || path->empty()) return false;
  const FilePtr folder = root_->OpenBeneath(std::string(FolderOf(*path)), O_PATH | O_DIRECTORY);
  if (folder == nullptr) return false;
  const auto target = ReadLinkAt(*folder, std::string(NameOf(*path)));
  return target.ok() && *target == entry.target;
}

Result<FilePtr> Destination::OpenExisting(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  FilePtr file = place.in->Open(place.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  struct stat info {};
  if (file == nullptr || file->Stat("", true, info) != 0) {
    return Status::FromErrno(errno, "cannot read what is at the destination");
  }
  if (S_ISREG(info.st_mode)) return file;
  return Status(Code::kErrno, EEXIST, "it is of another kind at the destination");
}

Result<std::string> Destination::ReadExistingLink(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  return ReadLinkAt(*place.in, place.name);
}

bool Destination::IsIn(const Entry& directory) const {
  FilePtr at = root_;
  struct stat info {};
  for (FileId last; at != nullptr && at->Stat("", true, info) == 0; last = IdOf(info)) {
    if (IsItself(directory, info)) return true;
    if (IdOf(info) == last) return false;  // "/.." is "/"
    at = at->Open("..", O_PATH | O_DIRECTORY);
  }
  return false;
}

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
  File& folder = *place.in;
  int made = -1;
  if (entry.kind == Kind::kSymlink) {
    if (entry.target.empty() || entry.target.find('\0') != std::string::npos) {
      return {Code::kProtocolError, "this symlink leads nowhere"};
    }
    made = folder.MakeSymlink(entry.target, name);
  } else {
    const mode_t umask = place.folder->inherits ? 0 : options_.umask;
    const mode_t mode = options_.keep.mode ? 0600 : entry.mode & 0777U & ~umask;
    made = folder.MakeNode(name, TypeOf(entry.kind) | mode, makedev(entry.major, entry.minor));
  }
  if (made != 0) return Status::FromErrno(errno, "cannot make it");
  const Subject subject{.file = folder, .name = name, .fresh = !place.folder->inherits};
  const Status status = Apply(subject, entry, options_.keep);
  if (!direct && folder.Rename(name, place.name) != 0) {
    const int error = errno;
    (void)folder.Remove(name, false);
    return Status::FromErrno(error, "cannot give it its name");
  }
  is_there = true;
  return status;
}

Status Destination::Touch(const Entry& entry) {
  RDFS_ASSIGN_OR_RETURN(const Place place, PlaceOf(entry));
  struct stat now {};
  if (place.in->Stat(place.name, false, now) != 0) {
    return Status::FromErrno(errno, "cannot look at the destination");
  }
  if ((now.st_mode & S_IFMT) != TypeOf(entry.kind)) {
    return {Code::kErrno, EEXIST, "it is of another kind at the destination"};
  }
  // Of whoever was interrupted behind its last step.
  if (options_.resume && entry.kind == Kind::kFile && entry.size >= kLeastResumed) {
    (void)place.in->Remove(JournalName(place.name), false);
  }
  return Apply(
      {.file = *place.in, .name = place.name, .now = &now, .fresh = false, .unwritten = true},
      entry, options_.keep);
}

bool Destination::IsOurs(const std::string& name) const {
  return name.starts_with(fmt::format("{}{:08x}", kTemporaryPrefix, run_)) ||
         (options_.resume && IsPartialName(name));
}

}  // namespace rdfs::copy
