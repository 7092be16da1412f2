#include "fs/fuse/ops/ops.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <bit>
#include <cerrno>

namespace rdfs::fs::fuse {

std::uint32_t TransferBytes(std::uint32_t server_takes, std::size_t lane_buffer_bytes) {
  const std::size_t most = std::min<std::size_t>(server_takes, lane_buffer_bytes / 8);
  // Below 128 KiB the kernel's own read-ahead would be cut to pieces.
  return static_cast<std::uint32_t>(std::max<std::size_t>(std::bit_floor(most), 128 << 10));
}

const fuse_lowlevel_ops& Operations() {
  static const fuse_lowlevel_ops table = [] {
    fuse_lowlevel_ops ops{};
    ops.init = ops::Init;
    ops.lookup = ops::Lookup;
    ops.forget = ops::Forget;
    ops.forget_multi = ops::ForgetMulti;
    ops.getattr = ops::GetAttr;
    ops.setattr = ops::SetAttr;
    ops.readlink = ops::Readlink;
    ops.mknod = ops::Mknod;
    ops.mkdir = ops::Mkdir;
    ops.unlink = ops::Unlink;
    ops.rmdir = ops::Rmdir;
    ops.symlink = ops::Symlink;
    ops.rename = ops::Rename;
    ops.link = ops::Link;
    ops.open = ops::Open;
    ops.read = ops::Read;
    ops.write = ops::Write;
    ops.flush = ops::Flush;
    ops.release = ops::Release;
    ops.fsync = ops::Fsync;
    ops.opendir = ops::OpenDir;
    ops.readdir = ops::ReadDir;
    ops.readdirplus = ops::ReadDirPlus;
    ops.releasedir = ops::ReleaseDir;
    ops.fsyncdir = ops::FsyncDir;
    ops.statfs = ops::StatFs;
    ops.setxattr = ops::SetXattr;
    ops.getxattr = ops::GetXattr;
    ops.listxattr = ops::ListXattr;
    ops.removexattr = ops::RemoveXattr;
    ops.access = ops::Access;
    ops.create = ops::Create;
    ops.getlk = ops::GetLock;
    ops.setlk = ops::SetLock;
    ops.flock = ops::Flock;
    ops.fallocate = ops::Fallocate;
    ops.copy_file_range = ops::CopyFileRange;
    ops.lseek = ops::Lseek;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    ops.tmpfile = ops::Tmpfile;
#endif
    return ops;
  }();
  return table;
}

namespace ops {
namespace {

timespec ToTimespec(const TimeWire& time) {
  return {.tv_sec = time.seconds, .tv_nsec = static_cast<long>(std::uint32_t{time.nanoseconds})};
}

}  // namespace

struct stat ToStat(const AttrWire& attr) {
  struct stat st {};
  st.st_ino = attr.ino;
  st.st_size = static_cast<off_t>(std::uint64_t{attr.size});
  st.st_blocks = static_cast<blkcnt_t>(std::uint64_t{attr.blocks});
  st.st_atim = ToTimespec(attr.atime);
  st.st_mtim = ToTimespec(attr.mtime);
  st.st_ctim = ToTimespec(attr.ctime);
  st.st_mode = attr.mode;
  st.st_nlink = attr.nlink;
  st.st_uid = attr.uid;
  st.st_gid = attr.gid;
  st.st_rdev = makedev(attr.rdev_major, attr.rdev_minor);
  st.st_blksize = static_cast<blksize_t>(std::uint32_t{attr.block_size});
  return st;
}

double CacheSeconds(TimePoint expires, TimePoint now) {
  if (expires <= now) return 0;
  return std::chrono::duration<double>(expires - now).count();
}

fuse_entry_param ToEntry(Filesystem& filesystem, NodeId parent, std::string_view name,
                         const client::NamedFile& file, TimePoint now) {
  fuse_entry_param entry{};
  entry.ino = filesystem.inodes.Remember(file.handle, parent, name);
  filesystem.new_directories.Renew(parent, file.name_expires, now);
  entry.attr = ToStat(file.attr);
  entry.attr_timeout = CacheSeconds(file.attr_expires, now);
  entry.entry_timeout = CacheSeconds(file.name_expires, now);
  return entry;
}

void AnswerEntry(Request& request, NodeId parent, std::string_view name,
                 Result<client::NamedFile>& file) {
  if (!file.ok()) return request.ErrorOrRecover(parent, file.status());
  fuse_entry_param entry =
      ToEntry(request.worker().filesystem(), parent, name, *file, BootClock::now());
  const bool current = request.Believe(entry.ino, file->attr_expires, file->attr);
  (void)request.Tell(entry.ino, file->attr);
  // Who looks at the attributes is to ask for them, and pages go before that answer: before this
  // one the directory is locked, and recalls of its names wait.
  if (!current || request.PagesAreOld(entry.ino, file->attr.change)) entry.attr_timeout = 0;
  request.Entry(entry);
}

namespace {

// When the kernel has taken what it is about to be told, and only if they have not gone until then:
// the cookie of now is older than what it has by then, and the size that a program asks for just
// then would be disregarded.
void DropPagesSoon(Request& request, NodeId node, std::uint64_t change) {
  Worker& worker = request.worker();
  const std::uint64_t gone = worker.filesystem().inodes.pages_gone(node);
  worker.Await({.until = BootClock::now() + InodeTable::kAnswerTravel,
                .is_over = [] { return false; },
                .then =
                    [&worker, node, change, gone] {
                      Filesystem& filesystem = worker.filesystem();
                      if (worker.ends() || filesystem.inodes.pages_gone(node) != gone ||
                          !filesystem.inodes.PagesAreOld(node, change, BootClock::now())) {
                        return;
                      }
                      filesystem.kernel.DropPages(node, change);
                    }});
}

}  // namespace

void AnswerAttr(Request& request, NodeId node, Result<client::Attributes>& attributes) {
  if (!attributes.ok()) return request.ErrorOrRecover(node, attributes.status());
  const bool current = request.Believe(node, attributes->expires, attributes->attr);
  const bool known = request.Tell(node, attributes->attr);
  const struct stat stat = ToStat(attributes->attr);
  const std::uint64_t change = attributes->attr.change;
  if (!request.PagesAreOld(node, change)) {
    return request.Attr(stat, current ? CacheSeconds(attributes->expires, BootClock::now()) : 0);
  }
  request.ForgetGrants(node, change);
  // Who sees that another client has written is not to read what was there before. But the kernel
  // must hear what is new to it: a new size makes it drop pages by itself, and else they go a
  // little later. A change of this mount's may hold what dropping pages waits for.
  if (!known || request.message().changes != 0) {
    DropPagesSoon(request, node, change);
    return request.Attr(stat, 0);
  }
  request.DropPages(node, change,
                    [stat](Request& pending, bool /*dropped*/) { pending.Attr(stat, 0); });
}

void AnswerDone(Request& request, NodeId node, const Status& status) {
  if (!status.ok()) return request.ErrorOrRecover(node, status);
  request.Ok();
}

std::optional<Handle> FindHandle(Request& request, NodeId node) {
  std::optional<Handle> handle = request.worker().filesystem().inodes.Find(node);
  if (!handle) request.Error(ESTALE);
  return handle;
}

std::shared_ptr<fuse::Open> FindOpen(Request& request, const fuse_file_info* file) {
  auto open = file == nullptr ? nullptr : request.worker().filesystem().opens.Find(file->fh);
  if (open == nullptr) request.Error(EBADF);
  return open;
}

}  // namespace ops
}  // namespace rdfs::fs::fuse
