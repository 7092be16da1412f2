#include "tools/copy/file/metadata.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

constexpr std::string_view kAclPrefix = "system.posix_acl_";
constexpr std::string_view kCapability = "security.capability";
constexpr std::string_view kLabel = "security.selinux";
constexpr std::string_view kUserPrefix = "user.";
// A file's list is short; the kernel's own bound is 64 KiB for a list and for a value.
constexpr std::size_t kUsualList = 512;
constexpr std::size_t kMost = 64 << 10;

bool IsAcl(std::string_view name) { return name.starts_with(kAclPrefix); }

bool Keeps(const Keep& keep, std::string_view name) {
  if (IsAcl(name)) return keep.acls;
  // Other attributes of the system's are how a file system shows what it knows itself.
  return keep.xattrs && !name.starts_with("system.");
}

// Names, each with a NUL behind it; empty where there can be none.
Result<std::string> NamesOf(File& file, const std::string& of) {
  std::string names(kUsualList, '\0');
  ssize_t got = file.ListXattrs(of, names.data(), names.size());
  if (got < 0 && errno == ERANGE) {
    names.resize(kMost);
    got = file.ListXattrs(of, names.data(), names.size());
  }
  if (got < 0) {
    if (errno == ENOTSUP || errno == ENOSYS) return std::string();
    // What cannot be opened is reached through it: nothing has vanished.
    if (errno == ENOENT && file.system() == nullptr && access("/proc/self/fd", F_OK) != 0) {
      return Status(Code::kUnsupported,
                    "its extended attributes cannot be read: /proc is not mounted");
    }
    return Status::FromErrno(errno, "cannot list the extended attributes");
  }
  names.resize(static_cast<std::size_t>(got));
  return names;
}

}  // namespace

Result<std::vector<Xattr>> ReadXattrs(File& file, const Keep& keep, const std::string& of) {
  std::vector<Xattr> out;
  if (!keep.acls && !keep.xattrs) return out;
  RDFS_ASSIGN_OR_RETURN(const std::string names, NamesOf(file, of));
  for (std::size_t at = 0; at < names.size(); at += std::strlen(&names[at]) + 1) {
    const char* name = &names[at];
    if (!Keeps(keep, name)) continue;
    Xattr attribute{name, std::string(kUsualList, '\0')};
    ssize_t got = file.GetXattr(of, name, attribute.value.data(), attribute.value.size());
    if (got < 0 && errno == ERANGE) {
      attribute.value.resize(kMost);
      got = file.GetXattr(of, name, attribute.value.data(), attribute.value.size());
    }
    if (got < 0) {
      if (errno == ENODATA) continue;  // went since it was listed
      return Status::FromErrno(errno, "cannot read the extended attribute " + Shown(name));
    }
    attribute.value.resize(static_cast<std::size_t>(got));
    out.push_back(std::move(attribute));
  }
  return out;
}

