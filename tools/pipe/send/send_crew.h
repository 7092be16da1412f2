// SendCrew: the threads that make records out of a source, while the driver sends those made.
//
//   thread: wait for a free buffer, take the next piece (one thread at a time), then read, compress
//           and seal it (all at once) -> output -> fd() readable
//
// With no threads at all the driver makes records itself, one with each Work: where there is one
// processor, or one source that can only be read in order, handing a record over would cost two
// context switches, which is as much as copying 200 KiB. The source never waits then.
//
// The driver's thread starts it, takes what is made and gives buffers back. A thread that has a
// number has a buffer too, so the record that the receiver waits for is always on its way.
//
// The buffers are our own, and used again as soon as they have been sent, the last one first: it is
// still in the processor's cache. Or they are the slots of the receiver's ring itself, where the
// transport reaches it: then record n is made in slot n modulo slots, holes keep theirs, and the
// driver gives slots back in their order, when their records are stored.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "tools/pipe/io/source.h"
#include "tools/pipe/io/stopping.h"
#include "tools/pipe/send/send_state.h"
#include "tools/pipe/wire/codec.h"
#include "transport/base/event_fd.h"

namespace rdfs::pipe {

struct CrewSettings {
  int threads = 1;           // 0: the driver's, see Work
  std::optional<int> level;  // zstd's
  std::optional<Seal> seal;
};

class SendCrew {
 public:
  struct Ended {
    std::uint64_t records, length;
  };
  using Output = std::variant<ReadyRecord, Ended, Status>;

  enum class Buffers : std::uint8_t { kOurs, kRing };
  // `memory` holds `buffers` slots. What is referred to outlives this, and `stop` is also the
  // source's.
  static Result<std::unique_ptr<SendCrew>> Create(Source& source, MutableByteSpan memory,
                                                  std::uint32_t slot_bytes, std::uint32_t buffers,
                                                  Buffers kind, CrewSettings settings,
                                                  StopFlag& stop);
  SendCrew(const SendCrew&) = delete;
  SendCrew& operator=(const SendCrew&) = delete;
  ~SendCrew();

  Status Start();
  [[nodiscard]] int fd() const { return wake_.fd(); }
  // Replaces `out` by what has been made since the last call. Never blocks.
  void Take(std::vector<Output>& out);
  void Release(std::uint32_t buffer);
  // Without threads: whether only the lane can bring more to do, and not the source.
  [[nodiscard]] bool waits_for_lane() const { return maker_ && !starving_; }
  // Without threads: makes a record, if a buffer is free and something to read is there; whether
  // there is something to Take now.
  bool Work();
  // Without threads: what Work waits for to become readable; -1 where that is a buffer, or nothing.
  [[nodiscard]] int wants() const { return maker_ && starving_ ? source_.fd() : -1; }

 private:
  SendCrew(Source& source, MutableByteSpan memory, std::uint32_t slot_bytes, std::uint32_t buffers,
           Buffers kind, CrewSettings settings, StopFlag& stop, EventFd wake);
  void Run();
  // False when there is nothing left to do.
  bool MakeOne(RecordMaker& maker);
  // The next piece and its number, and a buffer for it; nullopt at the end.
  struct Task {
    Piece piece;
    std::uint64_t sequence;
    std::uint32_t buffer;
  };
  std::optional<Task> NextTask(RecordMaker& maker);
  std::optional<std::uint32_t> AwaitBuffer();
  [[nodiscard]] MutableByteSpan Slot(std::uint32_t buffer) const;
  // A buffer that was not needed after all: it is the next one again.
  void TakeBack(std::uint32_t buffer);
  void Put(Output output);

  Source& source_;
  const MutableByteSpan memory_;
  const std::uint32_t slot_bytes_;
  const Buffers kind_;
  const CrewSettings settings_;
  StopFlag& stop_;
  const EventFd wake_;

  std::mutex source_mutex_;  // taken before mutex_
  std::uint64_t next_ = 0;   // under source_mutex_, as the source is
  bool ended_ = false;       // under source_mutex_
  bool starving_ = false;    // the driver's: nothing is there to be read yet

  std::mutex mutex_;
  std::condition_variable buffer_freed_;
  std::deque<std::uint32_t> free_;  // under mutex_; kOurs: the back is next; kRing: the front
  std::vector<Output> made_;        // under mutex_

  std::optional<RecordMaker> maker_;  // the driver's, without threads
  std::optional<Threads> threads_;    // last: ends first
};

}  // namespace rdfs::pipe
