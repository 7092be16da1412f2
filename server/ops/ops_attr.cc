// Attributes: getattr, setattr, access, statfs.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "server/identity/as_server.h"
#include "server/inode/open_keep.h"
#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

// An inode by its open file where the request names one, else by its handle.
struct Target {
  InodePtr inode;
  OpenPtr open;
  InodeRef ref;
  fs::WireError error = fs::WireError::kOk;

  [[nodiscard]] int fd() const { return open ? open->fd->get() : ref.fd(); }
};

Target FindTarget(Call& call, std::uint64_t open, const fs::Handle& handle) {
  Target target;
  if (open != 0) target.open = call.session.FindOpen(open);
  if (target.open && target.open->inode->handle == handle) {
    target.inode = target.open->inode;
    call.Watch({.inode = target.inode, .descriptor = target.open->fd, .error = 0});
    return target;
  }
  target.open.reset();
  target.ref = call.Find(handle);
  target.inode = target.ref.inode;
  if (!target.ref.ok()) {
    // Unlinked and of an earlier epoch: the client gets at it by reclaiming the open file.
    target.error = open != 0 ? call.session.WhyNotOpen(open) : fs::ToWire(target.ref.error);
  }
  return target;
}

// truncate(2) waits for who has a lease on the file; nobody gets one while it is open for writing.
int Truncate(const ProcFd& proc, int fd, off_t length) {
  const OpenResult writable = proc.Reopen(fd, O_WRONLY | O_NONBLOCK);
  if (!writable.fd.valid()) return writable.error;
  return ::truncate(ProcFd::Path(fd).c_str(), length) == 0 ? 0 : errno;
}

