// What the names of rdfs.h stand for, but for the queue (queue.h).
//
// An export owns its session and every file opened in it that nobody has closed; any thread. A
// file's numbers are under its own mutex. A listing is a value.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "fs/client/client.h"
#include "fs/fuse/content/sequential.h"
#include "fs/library/rdfs.h"

struct rdfs_file {
  rdfs_file(rdfs_export& of, rdfs::fs::client::OpenPtr opened, std::string at)
      : owner(of), open(std::move(opened)), path(std::move(at)) {}

  rdfs_export& owner;
  const rdfs::fs::client::OpenPtr open;
  const std::string path;  // as it was opened, for sentences
  std::mutex mutex;
  rdfs::fs::fuse::SequentialReader sequential;  // under mutex
};

struct rdfs_listing {
  struct Entry {
    std::string name;
    bool known = false;
    rdfs_attributes attributes{};
  };
  std::vector<Entry> entries;
};

struct rdfs_export {
  // Blocks at most for the deadline of `options`. Errors: one sentence each.
  static rdfs::Result<std::unique_ptr<rdfs_export>> Connect(const char* source, const char* options,
                                                            std::size_t queue_bytes);

  rdfs_file* Add(std::unique_ptr<rdfs_file> file);
  // Forgets it; the caller's from then on.
  std::unique_ptr<rdfs_file> Take(rdfs_file* file);

  std::unique_ptr<rdfs::fs::client::Mount> mount;
  std::chrono::milliseconds deadline{};
  rdfs::fs::client::CallContext caller;
  // Not in a child after a fork: its threads and what they may have locked are the parent's.
  [[nodiscard]] bool IsOfThisProcess() const;
  std::atomic<int> queues{0};  // that are open

 private:
  std::mutex mutex_;
  std::unordered_set<rdfs_file*> files_;  // owned; under mutex_

 public:
  ~rdfs_export();
};

namespace rdfs::fs::library {

rdfs_attributes ToAttributes(const AttrWire& attr);

}  // namespace rdfs::fs::library
