// Ranges of a file on the server: fallocate, seek, copy_file_range.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
constexpr std::uint32_t kFallocateModes = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE |
                                          FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_ZERO_RANGE |
                                          FALLOC_FL_INSERT_RANGE | FALLOC_FL_UNSHARE_RANGE;
// Longer copies come back short: the client asks again, and nobody waits for gigabytes.
constexpr std::uint64_t kMaxCopyBytes = 64 << 20;

// What follows a call that ran on another thread.
struct RangeJob {
  Worker* worker = nullptr;
  Responder responder;
  OpenPtr open;
  bool by_root = true;
};

// `stat` is the file's, and is changed alike.
void KillPrivilegesBehind(const RangeJob& job, struct statx& stat) {
  if (!job.by_root) KillPrivileges(job.worker->core.proc, job.open->fd->get(), stat);
}

bool ByRoot(const Call& call) {
  const auto caller = call.Caller();
  return !caller || caller->uid == 0;
}

}  // namespace

Outcome OpFallocate(Call& call) {
  const auto request = call.body.Read<fs::FallocateRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  const std::uint32_t mode = request.mode;
  const std::uint64_t offset = request.offset, length = request.length;
  if ((mode & ~kFallocateModes) != 0) return Outcome::Errno(EOPNOTSUPP);
  if (length == 0 || offset > kMaxOffset || length > kMaxOffset) return Outcome::Errno(EINVAL);
  if (offset > kMaxOffset - length) return Outcome::Errno(EFBIG);
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  if (open->directory || !open->writable()) return Outcome::Errno(EBADF);
  auto job = std::make_shared<RangeJob>();
  job->worker = &call.worker;
  job->open = open;
  job->by_root = ByRoot(call);
  const AttrContext context = call.attr_context();
  const SessionPtr session = call.lane->session();  // keeps the context's id map
  job->responder = std::move(call.responder);
  const auto work = [fd = open->fd, mode, offset, length]() -> std::int64_t {
    const int result = ::fallocate(fd->get(), static_cast<int>(mode), static_cast<off_t>(offset),
                                   static_cast<off_t>(length));
    return result == 0 ? 0 : -errno;
  };
  call.worker.io.Offload(work, [job, offset, context, session](std::int64_t result) {
    // Also after a failure: it may have happened in part.
    ContentChanged(job->worker->core, *job->open, offset, ExtentStore::kToEnd);
    if (result < 0) return job->responder.Errno(static_cast<int>(-result));
    struct statx stat {};
    if (const int error = StatFd(job->open->fd->get(), stat); error != 0) {
      return job->responder.Errno(error);
    }
    KillPrivilegesBehind(*job, stat);
    const fs::AttrWire attr = ToAttr(stat, job->open->inode->version.load(), context);
    job->responder.Ok(std::as_bytes(std::span<const fs::AttrWire, 1>(&attr, 1)));
  });
  return Outcome::Pending();
}

Outcome OpSeek(Call& call) {
  const auto request = call.body.Read<fs::SeekRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  if (request.whence != SEEK_DATA && request.whence != SEEK_HOLE) return Outcome::Errno(EINVAL);
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  if (open->directory) return Outcome::Errno(EINVAL);
  if (request.offset > kMaxOffset) return Outcome::Errno(ENXIO);
  // The descriptor's position means nothing to anybody else: reads and writes name theirs.
  const off_t found = ::lseek(open->fd->get(), static_cast<off_t>(std::uint64_t{request.offset}),
                              static_cast<int>(std::uint32_t{request.whence}));
  if (found < 0) return Outcome::Errno(errno);
  fs::SeekReply reply;
  reply.offset = static_cast<std::uint64_t>(found);
  call.out.Write(reply);
  return Outcome::Ok();
}

Outcome OpCopyFileRange(Call& call) {
  const auto request = call.body.Read<fs::CopyFileRangeRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  if (request.flags != 0) return Outcome::Errno(EINVAL);
  const OpenPtr in = call.session.FindOpen(request.open_in);
  if (!in) return Outcome::Error(call.session.WhyNotOpen(request.open_in));
  const OpenPtr out = call.session.FindOpen(request.open_out);
  if (!out) return Outcome::Error(call.session.WhyNotOpen(request.open_out));
  if (in->directory || out->directory) return Outcome::Errno(EISDIR);
  if (!in->readable() || !out->writable()) return Outcome::Errno(EBADF);
  const std::uint64_t length = std::min<std::uint64_t>(request.length, kMaxCopyBytes);
  if (request.offset_in > kMaxOffset - length) return Outcome::Errno(EOVERFLOW);
  if (request.offset_out > kMaxOffset - length) return Outcome::Errno(EFBIG);
  auto job = std::make_shared<RangeJob>();
  job->worker = &call.worker;
  job->open = out;
  job->by_root = ByRoot(call);
  job->responder = std::move(call.responder);
  const std::uint64_t offset_out = request.offset_out;
  const auto work = [in_fd = in->fd, out_fd = out->fd,
                     from = static_cast<off64_t>(std::uint64_t{request.offset_in}),
                     to = static_cast<off64_t>(offset_out), length]() mutable -> std::int64_t {
    const ssize_t copied = ::copy_file_range(in_fd->get(), &from, out_fd->get(), &to, length, 0);
    return copied < 0 ? -errno : copied;
  };
  call.worker.io.Offload(work, [job, offset_out](std::int64_t result) {
    if (result < 0) return job->responder.Errno(static_cast<int>(-result));
    Core& core = job->worker->core;
    const auto copied = static_cast<std::uint64_t>(result);
    if (copied > 0) ContentChanged(core, *job->open, offset_out, copied);
    struct statx stat {};
    if (const int error = StatFd(job->open->fd->get(), stat); error != 0) {
      return job->responder.Errno(error);
    }
    KillPrivilegesBehind(*job, stat);
    core.counters.Of(fs::Opcode::kCopyFileRange).bytes.fetch_add(copied);
    const fs::WriteReply reply =
        MakeWriteReply(core, *job->open, offset_out, static_cast<std::uint32_t>(copied), stat);
    job->responder.Ok(std::as_bytes(std::span<const fs::WriteReply, 1>(&reply, 1)));
  });
  return Outcome::Pending();
}

}  // namespace rdfs::server
