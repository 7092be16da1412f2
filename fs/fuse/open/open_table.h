// OpenTable: what the kernel's file handles (fh) mean. Checked ids: a handle that was released, or
// never given out, is not found, whatever the kernel or a bug of ours sends.
//
// Any thread; one short lock. An Open stays alive for calls in flight though it is released
// meanwhile; its other members belong to the worker that handles a request of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fs/client/client.h"
#include "fs/fuse/content/sequential.h"
#include "fs/fuse/names/directory_listing.h"
#include "fs/fuse/names/inode_table.h"

namespace rdfs::fs::fuse {

struct Open {
  client::OpenPtr file;
  NodeId node = 0;
  bool direct = false;  // past the kernel's pages
  // Of a write through this descriptor that was answered early: the next write tells it, unless an
  // fsync has (UnsyncedWrites). Fsync and close tell it all the same: of a call that the kernel has
  // cut into several writes, programs hear only how much went before the one that failed.
  std::atomic<int> write_error{0};
  // What the next write tells, once; 0: nothing.
  int TakeWriteError() { return write_error.exchange(0); }
  std::atomic<bool> paged{false};   // it has been read or written through the kernel's pages
  std::atomic<bool> closed{false};  // nobody reads on
  // Of the file, as it was known last: nothing is read ahead beyond.
  std::atomic<std::uint64_t> size{0};
  std::mutex mutex;  // of what follows, when there are several workers
  SequentialReader sequential;
  // Where the reads begin that the server has been asked for and that go into the kernel's pages.
  std::vector<std::uint64_t> reading;
  // Whether one of them begins before that. With `mutex`.
  [[nodiscard]] bool IsReadBefore(std::uint64_t offset) const {
    return std::any_of(reading.begin(), reading.end(),
                       [offset](std::uint64_t at) { return at < offset; });
  }
  // Of a directory. It has no number that the kernel knows: it is found by its node (kept_opens.h).
  std::unique_ptr<DirectoryListing> listing;
};

class OpenTable {
 public:
  std::uint64_t Add(std::shared_ptr<Open> open) {
    const std::lock_guard lock(mutex_);
    opens_.emplace(next_, std::move(open));
    return next_++;
  }
  [[nodiscard]] std::shared_ptr<Open> Find(std::uint64_t fh) const {
    const std::lock_guard lock(mutex_);
    const auto found = opens_.find(fh);
    return found == opens_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Open> Remove(std::uint64_t fh) {
    const std::lock_guard lock(mutex_);
    const auto found = opens_.find(fh);
    if (found == opens_.end()) return nullptr;
    std::shared_ptr<Open> open = std::move(found->second);
    opens_.erase(found);
    return open;
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return opens_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Open>> opens_;
  std::uint64_t next_ = 1;
};

}  // namespace rdfs::fs::fuse
