#include "tools/copy/metadata.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "tools/copy/names.h"

namespace rdfs::copy {
namespace {

constexpr std::string_view kAclPrefix = "system.posix_acl_";
constexpr std::string_view kCapability = "security.capability";
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

// One file, opened or by name: what is done to its attributes.
class Attributes {
 public:
  Attributes(int fd, int directory, const char* name)
      : fd_(fd),
        path_(fd >= 0                 ? std::string()
              : directory == AT_FDCWD ? std::string(name)
                                      : fmt::format("/proc/self/fd/{}/{}", directory, name)) {}

  ssize_t List(char* out, std::size_t size) const {
    return fd_ >= 0 ? flistxattr(fd_, out, size) : llistxattr(path_.c_str(), out, size);
  }
  ssize_t Get(const char* name, char* out, std::size_t size) const {
    return fd_ >= 0 ? fgetxattr(fd_, name, out, size) : lgetxattr(path_.c_str(), name, out, size);
  }
  [[nodiscard]] int Set(const Xattr& attribute) const {
    const char* name = attribute.name.c_str();
    const std::string& value = attribute.value;
    return fd_ >= 0 ? fsetxattr(fd_, name, value.data(), value.size(), 0)
                    : lsetxattr(path_.c_str(), name, value.data(), value.size(), 0);
  }
  [[nodiscard]] int Remove(const char* name) const {
    return fd_ >= 0 ? fremovexattr(fd_, name) : lremovexattr(path_.c_str(), name);
  }

