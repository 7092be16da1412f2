// SendCrew: the threads that make batches out of a walk, while the driver sends those made.
//
//   thread: wait for a free buffer, take the next task (one thread at a time), then open, read and
//           pack what it names (all at once) -> output -> fd() readable
//
// The driver's thread starts it, takes what is made and gives buffers back. A thread that has a
// number has a buffer too, so the batch that the receiver waits for is always on its way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "tools/copy/file/pace.h"
#include "tools/copy/remote/walk.h"
#include "tools/pipe/io/stopping.h"
#include "transport/base/event_fd.h"

namespace rdfs::copy {

class SendCrew {
 public:
  struct Batch {
    std::uint64_t number;
    std::uint32_t buffer, length;
    Digest digest;
  };
  // So many batches, all in all; some of them may still come.
  struct Ended {
    std::uint64_t batches;
  };
  using Output = std::variant<Batch, Notice, Ended, Status>;

  // `memory` holds `buffers` of the walk's slot_bytes, and outlives this.
  static Result<std::unique_ptr<SendCrew>> Create(WalkOptions walk, MutableByteSpan memory,
                                                  std::uint32_t buffers, int threads);
  SendCrew(const SendCrew&) = delete;
  SendCrew& operator=(const SendCrew&) = delete;
  ~SendCrew();

  [[nodiscard]] int fd() const { return wake_.fd(); }
  // Replaces `out` by what has been made since the last call. Never blocks.
  void Take(std::vector<Output>& out);
  void Release(std::uint32_t buffer);
  Status Answered(const Want& want) { return walk_.Answered(want); }
  Status Has(Have have) { return walk_.Has(std::move(have)); }
  // The receiver has done so many batches.
  void Credited(std::uint64_t done);
  // Of what has been packed.
  [[nodiscard]] std::uint64_t entries() const { return entries_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // What the receiver has already of files that are being sent.
  [[nodiscard]] std::uint64_t kept() const { return walk_.kept(); }
  [[nodiscard]] Totals passed() const { return walk_.passed(); }

 private:
  // Those that nobody took: a driver that cannot send holds up who has too much to tell.
  static constexpr std::size_t kMostUntaken = 4096;

  SendCrew(WalkOptions walk, MutableByteSpan memory, std::uint32_t buffers, EventFd wake);
  void Run();
  // False when there is nothing left to do.
  bool MakeOne();
  struct Task {
    WalkTask work;
    std::uint64_t number;
    std::uint32_t buffer;
  };
  std::optional<Task> NextTask();
  std::optional<std::uint32_t> AwaitBuffer();
  bool AwaitCredit(std::uint64_t batches);
  void PackItem(WalkItem& item, BatchWriter& batch);
  [[nodiscard]] std::optional<Digest> DigestFor(const WalkItem& item) const;
  Status PackWhole(WalkItem& item, BatchWriter& batch);
  Status PackPiece(const WalkPiece& piece, BatchWriter& batch);
  void Put(Output output);

  const std::uint32_t slot_bytes_;
  const MutableByteSpan memory_;
  const EventFd wake_;
  pipe::StopFlag stop_{false};
  Pace pace_;
  Walk walk_;
  std::atomic<std::uint64_t> entries_{0}, bytes_{0};

  std::mutex walk_mutex_;   // taken before mutex_
  std::uint64_t next_ = 0;  // under walk_mutex_, as the walk is
  bool ended_ = false;      // under walk_mutex_

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> free_;  // under mutex_
  std::vector<Output> made_;         // under mutex_
  std::uint64_t credited_ = 0;       // under mutex_

  std::optional<pipe::Threads> threads_;  // last: ends first
};

}  // namespace rdfs::copy
