// AnswerBatch: answers to reads that go to the kernel together, with one system call.
//
// Each one is a write of its own to /dev/fuse, as that demands; io_uring carries them out one after
// the other within one call, and a program that waits for several of them wakes once. Where the
// kernel has no io_uring for us they go by themselves, and nobody gains.
//
// One thread. Send does not block: a write to /dev/fuse never does. Source: fuse(4), io_uring(7).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/client/buffer.h"
#include "fs/fuse/content/short_reads.h"

namespace rdfs::fs::fuse {

// Answers the request `unique` with an errno, past libfuse: one that no operation has taken up.
void AnswerError(int fuse_fd, std::uint64_t unique, int errno_value);

class AnswerBatch {
 public:
  static constexpr std::size_t kMost = ShortReads::kMost;

  // `fuse_fd` outlives it. `use_io_uring`: false as if there were none.
  explicit AnswerBatch(int fuse_fd, bool use_io_uring = true);
  // None may be left: see Send.
  ~AnswerBatch();
  AnswerBatch(const AnswerBatch&) = delete;
  AnswerBatch& operator=(const AnswerBatch&) = delete;

  // The answer to the request `unique`: the first `length` bytes of `buffer`, which goes back to
  // its pool behind Send. Sends first what there is when it is full.
  void Add(std::uint64_t unique, client::Buffer buffer, std::size_t length);
  // One that the kernel does not take ends as EIO: its program must not wait for ever. But for
  // those that were interrupted meanwhile, or unmounted: there nobody waits.
  void Send();
  [[nodiscard]] std::size_t size() const { return count_; }
  // Whether io_uring is there; it is looked for with the first two answers.
  [[nodiscard]] bool together() const { return ring_ != nullptr; }

 private:
  struct Ring;
  struct Answer {
    std::uint64_t unique = 0;
    client::Buffer buffer;
    std::size_t length = 0;
  };

  // Returns how many the kernel has looked at; of the rest it knows nothing.
  std::size_t SendTogether();
  void SendAlone(const Answer& answer) const;
  void Ended(const Answer& answer, int error) const;

  const int fd_;
  bool tried_;  // to have a ring
  std::unique_ptr<Ring> ring_;
  std::array<Answer, kMost> answers_;
  std::size_t count_ = 0;
};

}  // namespace rdfs::fs::fuse
