#include "tools/copy/file/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "tools/copy/file/metadata.h"
#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

// Of one openat2(2): below PATH_MAX, with room for one more name.
constexpr std::size_t kStep = 3840;

Fd OpenStep(int directory, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<__u64>(static_cast<unsigned>(flags | O_CLOEXEC | O_NOFOLLOW));
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  long fd = -1;
  // EAGAIN: somebody renamed or mounted during the walk (openat2(2)).
  for (int attempt = 0; attempt < 32; ++attempt) {
    fd = syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  return Fd(static_cast<int>(fd));
}

}  // namespace

Result<Fd> OpenBeneath(int directory, const std::string& path, int flags) {
  if (path.empty()) {
    Fd again = OpenStep(directory, ".", flags);
    if (!again.valid()) return Status::FromErrno(errno, "open");
    return again;
  }
  Fd at;
  std::size_t done = 0;
  while (path.size() - done > kStep) {
    const std::size_t slash = path.rfind('/', done + kStep);
    if (slash == std::string::npos || slash <= done) break;
    Fd next = OpenStep(at.valid() ? at.get() : directory, path.substr(done, slash - done),
                       O_PATH | O_DIRECTORY);
    if (!next.valid()) return Status::FromErrno(errno, "open");
    at = std::move(next);
    done = slash + 1;
  }
  Fd last = OpenStep(at.valid() ? at.get() : directory, path.substr(done), flags);
  if (!last.valid()) return Status::FromErrno(errno, "open");
  return last;
}

Result<std::deque<std::string>> NamesIn(File& directory) {
  std::deque<std::string> out;
  // One of its own: the other one goes on where it was.
  const FilePtr own = directory.Open(".", O_RDONLY | O_DIRECTORY);
  int more = own == nullptr ? -1 : 1;
  while (more > 0) more = own->ReadNames(out);
  if (more < 0) return Status::FromErrno(errno, "cannot read the directory");
  return out;
}

namespace {

// How many of the innermost directories stay open.
constexpr std::size_t kMostOpen = 256;
// What is shown of a longer path is how it begins and ends.
constexpr std::size_t kMostShown = 1024;

// On the heap, directory by directory: a tree may be thousands of them deep.
class Remover {
 public:
  Remover(File& outside, const std::string& name, const Removal& how,
          std::vector<std::string>& gone)
      : outside_(outside), name_(name), how_(how), gone_(gone) {}

  // Whether nothing is left of it.
  Result<bool> Remove() {
    Removed removed = Visit(outside_, name_);
    while (!levels_.empty()) {
      std::deque<std::string>& names = levels_.back().names;
      if (names.empty()) {
        removed = End();
      } else {
        const std::string name = std::move(names.front());
        names.pop_front();
        removed = Visit(*levels_.back().file, name);
      }
      if (!removed || levels_.empty()) continue;
      Level& level = levels_.back();
      if (!removed->ok() && level.first.ok()) level.first = removed->status();
      level.all = level.all && removed->ok() && **removed;
    }
    return *std::move(removed);
  }

 private:
  // None: it is a directory, whose content comes first.
  using Removed = std::optional<Result<bool>>;
  struct Level {
    std::string name;
    struct stat info {};
    FilePtr file;                   // none: too far out
    std::deque<std::string> names;  // that were not visited
    std::size_t above = 0;          // so long is the path to where it lies
    std::size_t gone = 0;           // so many were gone before
    bool opened = false;            // to us
    bool all = true;                // nothing of its content is left
    Status first;
  };

  Removed Visit(File& directory, const std::string& name) {
    Level level;
    level.name = name;
    level.above = path_.size();
    level.gone = gone_.size();
    // One path for all of the way down.
    if (!path_.empty()) path_ += '/';
    path_ += name;
    Removed removed = Look(directory, level);
    if (removed) {
      path_.resize(level.above);
      return removed;
    }
    levels_.push_back(std::move(level));
    if (levels_.size() > kMostOpen) levels_[levels_.size() - 1 - kMostOpen].file = nullptr;
    return std::nullopt;
  }

