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
    const bool extends = goes_on && offset + length > end_;
    if (!goes_on || first_) {
      in_order_ = 0;
      run_ = length;
    } else if (extends) {
      in_order_ = std::min(in_order_ + 1, kSure);
      run_ += offset + length - end_;
    } else {
      in_order_ = std::max(in_order_ - 2, 0);
      orderly_ = false;
    }
    if (in_order_ == 0) {
      followed_ = false;
    } else if (orderly_ || in_order_ > 1) {
      followed_ = true;
    }
    end_ = goes_on ? std::max(end_, offset + length) : offset + length;
    if (!goes_on || (first_ && offset != 0)) {  // an open file begins at its start or at random
      ahead_ = 0;
    } else if (ahead_ == 0) {
      ahead_ = std::max<std::uint32_t>(length, kFirstAhead);
    } else if (extends) {
      ahead_ = std::min(ahead_ * 2, kMostAhead);
    }
    first_ = false;
    return ahead_;
  }
  // As it said last.
  [[nodiscard]] std::uint32_t ahead() const { return ahead_; }
  // How many of them are worth bringing: none behind a single read, which may be all that is
  // wanted, nor for who reads here and there within the window; and little behind a short run.
  [[nodiscard]] std::uint32_t wanted() const {
    if (!followed_) return 0;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(ahead_, run_ * kOfRun));
  }

 private:
  static constexpr std::uint64_t kSlack = 1U << 20U;
  static constexpr int kSure = 4;
  static constexpr std::uint64_t kOfRun = 4;
  static constexpr std::uint32_t kFirstAhead = 128U << 10U;
  std::uint64_t end_ = 0;
  std::uint64_t run_ = 0;  // bytes since it began anew
  std::uint32_t ahead_ = 0;
  bool first_ = true;
  bool orderly_ = true;  // each read so far went on, or somewhere else
  bool followed_ = false;
  int in_order_ = 0;
};

}  // namespace rdfs::fs::fuse
