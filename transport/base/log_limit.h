// LogLimit: how many warnings may be written, so that nobody who can cause one fills a disk.
//
// A bucket of kBurst lines that gets one back every kPause. Decides only: no clock, no output, no
// lock. Errors are not limited: they are ours, not a peer's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "transport/base/clock.h"

namespace rdfs {

class LogLimit {
 public:
  static constexpr std::int64_t kBurst = 100;
  static constexpr std::chrono::milliseconds kPause{500};

  struct Verdict {
    bool write;
    std::uint64_t left_out;  // lines since the last one written: to be told with this one
  };
  [[nodiscard]] Verdict Admit(TimePoint now) {
    if (const auto pauses = (now - refilled_) / kPause; pauses > 0) {
      left_ = std::min<std::int64_t>(kBurst, left_ + pauses);
      refilled_ = now;
    }
    if (left_ == 0) return {.write = false, .left_out = ++left_out_};
    --left_;
    const std::uint64_t left_out = left_out_;
    left_out_ = 0;
    return {.write = true, .left_out = left_out};
  }

 private:
  std::int64_t left_ = kBurst;
  std::uint64_t left_out_ = 0;
  TimePoint refilled_{};
};

}  // namespace rdfs