 private:
  int fd_;
  std::string path_;
};

// Names, each with a NUL behind it; empty where there can be none.
Result<std::string> NamesOf(const Attributes& file) {
  std::string names(kUsualList, '\0');
  ssize_t got = file.List(names.data(), names.size());
  if (got < 0 && errno == ERANGE) {
    names.resize(kMost);
    got = file.List(names.data(), names.size());
  }
  if (got < 0) {
    if (errno == ENOTSUP || errno == ENOSYS) return std::string();
    return Status::FromErrno(errno, "cannot list the extended attributes");
  }
  names.resize(static_cast<std::size_t>(got));
  return names;
}

Result<std::vector<Xattr>> Read(const Attributes& file, const Keep& keep) {
  std::vector<Xattr> out;
  if (!keep.acls && !keep.xattrs) return out;
  RDFS_ASSIGN_OR_RETURN(const std::string names, NamesOf(file));
  for (std::size_t at = 0; at < names.size(); at += std::strlen(&names[at]) + 1) {
    const char* name = &names[at];
    if (!Keeps(keep, name)) continue;
    Xattr attribute{name, std::string(kUsualList, '\0')};
    ssize_t got = file.Get(name, attribute.value.data(), attribute.value.size());
    if (got < 0 && errno == ERANGE) {
      attribute.value.resize(kMost);
      got = file.Get(name, attribute.value.data(), attribute.value.size());
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

// Whether a failure to set `name` is one: root's attributes are no concern of other users, and a
// label of one security module none of a system without it.
bool Forgivable(std::string_view name, int error) {
  if (name.starts_with(kUserPrefix) || IsAcl(name)) return false;
  return error == ENOTSUP || (error == EPERM && geteuid() != 0);
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

bool Has(const Attributes& file, const Xattr& attribute) {
  std::string value(attribute.value.size() + 1, '\0');
  const ssize_t got = file.Get(attribute.name.c_str(), value.data(), value.size());
  if (got < 0) return false;
  value.resize(static_cast<std::size_t>(got));
  return value == attribute.value;
}

int Chmod(const Subject& subject, mode_t mode) {
  return subject.fd >= 0 ? fchmod(subject.fd, mode)
                         : fchmodat(subject.directory, subject.name, mode, 0);
}

// User attributes want write permission: opens the file to us, for Apply to set the mode again.
bool OpenToUs(const Subject& subject, const Keep& keep) {
  if (subject.fresh || !keep.mode || subject.now == nullptr) return false;
  const mode_t mode = subject.now->st_mode & 07777U;
  return !S_ISLNK(subject.now->st_mode) && (mode & 0200U) == 0 && Chmod(subject, mode | 0200U) == 0;
}

void SetXattrs(const Attributes& file, const Subject& subject, const Entry& entry, const Keep& keep,
               Class which, First& first) {
  for (const Xattr& attribute : entry.xattrs) {
    if (!Keeps(keep, attribute.name) || ClassOf(attribute.name) != which) continue;
    if (!subject.fresh && Has(file, attribute)) continue;
    if (file.Set(attribute) == 0) continue;
    if (errno == EACCES && OpenToUs(subject, keep) && file.Set(attribute) == 0) continue;
    if (Forgivable(attribute.name, errno)) continue;
    first.Note(errno, "cannot set the extended attribute " + Shown(attribute.name));
  }
}

// Those that the source has not.
void RemoveXattrs(const Attributes& file, const Entry& entry, const Keep& keep, First& first) {
  if (!keep.acls && !keep.xattrs) return;
  auto names = NamesOf(file);
  if (!names.ok()) return first.Note(names.status());
  for (std::size_t at = 0; at < names->size(); at += std::strlen(&(*names)[at]) + 1) {
    const char* name = &(*names)[at];
    const bool wanted = std::any_of(entry.xattrs.begin(), entry.xattrs.end(),
                                    [&](const Xattr& attribute) { return attribute.name == name; });
    if (wanted || !Keeps(keep, name)) continue;
    if (file.Remove(name) == 0 || errno == ENODATA || Forgivable(name, errno)) continue;
    first.Note(errno, std::string("cannot remove the extended attribute ") + Shown(name));
  }
}

// Whether the owner is the source's afterwards, or had not to be.
bool SetOwner(const Subject& subject, const Entry& entry, First& first) {
  if (subject.now != nullptr && subject.now->st_uid == entry.uid &&
      subject.now->st_gid == entry.gid) {
    return true;
  }
  const auto change = [&](uid_t uid, gid_t gid) {
    return subject.fd >= 0
               ? fchown(subject.fd, uid, gid)
               : fchownat(subject.directory, subject.name, uid, gid, AT_SYMLINK_NOFOLLOW);
  };
  if (change(entry.uid, entry.gid) == 0) return true;
  if (errno != EPERM || geteuid() == 0) {
    first.Note(errno, "cannot set the owner");
    return false;
  }
  // An ordinary user may still give it to another of his groups.
  if (change(static_cast<uid_t>(-1), entry.gid) == 0) return entry.uid == geteuid();
  return false;
}

void SetMode(const Subject& subject, mode_t mode, bool changed_owner, First& first) {
  // What was there may have been opened to us: see OpenToUs.
  const bool known = subject.now != nullptr && (subject.fresh || (mode & 0200U) != 0);
  if (!changed_owner && known && (subject.now->st_mode & 07777U) == mode) return;
  if (Chmod(subject, mode) != 0) first.Note(errno, "cannot set the mode");
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

Result<std::string> ReadLinkAt(int directory, const std::string& name) {
  std::string target(PATH_MAX, '\0');
  const ssize_t got = readlinkat(directory, name.c_str(), target.data(), target.size());
  if (got < 0) return Status::FromErrno(errno, "cannot read the symlink");
  target.resize(static_cast<std::size_t>(got));
  return target;
}

Result<std::vector<Xattr>> ReadXattrs(int fd, const Keep& keep) {
  return Read(Attributes(fd, -1, ""), keep);
}

Result<std::vector<Xattr>> ReadXattrsOf(int directory, const std::string& name, const Keep& keep) {
  return Read(Attributes(-1, directory, name.c_str()), keep);
}

Status Apply(const Subject& subject, const Entry& entry, const Keep& keep) {
  First first;
  const Attributes file(subject.fd, subject.directory, subject.name);
  if (!subject.fresh) RemoveXattrs(file, entry, keep, first);
  SetXattrs(file, subject, entry, keep, Class::kPlain, first);
  const bool is_ours = subject.now != nullptr && subject.now->st_uid == entry.uid &&
                       subject.now->st_gid == entry.gid;
  const bool owned = !keep.owner || SetOwner(subject, entry, first);
  if (keep.mode && entry.kind != Kind::kSymlink) {
    // What runs as its owner must not run as somebody else instead.
    SetMode(subject, owned ? entry.mode : entry.mode & 01777U, keep.owner && !is_ours, first);
  }
  SetXattrs(file, subject, entry, keep, Class::kSecured, first);
  if (keep.times) {
    const std::array<timespec, 2> times{entry.atime, entry.mtime};
    const int status = subject.fd >= 0 ? futimens(subject.fd, times.data())
                                       : utimensat(subject.directory, subject.name, times.data(),
                                                   AT_SYMLINK_NOFOLLOW);
    if (status != 0) first.Note(errno, "cannot set the times");
  }
  return first.Take();
}

}  // namespace rdfs::copy
