#include "tools/copy/scanner.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>

#include "tools/copy/beneath.h"
#include "tools/copy/metadata.h"
#include "tools/copy/names.h"

namespace rdfs::copy {
namespace {

// How many of the innermost directories stay open. Of those further out the names are held.
constexpr std::size_t kMostOpen = 64;
// Names are asked for so many bytes at a time: a few hundred.
constexpr std::size_t kBatch = 32 << 10;

Result<struct stat> StatAt(int directory, const std::string& name, bool follow) {
  struct stat info {};
  if (fstatat(directory, name.c_str(), &info, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0) return info;
  return Status::FromErrno(errno, "cannot look at it");
}

int Flags(bool follow) { return O_RDONLY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW); }

}  // namespace

// One directory on the way from SRC to where the walk is.
struct Scanner::Level {
  Entry entry;
  std::shared_ptr<const Fd> fd;   // none: too far out
  std::deque<std::string> names;  // read and not visited
  bool at_end = false;            // no more are to be read
};

Scanner::Scanner(std::uint32_t source, const ScanOptions& options)
    : source_(source), options_(options) {}

Scanner::~Scanner() = default;

Result<std::unique_ptr<Scanner>> Scanner::Open(std::uint32_t source, const std::string& path,
                                               const ScanOptions& options) {
  std::unique_ptr<Scanner> out(new Scanner(source, options));
  RDFS_RETURN_IF_ERROR(out->Begin(path));
  return out;
}

Status Scanner::Begin(const std::string& path) {
  // A slash behind it means what it leads to.
  const bool follow = options_.follow || options_.follow_source || path.back() == '/';
  RDFS_ASSIGN_OR_RETURN(const struct stat info, StatAt(AT_FDCWD, path, follow));
  Entry entry = EntryOf(info);
  device_ = info.st_dev;
  first_.name = path;
  first_.follow = follow;
  first_.directory = std::make_shared<const Fd>(AT_FDCWD);
  Fill(first_, entry.kind == Kind::kDirectory ? Scanned::What::kEnter : Scanned::What::kEntry,
       std::move(entry));
  return {};
}

void Scanner::Fill(Scanned& out, Scanned::What what, Entry entry) const {
  out.what = what;
  out.entry = std::move(entry);
  out.entry.source = source_;
}

bool Scanner::Next(Scanned& out) {
  out = Scanned();
  if (!begun_) {
    begun_ = true;
    out = first_;
    if (out.what != Scanned::What::kEnter) return true;
    if (options_.recurse) {
      Descend(out.entry, out);
      return true;
    }
    out.what = Scanned::What::kProblem;
    out.problem = Status(Code::kInvalidArgument, "it is a directory; give -r to copy it");
    return true;
  }
  while (!levels_.empty()) {
    Level& level = *levels_.back();
    if (level.names.empty() && !level.at_end) {
      Status status = Refill(level);
      if (!status.ok()) {
        level.at_end = true;
        Fill(out, Scanned::What::kProblem, level.entry);
        out.problem = std::move(status);
        return true;
      }
      continue;
    }
    if (level.names.empty()) {
      Rise(out);
      return true;
    }
    const std::string name = std::move(level.names.front());
    level.names.pop_front();
    if (Visit(name, out)) return true;
  }
  return false;
}

void Scanner::Skip() {
  if (!levels_.empty()) levels_.pop_back();
}

// Whether there is something to tell of it.
bool Scanner::Visit(const std::string& name, Scanned& out) {
  Level& level = *levels_.back();
  Entry entry;
  entry.path = Joined(level.entry.path, name);
  out.name = name;
  out.follow = options_.follow;
  auto info = StatAt(level.fd->get(), name, options_.follow);
  if (!info.ok() && options_.follow) {
    // A symlink that leads nowhere or in a circle: there is nothing that could take its place.
    const auto link = StatAt(level.fd->get(), name, false);
    if (link.ok() && S_ISLNK(link->st_mode)) {
      info = Status(Code::kErrno, ELOOP, "it is a symlink that leads nowhere");
    }
  }
  const bool is_directory = info.ok() && S_ISDIR(info->st_mode);
  if (options_.filter != nullptr && !options_.filter->Takes(entry.path, is_directory)) return false;
  if (!info.ok()) {
    Fill(out, Scanned::What::kProblem, std::move(entry));
    out.problem = info.status();
    return true;
  }
  std::string path = std::move(entry.path);
  entry = EntryOf(*info);
  entry.path = std::move(path);
  out.directory = level.fd;
  if (!is_directory) {
    Fill(out, Scanned::What::kEntry, std::move(entry));
  } else if (options_.follow && IsLoop(IdOf(*info))) {
    Fill(out, Scanned::What::kProblem, std::move(entry));
    out.problem = Status(Code::kErrno, ELOOP, "it leads back to a directory that it is in");
  } else {
    Descend(std::move(entry), out);
  }
  return true;
}

bool Scanner::IsLoop(const FileId& id) const {
  return std::any_of(levels_.begin(), levels_.end(),
                     [&](const auto& level) { return level->entry.id == id; });
}

// `out` says how to reach it. Becomes its kEnter, or a problem.
void Scanner::Descend(Entry entry, Scanned& out) {
  Fd fd(openat(out.directory->get(), out.name.c_str(), Flags(out.follow) | O_DIRECTORY));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    // ENOTDIR, ELOOP: something else has taken its name since.
    const int error = errno == ENOTDIR || errno == ELOOP ? ENOENT : errno;
    Fill(out, Scanned::What::kProblem, std::move(entry));
    out.problem = Status::FromErrno(error, "cannot open the directory");
    return;
  }
  auto level = std::make_unique<Level>();
  level->fd = std::make_shared<const Fd>(std::move(fd));
  level->entry = EntryOf(info);
  level->entry.path = std::move(entry.path);
  level->entry.source = source_;
  level->at_end = options_.one_file_system && info.st_dev != device_;
  Fill(out, Scanned::What::kEnter, level->entry);
  out.directory = level->fd;
  out.name = ".";
  levels_.push_back(std::move(level));
  HoldNames();
}

