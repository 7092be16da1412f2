// ReadGate: keeps READs back where the device cannot fence them. Pure; one thread.
//
// InfiniBand starts a READ with a fence when all READs before it have completed. iWARP devices need
// not: soft-iWARP refuses a fenced READ, and without one it may send a small response from a copy
// made before the bytes of a large one ahead of it were fetched. So there a READ that is to come
// after others waits here until the free ones posted ahead of it have completed. Free READs pass
// those that wait, and so do WRITEs and SENDs: the wire stays busy while one round of a reader's
// waits for its bytes.
//
// READs of one queue pair complete in the order in which they started, so counting is enough.
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
    if (after_earlier && completed_ < last_free_) {
      waiting_.push_back({std::move(read), last_free_});
      return std::nullopt;
    }
    ++started_;
    if (!after_earlier) last_free_ = started_;
    return read;
  }
  // The READ that started first of those under way has completed: call Next until it returns
  // nothing.
  void OnCompleted() { ++completed_; }
  std::optional<Read> Next() {
    if (waiting_.empty() || completed_ < waiting_.front().until) return std::nullopt;
    std::optional<Read> next(std::move(waiting_.front().read));
    waiting_.pop_front();
    ++started_;
    return next;
  }

 private:
  struct Waiting {
    Read read;
    std::uint64_t until;  // so many have completed
  };
  std::deque<Waiting> waiting_;  // their `until` never falls
  // Since the beginning.
  std::uint64_t started_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t last_free_ = 0;  // started_ when the last free one had started
};

}  // namespace rdfs::transport::verbs
