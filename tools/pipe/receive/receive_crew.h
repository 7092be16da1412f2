// ReceiveCrew: the threads that open, write and finish the output, while the driver receives.
//
// Records are checked, opened and unpacked all at once. A ranged sink takes them in any order; a
// stream takes them in the order of their numbers, each thread waiting for its turn; so does a
// relay, which goes on when our own output fails. The driver's thread gives jobs and takes results.
//
// One thread that would write standard output is none at all where that can be written without
// waiting: the driver does the jobs itself, in Work (why: send/send_crew.h).
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "tools/pipe/io/sink.h"
#include "tools/pipe/io/stopping.h"
#include "tools/pipe/receive/relay.h"
#include "tools/pipe/wire/codec.h"
#include "transport/base/event_fd.h"

namespace rdfs::pipe {

class ReceiveCrew {
 public:
  struct Opened {
    Partial partial;
  };
  struct Stored {
    std::uint64_t sequence;
  };
  struct Finished {
    std::vector<FailedHop> failed;  // of us and those behind us, where there is a relay
  };
  using Output = std::variant<Opened, Stored, Finished, Status>;

  // `ring` is what the peer WRITEs; it outlives this. `relay`: null for none. `part`: what another
  // crew has left of the sink (Leave), or null.
  static Result<std::unique_ptr<ReceiveCrew>> Create(SinkOptions sink, ByteSpan ring,
                                                     std::uint32_t slot_bytes,
                                                     std::optional<Seal> seal, int threads,
                                                     std::shared_ptr<Relay> relay,
                                                     std::unique_ptr<Sink> part = nullptr);
  ReceiveCrew(const ReceiveCrew&) = delete;
  ReceiveCrew& operator=(const ReceiveCrew&) = delete;
  ~ReceiveCrew() { Stop(); }

  // First of all; answered by Opened.
  void Open() { Put(Job{Job::Kind::kOpen, 0, 0, {}}); }
  // After Opened, before the first Store; on the driver's thread.
  Status StartAt(std::uint64_t offset);
  void Store(const RecordWire& record, std::uint32_t slot) {
    Put(Job{Job::Kind::kStore, slot, 0, record});
  }
  void Finish(std::uint64_t length) { Put(Job{Job::Kind::kFinish, 0, length, {}}); }
  [[nodiscard]] int fd() const { return half_ && sink_->told() >= 0 ? sink_->told() : wake_.fd(); }
  // Without a thread: whether only the lane can bring more to do, and not the output.
  [[nodiscard]] bool waits_for_lane() const { return taker_ && !half_; }
  // Without a thread: does up to `most` jobs, as far as the output takes them now; whether it has
  // done something.
  bool Work(std::uint32_t most);
  // Without a thread: what Work waits for to become writable, or -1.
  [[nodiscard]] int wants() const { return half_ ? sink_->writable() : -1; }
  // Replaces `out` by what has been done since the last call. Never blocks.
  void Take(std::vector<Output>& out);
  // Ends the threads; idempotent. Then the sink may be abandoned: see Sink::Abandon.
  void Stop();
  std::string Abandon(std::uint64_t whole) {
    return sink_ != nullptr && own_.ok() ? sink_->Abandon(whole) : std::string();
  }
  // Whether another sender may go on with the sink; and, instead of Abandon, the sink with what is
  // there without a gap (null: it was not even opened).
  [[nodiscard]] bool MayBeLeft() const {
    return own_.ok() && (sink_ == nullptr || sink_->ranged());
  }
  Result<std::unique_ptr<Sink>> Leave(std::uint64_t whole);

 private:
  struct Job {
    enum class Kind : std::uint8_t { kOpen, kStore, kFinish } kind;
    std::uint32_t slot;
    std::uint64_t length;
    RecordWire record;
  };

  ReceiveCrew(SinkOptions sink, ByteSpan ring, std::uint32_t slot_bytes, std::optional<Seal> seal,
              std::shared_ptr<Relay> relay, std::unique_ptr<Sink> part, EventFd wake);
  Status Prepare(int threads);
  Status Start(int threads);
  void Run();
  std::optional<Job> AwaitJob();
  Status DoHere(const Job& job);
  // Goes on with the record that is half written; false when the output takes no more now.
  Result<bool> WriteHalf();
  Status Do(const Job& job, RecordTaker& taker);
  Status OpenSink();
  Status StoreRecord(const Job& job, RecordTaker& taker);
  Status WriteRecord(const RecordWire& record, ByteSpan bytes);
  // Remembers that our own output has failed, with all before `whole` written; what the stream does
  // then.
  Status OwnFailure(Status why, std::uint64_t whole);
  Status FinishAll(std::uint64_t length);
  bool AwaitTurn(std::uint64_t sequence);
  void PassTurn();
  void Put(Job job);
  void Report(Output output);

  const SinkOptions options_;
  const ByteSpan ring_;
  const std::uint32_t slot_bytes_;
  const std::optional<Seal> seal_;
  const EventFd wake_;
  StopFlag stop_{false};
  std::unique_ptr<Sink> sink_;  // made by the first job, which all others follow
  const std::shared_ptr<Relay> relay_;
  Status own_;  // of our own output; with a relay by turns, without one never changed

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;      // under mutex_
  std::uint64_t turn_ = 0;    // under mutex_: the record that a stream takes next
  std::vector<Output> done_;  // under mutex_

  // The driver's, without a thread.
  struct Half {
    std::uint64_t sequence;
    ByteSpan bytes;
    std::uint64_t zeros;  // to be written of a hole
  };
  std::optional<RecordTaker> taker_;
  std::optional<Half> half_;

  std::optional<Threads> threads_;  // last: ends first
};

}  // namespace rdfs::pipe
