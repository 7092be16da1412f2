// SyncClient: a lane driven by the caller's own thread: each call blocks until it is over.
//
// For tests and tools that do one thing at a time; anything that keeps several operations under way
// uses the lane itself. One thread. Every call ends by the mount's timeout at the latest, but for
// locks that wait.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fs/client/client.h"

namespace rdfs::fs::client {

class SyncClient {
 public:
  explicit SyncClient(std::unique_ptr<Lane> lane, CallContext context = {})
      : lane_(std::move(lane)), context_(context) {}

  [[nodiscard]] Lane& lane() { return *lane_; }
  [[nodiscard]] CallContext& context() { return context_; }

  // Polls and sleeps until `over` or `deadline`; whether it is over.
  bool RunUntil(const bool& over, Deadline deadline = Deadline::max());
  // Runs one call: `start(Callback<T>)` issues it.
  template <typename T, typename Start>
  Result<T> Await(Start&& start) {
    bool over = false;
    std::optional<Result<T>> result;
    start(Callback<T>([&over, &result](Result<T>&& got) {
      result.emplace(std::move(got));
      over = true;
    }));
    RunUntil(over);
    return *std::move(result);
  }
  template <typename Start>
  Status AwaitDone(Start&& start) {
    bool over = false;
    Status result;
    start(DoneCallback([&over, &result](Status&& got) {
      result = std::move(got);
      over = true;
    }));
    RunUntil(over);
    return result;
  }

  Result<NamedFile> Lookup(const Handle& parent, std::string_view name);
  Result<std::string> Readlink(const Handle& handle);
  Result<NamedFile> Symlink(const Handle& parent, std::string_view name, std::string_view target);
  Result<NamedFile> Mknod(const Handle& parent, std::string_view name, std::uint32_t mode,
                          DeviceNumber device = {});
  Result<NamedFile> Mkdir(const Handle& parent, std::string_view name, std::uint32_t mode = 0755);
  Status Unlink(const Handle& parent, std::string_view name);
  Status Rmdir(const Handle& parent, std::string_view name);
  Status Rename(const Handle& old_parent, std::string_view old_name, const Handle& new_parent,
                std::string_view new_name, std::uint32_t flags = 0);
  Result<NamedFile> Link(const Handle& file, const Handle& new_parent, std::string_view new_name);

  Result<Attributes> GetAttr(const Handle& handle, const OpenPtr& open = nullptr);
  Result<Attributes> SetAttr(const Handle& handle, const SetAttributes& set,
                             const OpenPtr& open = nullptr);
  Status Access(const Handle& handle, std::uint32_t mask);
  Result<client::StatFs> StatFs(const Handle& handle);
  Status SetXattr(const Handle& handle, std::string_view name, ByteSpan value,
                  std::uint32_t flags = 0);
  Result<std::vector<std::byte>> GetXattr(const Handle& handle, std::string_view name);
  Result<std::vector<std::byte>> ListXattr(const Handle& handle);
  Status RemoveXattr(const Handle& handle, std::string_view name);

  Result<Lane::Opened> Open(const Handle& handle, std::uint32_t flags);
  Result<Lane::Created> Create(const Handle& parent, std::string_view name, std::uint32_t flags,
                               std::uint32_t mode = 0644);
  Result<Lane::Created> Tmpfile(const Handle& parent, std::uint32_t flags,
                                std::uint32_t mode = 0600);
  // Any length: in as many calls as it takes, one after the other. Short at the end of the file.
  Result<std::vector<std::byte>> Read(const OpenPtr& open, std::uint64_t offset, std::size_t length,
                                      std::uint32_t want_ahead = 0);
  // All of it, or an error.
  Result<WriteDone> Write(const OpenPtr& open, std::uint64_t offset, ByteSpan bytes,
                          std::uint32_t flags = 0);
  Status FlushFile(const OpenPtr& open, std::uint64_t lock_owner = 0);
  Status Release(OpenPtr open);
  Status Fsync(const OpenPtr& open, bool data_only = false);
  Result<Attributes> Fallocate(const OpenPtr& open, std::uint32_t mode, std::uint64_t offset,
                               std::uint64_t length);
  Result<std::uint64_t> Seek(const OpenPtr& open, std::uint64_t offset, std::uint32_t whence);
  Result<WriteDone> CopyFileRange(const OpenPtr& from, std::uint64_t from_offset, const OpenPtr& to,
                                  std::uint64_t to_offset, std::uint64_t length);

  struct ListedEntry {
    std::string name;
    std::uint64_t ino = 0;
    std::uint64_t cookie = 0;
    std::uint32_t type = 0;
    std::optional<NamedFile> file;
  };
  Result<OpenPtr> OpenDir(const Handle& handle);
  // One page behind `cookie`; empty at the end.
  Result<std::vector<ListedEntry>> ReadDir(const OpenPtr& open, std::uint64_t cookie, bool plus,
                                           std::uint32_t max_bytes = kMaxReaddirBytes);
  // All of a directory, opened and released.
  Result<std::vector<ListedEntry>> List(const Handle& handle, bool plus = false);
  Status FsyncDir(const OpenPtr& open);

  Result<Lock> GetLock(const OpenPtr& open, const Lock& lock, bool flock = false);
  Status SetLock(const OpenPtr& open, const Lock& lock, bool flock = false, bool wait = false);

 private:
  std::unique_ptr<Lane> lane_;
  CallContext context_;
};

}  // namespace rdfs::fs::client