namespace {

// Whether a failure to set `name` is one: root's attributes are no concern of other users, and a
// label of one security module none of a system without it.
bool Forgivable(const File& file, std::string_view name, int error) {
  if (name.starts_with(kUserPrefix) || IsAcl(name)) return false;
  if (name == kLabel && error == EINVAL) return true;  // nor of one with other rules
  return error == ENOTSUP || (error == EPERM && !file.IsPrivileged());
}

// Remembers the first thing that went wrong.
class First {
 public:
  void Note(int error, std::string_view what) {
    if (status_.ok()) status_ = Status::FromErrno(error, what);
  }
  void Note(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  Status Take() { return std::move(status_); }

 private:
  Status status_;
};

enum class Class : std::uint8_t { kPlain, kSecured };

// ACLs and capabilities come behind owner and mode, which would change them.
Class ClassOf(std::string_view name) {
  return IsAcl(name) || name == kCapability ? Class::kSecured : Class::kPlain;
}

bool Has(const Subject& subject, const Xattr& attribute) {
  std::string value(attribute.value.size() + 1, '\0');
  const ssize_t got =
      subject.file.GetXattr(subject.name, attribute.name.c_str(), value.data(), value.size());
  if (got < 0) return false;
  value.resize(static_cast<std::size_t>(got));
  return value == attribute.value;
}

bool Set(const Subject& subject, const Xattr& attribute) {
  return subject.file.SetXattr(subject.name, attribute.name.c_str(), attribute.value) == 0;
}

// User attributes want write permission: opens the file to us, for Apply to set the mode again.
bool OpenToUs(const Subject& subject, const Keep& keep) {
  if (subject.fresh || !keep.mode || subject.now == nullptr) return false;
  const mode_t mode = subject.now->st_mode & 07777U;
  return !S_ISLNK(subject.now->st_mode) && (mode & 0200U) == 0 &&
         subject.file.SetMode(subject.name, mode | 0200U) == 0;
}

void SetXattrs(const Subject& subject, const Entry& entry, const Keep& keep, Class which,
               First& first) {
  for (const Xattr& attribute : entry.xattrs) {
    if (!Keeps(keep, attribute.name) || ClassOf(attribute.name) != which) continue;
    if (!subject.fresh && Has(subject, attribute)) continue;
    if (Set(subject, attribute)) continue;
    if (errno == EACCES && OpenToUs(subject, keep) && Set(subject, attribute)) continue;
    if (Forgivable(subject.file, attribute.name, errno)) continue;
    first.Note(errno, "cannot set the extended attribute " + Shown(attribute.name));
  }
}

// What a security module of this system has given to it, which the source's may not have.
bool IsLabel(std::string_view name) {
  return name == kLabel || name == "security.apparmor" || name.starts_with("security.SMACK64");
}

// Those that the source has not.
void RemoveXattrs(const Subject& subject, const Entry& entry, const Keep& keep, First& first) {
  if (!keep.acls && !keep.xattrs) return;
  auto names = NamesOf(subject.file, subject.name);
  if (!names.ok()) return first.Note(names.status());
  for (std::size_t at = 0; at < names->size(); at += std::strlen(&(*names)[at]) + 1) {
    const char* name = &(*names)[at];
    const bool wanted = std::any_of(entry.xattrs.begin(), entry.xattrs.end(),
                                    [&](const Xattr& attribute) { return attribute.name == name; });
    if (wanted || !Keeps(keep, name) || IsLabel(name)) continue;
    const auto remove = [&] { return subject.file.RemoveXattr(subject.name, name) == 0; };
    if (remove() || errno == ENODATA) continue;
    if (errno == EACCES && OpenToUs(subject, keep) && remove()) continue;
    if (Forgivable(subject.file, name, errno)) continue;
    first.Note(errno, std::string("cannot remove the extended attribute ") + Shown(name));
  }
}

// Whether the owner is the source's afterwards. `changed`: something was set.
bool SetOwner(const Subject& subject, const Entry& entry, bool& changed, First& first) {
  if (subject.now != nullptr && subject.now->st_uid == entry.uid &&
      subject.now->st_gid == entry.gid) {
    return true;
  }
  File& file = subject.file;
  changed = file.SetOwner(subject.name, entry.uid, entry.gid) == 0;
  if (changed) return true;
  if (errno != EPERM || file.IsPrivileged()) {
    first.Note(errno, "cannot set the owner");
    return false;
  }
  // An ordinary user may still give it to another of his groups.
  changed = file.SetOwner(subject.name, static_cast<uid_t>(-1), entry.gid) == 0;
  struct stat now {};
  return changed && file.Stat(subject.name, false, now) == 0 && now.st_uid == entry.uid;
}

bool HasMode(const Subject& subject, mode_t mode) {
  if (subject.now == nullptr) return false;
  struct stat now = *subject.now;
  // What was there may have been opened to us (OpenToUs), or lost setuid when it was written.
  const bool known = subject.fresh || (subject.unwritten && (mode & 0200U) != 0);
  if (!known && subject.file.Stat(subject.name, false, now) != 0) return false;
  return (now.st_mode & 07777U) == mode;
}

void SetMode(const Subject& subject, mode_t mode, bool changed_owner, First& first) {
  if (!changed_owner && HasMode(subject, mode)) return;
  if (subject.file.SetMode(subject.name, mode) != 0) first.Note(errno, "cannot set the mode");
}

bool HasTime(const Subject& subject, const timespec& mtime) {
  return subject.unwritten && subject.now->st_mtim.tv_sec == mtime.tv_sec &&
         subject.now->st_mtim.tv_nsec == mtime.tv_nsec;
}

}  // namespace

Kind KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return Kind::kDirectory;
  if (S_ISLNK(mode)) return Kind::kSymlink;
  if (S_ISFIFO(mode)) return Kind::kFifo;
  if (S_ISSOCK(mode)) return Kind::kSocket;
  if (S_ISCHR(mode)) return Kind::kCharDevice;
  if (S_ISBLK(mode)) return Kind::kBlockDevice;
  return Kind::kFile;
}

Entry EntryOf(const struct stat& info) {
  Entry out;
  out.kind = KindOf(info.st_mode);
  out.mode = info.st_mode & 07777U;
  out.uid = info.st_uid;
  out.gid = info.st_gid;
  out.atime = info.st_atim;
  out.mtime = info.st_mtim;
  out.ctime = info.st_ctim;
  out.size = out.kind == Kind::kFile ? static_cast<std::uint64_t>(info.st_size) : 0;
  out.major = major(info.st_rdev);
  out.minor = minor(info.st_rdev);
  out.id = {info.st_dev, info.st_ino};
  out.links = out.kind == Kind::kDirectory ? 1 : static_cast<std::uint32_t>(info.st_nlink);
  return out;
}

bool IsItself(const Entry& entry, const struct stat& now) {
  if (!AreTwoWays(entry.id.device, now.st_dev)) return entry.id == IdOf(now);
  return entry.id.inode == now.st_ino && entry.ctime.tv_sec == now.st_ctim.tv_sec &&
         entry.ctime.tv_nsec == now.st_ctim.tv_nsec;
}

Result<std::string> ReadLinkAt(File& directory, const std::string& name) {
  std::string target;
  if (directory.ReadLink(name, target) == 0) return target;
  return Status::FromErrno(errno, "cannot read the symlink");
}

Status Apply(const Subject& subject, const Entry& entry, const Keep& keep) {
  First first;
  if (!subject.fresh) RemoveXattrs(subject, entry, keep, first);
  SetXattrs(subject, entry, keep, Class::kPlain, first);
  bool changed_owner = false;
  const bool owned = !keep.owner || SetOwner(subject, entry, changed_owner, first);
  if (keep.mode && entry.kind != Kind::kSymlink) {
    // What runs as its owner must not run as somebody else instead.
    SetMode(subject, owned ? entry.mode : entry.mode & 01777U, changed_owner, first);
  }
  SetXattrs(subject, entry, keep, Class::kSecured, first);
  if (keep.times && !HasTime(subject, entry.mtime)) {
    const std::array<timespec, 2> times{entry.atime, entry.mtime};
    if (subject.file.SetTimes(subject.name, times) != 0) first.Note(errno, "cannot set the times");
  }
  return first.Take();
}

}  // namespace rdfs::copy
