#include "transport/base/fd.h"

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

}  // namespace rdfs
