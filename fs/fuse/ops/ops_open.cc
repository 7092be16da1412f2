// Opening and closing files.
#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string>

#include "fs/fuse/ops/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::Attributes;
using client::CallContext;
using client::Lane;

// The kernel has dealt with O_CREAT and O_EXCL; they must not be done again. O_DIRECT is between
// the program and this kernel: how the server's file is read is the server's choice. With the
// writeback cache the kernel reads pages that are written in part, and places appends itself.
int FlagsForServer(const Filesystem& filesystem, int flags) {
  flags &= ~(O_CREAT | O_EXCL | O_NOCTTY | O_DIRECT);
  if (!filesystem.options.writeback) return flags;
  if ((flags & O_ACCMODE) == O_WRONLY) flags = (flags & ~O_ACCMODE) | O_RDWR;
  return flags & ~O_APPEND;
}

// With which the file is opened at the server; `making`: O_CREAT and O_EXCL.
std::uint32_t WireFlags(const Filesystem& filesystem, int flags, int making = 0) {
  const std::uint32_t wire = OpenFlagsToWire(FlagsForServer(filesystem, flags) | making);
  const bool asks = (wire & kOpenWrite) != 0 && filesystem.options.early_writes;
  return wire | (asks ? kOpenWriteLease : 0);
}

// Gives the open file a number, and tells the kernel how it may cache.
//
// O_APPEND goes past the page cache: only the server knows where the end is, and the kernel would
// put the bytes where it believes it to be. So does what can only write, where the kernel sees to
// it that no page stays untrue: a copy less, into pages that the next open drops. So does all of a
// strict mount: pages of a file that stays open outlive their lease. Pages are kept
// from an earlier open only if nothing has changed since then (close-to-open).
void FillFileInfo(Filesystem& filesystem, NodeId node, const client::OpenPtr& opened,
                  std::uint64_t change, std::uint64_t size, fuse_file_info& file) {
  auto open = std::make_shared<fuse::Open>();
  open->file = opened;
  open->node = node;
  open->size = size;
  if (const auto place = filesystem.inodes.FindPlace(node)) {
    opened->SetHint(place->parent, place->name);
  }
  const bool appends = (opened->flags() & kOpenAppend) != 0;
  const bool only_writes = (opened->flags() & kOpenRead) == 0;
  const FilesystemOptions& options = filesystem.options;
  open->direct = options.strict || appends || (only_writes && options.direct_writes);
  file.direct_io = open->direct ? 1 : 0;
  file.keep_cache = filesystem.inodes.Opened(node, change, BootClock::now()) ? 1 : 0;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
  file.parallel_direct_writes = 1;
#endif
  file.fh = filesystem.opens.Add(std::move(open));
}

// Without a message, where the file is still open from before and nothing can have changed.
bool OpenKept(Request& request, NodeId node, std::uint32_t flags) {
  Filesystem& filesystem = request.worker().filesystem();
  const TimePoint now = request.worker().lane().Now();
  if (flags != kOpenRead || !filesystem.inodes.PagesAreCurrent(node, now)) return false;
  const auto kept = filesystem.kept.Take(node, request.context(), flags, now);
  if (kept == nullptr) return false;
  fuse_file_info info{};
  FillFileInfo(filesystem, node, kept->file, filesystem.inodes.pages_change(node), kept->size,
               info);
  request.Open(info);
  return true;
}

// Whether the next open may have it as it is.
bool MayKeep(const Filesystem& filesystem, const fuse::Open& open, TimePoint now) {
  if (open.file->lost_errno() != 0) return false;
  return open.file->flags() == kOpenRead && filesystem.inodes.PagesAreCurrent(open.node, now);
}

bool IsSet(const TimeWire& time) { return time.seconds != 0; }
bool SameTime(const TimeWire& a, const TimeWire& b) {
  return a.seconds == b.seconds && a.nanoseconds == b.nanoseconds;
}

