// Opening below a directory and nowhere else.
//
// Every path that a peer has a say in goes through here: one validated name below a directory that
// is already known to lie in an export, with openat2(2) and RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
// | RESOLVE_NO_SYMLINKS, so that no symlink is followed however it is swapped in. Any thread;
// blocking as the file system blocks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

// An errno instead of a Status: these calls are the data path's, and their answer goes to the wire.
struct OpenResult {
  Fd fd;
  int error = 0;  // errno, 0 when fd is valid
};

// One component below `directory`, never followed. O_CLOEXEC is added. `name` was validated
// (fs::ReadName).
OpenResult OpenBeneath(int directory, const std::string& name, int flags, mode_t mode = 0);

// /proc/self/fd of this process: how an O_PATH descriptor becomes a real one, and how system calls
// that take only paths reach an inode. A path through it names exactly the inode of the descriptor.
class ProcFd {
 public:
  // Errors: kUnavailable when /proc is not mounted.
  static Result<ProcFd> Open();

  // Opens the inode of `fd` anew with `flags` (O_NOFOLLOW is taken out: the link is the point).
  [[nodiscard]] OpenResult Reopen(int fd, int flags) const;
  // The same of a regular file, and EWOULDBLOCK where somebody on this host has a lease on it
  // (F_SETLEASE) that he has to give up first: he is told to, and may take 45 seconds.
  [[nodiscard]] OpenResult ReopenWithoutWaiting(int fd, int flags) const;
  [[nodiscard]] int dir() const { return dir_.get(); }
  // "/proc/self/fd/N", for calls without an ...at form.
  static std::string Path(int fd);

 private:
  explicit ProcFd(Fd dir) : dir_(std::move(dir)) {}
  Fd dir_;
};

}  // namespace rdfs::server
