// The FUSE operations: thin adapters, one function an operation, by topic in ops_*.cc. Each
// decodes, makes one call on the worker's lane, and answers in its callback. The table is in
// ops.cc.
//
// All run on a worker's thread, called by fuse_session_process_buf.
#pragma once

#include <sys/stat.h>

#include <string>

#include "fs/fuse/filesystem.h"
#include "fs/fuse/worker/request.h"
#include "fs/fuse/worker/worker.h"

namespace rdfs::fs::fuse::ops {

// ---- init.cc ------------------------------------------------------------------------------------
void Init(void* filesystem, fuse_conn_info* connection);

// ---- ops_names.cc -------------------------------------------------------------------------------
void Lookup(fuse_req_t, fuse_ino_t parent, const char* name);
void Forget(fuse_req_t, fuse_ino_t node, std::uint64_t lookups);
void ForgetMulti(fuse_req_t, std::size_t count, fuse_forget_data* forgets);
void Readlink(fuse_req_t, fuse_ino_t node);
void Symlink(fuse_req_t, const char* target, fuse_ino_t parent, const char* name);
void Mknod(fuse_req_t, fuse_ino_t parent, const char* name, mode_t mode, dev_t device);
void Mkdir(fuse_req_t, fuse_ino_t parent, const char* name, mode_t mode);
void Unlink(fuse_req_t, fuse_ino_t parent, const char* name);
void Rmdir(fuse_req_t, fuse_ino_t parent, const char* name);
void Rename(fuse_req_t, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags);
void Link(fuse_req_t, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name);

// ---- ops_attr.cc --------------------------------------------------------------------------------
void GetAttr(fuse_req_t, fuse_ino_t node, fuse_file_info* file);
void SetAttr(fuse_req_t, fuse_ino_t node, struct stat* attr, int valid, fuse_file_info* file);
void Access(fuse_req_t, fuse_ino_t node, int mask);
void StatFs(fuse_req_t, fuse_ino_t node);
void SetXattr(fuse_req_t, fuse_ino_t node, const char* name, const char* value, std::size_t size,
              int flags);
void GetXattr(fuse_req_t, fuse_ino_t node, const char* name, std::size_t size);
void ListXattr(fuse_req_t, fuse_ino_t node, std::size_t size);
void RemoveXattr(fuse_req_t, fuse_ino_t node, const char* name);

// ---- ops_open.cc --------------------------------------------------------------------------------
void Open(fuse_req_t, fuse_ino_t node, fuse_file_info* file);
void Create(fuse_req_t, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* file);
void Tmpfile(fuse_req_t, fuse_ino_t parent, mode_t mode, fuse_file_info* file);
void Flush(fuse_req_t, fuse_ino_t node, fuse_file_info* file);
void Release(fuse_req_t, fuse_ino_t node, fuse_file_info* file);
void Fsync(fuse_req_t, fuse_ino_t node, int data_only, fuse_file_info* file);

// ---- ops_content.cc -----------------------------------------------------------------------------
void Read(fuse_req_t, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info* file);
void Write(fuse_req_t, fuse_ino_t node, const char* bytes, std::size_t size, off_t offset,
           fuse_file_info* file);
void Fallocate(fuse_req_t, fuse_ino_t node, int mode, off_t offset, off_t length,
               fuse_file_info* file);
void Lseek(fuse_req_t, fuse_ino_t node, off_t offset, int whence, fuse_file_info* file);
void CopyFileRange(fuse_req_t, fuse_ino_t node_in, off_t offset_in, fuse_file_info* file_in,
                   fuse_ino_t node_out, off_t offset_out, fuse_file_info* file_out,
                   std::size_t length, int flags);

// ---- ops_dir.cc ---------------------------------------------------------------------------------
void OpenDir(fuse_req_t, fuse_ino_t node, fuse_file_info* file);
void ReadDir(fuse_req_t, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info* file);
void ReadDirPlus(fuse_req_t, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info* file);
void ReleaseDir(fuse_req_t, fuse_ino_t node, fuse_file_info* file);
void FsyncDir(fuse_req_t, fuse_ino_t node, int data_only, fuse_file_info* file);

// ---- ops_lock.cc --------------------------------------------------------------------------------
void GetLock(fuse_req_t, fuse_ino_t node, fuse_file_info* file, struct flock* lock);
void SetLock(fuse_req_t, fuse_ino_t node, fuse_file_info* file, struct flock* lock, int sleep);
void Flock(fuse_req_t, fuse_ino_t node, fuse_file_info* file, int operation);

// ---- common (ops.cc) ----------------------------------------------------------------------------

// Makes the Request of the operation that this worker is processing.
inline Request Begin(fuse_req_t request) { return {request, Worker::Current()}; }

// Issues the call of a request: `issue(lane, caller, request)` makes exactly one call on the lane,
// whose callback owns the request, and returns its ticket. An interrupt of the request then reaches
// it; `may_wait`: it waits for somebody else's lock.
template <typename Issue>
void Start(Request request, Issue issue, bool may_wait = false) {
  Worker& worker = request.worker();
  const std::uint64_t unique = request.unique();
  const client::CallContext caller = request.context();
  const client::CallTicket ticket = issue(worker.lane(), caller, std::move(request));
  worker.Track(unique,
               {.ticket = ticket, .caller = static_cast<pid_t>(caller.pid), .may_wait = may_wait});
}

// As Start, for a call that changes the names in `directories` (at most two): its answer says what
// they are like then (directory_attributes.h).
template <typename Issue>
void StartChange(Request request, std::initializer_list<NodeId> directories, Issue issue) {
  Worker& worker = request.worker();
  for (const NodeId& directory : directories) {
    // A rename within one directory names it twice.
    if (&directory != directories.begin() && directory == *directories.begin()) continue;
    worker.SettleWhenAnswered(request.unique(), directory,
                              worker.filesystem().directories.Begin(directory));
  }
  Start(std::move(request), [&](client::Lane& lane, client::CallContext caller, Request&& pending) {
    caller.tell_directories = true;
    return issue(lane, caller, std::move(pending));
  });
}

struct stat ToStat(const AttrWire& attr);
// Seconds that the kernel may cache what expires then.
double CacheSeconds(TimePoint expires, TimePoint now);
// What the kernel learns of a file under a name. Counts a look-up in the inode table.
fuse_entry_param ToEntry(Filesystem& filesystem, NodeId parent, std::string_view name,
                         const client::NamedFile& file, TimePoint now);
// Answers with the entry of a file that was found or made.
void AnswerEntry(Request& request, NodeId parent, std::string_view name,
                 Result<client::NamedFile>& file);
void AnswerAttr(Request& request, NodeId node, Result<client::Attributes>& attributes);
// Answers success or the error.
void AnswerDone(Request& request, NodeId node, const Status& status);

// The handle of a node, or nothing after having answered ESTALE: the kernel knows no such node.
std::optional<Handle> FindHandle(Request& request, NodeId node);
// The open file, or null after having answered EBADF.
std::shared_ptr<fuse::Open> FindOpen(Request& request, const fuse_file_info* file);

}  // namespace rdfs::fs::fuse::ops