void AnswerCreate(Request& request, NodeId parent, const char* name,
                  Result<Lane::Created>& created) {
  if (!created.ok()) return request.ErrorOrRecover(parent, created.status());
  Filesystem& filesystem = request.worker().filesystem();
  const fuse_entry_param entry = ToEntry(filesystem, parent, name, created->file, BootClock::now());
  request.Believe(entry.ino, created->file.attr_expires, created->file.attr);
  request.AllowWrites(entry.ino, created->write_lease);
  (void)request.Tell(entry.ino, created->file.attr);
  fuse_file_info file{};
  FillFileInfo(filesystem, entry.ino, created->open, created->file.attr.change,
               created->file.attr.size, file);
  // Whatever sets an attribute moves ctime, so a file as it was made has no capability.
  const AttrWire& attr = created->file.attr;
  if (IsSet(attr.btime) && SameTime(attr.btime, attr.ctime)) {
    request.BelieveWithoutCapability(entry.ino, BootClock::now(), created->file.attr_expires);
  }
  request.Create(entry, file);
}

}  // namespace

void Open(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Filesystem& filesystem = request.worker().filesystem();
  const std::uint32_t flags = WireFlags(filesystem, file->flags);
  const bool kept = OpenKept(request, node, flags);
  filesystem.opens_at_hand.Note(kept);
  if (kept) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Open(caller, *handle, flags,
                     [pending = std::move(pending), node](Result<Lane::Opened>&& opened) mutable {
                       if (!opened.ok()) return pending.ErrorOrRecover(node, opened.status());
                       const Attributes& now = opened->attributes;
                       fuse_file_info info{};
                       FillFileInfo(pending.worker().filesystem(), node, opened->open,
                                    now.attr.change, now.attr.size, info);
                       pending.Believe(node, now.expires, now.attr);
                       pending.AllowWrites(node, opened->write_lease);
                       pending.Open(info);
                     });
  });
}

void Create(fuse_req_t raw, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* file) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  request.worker().filesystem().new_directories.Adds(parent, name);
  const std::uint32_t umask = request.umask();
  const int exclusive = file->flags & O_EXCL;
  const std::uint32_t flags =
      WireFlags(request.worker().filesystem(), file->flags, O_CREAT | exclusive);
  StartChange(
      std::move(request), {parent}, [&](Lane& lane, const CallContext& caller, Request&& pending) {
        return lane.Create(
            caller, *handle, name, flags, mode, umask,
            [pending = std::move(pending), parent, name](Result<Lane::Created>&& created) mutable {
              AnswerCreate(pending, parent, name, created);
            });
      });
}

void Tmpfile(fuse_req_t raw, fuse_ino_t parent, mode_t mode, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  const std::uint32_t umask = request.umask();
  const std::uint32_t flags = WireFlags(request.worker().filesystem(), file->flags);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Tmpfile(
        caller, *handle, flags, mode, umask,
        [pending = std::move(pending), parent](Result<Lane::Created>&& created) mutable {
          AnswerCreate(pending, parent, "", created);
        });
  });
}

void Flush(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  // Writes have been answered by the server: only their errors are left, and locks to be dropped.
  // Who else has this descriptor, after a fork, is to hear of them as well.
  const int error = open->file->LossSince();
  if (!request.worker().filesystem().inodes.may_be_locked(node)) return request.Error(error);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.FlushFile(caller, open->file, file->lock_owner,
                          [pending = std::move(pending), node](Status&& status) mutable {
                            AnswerDone(pending, node, status);
                          });
  });
}

void Release(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file) {
  Request request = Begin(raw);
  Filesystem& filesystem = request.worker().filesystem();
  const auto open = filesystem.opens.Remove(file->fh);
  if (open == nullptr) return request.Error(EBADF);
  open->closed = true;
  request.worker().read_ahead().Closed(*open);
  filesystem.inodes.Closed(node);
  if (!filesystem.inodes.may_be_locked(node)) {
    const TimePoint now = request.worker().lane().Now();
    if (MayKeep(filesystem, *open, now)) {
      filesystem.kept.Keep(request.context(), open, now);
      request.worker().KeptOne();
    } else {
      request.worker().ReleaseLater(request.context(), open->file);
    }
    return request.Ok();
  }
  // The locks that go with it are waited for.
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Release(caller, open->file, [pending = std::move(pending)](Status&&) mutable {
      // close(2) has returned already: nobody hears an error, and the file is given up either way.
      pending.Ok();
    });
  });
}

void Fsync(fuse_req_t raw, fuse_ino_t node, int data_only, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto open = FindOpen(request, file);
  if (open == nullptr) return;
  open->write_error = 0;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Fsync(caller, open->file, data_only != 0,
                      [pending = std::move(pending), node](Status&& status) mutable {
                        AnswerDone(pending, node, status);
                      });
  });
}

}  // namespace rdfs::fs::fuse::ops
