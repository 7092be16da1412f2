#include "tools/copy/source/scanner.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

// How many of the innermost directories stay open. Of those further out the names are held.
constexpr std::size_t kMostOpen = 64;

Result<struct stat> StatAt(File& directory, const std::string& name, bool follow) {
  struct stat info {};
  if (directory.Stat(name, follow, info) == 0) return info;
  return Status::FromErrno(errno, "cannot look at it");
}

int Flags(bool follow) { return O_RDONLY | (follow ? 0 : O_NOFOLLOW); }

}  // namespace

// One directory on the way from SRC to where the walk is.
struct Scanner::Level {
  Entry entry;
  FilePtr file;                   // none: too far out
  Status lost;                    // why it could not be opened again
  std::deque<std::string> names;  // read and not visited
  bool at_end = false;            // no more are to be read
};

Scanner::Scanner(std::uint32_t source, const ScanOptions& options)
    : source_(source), options_(options) {}

Scanner::~Scanner() = default;

Result<std::unique_ptr<Scanner>> Scanner::Open(std::uint32_t source, const std::string& path,
                                               const ScanOptions& options, FilePtr from) {
  std::unique_ptr<Scanner> out(new Scanner(source, options));
  RDFS_RETURN_IF_ERROR(out->Begin(path, std::move(from)));
  return out;
}

Status Scanner::Begin(const std::string& path, FilePtr from) {
  // A slash behind it means what it leads to.
  const bool follow = options_.follow || options_.follow_source || path.back() == '/';
  auto info = StatAt(*from, path, follow);
  if (!info.ok()) {
    if (info.status().errno_value() != ENOENT) return info.status();
    return Status::FromErrno(ENOENT, "cannot find it");
  }
  Entry entry = EntryOf(*info);
  device_ = info->st_dev;
  first_.name = path;
  first_.follow = follow;
  first_.directory = std::move(from);
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
  auto info = StatAt(*level.file, name, options_.follow);
  if (!info.ok() && options_.follow) {
    // A symlink that leads nowhere or in a circle: there is nothing that could take its place.
    const auto link = StatAt(*level.file, name, false);
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
  out.directory = level.file;
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
  FilePtr file = out.directory->Open(out.name, Flags(out.follow) | O_DIRECTORY);
  struct stat info {};
  if (file == nullptr || file->Stat("", true, info) != 0) {
    // ENOTDIR, ELOOP: something else has taken its name since.
    const int error = errno == ENOTDIR || errno == ELOOP ? ENOENT : errno;
    Fill(out, Scanned::What::kProblem, std::move(entry));
    out.problem = Status::FromErrno(error, "cannot open the directory");
    return;
  }
  auto level = std::make_unique<Level>();
  level->file = std::move(file);
  level->entry = EntryOf(info);
  level->entry.path = std::move(entry.path);
  level->entry.source = source_;
  level->at_end = options_.one_file_system && info.st_dev != device_;
  Fill(out, Scanned::What::kEnter, level->entry);
  out.unread = level->at_end;
  out.directory = level->file;
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
  level.file = nullptr;
}

void Scanner::Rise(Scanned& out) {
  const std::unique_ptr<Level> child = std::move(levels_.back());
  levels_.pop_back();
  Fill(out, Scanned::What::kLeave, child->entry);
  if (levels_.empty() || levels_.back()->file) return;
  Level& level = *levels_.back();
  level.lost = Reopen(level, *child);
  if (level.lost.ok()) return;
  // As when it was moved away from under the walk. Its other names cannot be reached: Refill says
  // so.
  level.names.clear();
  level.at_end = false;
}

Status Scanner::Reopen(Level& level, const Level& child) {
  if (!child.file) return child.lost;
  FilePtr file = child.file->Open("..", O_RDONLY | O_DIRECTORY);
  struct stat info {};
  if (file == nullptr || file->Stat("", true, info) != 0)
    return Status::FromErrno(errno, "cannot open the directory again");
  if (IdOf(info) != level.entry.id) {
    return Status::FromErrno(ENOENT, "the directory was moved while it was copied");
  }
  level.file = std::move(file);
  return {};
}

// Reads more names.
Status Scanner::Refill(Level& level) {
  if (!level.file) return level.lost;
  const int more = level.file->ReadNames(level.names);
  if (more < 0) return Status::FromErrno(errno, "cannot read the directory");
  level.at_end = more == 0;
  return {};
}

Result<FilePtr> OpenSource(Scanned& scanned) {
  Entry& entry = scanned.entry;
  FilePtr file =
      scanned.directory->Open(scanned.name, Flags(scanned.follow) | O_NONBLOCK | O_NOCTTY);
  if (file == nullptr) return Status::FromErrno(errno == ELOOP ? ENOENT : errno, "cannot open it");
  struct stat info {};
  if (file->Stat("", true, info) != 0) return Status::FromErrno(errno, "cannot look at it");
  if (!S_ISREG(info.st_mode)) return Status::FromErrno(ENOENT, "it is no longer a regular file");
  Entry now = EntryOf(info);
  now.source = entry.source;
  now.path = std::move(entry.path);
  scanned.replaced = now.id != entry.id;
  now.links = scanned.replaced ? 1 : entry.links;
  entry = std::move(now);
  return file;
}

Status ReadRest(Scanned& scanned, const FilePtr& file, const Keep& keep) {
  Entry& entry = scanned.entry;
  File& directory = *scanned.directory;
  if (entry.kind == Kind::kSymlink) {
    RDFS_ASSIGN_OR_RETURN(entry.target, ReadLinkAt(directory, scanned.name));
  }
  if (!keep.acls && !keep.xattrs) return {};
  auto xattrs = [&]() -> Result<std::vector<Xattr>> {
    if (file != nullptr) return ReadXattrs(*file, keep);
    if (scanned.what == Scanned::What::kEnter) return ReadXattrs(directory, keep);
    if (!scanned.follow) return ReadXattrs(directory, keep, scanned.name);
    const FilePtr led = directory.Open(scanned.name, O_PATH);
    if (led == nullptr) return Status::FromErrno(errno, "cannot open it");
    return ReadXattrs(*led, keep);
  }();
  if (!xattrs.ok()) return xattrs.status();
  entry.xattrs = *std::move(xattrs);
  return {};
}

}  // namespace rdfs::copy
