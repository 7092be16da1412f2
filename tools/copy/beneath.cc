#include "tools/copy/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "tools/copy/names.h"

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

class Remover {
 public:
  Remover(const Removal& how, std::vector<std::string>& gone) : how_(how), gone_(gone) {}

  // Whether nothing is left of it.
  Result<bool> Remove(File& directory, const std::string& name) {
    struct stat info {};
    if (directory.Stat(name, false, info) != 0) {
      if (errno == ENOENT) return true;  // somebody else was faster
      return Status::FromErrno(errno, Shown(name));
    }
    // One path for all of the way down: a tree may be thousands of directories deep.
    const std::size_t above = path_.size();
    if (above > 0) path_ += '/';
    path_ += name;
    const auto removed = RemoveAt(directory, name, info);
    path_.resize(above);
    return removed;
  }

 private:
  Result<bool> RemoveAt(File& directory, const std::string& name, const struct stat& info) {
    if (how_.keeps && how_.keeps(path_, info)) return false;
    const bool is_directory = S_ISDIR(info.st_mode);
    const std::size_t before = gone_.size();
    bool opened = false;
    const auto close_again = [&] {
      if (opened) (void)directory.SetMode(name, info.st_mode & 07777U);
    };
    if (is_directory) {
      opened = OpenToUs(directory, name, info);
      const auto emptied = Empty(directory, name);
      if (!emptied.ok() || !*emptied) close_again();
      if (!emptied.ok()) return emptied.status().WithContext(Shown(name));
      if (!*emptied) return false;
    }
    if (!how_.dry_run && directory.Remove(name, is_directory) != 0) {
      const int error = errno;
      close_again();
      return Status::FromErrno(error, Shown(name));
    }
    gone_.resize(before);
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

  Result<bool> Empty(File& directory, const std::string& name) {
    const FilePtr inner = directory.Open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (inner == nullptr) return Status::FromErrno(errno, "cannot open the directory");
    RDFS_ASSIGN_OR_RETURN(const std::deque<std::string> names, NamesIn(*inner));
    Status first;
    bool all = true;
    for (const std::string& each : names) {
      const auto removed = Remove(*inner, each);
      if (!removed.ok() && first.ok()) first = removed.status();
      all = all && removed.ok() && *removed;
    }
    if (!first.ok()) return first;
    return all;
  }

  const Removal& how_;
  std::vector<std::string>& gone_;
  std::string path_;
};

}  // namespace

Status RemoveTree(File& directory, const std::string& name, const Removal& how,
                  std::vector<std::string>& gone) {
  const auto removed = Remover(how, gone).Remove(directory, name);
  return removed.ok() ? Status() : removed.status();
}

}  // namespace rdfs::copy
