// NewDirectories: which names can be in a directory that this mount has made. Nobody else could put
// one there without a recall since, so whatever is not among those that this mount itself has put
// there is absent, and a look-up of it needs no message.
//
// That holds while the lease on the directory does, without a gap: each answer that renews it must
// come before the last one is out (Renew). Where changes behind the server's back are not told
// (a lease of `unwatched`, or shorter), it is not renewed, so that such a name is seen no later
// than elsewhere. Names are kept as hashes: one that is taken for another is asked for, no more.
// Some file systems fold names; those that may be folded to something else by more than the case of
// their letters are asked for, and where this mount makes one, nothing is known any more.
//
// Any thread; one short lock. Memory: bounded by kMostNames of some 50 bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "fs/fuse/names/inode_table.h"
#include "transport/base/clock.h"

namespace rdfs::fs::fuse {

class NewDirectories {
 public:
  static constexpr std::size_t kMostDirectories = 4096;
  static constexpr std::size_t kMostNames = 1 << 18;  // of all of them together

  explicit NewDirectories(std::chrono::milliseconds unwatched) : unwatched_(unwatched) {}

  // It has just been made, and is leased until then.
  void Made(NodeId directory, TimePoint until, TimePoint now);
  // An answer has come that leases it until then.
  void Renew(NodeId directory, TimePoint until, TimePoint now);
  // This mount is about to make a name in it; before that is sent.
  void Adds(NodeId directory, std::string_view name);
  // Until when it is certain that there is no such name; not after now: it is not. Whether it may
  // be too long for one is the server's to say.
  [[nodiscard]] TimePoint AbsentUntil(NodeId directory, std::string_view name, TimePoint now) const;
  // It has been recalled, or its lease counts for nothing.
  void Forget(NodeId directory);
  void ForgetAll();

 private:
  struct Known {
    TimePoint until{};
    std::unordered_set<std::uint64_t> names{};  // hashes
  };
  using Directories = std::unordered_map<NodeId, Known>;
  void EraseLocked(Directories::iterator at);

  const std::chrono::milliseconds unwatched_;
  mutable std::mutex mutex_;
  Directories known_;
  std::size_t names_ = 0;
};

}  // namespace rdfs::fs::fuse
