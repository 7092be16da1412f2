// Attributes, statfs, xattrs.
#include <sys/statvfs.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "fs/fuse/ops/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::Attributes;
using client::CallContext;
using client::Lane;
using client::XattrReply;

// The kernel asks for it before every chown, and often before a write (init_reply.h); in all but a
// few files of a system it is not there.
constexpr std::string_view kCapabilityXattr = "security.capability";

// A bit each for what ls(1) asks about every file that it lists; 0: another one.
constexpr std::uint8_t kLabel = 1, kAccessAcl = 2, kDefaultAcl = 4;
std::uint8_t ListedXattr(std::string_view name) {
  if (name == "security.selinux") return kLabel;
  if (name == "system.posix_acl_access") return kAccessAcl;
  return name == "system.posix_acl_default" ? kDefaultAcl : 0;
}

// A file system without ACLs says that it has none, which is no error: the kernel asks at every
// permission check, and to it any errno but this one is the check's result. A program that asks
// itself is told by way of the same question.
Result<XattrReply> AsTheKernelAsks(std::uint8_t listed, Result<XattrReply>&& reply) {
  const bool is_acl = listed == kAccessAcl || listed == kDefaultAcl;
  if (!is_acl || reply.ok() || reply.status().errno_value() != EOPNOTSUPP) return std::move(reply);
  return Status::FromErrno(ENODATA, "no ACLs");
}

TimeWire ToWire(const timespec& time) {
  return {time.tv_sec, static_cast<std::uint32_t>(time.tv_nsec)};
}

client::SetAttributes ToSetAttributes(const struct stat& attr, int valid) {
  client::SetAttributes set;
  const auto take = [&](int fuse_bit, std::uint32_t ours) {
    if ((valid & fuse_bit) != 0) set.valid |= ours;
  };
  take(FUSE_SET_ATTR_MODE, kSetMode);
  take(FUSE_SET_ATTR_UID, kSetUid);
  take(FUSE_SET_ATTR_GID, kSetGid);
  take(FUSE_SET_ATTR_SIZE, kSetSize);
  take(FUSE_SET_ATTR_ATIME, kSetAtime);
  take(FUSE_SET_ATTR_MTIME, kSetMtime);
  take(FUSE_SET_ATTR_ATIME_NOW, kSetAtimeNow);
  take(FUSE_SET_ATTR_MTIME_NOW, kSetMtimeNow);
  if ((set.valid & kSetAtimeNow) != 0) set.valid &= ~kSetAtime;
  if ((set.valid & kSetMtimeNow) != 0) set.valid &= ~kSetMtime;
  set.mode = attr.st_mode;
  set.uid = attr.st_uid;
  set.gid = attr.st_gid;
  set.size = static_cast<std::uint64_t>(attr.st_size);
  set.atime = ToWire(attr.st_atim);
  set.mtime = ToWire(attr.st_mtim);
  return set;
}

void AnswerXattr(Request& request, NodeId node, std::size_t size, Result<XattrReply>& reply) {
  if (!reply.ok()) return request.ErrorOrRecover(node, reply.status());
  if (size == 0) return request.XattrSize(reply->size);
  request.Bytes(reply->value);
}

// That there is none is remembered for as long as attributes may be.
void GetCapability(Request request, NodeId node, std::size_t size) {
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  struct Asked {
    Request request;
    NodeId node;
    std::size_t size;
    TimePoint at;
  };
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    auto asked = std::make_unique<Asked>(Asked{std::move(pending), node, size, BootClock::now()});
    return lane.GetXattr(
        caller, *handle, kCapabilityXattr, static_cast<std::uint32_t>(size),
        [asked = std::move(asked)](Result<XattrReply>&& reply) {
          if (!reply.ok() && reply.status().errno_value() == ENODATA) {
            const auto lease = asked->request.worker().filesystem().mount.info().attr_lease;
            asked->request.BelieveWithoutCapability(asked->node, asked->at, asked->at + lease);
          }
          AnswerXattr(asked->request, asked->node, asked->size, reply);
        });
  });
}

}  // namespace

void GetAttr(fuse_req_t raw, fuse_ino_t node, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  if (const auto removed = request.worker().filesystem().inodes.removed_directory(node)) {
    return request.Attr(ToStat(*removed), 0);
  }
  Filesystem& filesystem = request.worker().filesystem();
  const std::uint64_t changes = filesystem.changes.load();
  const TimePoint now = BootClock::now();
  const auto known = filesystem.directories.Find(node, now, changes);
  filesystem.attributes_at_hand.Note(known.has_value());
  if (known) return request.Attr(ToStat(known->attr), CacheSeconds(known->expires, now));
  // With its open file, a file that has been unlinked still has attributes.
  const auto open = file == nullptr ? nullptr : request.worker().filesystem().opens.Find(file->fh);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.GetAttr(
        caller, *handle, open == nullptr ? nullptr : open->file,
        [pending = std::move(pending), node, changes](Result<Attributes>&& attr) mutable {
          if (attr.ok() && S_ISDIR(attr->attr.mode)) {
            pending.worker().filesystem().directories.Remember(node, changes, *attr);
          }
          AnswerAttr(pending, node, attr);
        });
  });
}

