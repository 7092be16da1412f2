// HeldLocks: which locks this client has on one inode, to ask for them again when the server has
// forgotten them. Counted as the server counts: what an owner sets anew replaces what it had there.
//
// One an inode (InodeState), whatever open file and lane a lock was taken through. Any thread.
#pragma once

#include <cstdint>
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
  // The server is asked for a flock of another kind: the old one is gone, granted or not
  // (flock(2)).
  void GiveUp(const Held& wanted);
  // A descriptor was closed: the owner's fcntl locks are gone (POSIX).
  void DropOwner(std::uint64_t owner);
  // The last close: all that was taken through it is gone.
  void DropOpen(const OpenFile* open);
  [[nodiscard]] std::vector<Held> Of(const OpenFile* open) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Held> held_;
};

}  // namespace rdfs::fs::client
