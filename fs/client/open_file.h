// OpenFile: one open file or directory of a mount, as its user holds it.
//
// It outlives reconnects and server restarts: the number by which the server knows it changes
// underneath (Lane and Mount see to it). Shared by std::shared_ptr; the mount's registry holds only
// weak references, and a call in flight keeps its file alive. Any thread. The user gives it up with
// Lane::Release; dropping the last reference without that leaves it open at the server until the
// session ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "fs/client/held_locks.h"
#include "fs/client/unsynced.h"
#include "fs/protocol.h"

namespace rdfs::fs::client {

// What all open files of one inode share, and what the mount keeps of it for a while when none is
// left (MountImpl::KeepUnsynced).
struct InodeState {
  explicit InodeState(const Handle& of) : handle(of) {}
  const Handle handle;
  // Changes that this client has made: by it every lane knows which grants are older than they.
  std::atomic<std::uint64_t> own_changes{0};
  // The change cookie at the last open, or of Lane::SeeChange since: another one drops cached
  // grants. Set behind that: who finds it here already may rely on it.
  std::atomic<std::uint64_t> change{0};
  HeldLocks locks;
  UnsyncedWrites unsynced;
  std::atomic<bool> kept{false};  // the mount's
};

class OpenFile {
 public:
  OpenFile(std::shared_ptr<InodeState> inode, std::uint32_t flags, bool directory)
      : inode_(std::move(inode)),
        flags_(flags),
        directory_(directory),
        told_(inode_->unsynced.Opened()) {}

  [[nodiscard]] const Handle& handle() const { return inode_->handle; }
  [[nodiscard]] std::uint32_t flags() const { return flags_; }  // kOpen...
  // Who opened it: it is opened again in that name. Set once, before anybody else has the file.
  [[nodiscard]] std::uint32_t uid() const { return uid_; }
  [[nodiscard]] std::uint32_t gid() const { return gid_; }
  void SetOpener(std::uint32_t uid, std::uint32_t gid) {
    uid_ = uid;
    gid_ = gid;
  }
  [[nodiscard]] bool directory() const { return directory_; }

  // Where the server may find the file again after a restart. The user renews it when it learns of
  // a rename; an outdated hint costs only an ESTALE where nothing else finds the file.
  void SetHint(const Handle& parent, std::string_view name);

  // ---- for the lanes and the mount -------------------------------------------------------------
  struct Hint {
    Handle parent;
    std::string name;
  };
  [[nodiscard]] Hint hint() const;
  [[nodiscard]] InodeState& inode() const { return *inode_; }
  [[nodiscard]] const std::shared_ptr<InodeState>& inode_ref() const { return inode_; }
  [[nodiscard]] std::uint64_t server_open() const {
    return server_open_.load(std::memory_order_acquire);
  }
  void set_server_open(std::uint64_t open) { server_open_.store(open, std::memory_order_release); }
  // The mount's count of sessions in which the server knows the number.
  [[nodiscard]] std::uint64_t incarnation() const {
    return incarnation_.load(std::memory_order_acquire);
  }
  void set_incarnation(std::uint64_t count) {
    incarnation_.store(count, std::memory_order_release);
  }
  // Unless a lane has set it meanwhile, to have the file or its locks asked for again.
  void MoveIncarnation(std::uint64_t from, std::uint64_t to) {
    incarnation_.compare_exchange_strong(from, to);
  }
  // Not 0: the file, or a lock on it, could not be had again after a restart, and every call on it
  // fails so.
  [[nodiscard]] int lost_errno() const { return lost_errno_.load(std::memory_order_acquire); }
  void MarkLost(int errno_value) { lost_errno_.store(errno_value, std::memory_order_release); }

  // One lane at a time makes the file known again.
  bool BeginReclaim() { return !reclaiming_.exchange(true); }
  void EndReclaim() { reclaiming_.store(false); }

  // Opened with O_SYNC or O_DSYNC: a write is durable when it is acknowledged, a copy is not.
  [[nodiscard]] bool durable() const { return (flags_ & (kOpenSync | kOpenDataSync)) != 0; }
  // See UnsyncedWrites.
  void Wrote(std::uint64_t verifier);
  void WriteFailed(int errno_value);
  // The errno that fsync and close tell of what is lost, or 0.
  [[nodiscard]] int TakeLoss();
  [[nodiscard]] int LossSince() const;

 private:
  const std::shared_ptr<InodeState> inode_;
  const std::uint32_t flags_;
  const bool directory_;
  std::uint32_t uid_ = 0, gid_ = 0;
  std::atomic<std::uint64_t> server_open_{0};
  std::atomic<std::uint64_t> incarnation_{0};
  std::atomic<int> lost_errno_{0};
  std::atomic<bool> reclaiming_{false};
  mutable std::mutex mutex_;
  Hint hint_;                  // under mutex_
  UnsyncedWrites::Told told_;  // under mutex_
};

using OpenPtr = std::shared_ptr<OpenFile>;

}  // namespace rdfs::fs::client
