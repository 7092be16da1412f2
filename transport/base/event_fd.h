// EventFd: wakes who sleeps in poll(2): readable from Ring until Drain (eventfd(2)). Any thread.
#pragma once

#include <utility>

#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs {

class EventFd {
 public:
  static Result<EventFd> Create();
  // None: fd() is -1, which poll(2) passes over, and nothing else does anything.
  EventFd() = default;

  // Neither blocks: rung often before it is drained, it is drained once.
  void Ring() const;
  void Drain() const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace rdfs
