// WritesBehind: writes that the kernel has been told are done and the server has not answered yet.
//
// While the server gives a lease for it (fs::WriteLeaseMs; InodeTable has it), a program need not
// wait for the server at each write(2): the request is answered as soon as it is about to be sent.
// What the program does next with the file is taken up only behind those writes: fsync and close,
// which tell their errors, and whatever else looks at the file or at a directory that may name it.
// Writes to one place of a file never are on their way together, because the server carries
// requests out in any order.
//
// A write takes its place here before it looks whether the lease holds, and a recall ends the lease
// before it looks here: so one of them sees the other.
//
// Any thread; one short lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

class WritesBehind {
 public:
  using Number = std::uint64_t;  // never 0; counts up
  // What somebody waits for: all writes up to `last` to this node, or with kAnyNode to any.
  struct Wait {
    NodeId node = 0;
    Number last = 0;
  };
  static constexpr NodeId kAnyNode = 0;

  // A place for a write of `length` bytes at `offset`; 0: it has to be waited for.
  Number Begin(NodeId node, std::uint64_t offset, std::uint64_t length);
  // The server has it, or it failed, or it is not to be answered early after all.
  void End(Number number);

  // Places given so far.
  [[nodiscard]] std::uint64_t total() const {
    const std::lock_guard lock(mutex_);
    return next_ - 1;
  }
  // False: nobody has to wait for anything.
  [[nodiscard]] bool any() const { return count_.load(std::memory_order_acquire) > 0; }
  // What is on its way now; `last` is 0 where that is nothing.
  [[nodiscard]] Wait NowFor(NodeId node) const;
  [[nodiscard]] bool IsOver(const Wait& wait) const;

 private:
  // On their way at once: each keeps a request's buffer.
  static constexpr std::size_t kMost = 32;
  static constexpr std::uint64_t kMostBytes = 2 << 20;
  struct Piece {
    NodeId node = 0;
    std::uint64_t offset = 0, end = 0;
  };

  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;  // guards the rest
  std::map<Number, Piece> pieces_;
  std::uint64_t bytes_ = 0;
  Number next_ = 1;
};

}  // namespace rdfs::fs::fuse
