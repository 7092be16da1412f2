// Scheduler: something that runs a task later, on any thread.
#pragma once

#include <chrono>
#include <functional>

namespace rdfs::server {

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void After(std::chrono::nanoseconds delay, std::function<void()> task) = 0;
};

}  // namespace rdfs::server
