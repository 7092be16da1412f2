// What a person sees while a stream runs: a bar when its size is known, a rate when it is not.
//
// Drawn on standard error only when that is a terminal, five times a second at most, and when it
// takes something: the stream waits for no terminal. Pure but for Update and Clear; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/base/clock.h"

namespace rdfs::pipe {

// "1.2 GiB", "317 B".
std::string HumanBytes(double bytes);
// "2.81 GB/s": as network people count.
std::string HumanRate(double bytes_per_second);

class Progress {
 public:
  // `shown` false: never draws. `already`: what an earlier run has brought, of `size`.
  Progress(bool shown, std::string name, TimePoint now)
      : shown_(shown), name_(std::move(name)), start_(now), drawn_(now), rate_at_(now) {}

  void SetSize(std::optional<std::uint64_t> size) { size_ = size; }
  void SetAlready(std::uint64_t already) { already_ = already; }
  // `bytes`: of this run.
  void Update(std::uint64_t bytes, TimePoint now);
  // Removes the line.
  void Clear();

  [[nodiscard]] std::string Line(std::uint64_t bytes, double rate) const;
  // "1.0 GiB in 0.43 s (2.51 GB/s)"
  [[nodiscard]] std::string Summary(std::uint64_t bytes, TimePoint now) const;

 private:
  static constexpr std::chrono::milliseconds kEvery{200};

  bool shown_;
  std::string name_;
  TimePoint start_, drawn_, rate_at_;
  std::optional<std::uint64_t> size_;
  std::uint64_t already_ = 0;
  std::uint64_t rate_bytes_ = 0;
  double rate_ = 0;
  bool on_screen_ = false;
};

}  // namespace rdfs::pipe
