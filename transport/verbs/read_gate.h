// ReadGate: keeps READs back where the device cannot fence them. Pure; one thread.
//
// InfiniBand starts a READ with a fence when all READs before it have completed. iWARP devices need
// not: soft-iWARP refuses a fenced READ, and without one it may send a small response from a copy
// made before the bytes of a large one ahead of it were fetched. So there a READ that is to come
// after others waits here until these have completed. As in a device's queue, READs behind a
// waiting one wait with it; WRITEs and SENDs pass.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace rdfs::transport::verbs {

template <typename Read>
class ReadGate {
 public:
  // Returns the READ when it may start at once, else keeps it.
  std::optional<Read> Enter(Read read, bool after_earlier) {
    if (!waiting_.empty() || (after_earlier && under_way_ > 0)) {
      waiting_.push_back({std::move(read), after_earlier});
      return std::nullopt;
    }
    ++under_way_;
    return read;
  }
  // A READ that had started has completed: call Next until it returns nothing.
  void OnCompleted() { --under_way_; }
  std::optional<Read> Next() {
    if (waiting_.empty() || (waiting_.front().after_earlier && under_way_ > 0)) return std::nullopt;
    std::optional<Read> next(std::move(waiting_.front().read));
    waiting_.pop_front();
    ++under_way_;
    return next;
  }

 private:
  struct Waiting {
    Read read;
    bool after_earlier;
  };
  std::deque<Waiting> waiting_;
  std::uint32_t under_way_ = 0;
};

}  // namespace rdfs::transport::verbs
