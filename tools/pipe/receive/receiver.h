// Receiver: drives one stream from a lane into a sink, as ReceiveState says.
//
// Blocks in Run, on the caller's thread; the output's work is done by threads of its own
// (ReceiveCrew). Nothing is shared with the peer before Run: it has authenticated by then.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tools/pipe/command/progress.h"
#include "tools/pipe/receive/receive_crew.h"
#include "tools/pipe/receive/receive_state.h"
#include "tools/pipe/wire/lane_loop.h"
#include "tools/pipe/wire/ring.h"
#include "transport/transport.h"

namespace rdfs::pipe {

struct ReceiverSettings {
  SinkOptions sink;
  bool seekable = true;                                  // the sender can go on with a part
  std::optional<Seal> from_us, from_peer;                // both or none
  Liveness::Duration silence = Liveness::kDefaultLimit;  // of the peer, that is put up with
  int threads = 1;
  std::uint32_t piece_bytes = 0, pieces = 0;  // of the ring; 0: as suits the transport
  int interrupts = -1;                        // a descriptor: readable when the user wants to stop
  std::shared_ptr<Relay> relay;               // null: nobody gets it from us
  // Another sender may go on where this one is lost: then the sink is left, instead of abandoned.
  bool leaves_part = false;
  std::unique_ptr<Sink> part;  // what was left so before; null: nothing
};

class Receiver {
 public:
  // All outlive this.
  Receiver(transport::Connection& lane, std::shared_ptr<transport::Domain> domain,
           ReceiverSettings settings, Progress& progress);
  // Until the output is whole and the sender knows, or why it is not. A part that was kept is
  // named.
  Status Run();
  // After Run: the sender was lost, and with leaves_part another one may go on with `part`.
  struct Left {
    std::unique_ptr<Sink> part;  // null: there is none yet
  };
  [[nodiscard]] std::optional<Left> TakeLeft() { return std::exchange(left_, std::nullopt); }
  [[nodiscard]] ReceiveState::Sender sender() const { return state_.sender(); }
  [[nodiscard]] std::uint64_t received_bytes() const {
    return state_.stored_offset() - state_.begin_offset();
  }
  [[nodiscard]] std::uint64_t begin_offset() const { return state_.begin_offset(); }

 private:
  Status Prepare();
  Status MakeRing();
  Status Step();
  Result<bool> TakeFromLane();
  bool TakeFromCrew();
  Status Perform();
  void Welcome(Partial partial);
  void Account(const std::vector<FailedHop>& failed);

  transport::Connection& lane_;
  const std::shared_ptr<transport::Domain> domain_;
  ReceiverSettings settings_;
  Progress& progress_;
  Turns turns_;
  ReceiveState state_;
  ReceiveActions actions_;
  bool lane_is_over_ = false;
  Ring ring_;
  std::unique_ptr<ReceiveCrew> crew_;
  std::vector<ReceiveCrew::Output> done_;
  Status own_;  // of our output, when the stream itself went well
  std::optional<Left> left_;
};

}  // namespace rdfs::pipe
