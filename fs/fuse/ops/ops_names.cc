// Names: lookup, forget, links, directories, rename.
//
// A name that the kernel sent lies in the request's message, which the callback keeps: so callbacks
// hold the pointer.
#include <linux/fs.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <memory>
#include <string>

#include "fs/fuse/ops/ops.h"

namespace rdfs::fs::fuse::ops {
namespace {

using client::CallContext;
using client::Lane;
using client::NamedFile;

// The callback of a call that finds or makes `name` in `parent`.
auto AnswerWithEntry(Request&& request, NodeId parent, const char* name) {
  return [request = std::move(request), parent, name](Result<NamedFile>&& file) mutable {
    AnswerEntry(request, parent, name, file);
  };
}

void AnswerAbsent(Request& request, TimePoint until, TimePoint now) {
  if (until <= now) return request.Error(ENOENT);
  fuse_entry_param absent{};
  absent.entry_timeout = CacheSeconds(until, now);
  request.Entry(absent);
}

// That there is no such name is as true as the rest of what is known of the directory: who makes
// one recalls it.
void AnswerNotFound(Request& request, NodeId parent) {
  AnswerAbsent(request, request.worker().filesystem().inodes.lease_until(parent), BootClock::now());
}

// What is kept open of the file behind a name: it is about to go.
void GiveUpKept(const Request& request, NodeId parent, const char* name) {
  Worker& worker = request.worker();
  if (const auto node = worker.filesystem().inodes.FindChild(parent, name)) {
    worker.GiveUpKept(*node);
  }
}

void AddsName(const Request& request, NodeId parent, const char* name) {
  request.worker().filesystem().new_directories.Adds(parent, name);
}

void AnswerNewDirectory(Request& request, NodeId parent, const char* name,
                        Result<NamedFile>& made) {
  if (!made.ok()) return request.ErrorOrRecover(parent, made.status());
  Filesystem& filesystem = request.worker().filesystem();
  const fuse_entry_param entry = ToEntry(filesystem, parent, name, *made, BootClock::now());
  request.Believe(entry.ino, made->attr_expires, made->attr);
  request.BelieveEmpty(entry.ino, made->attr_expires);
  request.Entry(entry);
}

// The answer tells of the parent and of what is gone.
void NoteRemovedDirectory(const Request& request, NodeId parent, const char* name) {
  Worker& worker = request.worker();
  const auto told = worker.lane().DirectoriesTold(request.unique());
  const auto node = worker.filesystem().inodes.FindChild(parent, name);
  if (node && told.size() > 1) worker.filesystem().inodes.SetRemovedDirectory(*node, told[1].attr);
}

void AnswerRemoved(Request& request, NodeId parent, const char* name, const Status& status) {
  if (status.ok()) request.worker().filesystem().inodes.Removed(parent, name);
  AnswerDone(request, parent, status);
}

// What the kernel believes of a name that is renamed it believes of the new name then, as long. Who
// changes that one at this moment may have recalled it before it was this file's, and does so no
// more: the directories' leases, which come with the answer, say that nobody does.
bool MayTakeAlong(const Request& request) {
  const auto told = request.worker().lane().DirectoriesTold(request.unique());
  const TimePoint now = BootClock::now();
  return !told.empty() && std::ranges::all_of(told, [now](const auto& directory) {
    return directory.expires > now;
  });
}

}  // namespace

void Lookup(fuse_req_t raw, fuse_ino_t parent, const char* name) {
  Request request = Begin(raw);
  const TimePoint now = BootClock::now();
  const TimePoint absent_until =
      request.worker().filesystem().new_directories.AbsentUntil(parent, name, now);
  if (absent_until > now) return AnswerAbsent(request, absent_until, now);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    // A look-up goes through the parent: if that is stale, it can be found again.
    return lane.Lookup(
        caller, *handle, name,
        [pending = std::move(pending), parent, name](Result<NamedFile>&& file) mutable {
          if (!file.ok() && file.status().errno_value() == ENOENT) {
            return AnswerNotFound(pending, parent);
          }
          AnswerEntry(pending, parent, name, file);
        });
  });
}

void Forget(fuse_req_t raw, fuse_ino_t node, std::uint64_t lookups) {
  Worker::Current().filesystem().inodes.Forget(node, lookups);
  fuse_reply_none(raw);
}

void ForgetMulti(fuse_req_t raw, std::size_t count, fuse_forget_data* forgets) {
  InodeTable& inodes = Worker::Current().filesystem().inodes;
  for (std::size_t i = 0; i < count; ++i) inodes.Forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(raw);
}

void Readlink(fuse_req_t raw, fuse_ino_t node) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  Start(std::move(request), [&](Lane& lane, const CallContext& caller, Request&& pending) {
    return lane.Readlink(
        caller, *handle,
        [pending = std::move(pending), node](Result<std::string_view>&& target) mutable {
          if (!target.ok()) return pending.ErrorOrRecover(node, target.status());
          pending.Readlink(std::string(*target).c_str());
        });
  });
}