// Closes what is too far out to stay open. Where symlinks are followed, ".." is no way back, and
// all stay open.
void Scanner::HoldNames() {
  if (levels_.size() <= kMostOpen || options_.follow) return;
  Level& level = *levels_[levels_.size() - 1 - kMostOpen];
  while (!level.at_end && Refill(level).ok()) {
  }
  // What could not be read is told when the walk comes back: Refill fails again.
  level.fd = nullptr;
}

void Scanner::Rise(Scanned& out) {
  const std::unique_ptr<Level> child = std::move(levels_.back());
  levels_.pop_back();
  Fill(out, Scanned::What::kLeave, child->entry);
  if (levels_.empty() || levels_.back()->fd) return;
  Level& level = *levels_.back();
  if (Reopen(level, *child).ok()) return;
  // It was moved away from under the walk. Its other names cannot be reached: Refill says so.
  level.names.clear();
  level.at_end = false;
}

Status Scanner::Reopen(Level& level, const Level& child) {
  Fd fd(openat(child.fd->get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return Status::FromErrno(errno, "open ..");
  if (IdOf(info) != level.entry.id) return Status::FromErrno(ENOENT, "it was moved");
  level.fd = std::make_shared<const Fd>(std::move(fd));
  return {};
}

// Reads more names. getdents64(2) itself: readdir(3) would cost a stream for each directory.
Status Scanner::Refill(Level& level) {
  if (!level.fd) return Status::FromErrno(ENOENT, "the directory was moved while it was copied");
  alignas(dirent64) std::array<char, kBatch> buffer;  // NOLINT: filled before it is read
  const long got = syscall(SYS_getdents64, level.fd->get(), buffer.data(), buffer.size());
  if (got < 0) return Status::FromErrno(errno, "cannot read the directory");
  level.at_end = got == 0;
  for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
    const char* record = &buffer[at];
    unsigned short length = 0;
    std::memcpy(&length, record + offsetof(dirent64, d_reclen), sizeof(length));
    const char* name = record + offsetof(dirent64, d_name);
    if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) level.names.emplace_back(name);
    at += length;
  }
  return {};
}

Result<Fd> OpenSource(Scanned& scanned) {
  Entry& entry = scanned.entry;
  Fd fd(openat(scanned.directory->get(), scanned.name.c_str(),
               Flags(scanned.follow) | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Status::FromErrno(errno == ELOOP ? ENOENT : errno, "cannot open it");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Status::FromErrno(errno, "cannot look at it");
  if (!S_ISREG(info.st_mode)) return Status::FromErrno(ENOENT, "it is no longer a regular file");
  Entry now = EntryOf(info);
  now.source = entry.source;
  now.path = std::move(entry.path);
  // Where another file was renamed onto it: it is still that name that is copied.
  now.id = entry.id;
  now.links = entry.links;
  entry = std::move(now);
  return fd;
}

Status ReadRest(Scanned& scanned, int fd, const Keep& keep) {
  Entry& entry = scanned.entry;
  const int directory = scanned.directory->get();
  if (entry.kind == Kind::kSymlink) {
    RDFS_ASSIGN_OR_RETURN(entry.target, ReadLinkAt(directory, scanned.name));
  }
  if (!keep.acls && !keep.xattrs) return {};
  auto xattrs = [&]() -> Result<std::vector<Xattr>> {
    if (fd >= 0) return ReadXattrs(fd, keep);
    if (scanned.what == Scanned::What::kEnter) return ReadXattrs(directory, keep);
    if (!scanned.follow) return ReadXattrsOf(directory, scanned.name, keep);
    const Fd led(openat(directory, scanned.name.c_str(), O_PATH | O_CLOEXEC));
    if (!led.valid()) return Status::FromErrno(errno, "cannot open it");
    return ReadXattrsOf(led.get(), "", keep);
  }();
  if (!xattrs.ok()) return xattrs.status();
  entry.xattrs = *std::move(xattrs);
  return {};
}

}  // namespace rdfs::copy
