// InodeTable: from handles to inodes, with a bounded number of descriptors.
//
// One an export. Every inode that a client was told of has an entry, and the recently used ones an
// O_PATH descriptor. Without a descriptor an inode is found again by open_by_handle_at(2) where the
// server may (CAP_DAC_READ_SEARCH), else by parent and name, comparing handles; else it is stale
// (ESTALE) and the client looks it up again by name. The root always resolves, and an inode that
// clients have open keeps its descriptor.
//
// Handles are opened in the export's own mount, and in one mount of each other file system below
// it. What was reached by a read-only mount below the export's own is found again by name alone
// (NativeHandle::Kind::kOtherMount): by another mount it might be writable.
//
// Locks: one mutex, never held over a system call. Any thread; a thread that may be acting as a
// caller passes its identity, because open_by_handle_at needs the server's own rights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/identity/identity.h"
#include "server/inode/beneath.h"
#include "server/inode/handle.h"
#include "server/session/export.h"
#include "server/write/append_queue.h"

namespace rdfs::server {

struct OpenFile;
class OutsideWatch;

class Inode {
 public:
  Inode(fs::Handle handle_in, NativeHandle native_in, InodeKey key_in, std::uint32_t type_in)
      : handle(handle_in), native(native_in), key(key_in), type(type_in) {}
  const fs::Handle handle;
  const NativeHandle native;
  const InodeKey key;
  const std::uint32_t type;               // S_IFMT bits, which never change
  std::atomic<std::uint64_t> version{0};  // counted up by each change through this server
  AppendQueue appends;
  std::atomic<std::uint32_t> watched{0};  // a directory's; OutsideWatch's
  void Changed() { version.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class InodeTable;
  // All under the table's mutex.
  std::shared_ptr<const Fd> fd_;
  std::shared_ptr<Inode> parent_;  // where it was last seen, to find it again
  std::string name_;
  std::list<std::shared_ptr<Inode>>::iterator place_{};
  bool listed_ = false;    // in one of the table's lists
  bool unlinked_ = false;  // has no name any more; gone with its last open file
  bool strayed_ = false;   // somebody else took the name away: parent_ may be wrong
  bool pinned_ = false;    // the root
  std::vector<std::weak_ptr<OpenFile>> opens_;
  std::uint64_t used_ = 0;  // the table's age then
};
using InodePtr = std::shared_ptr<Inode>;

// An inode with a descriptor that stays open as long as this value lives.
struct InodeRef {
  InodePtr inode;
  std::shared_ptr<const Fd> descriptor;  // O_PATH
  int error = 0;                         // errno, when there is none

  [[nodiscard]] bool ok() const { return error == 0; }
  [[nodiscard]] int fd() const { return descriptor->get(); }
};

// What had its last name taken: nothing known, or the inode and who still has it open.
struct UnlinkedInode {
  InodePtr inode;
  std::shared_ptr<const Fd> descriptor;  // the table's, where nobody has it open
  std::vector<std::shared_ptr<OpenFile>> users;
};

struct InodeLimits {
  std::size_t descriptors = 1024;
  std::size_t entries = 65536;  // with and without a descriptor
  bool by_handle = true;        // use open_by_handle_at where it works; false: for tests
};

class InodeTable {
 public:
  // `proc` must outlive the table.
  static Result<std::unique_ptr<InodeTable>> Create(std::shared_ptr<const Export> exported,
                                                    const HandleSecret& secret, const ProcFd& proc,
                                                    InodeLimits limits);

  [[nodiscard]] InodeRef root() const { return root_; }
  [[nodiscard]] const Export& exported() const { return *export_; }
  // Whether handles outlive this process (open_by_handle_at works here).
  [[nodiscard]] bool persistent() const { return by_handle_; }

  // The handle in this export of the inode that has `handle` in another export of this server's.
  [[nodiscard]] fs::Handle Own(const InodeKey& key, const fs::Handle& handle) const;
  // ESTALE for what is not known or gone, and only for that: clients give it up.
  InodeRef Find(const fs::Handle& handle, ThreadIdentity& identity);
  // One name of a directory, as the calling thread's identity may see it; `stat` is filled.
  InodeRef Lookup(const InodeRef& directory, const std::string& name, struct statx& stat);
  // An inode that was just opened or made: `fd` must be O_PATH, `stat` its statx.
  InodeRef Adopt(const InodePtr& parent, const std::string& name, Fd fd, const struct statx& stat);

  // A name of the inode is gone, and with it the inode if `before` had one name: its descriptor
  // must not keep a deleted file's space. The caller lets go of it: that may take long.
  UnlinkedInode Unlinked(const struct statx& before);
  // The inode has this name now: a rename, or one more link.
  void Renamed(const struct statx& stat, const InodePtr& parent, const std::string& name);
  // Open files pin the descriptor; in pairs.
  void Opened(const InodePtr& inode, const std::shared_ptr<OpenFile>& open);
  void Closed(const InodePtr& inode, const OpenFile* open);

