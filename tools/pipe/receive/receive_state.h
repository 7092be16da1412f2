// ReceiveState: what rdrecv decides about one stream, without I/O. Events and the time come in,
// actions go out; the driver (receiver.h) carries them out.
//
//   kOpening --Opened--> kGreeting --Begin--> kStreaming --End--> kDraining
//   kDraining --every record stored, digest equal--> kFinishing --Finished--> kConfirmed
//   kConfirmed --Farewell, or the connection's end--> kOver (ok)
//   kDraining, kFinishing --the connection's end, silence--> go on; kOver (ok) when Finished
//   before kConfirmed: --Abort, malformed message, Fail--> kOver (why)
//   before kDraining: --the connection's end, silence--> kOver (why)
//
// A record's bytes are looked at only between its message and its credit; what the peer claims of
// them is checked before. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "tools/pipe/wire/digest.h"
#include "tools/pipe/wire/liveness.h"
#include "tools/pipe/wire/protocol.h"
#include "tools/pipe/wire/seal.h"

namespace rdfs::pipe {

struct ReceiveAction {
  enum class Kind : std::uint8_t {
    kBegin,       // the stream goes on at `offset`: forget what the output has behind it
    kStore,       // store `record`, whose bytes are in the ring's slot `slot`; then OnStored
    kFinishFile,  // everything is stored, `length` long: make it last; then OnFinished
    kSend,        // `message`
    kFinish,      // the stream is over; status() says how. Nothing follows.
  };
  Kind kind;
  std::uint32_t slot = 0;
  std::uint64_t offset = 0, length = 0;
  RecordWire record{};
  Bytes message{};
};
using ReceiveActions = std::vector<ReceiveAction>;

class ReceiveState {
 public:
  ReceiveState(std::optional<Seal> from_us, std::optional<Seal> from_peer, Liveness::Duration limit,
               TimePoint now)
      : from_us_(std::move(from_us)), from_peer_(std::move(from_peer)), liveness_(limit, now) {}

  // Output and ring are there.
  void OnOpened(Welcome welcome, TimePoint now, ReceiveActions& out);
  void OnMessage(ByteSpan message, TimePoint now, ReceiveActions& out);
  // In any order.
  void OnStored(std::uint64_t sequence, TimePoint now, ReceiveActions& out);
  // `failed`: who has not got it whole, of us and those behind us.
  void OnFinished(const std::vector<FailedHop>& failed, TimePoint now, ReceiveActions& out);
  // Something of ours went wrong: the sender is told.
  void Fail(Status why, ReceiveActions& out);
  // The connection is over. A stream that came whole is finished all the same: over() says when.
  void Lost(const Status& why, ReceiveActions& out);
  void OnTime(TimePoint now, ReceiveActions& out);
  [[nodiscard]] Deadline NextTime() const { return lost_ ? Deadline::max() : liveness_.Next(); }

  [[nodiscard]] bool over() const { return state_ == State::kOver; }
  [[nodiscard]] const Status& status() const { return status_; }
  // It ended with words of ours that the sender has to hear: wait until it has gone.
  [[nodiscard]] bool gave_up() const { return gave_up_; }
  // Whether it ended because of the sender. kGoesOn: that is lost, or says so; another one may have
  // the stream.
  enum class Sender : std::uint8_t { kFine, kOver, kGoesOn };
  [[nodiscard]] Sender sender() const { return sender_; }
  // From here on our end cannot fail any more.
  [[nodiscard]] bool confirmed() const { return state_ == State::kConfirmed; }
  // The stream is stored without a gap up to here.
  [[nodiscard]] std::uint64_t stored_offset() const { return stored_offset_; }
  [[nodiscard]] std::uint64_t begin_offset() const { return begin_; }

 private:
  enum class State : std::uint8_t {
    kOpening,
    kGreeting,
    kStreaming,
    kDraining,
    kFinishing,
    kConfirmed,
    kOver
  };

  // What is left to do needs no sender.
  [[nodiscard]] bool came_whole() const {
    return state_ == State::kDraining || state_ == State::kFinishing;
  }
  Status Handle(ByteSpan message, TimePoint now, ReceiveActions& out);
  Status OnBegin(ByteSpan message, ReceiveActions& out);
  Status OnRecord(ByteSpan message, ReceiveActions& out);
  Status OnEnd(ByteSpan message, ReceiveActions& out);
  void FinishWhenStored(ReceiveActions& out);
  void Say(Bytes message, TimePoint now, ReceiveActions& out);
  void Finish(Status status, ReceiveActions& out);

  const std::optional<Seal> from_us_, from_peer_;
  Liveness liveness_;
  State state_ = State::kOpening;
  Status status_;
  bool gave_up_ = false;
  Sender sender_ = Sender::kFine;
  Welcome welcome_;
  std::uint64_t begin_ = 0;
  std::uint64_t next_ = 0;                // the number that the next record must have
  std::uint64_t offset_ = 0;              // and where it must begin
  std::uint64_t stored_ = 0;              // records before this one are stored
  std::uint64_t stored_offset_ = 0;       // where they end
  std::vector<std::uint64_t> ends_;       // where the record of each slot ends
  std::set<std::uint64_t> out_of_order_;  // stored, but not all before them; fewer than slots
  StreamDigest digest_;
  EndWire end_{};
  bool lost_ = false;  // behind the stream's end: the output is finished all the same
};

}  // namespace rdfs::pipe
