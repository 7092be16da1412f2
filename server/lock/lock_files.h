// LockFiles: the kernel's side of clients' locks, so that processes on the server's host see them.
//
// One open file description for each (owner, inode): the first open file that the owner locks
// through lends its own, others are reopened. Byte ranges are OFD locks (fcntl(2)), whole files
// flock(2); both belong to the description, not to this process. The supervisor keeps a duplicate
// of each, with the list of locks, so that they outlive a crash of the worker.
//
// Owned by LockService, under its lock. Nothing here waits.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "server/inode/beneath.h"
#include "server/inode/open_file.h"
#include "server/lock/lock_table.h"
#include "server/supervisor/supervisor_keeper.h"

namespace rdfs::server {

class LockFiles {
 public:
  // At most `max_reopened` descriptions that are not an open file's own; more are ENOLCK.
  LockFiles(const ProcFd& proc, DescriptorKeeper& keeper, std::size_t max_reopened)
      : proc_(proc), keeper_(keeper), max_reopened_(max_reopened) {}

  // Sets `wanted` for its owner; `held` is what the owner has on this inode so far. Returns 0,
  // EAGAIN (a local process has it), EBADF (not open for this), ENOLCK (no description to be had).
  int Set(const OpenFile& open, const Lock& wanted, const std::vector<Lock>& held);
  // Removes a range; nothing happens when the owner has none.
  void Unlock(const InodeKey& inode, const Lock& range);
  // What a local process has in the way of `wanted`; type kUnlock when nothing.
  int Test(const OpenFile& open, const Lock& wanted, Lock& found) const;
  // The owner's locks on the inode are now `held`: closes the description with the last, tells the
  // supervisor.
  void Update(const InodeKey& inode, const LockOwner& owner, const std::vector<Lock>& held);

  // A description of an earlier worker, with its locks; nothing when it is something else.
  struct Adopted {
    InodeKey inode;
    std::vector<Lock> locks;
  };
  std::vector<Adopted> Adopt(DescriptorKeeper::Kept& kept);

 private:
  struct Name {
    LockOwner owner;
    InodeKey inode;
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct NameHash {
    std::size_t operator()(const Name& name) const noexcept {
      return LockOwnerHash()(name.owner) ^ InodeKeyHash()(name.inode);
    }
  };
  struct File {
    std::shared_ptr<const Fd> fd;
    bool readable = false, writable = false;
    bool reopened = false;
  };
  using Files = std::unordered_map<Name, File, NameHash>;

  int SetFlock(const OpenFile& open, const Lock& wanted);
  // A description for the owner that allows `wanted`; the locks of an unsuitable one move to it.
  int Prepare(const OpenFile& open, const Lock& wanted, const std::vector<Lock>& held, File*& out);
  // `both`: for reading and writing, whatever `open` is for.
  int NewFile(const OpenFile& open, const LockOwner& owner, bool both, File& out);
  void Move(const Name& name, File file, const std::vector<Lock>& held);
  void Lend(const Name& name, File file);
  void Forget(const Name& name);

  const ProcFd& proc_;
  DescriptorKeeper& keeper_;
  const std::size_t max_reopened_;
  std::size_t reopened_ = 0;  // of files_
  Files files_;
  std::unordered_map<const Fd*, LockOwner> lent_;  // by whose byte ranges
};

}  // namespace rdfs::server
