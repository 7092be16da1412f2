// SequentialReader: tells from the reads of one open file whether it is read from front to back,
// and how far ahead it pays to ask. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rdfs::fs::fuse {

class SequentialReader {
 public:
  static constexpr std::uint32_t kMostAhead = 8U << 20U;

  // Call with each read; returns how many bytes behind it pay: none where it does not go on where
  // the one before ended (or begins with the file), then doubling. The kernel's read-ahead sends
  // reads a little out of order, so anything within the window counts as going on.
  std::uint32_t Next(std::uint64_t offset, std::uint32_t length) {
    const bool goes_on = offset <= end_ && offset + kSlack >= end_;
    if (!goes_on || first_) {
      in_order_ = 0;
    } else if (offset + length > end_) {
      in_order_ = std::min(in_order_ + 1, kSure);
    } else {
      in_order_ = std::max(in_order_ - 1, 0);
    }
    end_ = goes_on ? std::max(end_, offset + length) : offset + length;
    if (!goes_on) {
      ahead_ = 0;
    } else {
      ahead_ = ahead_ == 0 ? std::max<std::uint32_t>(length, kFirstAhead)
                           : std::min(ahead_ * 2, kMostAhead);
    }
    if (first_ && offset != 0) ahead_ = 0;  // an open file begins at its start or at random
    first_ = false;
    return ahead_;
  }
  // Whether it is worth it to bring the bytes, too: one read alone may be all that is wanted, and
  // within the window somebody may read here and there.
  [[nodiscard]] bool followed() const { return in_order_ > 0; }
  // As it said last.
  [[nodiscard]] std::uint32_t ahead() const { return ahead_; }

 private:
  static constexpr std::uint64_t kSlack = 1U << 20U;
  static constexpr int kSure = 4;
  static constexpr std::uint32_t kFirstAhead = 128U << 10U;
  std::uint64_t end_ = 0;
  std::uint32_t ahead_ = 0;
  bool first_ = true;
  int in_order_ = 0;
};

}  // namespace rdfs::fs::fuse
