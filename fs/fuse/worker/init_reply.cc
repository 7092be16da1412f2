#include "fs/fuse/worker/init_reply.h"

#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/fuse/filesystem.h"

namespace rdfs::fs::fuse {

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 13)
namespace {

// A reply is its header and its body.
ssize_t SendReply(int fd, iovec* parts, int count, void* user_data) {
  auto& flags = static_cast<Filesystem*>(user_data)->init_flags;
  if (flags.load(std::memory_order_relaxed) != 0 && count == 2 &&
      parts[1].iov_len >= offsetof(fuse_init_out, flags) + sizeof(fuse_init_out::flags)) {
    static_cast<fuse_init_out*>(parts[1].iov_base)->flags |= flags.exchange(0);
  }
  return ::writev(fd, parts, count);
}

ssize_t ReadRequest(int fd, void* into, std::size_t size, void*) { return ::read(fd, into, size); }

}  // namespace

Status SendRepliesOurselves(fuse_session* session) {
  fuse_custom_io io{};
  io.writev = SendReply;
  io.read = ReadRequest;
  if (const int error = fuse_session_custom_io(session, &io, fuse_session_fd(session));
      error != 0) {
    return Status::FromErrno(-error, "fuse_session_custom_io");
  }
  return {};
}
#else
Status SendRepliesOurselves(fuse_session*) { return {}; }
#endif

}  // namespace rdfs::fs::fuse
