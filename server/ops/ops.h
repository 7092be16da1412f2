// The handlers of the protocol's requests, by topic; dispatch.cc has the table of them.
//
// Each decodes its body, checks it, acts as the caller (the dispatcher has switched the thread's
// identity) and answers what the same call on a local file system would. See call.h.
#pragma once

#include "server/ops/call.h"

namespace rdfs::server {

// ops_session.cc
Outcome OpRenew(Call& call);
Outcome OpAttachLane(Call& call);
Outcome OpInterrupt(Call& call);
Outcome OpGraceEnd(Call& call);
Outcome OpEndSession(Call& call);
Outcome OpRecallAck(Call& call);
// ops_names.cc
Outcome OpLookup(Call& call);
Outcome OpReadlink(Call& call);
Outcome OpSymlink(Call& call);
Outcome OpMknod(Call& call);
Outcome OpMkdir(Call& call);
Outcome OpUnlink(Call& call);
Outcome OpRmdir(Call& call);
Outcome OpRename(Call& call);
Outcome OpLink(Call& call);
// ops_attr.cc
Outcome OpGetAttr(Call& call);
Outcome OpSetAttr(Call& call);
Outcome OpAccess(Call& call);
Outcome OpStatFs(Call& call);
// ops_xattr.cc
Outcome OpSetXattr(Call& call);
Outcome OpGetXattr(Call& call);
Outcome OpListXattr(Call& call);
Outcome OpRemoveXattr(Call& call);
// ops_open.cc
Outcome OpOpen(Call& call);
Outcome OpCreate(Call& call);
Outcome OpTmpfile(Call& call);
Outcome OpReclaimOpen(Call& call);
Outcome OpRelease(Call& call);
// ops_data.cc
Outcome OpRead(Call& call);
Outcome OpWrite(Call& call);
Outcome OpCommit(Call& call);
Outcome OpFsync(Call& call);
// ops_range.cc
Outcome OpFallocate(Call& call);
Outcome OpSeek(Call& call);
Outcome OpCopyFileRange(Call& call);
// ops_dir.cc
Outcome OpOpenDir(Call& call);
Outcome OpReadDir(Call& call);
// ops_lock.cc
Outcome OpFlush(Call& call);
Outcome OpGetLock(Call& call);
Outcome OpSetLock(Call& call);
Outcome OpReclaimLock(Call& call);

// Content of the file behind `open` changed in [offset, offset + length): for every reader, before
// the answer.
// `after` is a stat(2) from behind the change, if there is one (see ExtentStore::Changed).
void ContentChanged(Core& core, const OpenFile& open, std::uint64_t offset, std::uint64_t length,
                    const struct statx* after = nullptr);
// RWF_SYNC, RWF_DSYNC or 0: what each write to it goes with.
int SyncFlags(const OpenFile& open);
// The reply of a write of `written` bytes at `offset`, after which the file is as `stat` says.
fs::WriteReply MakeWriteReply(const Core& core, const OpenFile& open, std::uint64_t offset,
                              std::uint32_t written, const struct statx& stat);
// For how long its client may answer writes to it early (fs::WriteLeaseMs); `since`: Call's.
std::uint32_t WriteLeaseOf(Core& core, const OpenFile& open, LeaseTable::Stamp since);
// Takes setuid, and setgid where the group may execute, out of a regular file's mode, as the kernel
// does at a write by a user who is not root, whoever owns it. `stat` is the file's, and is changed
// alike.
void KillPrivileges(const ProcFd& proc, int fd, struct statx& stat);
// A Create or Open whose file was made, or truncated, by an earlier epoch: only opens it. `made` is
// what a Create made, empty where nobody has written that down.
Outcome OpOpenMade(Call& call, const fs::Handle& made);
// Opens a directory and answers OpenReply.
Outcome OpenDirectory(Call& call, const InodeRef& ref, std::uint32_t flags);
// An open file has left its session's table: its locks go.
void CloseOpen(Core& core, const OpenFile& open);
// A name is gone: the table forgets, the pool frees, the supervisor keeps what is still open.
void NameGone(Call& call, const struct statx& before);

}  // namespace rdfs::server