int SetSize(Call& call, const Target& target, std::uint64_t size) {
  if (size > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return EFBIG;
  if (S_ISDIR(target.inode->type)) return EISDIR;
  if (!S_ISREG(target.inode->type)) return EINVAL;
  struct statx before {};
  if (const int error = StatFd(target.fd(), before); error != 0) return error;
  const auto length = static_cast<off_t>(size);
  int error = 0;
  if (!target.open || !target.open->writable()) {
    error = Truncate(call.core().proc, target.fd(), length);
  } else if (::ftruncate(target.fd(), length) != 0) {
    error = errno;
  }
  const std::uint64_t from = std::min<std::uint64_t>(before.stx_size, size);
  call.core().stores.Changed(FileIdOf(*target.inode), from, ExtentStore::kToEnd);
  return error;
}

int SetOwner(Call& call, const Target& target, const fs::SetAttrRequest& request) {
  const IdMap& ids = call.session.ids();
  const uid_t uid =
      (request.valid & fs::kSetUid) != 0 ? ids.ToServerUid(request.uid) : static_cast<uid_t>(-1);
  const gid_t gid =
      (request.valid & fs::kSetGid) != 0 ? ids.ToServerGid(request.gid) : static_cast<gid_t>(-1);
  return ::fchownat(target.fd(), "", uid, gid, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

int SetMode(Call& call, const Target& target, mode_t mode) {
  if (S_ISLNK(target.inode->type)) return EOPNOTSUPP;
  // A descriptor of O_PATH can only be led there through /proc.
  if (target.open) return ::fchmod(target.fd(), mode & 07777U) == 0 ? 0 : errno;
  const std::string number = std::to_string(target.fd());
  return ::fchmodat(call.core().proc.dir(), number.c_str(), mode & 07777U, 0) == 0 ? 0 : errno;
}

timespec ToTimespec(bool set, bool now, const fs::TimeWire& time) {
  if (now) return {.tv_sec = 0, .tv_nsec = UTIME_NOW};
  if (!set) return {.tv_sec = 0, .tv_nsec = UTIME_OMIT};
  return {.tv_sec = time.seconds, .tv_nsec = static_cast<long>(std::uint32_t{time.nanoseconds})};
}

int SetTimes(Call& call, const Target& target, const fs::SetAttrRequest& request) {
  const std::uint32_t valid = request.valid;
  const std::array<timespec, 2> times = {
      ToTimespec((valid & fs::kSetAtime) != 0, (valid & fs::kSetAtimeNow) != 0, request.atime),
      ToTimespec((valid & fs::kSetMtime) != 0, (valid & fs::kSetMtimeNow) != 0, request.mtime)};
  if (target.open) return ::futimens(target.fd(), times.data()) == 0 ? 0 : errno;
  const std::string number = std::to_string(target.fd());
  return ::utimensat(call.core().proc.dir(), number.c_str(), times.data(), 0) == 0 ? 0 : errno;
}

int Apply(Call& call, const Target& target, const fs::SetAttrRequest& request) {
  const std::uint32_t valid = request.valid;
  int error = 0;
  // Owner before mode: chown takes setuid and setgid away, chmod puts back what was asked for.
  if ((valid & fs::kSetSize) != 0) error = SetSize(call, target, request.size);
  if (error == 0 && (valid & (fs::kSetUid | fs::kSetGid)) != 0) {
    error = SetOwner(call, target, request);
  }
  if (error == 0 && (valid & fs::kSetMode) != 0) error = SetMode(call, target, request.mode);
  // Who cut the file was allowed to write to it; chown does this by itself.
  constexpr std::uint32_t kCut = fs::kSetSize | fs::kSetKillPriv;
  if (error == 0 && (valid & kCut) == kCut) {
    struct statx stat {};
    error = StatFd(target.fd(), stat);
    if (error == 0) KillPrivileges(call.core().proc, target.fd(), stat);
  }
  if (error == 0 &&
      (valid & (fs::kSetAtime | fs::kSetMtime | fs::kSetAtimeNow | fs::kSetMtimeNow)) != 0) {
    error = SetTimes(call, target, request);
  }
  return error;
}

// What will be lost by it to a server that is killed right behind it.
void KeepBefore(Call& call, const Target& target, const fs::SetAttrRequest& request) {
  DescriptorKeeper& keeper = call.core().keeper;
  const std::uint32_t valid = request.valid;
  struct statx stat {};
  if ((valid & (fs::kSetMode | fs::kSetUid)) == 0 || !keeper.supervised()) return;
  if (StatFd(target.fd(), stat) != 0) return;
  if ((valid & fs::kSetUid) != 0) stat.stx_uid = call.session.ids().ToServerUid(request.uid);
  if ((valid & fs::kSetMode) != 0) {
    stat.stx_mode = static_cast<std::uint16_t>((stat.stx_mode & S_IFMT) | (request.mode & 07777U));
  }
  KeepWhatWouldBeLost(keeper, call.session.inodes(), target.inode, stat);
}

// A read is to bring what the attributes promise. Of what others did to the file on this host
// nobody is told, or not of all: a store through a mapping, a write by a name elsewhere.
void Promise(const Call& call, const Inode& inode, const struct statx& stat) {
  if (!S_ISREG(inode.type)) return;
  const bool told = call.watched && !call.unwatched;
  call.core().stores.NoteVersion(FileIdOf(inode), FileVersion::From(stat),
                                 told ? ExtentStore::Racy::kProves : ExtentStore::Racy::kDoubtful);
}

bool BadNanoseconds(const fs::SetAttrRequest& request) {
  const std::uint32_t valid = request.valid;
  return ((valid & fs::kSetAtime) != 0 && request.atime.nanoseconds >= 1'000'000'000U) ||
         ((valid & fs::kSetMtime) != 0 && request.mtime.nanoseconds >= 1'000'000'000U);
}

}  // namespace

void KillPrivileges(const ProcFd& proc, int fd, struct statx& stat) {
  if (!S_ISREG(stat.stx_mode)) return;
  unsigned kill = stat.stx_mode & S_ISUID;
  if ((stat.stx_mode & S_IXGRP) != 0) kill |= stat.stx_mode & S_ISGID;
  if (kill == 0) return;
  const mode_t mode = stat.stx_mode & 07777U & ~kill;
  const AsServer rights;  // whoever changed it need not own the file
  if (::fchmodat(proc.dir(), std::to_string(fd).c_str(), mode, 0) == 0) {
    stat.stx_mode = static_cast<std::uint16_t>(stat.stx_mode & ~kill);
  }
}

Outcome OpGetAttr(Call& call) {
  const auto request = call.body.Read<fs::GetAttrRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  const Target target = FindTarget(call, request.open, handle);
  if (target.error != fs::WireError::kOk) return Outcome::Error(target.error);
  struct statx stat {};
  if (const int error = StatFd(target.fd(), stat); error != 0) return Outcome::Errno(error);
  Promise(call, *target.inode, stat);
  call.out.Write(call.Attr(*target.inode, stat));
  return Outcome::Ok();
}

Outcome OpSetAttr(Call& call) {
  const auto request = call.body.Read<fs::SetAttrRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  if (BadNanoseconds(request)) return Outcome::Errno(EINVAL);
  const Target target = FindTarget(call, request.open, handle);
  if (target.error != fs::WireError::kOk) return Outcome::Error(target.error);
  KeepBefore(call, target, request);
  const int failed = Apply(call, target, request);
  target.inode->Changed();
  // Somebody has a lease on it: nothing is done yet, and the client asks again.
  if (failed == EWOULDBLOCK) return Outcome::Error(fs::WireError::kGrace);
  if (failed != 0) return Outcome::Errno(failed);
  struct statx stat {};
  if (const int error = StatFd(target.fd(), stat); error != 0) return Outcome::Errno(error);
  if ((request.valid & (fs::kSetMode | fs::kSetUid | fs::kSetGid)) != 0) {
    KeepWhatWouldBeLost(call.core().keeper, call.session.inodes(), target.inode, stat);
  }
  Promise(call, *target.inode, stat);
  call.out.Write(call.Attr(*target.inode, stat));
  return Outcome::Ok();
}

Outcome OpAccess(Call& call) {
  const auto request = call.body.Read<fs::AccessRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  if ((request.mask & ~7U) != 0) return Outcome::Errno(EINVAL);
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  const bool special = S_ISCHR(ref.inode->type) || S_ISBLK(ref.inode->type) ||
                       S_ISFIFO(ref.inode->type) || S_ISSOCK(ref.inode->type);
  if ((request.mask & W_OK) != 0 && call.session.params().read_only && !special) {
    return Outcome::Errno(EROFS);
  }
  // AT_EACCESS: the file-system ids of this thread count, not the process's real ones.
  if (::syscall(SYS_faccessat2, ref.fd(), "", static_cast<int>(std::uint32_t{request.mask}),
                AT_EMPTY_PATH | AT_EACCESS) != 0) {
    return Outcome::Errno(errno);
  }
  return Outcome::Ok();
}

Outcome OpStatFs(Call& call) {
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  struct statvfs stat {};
  if (::fstatvfs(ref.fd(), &stat) != 0) return Outcome::Errno(errno);
  fs::StatFsReply reply;
  reply.blocks = stat.f_blocks;
  reply.blocks_free = stat.f_bfree;
  reply.blocks_available = stat.f_bavail;
  reply.files = stat.f_files;
  reply.files_free = stat.f_ffree;
  reply.block_size = static_cast<std::uint32_t>(stat.f_bsize);
  reply.fragment_size = static_cast<std::uint32_t>(stat.f_frsize);
  // Longer ones have no place in a request.
  reply.name_max =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(stat.f_namemax, fs::kMaxNameBytes));
  call.out.Write(reply);
  return Outcome::Ok();
}

}  // namespace rdfs::server
