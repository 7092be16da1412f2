#include "transport/base/fd.h"

#include <fcntl.h>

#include <cerrno>

namespace rdfs {

void Fd::Reset(int fd) {
  if (fd_ >= 0) {
    const int saved = errno;
    ::close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

void HoldStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", O_PATH);
  }
}

}  // namespace rdfs
