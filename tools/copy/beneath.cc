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

Status RemoveTree(File& directory, const std::string& name) {
  if (directory.Remove(name, false) == 0) return {};
  // Linux says EISDIR of a directory, POSIX EPERM.
  if (errno != EISDIR && errno != EPERM) return Status::FromErrno(errno, Shown(name));
  const int error = errno;
  const FilePtr inner = directory.Open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (inner == nullptr) return Status::FromErrno(errno == ENOTDIR ? error : errno, Shown(name));
  Status first;
  RDFS_ASSIGN_OR_RETURN(const std::deque<std::string> names, NamesIn(*inner));
  for (const std::string& each : names) {
    Status status = RemoveTree(*inner, each);
    if (!status.ok() && first.ok()) first = status.WithContext(Shown(name));
  }
  if (!first.ok()) return first;
  if (directory.Remove(name, true) == 0) return {};
  return Status::FromErrno(errno, Shown(name));
}

}  // namespace rdfs::copy
