// OutsideWatch: tells what other processes of this host change in an export, behind the server's
// back, so that leases may last longer than such a change may stay unseen.
//
// A directory that is watched tells of its names, of its own attributes, and of content and
// attributes of the files that have a name in it (fanotify(7), unprivileged: Linux 5.17). Changes
// of this process are left out. Arm first and look afterwards: what was looked at in a directory
// that had been watched before is told of when it changes. It is told some milliseconds after it
// happened (kBatch at most, where much happens).
//
// What is not seen: stores through a mapping; a file with several names that is changed through one
// outside the watched directories; what a directory's children do behind a mount point.
//
// Watches are made in generations: one takes what is armed now, the one before is dropped a period
// later with all that has not been armed again. So what was armed once and then forgotten costs
// nothing in the end, and nothing has to be found again in order to stop watching it.
//
// One an export, with a thread of its own, which sleeps while nothing happens.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/inode/beneath.h"
#include "server/inode/handle.h"
#include "transport/base/clock.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

class Inode;

class OutsideWatch {
 public:
  static constexpr std::chrono::milliseconds kBatch{5};

  struct Change {
    std::shared_ptr<Inode> directory;
    std::string name;                     // in it; empty: the directory itself
    bool entry = false;                   // what the name stands for
    bool content = false;                 // of what the name stands for
    bool moved = false;                   // the inode has another name now, or none
    std::optional<NativeHandle> inode{};  // what had or has the name
  };
  struct Options {
    // Longer than any lease that is given for the sake of a watch.
    std::chrono::milliseconds period{15'000};
    // In one generation: the kernel keeps the inode of each.
    std::size_t directories = 16384;
  };
  // Both are called by the watch's thread.
  struct Listener {
    std::function<void(std::span<const Change>)> changed;
    std::function<void()> lost;  // anything may have changed
  };

  // `proc` outlives it. Errors where this host cannot tell: kUnsupported for an old kernel, kErrno
  // with what to do about it.
  static Result<std::unique_ptr<OutsideWatch>> Start(const ProcFd& proc, const Options& options,
                                                     Listener listener);
  // Stops the thread.
  ~OutsideWatch();
  OutsideWatch(const OutsideWatch&) = delete;
  OutsideWatch& operator=(const OutsideWatch&) = delete;

  // Any thread. True: from before this call returned on, the directory (`fd`: a descriptor of it)
  // is watched. False: it cannot be.
  bool Watch(const std::shared_ptr<Inode>& directory, int fd);
  // Whether it will be for a period from now.
  [[nodiscard]] bool Watches(const Inode& directory) const;

 private:
  // A file handle and its file system, as one string.
  using Key = std::string;
  struct Generation {
    Fd group;
    std::unordered_map<Key, std::shared_ptr<Inode>> directories;
    TimePoint ends{};  // set with the first directory
  };
  OutsideWatch(const ProcFd& proc, const Options& options, Listener listener)
      : proc_(proc), options_(options), listener_(std::move(listener)) {}

  std::optional<Key> KeyOf(const Inode& directory, int fd);
  void Run();
  [[nodiscard]] int PatienceMs();
  void Turn();
  // Whether there may be more.
  bool Read(Generation& generation);
  void Tell(Generation& generation, const std::byte* events, std::size_t size);
  std::shared_ptr<Inode> Find(const Generation& generation, const Key& key);

  const ProcFd& proc_;
  const Options options_;
  const Listener listener_;
  EventFd wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> number_{1};  // of the current generation
  std::mutex mutex_;  // guards the rest, but for reading the groups, which the thread does alone
  Generation current_, before_;
  std::unordered_map<std::uint64_t, std::uint64_t> file_systems_;  // ids by device
  std::thread thread_;
};

}  // namespace rdfs::server