void SetAttr(fuse_req_t raw, fuse_ino_t node, struct stat* attr, int valid, fuse_file_info* file) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  const auto open = file == nullptr ? nullptr : request.worker().filesystem().opens.Find(file->fh);
  client::SetAttributes set = ToSetAttributes(*attr, valid);
  // A truncate by who has no right to leave setuid and setgid as they are.
  if ((request.message().Body<fuse_setattr_in>().valid & FATTR_KILL_SUIDGID) != 0) {
    set.valid |= kSetKillPriv;
  }
  request.worker().filesystem().directories.Forget(node);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.SetAttr(caller, *handle, open == nullptr ? nullptr : open->file, set,
                        [pending = std::move(pending), node](Result<Attributes>&& now) mutable {
                          AnswerAttr(pending, node, now);
                        });
  });
}

void Access(fuse_req_t raw, fuse_ino_t node, int mask) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Access(caller, *handle, static_cast<std::uint32_t>(mask),
                       [pending = std::move(pending), node](Status&& status) mutable {
                         AnswerDone(pending, node, status);
                       });
  });
}

void StatFs(fuse_req_t raw, fuse_ino_t node) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.StatFs(caller, *handle,
                       [pending = std::move(pending), node](Result<client::StatFs>&& got) mutable {
                         if (!got.ok()) return pending.ErrorOrRecover(node, got.status());
                         struct statvfs st {};
                         st.f_bsize = got->block_size;
                         st.f_frsize = got->fragment_size;
                         st.f_blocks = got->blocks;
                         st.f_bfree = got->blocks_free;
                         st.f_bavail = got->blocks_available;
                         st.f_files = got->files;
                         st.f_ffree = got->files_free;
                         st.f_favail = got->files_free;
                         st.f_namemax = got->name_max;
                         pending.StatFs(st);
                       });
  });
}

void SetXattr(fuse_req_t raw, fuse_ino_t node, const char* name, const char* value,
              std::size_t size, int flags) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Filesystem& filesystem = request.worker().filesystem();
  filesystem.inodes.ForgetCapability(node);
  filesystem.directories.Forget(node);  // an ACL changes the mode
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.SetXattr(caller, *handle, name, AsBytes({value, size}),
                         static_cast<std::uint32_t>(flags),
                         [pending = std::move(pending), node](Status&& status) mutable {
                           AnswerDone(pending, node, status);
                         });
  });
}

void GetXattr(fuse_req_t raw, fuse_ino_t node, const char* name, std::size_t size) {
  Request request = Begin(raw);
  InodeTable& inodes = request.worker().filesystem().inodes;
  if (name == kCapabilityXattr) {
    if (inodes.KnownWithoutCapability(node, BootClock::now())) return request.Error(ENODATA);
    return GetCapability(std::move(request), node, size);
  }
  const TimePoint now = BootClock::now();
  const std::uint8_t listed = ListedXattr(name);
  if (inodes.KnownWithoutXattr(node, listed, now)) return request.Error(ENODATA);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  struct Asked {
    Request request;
    NodeId node;
    std::size_t size;
    std::uint8_t listed;
    TimePoint at;
  };
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    auto asked = std::make_unique<Asked>(Asked{std::move(pending), node, size, listed, now});
    return lane.GetXattr(caller, *handle, name, static_cast<std::uint32_t>(size),
                         [asked = std::move(asked)](Result<XattrReply>&& answer) {
                           auto reply = AsTheKernelAsks(asked->listed, std::move(answer));
                           if (!reply.ok() && reply.status().errno_value() == ENODATA) {
                             asked->request.BelieveWithout(asked->node, asked->listed, asked->at);
                           }
                           AnswerXattr(asked->request, asked->node, asked->size, reply);
                         });
  });
}

void ListXattr(fuse_req_t raw, fuse_ino_t node, std::size_t size) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.ListXattr(
        caller, *handle, static_cast<std::uint32_t>(size),
        [pending = std::move(pending), node, size](Result<XattrReply>&& reply) mutable {
          AnswerXattr(pending, node, size, reply);
        });
  });
}

void RemoveXattr(fuse_req_t raw, fuse_ino_t node, const char* name) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  request.worker().filesystem().directories.Forget(node);
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.RemoveXattr(caller, *handle, name,
                            [pending = std::move(pending), node](Status&& status) mutable {
                              AnswerDone(pending, node, status);
                            });
  });
}

}  // namespace rdfs::fs::fuse::ops
