// SendState: what rdsend decides about one stream, without I/O. Events and the time come in,
// actions go out; the driver (sender.h) carries them out.
//
//   kGreeting --Welcome--> kChecking --Checked--> kStreaming --all records sent--> kEnding
//   kEnding --Stored, equal to what was sent--> kOver (ok)
//   any --Abort, malformed message, silence, Fail, Lost--> kOver (why)
//
// Records are made by several threads and come in any order; they leave in the order of their
// numbers, never more than the receiver's ring takes: record n waits until record n - slots is
// stored. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tools/pipe/wire/digest.h"
#include "tools/pipe/wire/liveness.h"
#include "tools/pipe/wire/protocol.h"
#include "tools/pipe/wire/seal.h"

namespace rdfs::pipe {

// A record as its maker leaves it: sealed, its bytes in our slot `buffer`. A hole has none.
struct ReadyRecord {
  RecordWire header{};
  std::optional<std::uint32_t> buffer;
};

struct SendAction {
  enum class Kind : std::uint8_t {
    kCheck,   // compare welcome().blocks with the source; then Checked
    kStart,   // make records from `offset` on, numbered from 0
    kWrite,   // WRITE `length` bytes of our buffer `buffer` into the ring's slot `slot`
    kSend,    // `message`, behind what was written before it
    kFinish,  // the stream is over; status() says how. Nothing follows.
  };
  Kind kind;
  std::uint32_t buffer = 0, slot = 0, length = 0;
  std::uint64_t offset = 0;
  Bytes message{};
};
using SendActions = std::vector<SendAction>;

class SendState {
 public:
  SendState(std::optional<Seal> from_us, std::optional<Seal> from_peer, Liveness::Duration limit,
            TimePoint now)
      : from_us_(std::move(from_us)), from_peer_(std::move(from_peer)), liveness_(limit, now) {}

  void OnMessage(ByteSpan message, TimePoint now, SendActions& out);
  // The first `bytes` of what the receiver has are the source's too (whole blocks).
  void OnChecked(std::uint64_t bytes, TimePoint now, SendActions& out);
  void OnRecord(const ReadyRecord& record, TimePoint now, SendActions& out);
  // The source has ended: `records` were made, and the stream is `length` long.
  void OnSourceEnd(std::uint64_t records, std::uint64_t length, TimePoint now, SendActions& out);
  // Something of ours went wrong: the receiver is told.
  void Fail(Status why, SendActions& out);
  // The connection is over.
  void Lost(const Status& why, SendActions& out);
  void OnTime(TimePoint now, SendActions& out);
  [[nodiscard]] Deadline NextTime() const { return liveness_.Next(); }

  [[nodiscard]] const Welcome& welcome() const { return welcome_; }
  [[nodiscard]] bool over() const { return state_ == State::kOver; }
  [[nodiscard]] const Status& status() const { return status_; }
  // It ended with words of ours that the receiver has to hear: wait until it has gone.
  [[nodiscard]] bool gave_up() const { return gave_up_; }
  // So many records the receiver has stored, from the first on.
  [[nodiscard]] std::uint64_t stored_records() const { return stored_; }
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  [[nodiscard]] std::uint64_t begin_offset() const { return begin_; }
  // Receivers that have not got it whole, though the stream itself went well.
  [[nodiscard]] const std::vector<FailedHop>& failed() const { return failed_; }

 private:
  enum class State : std::uint8_t { kGreeting, kChecking, kStreaming, kEnding, kOver };

  Status Handle(ByteSpan message, TimePoint now, SendActions& out);
  Status OnWelcome(ByteSpan message, SendActions& out);
  Status OnCredit(ByteSpan message);
  Status OnReport(ByteSpan message);
  Status OnStored(ByteSpan message, SendActions& out);
  void SendWhatFits(TimePoint now, SendActions& out);
  void SendRecord(const ReadyRecord& record, SendActions& out);
  void SendEnd(SendActions& out);
  void Say(Bytes message, TimePoint now, SendActions& out);
  void Finish(Status status, SendActions& out);

  const std::optional<Seal> from_us_, from_peer_;
  Liveness liveness_;
  State state_ = State::kGreeting;
  Status status_;
  bool gave_up_ = false;
  Welcome welcome_;
  std::uint64_t begin_ = 0;
  std::map<std::uint64_t, ReadyRecord> waiting_;  // by number; at most as many as there are buffers
  std::uint64_t next_ = 0;                        // the record to send next
  std::uint64_t stored_ = 0;                      // so many the receiver has stored
  std::uint64_t sent_bytes_ = 0;
  StreamDigest digest_;
  struct End {
    std::uint64_t records, length;
  };
  std::optional<End> end_;
  EndWire end_wire_{};
  std::vector<FailedHop> failed_;
};

}  // namespace rdfs::pipe