  Removed Look(File& directory, Level& level) {
    if (how_.stop != nullptr && *how_.stop) return false;
    if (directory.Stat(level.name, false, level.info) != 0) {
      if (errno == ENOENT) return true;  // somebody else was faster
      return Status::FromErrno(errno, ShownPath());
    }
    if (how_.keeps && how_.keeps(path_, level.info)) return false;
    if (!S_ISDIR(level.info.st_mode)) return Unlink(directory, level);
    level.opened = OpenToUs(directory, level.name, level.info);
    level.file = directory.Open(level.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    Status status;
    if (level.file == nullptr) status = Status::FromErrno(errno, "cannot open the directory");
    if (status.ok()) {
      auto names = NamesIn(*level.file);
      if (names.ok()) {
        level.names = *std::move(names);
        return std::nullopt;
      }
      status = names.status();
    }
    CloseAgain(directory, level);
    return status.WithContext(ShownPath());
  }

  // Of the innermost directory all has been visited.
  Result<bool> End() {
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    const auto removed = [&]() -> Result<bool> {
      File* directory = &outside_;
      if (!levels_.empty()) {
        RDFS_RETURN_IF_ERROR(OpenAbove(level));
        directory = levels_.back().file.get();
      }
      if (level.first.ok() && level.all) {
        auto unlinked = Unlink(*directory, level);
        if (!unlinked.ok()) CloseAgain(*directory, level);
        return unlinked;
      }
      CloseAgain(*directory, level);
      if (!level.first.ok()) return level.first;
      return false;
    }();
    path_.resize(level.above);
    return removed;
  }

  // The directory that `child` lies in, if it is too far out to have stayed open.
  Status OpenAbove(const Level& child) {
    Level& level = levels_.back();
    if (level.file) return {};
    level.file = child.file ? child.file->Open("..", O_RDONLY | O_DIRECTORY) : nullptr;
    struct stat now {};
    if (level.file && level.file->Stat("", true, now) == 0 && IdOf(now) == IdOf(level.info)) {
      return {};
    }
    level.file = nullptr;
    level.names.clear();
    if (!child.first.ok()) return child.first;
    return Status::FromErrno(ESTALE, ShownPath());  // moved away
  }

  Result<bool> Unlink(File& directory, const Level& level) {
    if (!how_.dry_run && directory.Remove(level.name, S_ISDIR(level.info.st_mode)) != 0) {
      return Status::FromErrno(errno, ShownPath());
    }
    gone_.resize(level.gone);
    gone_.push_back(path_);
    return true;
  }

  // A directory of ours that we may not write to.
  bool OpenToUs(File& directory, const std::string& name, const struct stat& info) const {
    if (how_.dry_run || directory.IsPrivileged() || info.st_uid != geteuid() ||
        (info.st_mode & 0700U) == 0700) {
      return false;
    }
    return directory.SetMode(name, (info.st_mode & 07777U) | 0700U) == 0;
  }
  static void CloseAgain(File& directory, const Level& level) {
    if (level.opened) (void)directory.SetMode(level.name, level.info.st_mode & 07777U);
  }

  [[nodiscard]] std::string ShownPath() const {
    if (path_.size() <= kMostShown) return Shown(path_);
    return Shown(name_) + "/.../" + Shown(path_.substr(path_.rfind('/') + 1));
  }

  File& outside_;
  const std::string& name_;
  const Removal& how_;
  std::vector<std::string>& gone_;
  std::string path_;
  std::deque<Level> levels_;
};

}  // namespace

Status RemoveTree(File& directory, const std::string& name, const Removal& how,
                  std::vector<std::string>& gone) {
  const auto removed = Remover(directory, name, how, gone).Remove();
  return removed.ok() ? Status() : removed.status();
}

}  // namespace rdfs::copy
