// ReceiveLanes: takes batches from further lanes of the session, whose bytes come into the same
// ring, and gives their numbers and digests to the driver in the order in which they come.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tools/copy/remote/lane_threads.h"
#include "tools/pipe/wire/ring.h"
#include "transport/base/event_fd.h"

namespace rdfs::copy {

class ReceiveLanes {
 public:
  // `ring` outlives this.
  static Result<std::unique_ptr<ReceiveLanes>> Create(const pipe::Ring& ring);
  ReceiveLanes(const ReceiveLanes&) = delete;
  ReceiveLanes& operator=(const ReceiveLanes&) = delete;

  Status Add(std::unique_ptr<transport::Connection> lane) { return threads_.Add(std::move(lane)); }
  // Readable when Take may have something.
  [[nodiscard]] int fd() const { return wake_.fd(); }
  // Replaces `out` by what has come since the last call. Never blocks. Errors: see LaneThreads.
  Status Take(std::vector<BatchWire>& out);

 private:
  ReceiveLanes(const pipe::Ring& ring, EventFd wake);
  Status Drive(Talk& talk, bool& counts);
  Status Put(const BatchWire& batch);

  const pipe::Ring& ring_;
  const EventFd wake_;
  std::mutex mutex_;
  std::vector<BatchWire> came_;  // under mutex_
  LaneThreads threads_;          // last: ends first
};

}  // namespace rdfs::copy
