// LaneThreads: further lanes to the same peer, each driven by a thread of its own.
//
// They carry batches, and nothing else but what keeps each end convinced that the other lives: all
// that orders the copy is said on its first lane. One thread's, the copy's driver; Stop and the
// destructor wait for the others.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/copy/remote/talk.h"
#include "transport/base/event_fd.h"

namespace rdfs::copy {

class LaneThreads {
 public:
  // What a thread does with its lane until that ends, by Stop at the latest, which `talk` tells by
  // an error. `counts`: to be set once the copy depends on the lane.
  using Drive = std::function<Status(Talk& talk, bool& counts)>;
  // `broke` is called, on a lane's thread, when status() has become an error.
  LaneThreads(Drive drive, std::function<void()> broke)
      : drive_(std::move(drive)), broke_(std::move(broke)) {}
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;
  // Ends the lanes, too.
  ~LaneThreads() { Stop(); }

  Status Add(std::unique_ptr<transport::Connection> lane);
  // The threads; the lanes stay as they are.
  void Stop();
  // Why the first of the lanes ended that the copy depended on. One that breaks before is nobody's
  // loss.
  [[nodiscard]] Status status() const;

 private:
  struct Lane {
    std::unique_ptr<transport::Connection> connection;
    EventFd stop;
    std::thread thread;
  };
  void Run(const Lane& lane);

  const Drive drive_;
  const std::function<void()> broke_;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<Lane>> lanes_;
  mutable std::mutex mutex_;
  Status status_;  // under mutex_
};

}  // namespace rdfs::copy
