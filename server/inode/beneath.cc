#include "server/inode/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace rdfs::server {

OpenResult OpenBeneath(int directory, const std::string& name, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<__u64>(static_cast<unsigned>(flags | O_CLOEXEC | O_NOFOLLOW));
  how.mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? mode & 07777U : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  long fd = -1;
  // EAGAIN: a rename or mount raced with the walk (openat2(2)); a few tries are enough, since only
  // one component is walked.
  for (int attempt = 0; attempt < 8; ++attempt) {
    fd = ::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof(how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  if (fd < 0) return {Fd(), errno};
  return {Fd(static_cast<int>(fd)), 0};
}

Result<ProcFd> ProcFd::Open() {
  Fd dir(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dir.valid()) {
    return Status(Code::kUnavailable,
                  "/proc is not mounted, and files cannot be reopened without it");
  }
  return ProcFd(std::move(dir));
}

OpenResult ProcFd::Reopen(int fd, int flags) const {
  const int opened =
      ::openat(dir_.get(), std::to_string(fd).c_str(), (flags & ~O_NOFOLLOW) | O_CLOEXEC);
  if (opened < 0) return {Fd(), errno};
  return {Fd(opened), 0};
}

OpenResult ProcFd::ReopenWithoutWaiting(int fd, int flags) const {
  OpenResult opened = Reopen(fd, flags | O_NONBLOCK);
  // A ring takes it for the wish that no read may wait.
  if (opened.fd.valid() && ::fcntl(opened.fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return {Fd(), errno};
  }
  return opened;
}

std::string ProcFd::Path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace rdfs::server
