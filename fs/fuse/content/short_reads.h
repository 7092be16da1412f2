// ShortReads: how many short reads a worker takes before it carries them out, so that their answers
// go to the kernel together (answer_batch.h).
//
// An answer that goes alone lets the program that waits for it run at once where both have one
// processor: it asks for one more and sleeps again, and so do all that are under way, with two
// changes of context for each read. Together they wake it once. On several processors a program
// does something while its other reads are carried out: there only half of them go together, and
// the other half keeps this worker busy meanwhile.
//
// To look for one more read is a system call, which finds nothing where a program has one under
// way. So one turn in 64 looks for as many as there are, and those in between take what it found.
//
// Decides only. One thread.
#pragma once

#include <algorithm>
#include <cstddef>

namespace rdfs::fs::fuse {

class ShortReads {
 public:
  // Bytes: longer ones take longer to copy than to wake who waits for them.
  static constexpr std::size_t kLongest = std::size_t{16} << 10U;
  // Of a turn. Answers wait for the last one.
  static constexpr int kMost = 16;
  static constexpr unsigned kTryEvery = 64;

  explicit ShortReads(bool one_processor) : one_processor_(one_processor) {}

  // A turn begins, and may take so many; at least 1.
  [[nodiscard]] int Begin() {
    trying_ = ++turns_ % kTryEvery == 0;
    return trying_ ? kMost : together_;
  }
  // It has taken so many; none: there was no request, or not a short read alone.
  void End(int taken) {
    if (trying_ && taken > 0) together_ = one_processor_ ? taken : std::max(1, taken / 2);
  }

 private:
  const bool one_processor_;
  unsigned turns_ = 0;
  bool trying_ = false;
  int together_ = 1;
};

}  // namespace rdfs::fs::fuse
