// HeldLocks: which locks this client has on one inode, to ask for them again when the server has
// forgotten them. Counted as the server counts: what an owner sets anew replaces what it had there.
//
// One an inode (InodeState), whatever open file and lane a lock was taken through. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fs/client/types.h"

namespace rdfs::fs::client {

class OpenFile;

class HeldLocks {
 public:
  struct Held {
    const OpenFile* open = nullptr;  // taken through this one
    bool flock = false;
    Lock lock;
  };
  // The server has set it, or (kUnlock) removed it.
  void Apply(const Held& set);
  // The server is asked to unlock, or for a flock of another kind: the old lock is gone, granted or
  // not (flock(2)). Asked for again, it would be taken from whom the server has given it to since.
  void GiveUp(const Held& wanted);
  // A descriptor was closed: the owner's fcntl locks are gone (POSIX).
  void DropOwner(std::uint64_t owner);
  // The last close: all that was taken through it is gone.
  void DropOpen(const OpenFile* open);
  [[nodiscard]] std::vector<Held> Of(const OpenFile* open) const;

  // ---- Undoing a lock that was granted too late -------------------------------------------------
  // Its caller was told meanwhile that it has none. The requests that restore what the owner held
  // there before `granted`.
  [[nodiscard]] std::vector<Lock> ToUndo(const Held& granted) const;
  // Another lock or unlock is wanted on this inode: counted, so that what is asked for to undo an
  // earlier one is not sent behind it and takes from that.
  std::uint64_t Ask() { return ++asked_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_.load(); }
  // While what it returns lives something is being undone, or asked for again: other requests wait.
  [[nodiscard]] std::shared_ptr<void> BeginUndo();
  [[nodiscard]] bool undoing() const { return undoing_->load() > 0; }

 private:
  std::atomic<std::uint64_t> asked_{0};
  const std::shared_ptr<std::atomic<int>> undoing_ = std::make_shared<std::atomic<int>>(0);
  mutable std::mutex mutex_;
  std::vector<Held> held_;
};

}  // namespace rdfs::fs::client
