#include "server/pool/extent_fill.h"

#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdfs::server {
namespace {

using Nowait = CachedFile::Nowait;

// Memory file systems have no RWF_NOWAIT on many kernels, and no device to wait for.
Nowait AskFileSystem(int fd) {
  struct statfs fs {};
  if (fstatfs(fd, &fs) != 0) return Nowait::kMayWait;
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ? Nowait::kNeverWaits
                                                              : Nowait::kMayWait;
}

struct Job {
  FileIo& io;
  FileIo::SharedFd fd;
  std::uint64_t start;
  MutableByteSpan memory;
  std::uint64_t size;
  ExtentFill::Done done;
  std::size_t got = 0;

  [[nodiscard]] bool Complete() const {
    return got == memory.size() || (got > 0 && start + got == size);
  }
  void Finish(std::int64_t error) {
    if (error < 0) {
      done(error);
      return;
    }
    std::fill(memory.begin() + static_cast<std::ptrdiff_t>(got), memory.end(), std::byte{0});
    done(static_cast<std::int64_t>(got));
  }
};

void Wait(const std::shared_ptr<Job>& job) {
  job->io.Read(job->fd, job->memory.subspan(job->got), job->start + job->got,
               [job](std::int64_t result) {
                 if (result == -EAGAIN || result == -EINTR) {
                   Wait(job);
                   return;
                 }
                 if (result > 0) job->got += static_cast<std::size_t>(result);
                 if (result <= 0 || job->Complete()) {
                   job->Finish(result);
                 } else {
                   Wait(job);
                 }
               });
}

}  // namespace

std::int64_t ReadWithoutWaiting(int fd, std::atomic<Nowait>& nowait, MutableByteSpan to,
                                std::uint64_t offset) {
  iovec buffer{.iov_base = to.data(), .iov_len = to.size()};
  const auto at = static_cast<off_t>(offset);
  Nowait mode = nowait.load(std::memory_order_relaxed);
  if (mode == Nowait::kUntried || mode == Nowait::kWorks) {
    const ssize_t got = preadv2(fd, &buffer, 1, at, RWF_NOWAIT);
    if (got >= 0) return got;
    if (errno != EOPNOTSUPP) return -errno;
    mode = AskFileSystem(fd);
    nowait.store(mode, std::memory_order_relaxed);
  }
  if (mode == Nowait::kMayWait) return -EAGAIN;
  const ssize_t got = preadv(fd, &buffer, 1, at);
  return got >= 0 ? got : -errno;
}

bool ExtentFill::Start(FileIo& io, FileIo::SharedFd fd, CachedFile& file, std::uint64_t start,
                       MutableByteSpan memory, std::uint64_t size, Done done) {
  Job now{io, std::move(fd), start, memory, size, std::move(done)};
  while (true) {
    const std::int64_t got = ReadWithoutWaiting(now.fd->get(), file.nowait,
                                                now.memory.subspan(now.got), start + now.got);
    if (got == -EINTR) continue;
    if (got == -EAGAIN) break;
    if (got > 0) now.got += static_cast<std::size_t>(got);
    if (got <= 0 || now.Complete()) {
      now.Finish(got);
      return true;
    }
  }
  Wait(std::make_shared<Job>(std::move(now)));
  return false;
}

}  // namespace rdfs::server
