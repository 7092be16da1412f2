// BetterLane: opens the best lane that is not ssh's own stream, beside a copy that runs already.
//
// A thread of its own dials; a leg that does not answer costs it 3 s. Everything here is for one
// other thread and never blocks, but Await.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "transport/session/session.h"

namespace rdfs::copy {

class BetterLane {
 public:
  explicit BetterLane(std::shared_ptr<transport::Session> session);
  BetterLane(const BetterLane&) = delete;
  BetterLane& operator=(const BetterLane&) = delete;
  // Does not wait for the thread: a process that is to end while that is() dialling() ends by
  // _exit.
  ~BetterLane();

  // True once the outcome is known, one way or the other.
  bool Await(std::chrono::milliseconds patience);
  [[nodiscard]] bool dialling() const;
  // Null while it is being dialled, or if nothing answered, or once it was taken.
  std::unique_ptr<transport::Connection> Take();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace rdfs::copy
