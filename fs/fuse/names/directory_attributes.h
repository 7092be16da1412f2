// DirectoryAttributes: the attributes of directories, kept for the kernel's next question after a
// change that this mount made in them.
//
// The kernel forgets a directory's attributes with every name that it has made or removed there,
// and asks for them before the next one (default_permissions). So the answer to each such change
// carries the directory's attributes (kExtensionDirectories), and they are kept here until the
// kernel asks: one round trip less for every file that is made or removed. What is kept is as old
// as any answer may be (its lease).
//
// It counts only while no other change has begun (Begin), of the same directory by this mount, and
// nothing was recalled (Forget).
//
// The attributes of a directory that has not changed are here, too: a listing makes the kernel
// forget its time of access, and so ask again. They count only while `changes` (Filesystem's)
// stays.
//
// Any thread; one short lock. Memory: bounded by kMost directories.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "fs/client/types.h"
#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

class DirectoryAttributes {
 public:
  static constexpr std::size_t kMost = 4096;

  // A change begins: what was known does not count any more. Returns its number, for Keep.
  std::uint64_t Begin(NodeId directory) {
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMost) known_.clear();
    Known& known = known_[directory];
    known = {};
    known.change = ++changes_;
    return changes_;
  }
  // What the answer to `change` says.
  void Keep(NodeId directory, std::uint64_t change, const client::Attributes& attributes) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(directory);
    if (found == known_.end() || found->second.change != change) return;
    found->second.attributes = attributes;
  }
  // The change has been answered, and nothing more will be told of it.
  void Settle(NodeId directory, std::uint64_t change) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(directory);
    if (found == known_.end() || found->second.change != change) return;
    if (!found->second.attributes) known_.erase(found);
  }
  // An answer that was asked for at this count of changes.
  void Remember(NodeId directory, std::uint64_t changes, const client::Attributes& attributes) {
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMost) known_.clear();
    Known& known = known_[directory];
    if (known.change != 0 && !known.attributes) return;  // one is under way
    known = {.asked_at = changes, .attributes = attributes};
  }
  // Something else about it changes.
  void Forget(NodeId directory) {
    const std::lock_guard lock(mutex_);
    known_.erase(directory);
  }
  // A directory changes whose node is not at hand: one that is removed or renamed.
  void ForgetAll() {
    const std::lock_guard lock(mutex_);
    known_.clear();
  }
  [[nodiscard]] std::optional<client::Attributes> Find(NodeId directory, TimePoint now,
                                                       std::uint64_t changes) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(directory);
    if (found == known_.end() || !found->second.attributes) return std::nullopt;
    if (found->second.attributes->expires <= now) return std::nullopt;
    if (found->second.change == 0 && found->second.asked_at != changes) return std::nullopt;
    return found->second.attributes;
  }

 private:
  struct Known {
    std::uint64_t change = 0;    // 0: remembered
    std::uint64_t asked_at = 0;  // of what is remembered
    std::optional<client::Attributes> attributes;
  };
  mutable std::mutex mutex_;
  std::unordered_map<NodeId, Known> known_;
  std::uint64_t changes_ = 0;
};

}  // namespace rdfs::fs::fuse