  // Null where nobody knows it.
  [[nodiscard]] InodePtr Known(const InodeKey& key) const;
  // Where the inode was last seen; null where that is not known for sure.
  [[nodiscard]] InodePtr ParentOf(const Inode& inode) const;
  // Somebody else on this host has changed what this handle refers to; `moved`: also its name. Null
  // where nobody knows it.
  InodePtr ChangedOutside(const NativeHandle& native, bool moved);
  // All that anybody may know of.
  [[nodiscard]] std::vector<InodePtr> All() const;

  // Tells of such changes; null: nobody does. Set before the first request.
  void SetWatch(OutsideWatch* watch) { watch_ = watch; }
  [[nodiscard]] OutsideWatch* watch() const { return watch_; }

  // The open files of an inode, of all sessions.
  [[nodiscard]] std::vector<std::shared_ptr<OpenFile>> UsersOf(const InodePtr& inode) const;
  [[nodiscard]] std::vector<std::shared_ptr<OpenFile>> UsersOf(const struct statx& stat) const;
  // Whether there is such a one among them.
  [[nodiscard]] bool HasUser(const InodeKey& key,
                             const std::function<bool(const OpenFile&)>& such) const;

  // Called every so often: closes descriptors that nobody has used since the call before the last:
  // they keep the space of files that are deleted behind the server's back, and file systems from
  // being unmounted. Returns how many may still be closed later. At most `room` are, which is what
  // is left of it afterwards: none where it was too little, and the next call goes on with that
  // one.
  std::optional<std::size_t> Age(std::size_t& room);

  [[nodiscard]] std::size_t descriptors() const;
  [[nodiscard]] std::size_t entries() const;

 private:
  using Descriptors = std::vector<std::shared_ptr<const Fd>>;
  struct Mount {
    std::shared_ptr<const Fd> fd;  // of a directory in it
    std::uint64_t used = 0;        // the table's age then
  };
  InodeTable(std::shared_ptr<const Export> exported, const HandleSecret& secret, const ProcFd& proc,
             InodeLimits limits);
  Status AddRoot();
  // The inode that `stat` is of, if a descriptor of it is open: while it is, the number cannot have
  // been given to another inode, but by a FUSE file system, where it shows if that is of another
  // type. Else ESTALE.
  InodeRef FindHeld(const InodePtr& parent, const std::string& name, const struct statx& stat);
  InodeRef Insert(const InodePtr& parent, const std::string& name, Fd fd, const struct statx& stat,
                  const NativeHandle& native);
  InodeRef Reopen(const InodePtr& inode, ThreadIdentity& identity);
  InodeRef OpenByHandle(const fs::Handle& handle, const NativeHandle& native,
                        ThreadIdentity& identity);
  InodeRef OpenByName(const InodePtr& inode);
  void DropUnusedMountsLocked(Descriptors& let_go);
  // Of what was found by a name; remembers its mount where handles may be opened in that.
  NativeHandle NativeOf(int fd, const struct statx& stat);
  bool IsOtherMount(const NativeHandle& native, int fd);
  void RememberMount(const NativeHandle& native, int fd, const struct statx& stat);

  static std::vector<std::shared_ptr<OpenFile>> UsersOfLocked(const Inode& inode);
  InodeRef TouchLocked(const InodePtr& inode);
  void InstallLocked(const InodePtr& inode, std::shared_ptr<const Fd> fd);
  // What these return, or add to `let_go`, may be the last of its file: it is let go of behind the
  // lock.
  void EvictLocked(Descriptors& let_go);
  [[nodiscard]] std::shared_ptr<const Fd> DropDescriptorLocked(const InodePtr& inode);
  [[nodiscard]] std::shared_ptr<const Fd> EraseLocked(const InodePtr& inode);

  OutsideWatch* watch_ = nullptr;
  const std::shared_ptr<const Export> export_;
  const NativeHandle native_root_;
  const bool root_is_read_only_;
  const HandleCodec codec_;
  const ProcFd& proc_;
  const InodeLimits limits_;
  bool by_handle_ = false;
  InodeRef root_;

  mutable std::mutex mutex_;
  std::unordered_map<fs::Handle, InodePtr, fs::HandleHash> by_handle_bytes_;
  std::unordered_map<InodeKey, InodePtr, InodeKeyHash> by_key_;
  std::list<InodePtr> open_;                         // with a descriptor, most recently used first
  std::list<InodePtr> closed_;                       // without
  std::uint64_t age_ = 0;                            // calls of Age
  bool aging_ = false;                               // the last one has not come to its end
  std::unordered_map<std::uint64_t, Mount> mounts_;  // below the export, by device
  std::unordered_map<int, bool> read_only_;          // likewise, whether, by number
};

}  // namespace rdfs::server
