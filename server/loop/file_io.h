// FileIo: file operations that may block, for one event loop.
//
// One io_uring ring a loop; where the kernel refuses rings (a sandbox, io_uring_disabled) and for
// calls that rings do not have, a few threads do the work, with the file-system ids of who asked.
// Either way the callback runs on the loop's thread, inside Poll, exactly once.
//
// Threads: the loop's own, except Post, which any thread may call. The owner polls fd() for
// readability, then calls Poll; calls Submit after a batch of operations; and calls RunDeferred
// when the replies of a round are on the wire. Buffers and descriptors stay valid until the
// callback: descriptors because the operation holds them. The destructor waits for what is in
// flight, without running callbacks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

class FileIo {
 public:
  // Bytes moved, or a negative errno, as the system call would have returned it.
  using Done = std::function<void(std::int64_t result)>;
  using SharedFd = std::shared_ptr<const Fd>;

  struct Options {
    unsigned depth = 256;      // operations that a ring takes before it pushes back
    bool use_io_uring = true;  // false: threads only
    unsigned max_threads = 4;  // started on first use
  };
  static Result<std::unique_ptr<FileIo>> Create(const Options& options);
  static Result<std::unique_ptr<FileIo>> Create() { return Create(Options{}); }
  FileIo(const FileIo&) = delete;
  FileIo& operator=(const FileIo&) = delete;
  ~FileIo();

  // None of these block. A read or write may be short.
  void Read(SharedFd fd, MutableByteSpan to, std::uint64_t offset, Done done);
  // `flags` as pwritev2(2): RWF_SYNC, RWF_DSYNC, RWF_APPEND.
  void Write(SharedFd fd, ByteSpan from, std::uint64_t offset, int flags, Done done);
  void Fsync(SharedFd fd, bool data_only, Done done);
  // Runs `work` on another thread, then done(what it returned) on the loop. For calls without a
  // ring operation: copy_file_range, fallocate; F_OFD_SETLKW never.
  void Offload(std::function<std::int64_t()> work, Done done);

  // Runs `task` on the loop's thread in a later Poll, in the order in which they were posted. Any
  // thread.
  void Post(std::function<void()> task);
  // Whether there are such tasks. The loop's thread.
  [[nodiscard]] bool has_posted() const { return !due_.empty() || posted_some_; }
  // Runs `task` in the next RunDeferred: work that nobody waits for, such as filling ahead. Dropped
  // where kMostDeferred are there already: each may hold a descriptor, and what comes so late is of
  // no use.
  void Defer(std::function<void()> task);
  static constexpr std::size_t kMostDeferred = 256;
  // One deferred task; returns whether there are more.
  bool RunDeferred();
  [[nodiscard]] bool has_deferred() const { return !deferred_.empty(); }

  [[nodiscard]] int fd() const { return wake_.fd(); }
  // Runs the callbacks of what has completed, and what was posted: of that what has its time in
  // `posted_turn`, and at least one, since a task may be a whole request that has waited, and
  // thousands may have waited for the same. Never blocks.
  static constexpr std::chrono::nanoseconds kPostedTurn{100'000};
  void Poll(std::chrono::nanoseconds posted_turn = kPostedTurn);
  // Hands queued operations to the kernel.
  void Submit();
  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }

 private:
  struct Ring;
  struct Operation;
  class Threads;

  explicit FileIo(const Options& options);
  Status StartRing();
  void Start(std::unique_ptr<Operation> operation);
  void StartOnRing(std::unique_ptr<Operation> operation);
  void StartOnThread(std::unique_ptr<Operation> operation);
  void ReapRing();
  void RunPosted(std::chrono::nanoseconds turn);
  void Complete(std::unique_ptr<Operation> operation);
  void Wake();

  const Options options_;
  EventFd wake_;  // ring completions, threads' results and posts all make it readable
  std::unique_ptr<Ring> ring_;
  std::unique_ptr<Threads> threads_;
  std::deque<std::unique_ptr<Operation>> waiting_;  // the ring was full
  std::size_t in_flight_ = 0;
  std::deque<std::function<void()>> deferred_;
  std::deque<std::function<void()>> due_;  // posted, and next
  std::atomic<bool> posted_some_{false};
  std::mutex mutex_;  // guards the next line
  std::vector<std::function<void()>> posted_;
};

}  // namespace rdfs::server
