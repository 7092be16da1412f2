// LaneDialler: opens lanes of a session beside a copy that runs already.
//
// A thread of its own dials; a leg that does not answer costs it 3 s. Everything here is for one
// other thread and never blocks, but Await.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "transport/session/session.h"

namespace rdfs::copy {

class LaneDialler {
 public:
  // Opens one lane; on the dialler's thread.
  using Dial =
      std::function<Result<std::unique_ptr<transport::Connection>>(transport::Session&, Deadline)>;
  // The best that is not ssh's own stream.
  static Dial Direct();
  // One more over that transport.
  static Dial Over(transport::Kind kind);

  // `count` of them, one behind the other, until one fails.
  LaneDialler(std::shared_ptr<transport::Session> session, Dial dial, int count = 1);
  LaneDialler(const LaneDialler&) = delete;
  LaneDialler& operator=(const LaneDialler&) = delete;
  // Does not wait for the thread: a process that is to end while that is() dialling() ends by
  // _exit.
  ~LaneDialler();

  // True once the outcome is known, one way or the other.
  bool Await(std::chrono::milliseconds patience);
  [[nodiscard]] bool dialling() const;
  // Null while the next is being dialled, or if nothing answered, or once all were taken.
  std::unique_ptr<transport::Connection> Take();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// FurtherLanes: the lanes that carry batches beside the first one, dialled once the copy is worth
// it, by whoever dialled the session.
class FurtherLanes {
 public:
  // So many, 0 for none. `anywhere`: to this host, too, where they gain nothing.
  FurtherLanes(std::shared_ptr<transport::Session> session, int count, bool anywhere)
      : session_(std::move(session)), count_(count), anywhere_(anywhere) {}

  // The next, of a copy that has brought so many bytes over `first`; or null.
  std::unique_ptr<transport::Connection> Take(const transport::Connection& first,
                                              std::uint64_t bytes);
  [[nodiscard]] bool dialling() const { return dialler_ && dialler_->dialling(); }
  // Waits until that is over, some seconds at most: for who cannot end by _exit.
  void Settle();
  // That were taken.
  [[nodiscard]] int lanes() const { return lanes_; }

 private:
  const std::shared_ptr<transport::Session> session_;
  const int count_;
  const bool anywhere_;
  std::optional<LaneDialler> dialler_;
  int lanes_ = 0;
};

}  // namespace rdfs::copy
