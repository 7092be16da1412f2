// Pace: --bwlimit, at most so many bytes a second by all threads of a run together.
//
// Any thread. What was not used is not saved up, so that a rest is no leave to hurry.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs::copy {

class Pace {
 public:
  // Zero: no limit.
  explicit Pace(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  [[nodiscard]] bool limited() const { return rate_ != 0; }
  // When these bytes may go: as soon as those before them have had their time.
  TimePoint Take(std::uint64_t bytes, TimePoint now);
  // Takes, and blocks until then or soon after `stop` is set.
  void Await(std::uint64_t bytes, const std::atomic<bool>& stop);

  // "500K", "20M", "1G": bytes a second, by 1024. Errors: kInvalidArgument, in a sentence.
  static Result<std::uint64_t> Parse(std::string_view text);

 private:
  const std::uint64_t rate_;
  std::mutex mutex_;
  TimePoint next_{};  // under mutex_: when the bytes that were taken have had their time
};

}  // namespace rdfs::copy
