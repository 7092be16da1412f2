// Relay: a copy between two far ends that cannot reach each other, through their caller.
//
//     sender --batch--> our ring --copied--> our buffers --batch--> receiver
//     sender <------------------- credit, want, done ------------- receiver
//
// The receiver's ring has as many slots as ours: slot n is free at both when the receiver's credit
// says so. What travels is hashed by the sender and checked by the receiver, not here; but no more
// is taken than was granted, and only what was asked for begins.
//
// Blocks in Run, on the caller's thread; there are no others.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tools/copy/remote/talk.h"
#include "tools/pipe/wire/ring.h"
#include "transport/domain.h"

namespace rdfs::copy {

class Relay {
 public:
  // One of the two: what it says, and where its memory is registered.
  struct End {
    Talk& talk;
    transport::Domain& domain;
  };
  using Allow = std::function<Status(const Begin&, std::uint64_t told)>;
  // Both outlive this, and have their tasks. `allow`: see ReceiverSettings.
  Relay(End sender, End receiver, Allow allow)
      : sender_(sender), receiver_(receiver), allow_(std::move(allow)) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Until the receiver has confirmed the end and the sender knows, or why that will not be.
  Status Run();
  // As the receiver counts; of a copy that has ended well.
  [[nodiscard]] const Tally& done() const { return done_; }
  // Passed on so far.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // What the sender and the receiver have told, if their tasks `count`.
  [[nodiscard]] const std::optional<Totals>& totals() const { return totals_; }
  [[nodiscard]] const std::optional<Progress>& progress() const { return progress_; }
  // Called now and then while it runs; an error ends it.
  std::function<Status()> on_turn;
  // Both ends were asked to count.
  bool counts = false;

 private:
  Status Drive();
  Status Sleep();
  Status OnSender(MessageType type, ByteSpan message);
  Status OnReceiver(MessageType type, ByteSpan message);
  Status OnBegin(ByteSpan message);
  Status OnWelcome(ByteSpan message);
  Status OnBatch(ByteSpan message);
  Status OnCredit(ByteSpan message);
  // Batches that have come, as far as there are buffers for them.
  Status PassOn();
  static Bytes CopyOf(ByteSpan message) { return {message.begin(), message.end()}; }

  const End sender_, receiver_;
  const Allow allow_;
  pipe::Ring ring_;            // that the sender writes
  pipe::SendBuffers buffers_;  // that we write to the receiver from
  Welcome welcome_;            // the receiver's
  std::vector<std::uint32_t> free_;
  struct InFlight {
    transport::Ticket ticket;
    std::uint32_t buffer;
  };
  std::vector<InFlight> in_flight_;
  std::deque<BatchWire> waiting_;

  BeginReader begin_;
  std::vector<Bytes> begin_messages_;  // that go on when all are there and allowed
  bool begun_ = false, welcomed_ = false, over_ = false;
  std::optional<Bytes> end_;     // that waits until all batches went on
  std::uint64_t next_ = 0;       // the number that the sender's next batch must have
  std::uint64_t passed_on_ = 0;  // batches
  std::uint64_t credit_ = 0;     // batches that the receiver has done
  std::uint64_t bytes_ = 0;
  bool confirmed_ = false;
  std::optional<Totals> totals_;
  std::optional<Progress> progress_;
  Tally done_;
};

}  // namespace rdfs::copy