void Symlink(fuse_req_t raw, const char* target, fuse_ino_t parent, const char* name) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  AddsName(request, parent, name);
  StartChange(std::move(request), {parent},
              [&](Lane& lane, const CallContext& caller, Request&& pending) {
                return lane.Symlink(caller, *handle, name, target,
                                    AnswerWithEntry(std::move(pending), parent, name));
              });
}

void Mknod(fuse_req_t raw, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  AddsName(request, parent, name);
  const std::uint32_t umask = request.umask();
  StartChange(std::move(request), {parent},
              [&](Lane& lane, const CallContext& caller, Request&& pending) {
                return lane.Mknod(caller, *handle, name, mode, umask,
                                  {.major = major(device), .minor = minor(device)},
                                  AnswerWithEntry(std::move(pending), parent, name));
              });
}

void Mkdir(fuse_req_t raw, fuse_ino_t parent, const char* name, mode_t mode) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  AddsName(request, parent, name);
  const std::uint32_t umask = request.umask();
  StartChange(std::move(request), {parent},
              [&](Lane& lane, const CallContext& caller, Request&& pending) {
                return lane.Mkdir(
                    caller, *handle, name, mode, umask,
                    [pending = std::move(pending), parent, name](Result<NamedFile>&& made) mutable {
                      AnswerNewDirectory(pending, parent, name, made);
                    });
              });
}

void Unlink(fuse_req_t raw, fuse_ino_t parent, const char* name) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  GiveUpKept(request, parent, name);
  StartChange(
      std::move(request), {parent}, [&](Lane& lane, const CallContext& caller, Request&& pending) {
        return lane.Unlink(caller, *handle, name,
                           [pending = std::move(pending), parent, name](Status&& status) mutable {
                             AnswerRemoved(pending, parent, name, status);
                           });
      });
}

void Rmdir(fuse_req_t raw, fuse_ino_t parent, const char* name) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  GiveUpKept(request, parent, name);
  request.worker().filesystem().directories.ForgetAll();
  StartChange(
      std::move(request), {parent}, [&](Lane& lane, const CallContext& caller, Request&& pending) {
        return lane.Rmdir(caller, *handle, name,
                          [pending = std::move(pending), parent, name](Status&& status) mutable {
                            if (status.ok()) NoteRemovedDirectory(pending, parent, name);
                            AnswerRemoved(pending, parent, name, status);
                          });
      });
}

void Rename(fuse_req_t raw, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  Request request = Begin(raw);
  if ((flags & ~unsigned{RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT}) != 0) {
    return request.Error(EINVAL);
  }
  std::uint32_t wire = 0;
  if ((flags & RENAME_NOREPLACE) != 0) wire |= kRenameNoReplace;
  if ((flags & RENAME_EXCHANGE) != 0) wire |= kRenameExchange;
  if ((flags & RENAME_WHITEOUT) != 0) wire |= kRenameWhiteout;
  const auto handle = FindHandle(request, parent);
  if (!handle) return;
  const auto new_handle = FindHandle(request, new_parent);
  if (!new_handle) return;
  GiveUpKept(request, parent, name);
  GiveUpKept(request, new_parent, new_name);
  request.worker().filesystem().directories.ForgetAll();
  AddsName(request, new_parent, new_name);
  struct Places {
    Request request;
    NodeId parent;
    const char* name;
    NodeId new_parent;
    const char* new_name;
    bool exchange;
  };
  StartChange(
      std::move(request), {parent, new_parent},
      [&](Lane& lane, const CallContext& caller, Request&& pending) {
        auto places = std::make_unique<Places>(Places{std::move(pending), parent, name, new_parent,
                                                      new_name, (flags & RENAME_EXCHANGE) != 0});
        return lane.Rename(caller, *handle, name, *new_handle, new_name, wire,
                           [at = std::move(places)](Status&& status) {
                             if (status.ok()) {
                               Filesystem& filesystem = at->request.worker().filesystem();
                               filesystem.inodes.Renamed(at->parent, at->name, at->new_parent,
                                                         at->new_name, at->exchange);
                               if (!MayTakeAlong(at->request)) {
                                 filesystem.kernel.ForgetNames();
                               }
                             }
                             AnswerDone(at->request, at->parent, status);
                           });
      });
}

void Link(fuse_req_t raw, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) {
  Request request = Begin(raw);
  const auto handle = FindHandle(request, node);
  if (!handle) return;
  const auto parent = FindHandle(request, new_parent);
  if (!parent) return;
  AddsName(request, new_parent, new_name);
  StartChange(std::move(request), {new_parent},
              [&](Lane& lane, const CallContext& caller, Request&& pending) {
                return lane.Link(caller, *handle, *parent, new_name,
                                 AnswerWithEntry(std::move(pending), new_parent, new_name));
              });
}

}  // namespace rdfs::fs::fuse::ops
