// OpenTable: what the kernel's file handles (fh) mean. Checked ids: a handle that was released, or
// never given out, is not found, whatever the kernel or a bug of ours sends.
//
// Any thread; one short lock. An Open stays alive for calls in flight though it is released
// meanwhile; its other members belong to the worker that handles a request of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs/client/client.h"
#include "fs/fuse/inode_table.h"
#include "fs/fuse/open_ahead.h"
#include "fs/fuse/sequential.h"

namespace rdfs::fs::fuse {

// An entry of a directory page that has not been handed to the kernel yet.
struct PendingEntry {
  std::uint64_t ino = 0;
  std::uint64_t cookie = 0;
  std::uint32_t type = 0;
  std::string name;
  std::optional<client::NamedFile> file;
};

struct Open {
  client::OpenPtr file;
  NodeId node = 0;
  bool append = false;
  // Of a write through this descriptor that was answered early: the next write tells it, unless an
  // fsync has (UnsyncedWrites).
  std::atomic<int> write_error{0};
  // What the next write tells, once; 0: nothing.
  int TakeWriteError() {
    const int error = write_error.exchange(0);
    if (error != 0) (void)file->TakeLoss();
    return error;
  }
  std::mutex mutex;  // of what follows, when there are several workers
  SequentialReader sequential;
  // Directories: entries that the server sent and the kernel had no room for, and the cookie that
  // goes before them.
  std::vector<PendingEntry> pending;
  std::size_t next_pending = 0;
  std::uint64_t pending_cookie = 0;
  bool pending_is_last = false;       // nothing follows them; told to the kernel once
  std::uint64_t pending_changes = 0;  // Filesystem::changes when they were asked for
  // When the first entries came with the open, until the first listing: until when they count.
  std::optional<TimePoint> first_page;
  // They are all from the first one on, each page fetched right behind the one before: until when
  // the lease holds that they began under. Past when they are not.
  TimePoint gathered_until{};
  // They are all there are: until when they count.
  TimePoint whole_until{};
  // Of what the kernel has been told.
  std::shared_ptr<OpenAhead::Listing> listing;

  // Opened ahead of who asks for it, and its first entries count.
  [[nodiscard]] bool IsFresh(std::uint64_t changes, TimePoint now) const {
    return first_page && now < *first_page && pending_changes == changes;
  }
  [[nodiscard]] bool ListedWhole(std::uint64_t changes, TimePoint now) const {
    return now < whole_until && pending_changes == changes;
  }
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
