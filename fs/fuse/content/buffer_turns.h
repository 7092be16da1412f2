// BufferTurns: which read may take a large buffer, where some wait for one.
//
// A buffer is one piece. Where shorter reads take each piece that is given back, a longer one finds
// none for ever: so the read that has waited longest comes first once it has waited for a while,
// and until it has its buffer nothing else that is large gets one, to read or to read ahead.
//
// Nothing comes to a stand by that. Who has to wait has no large buffer, and what gives them back
// (an answer, a lost call, read-ahead that is given up) needs none for it. Small ones are given out
// as ever, and so is the one that requests are received into: messages, locks and writes come
// through. But a server may be silent about the reads that have the buffers, and the small ones of
// those who wait may lie everywhere: a turn ends without a buffer, too, and behind such a one
// there is none for five times as long.
//
// Decides only. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "fs/client/buffer.h"
#include "transport/base/clock.h"

namespace rdfs::fs::fuse {

class BufferTurns {
 public:
  static constexpr std::chrono::milliseconds kPatience{50};
  static constexpr std::chrono::seconds kTurn{2};
  static constexpr std::chrono::seconds kRest{10};

  [[nodiscard]] static bool IsLarge(std::size_t bytes) {
    return bytes > client::BufferPool::kSmallPages * client::Buffer::kPageBytes;
  }

  // A read waits for a large buffer. `since`: when it first came to.
  void Wait(std::uint64_t unique, TimePoint since) {
    const auto before = [](TimePoint mine, const Waiting& other) { return mine < other.since; };
    waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), since, before),
                    Waiting{.unique = unique, .since = since});
  }
  // It has its buffer, or waits for none; it need not have.
  void Leave(std::uint64_t unique) {
    if (waiting_.empty()) return;
    std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.unique == unique; });
    if (turn_ == unique) turn_ = 0;
  }
  // Whether so many bytes may be taken now; `unique` 0: for no read of the kernel's.
  [[nodiscard]] bool MayTake(std::size_t bytes, TimePoint now, std::uint64_t unique) {
    if (waiting_.empty() || !IsLarge(bytes) || now < rests_until_) return true;
    const Waiting& first = waiting_.front();
    if (now < first.since + kPatience) return true;
    if (turn_ != first.unique) {
      turn_ = first.unique;
      turn_ends_ = now + kTurn;
    }
    if (now < turn_ends_) return unique == first.unique;
    turn_ = 0;
    rests_until_ = now + kRest;
    return true;
  }

 private:
  struct Waiting {
    std::uint64_t unique = 0;
    TimePoint since{};
  };
  std::deque<Waiting> waiting_;  // the longest first
  std::uint64_t turn_ = 0;       // whose it is; 0: nobody's
  TimePoint turn_ends_{};
  TimePoint rests_until_{};
};

}  // namespace rdfs::fs::fuse
