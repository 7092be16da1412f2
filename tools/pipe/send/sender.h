// Sender: drives one stream from a source over a lane, as SendState says.
//
// Blocks in Run, on the caller's thread; the source's work is done by threads of its own
// (SendCrew), or there as well where one is enough and never waits.
#pragma once

#include <memory>
#include <optional>

#include "tools/pipe/command/progress.h"
#include "tools/pipe/io/source.h"
#include "tools/pipe/send/send_crew.h"
#include "tools/pipe/send/send_state.h"
#include "tools/pipe/wire/digest.h"
#include "tools/pipe/wire/lane_loop.h"
#include "transport/transport.h"

namespace rdfs::pipe {

struct SenderSettings {
  std::optional<int> level;                              // zstd's; nullopt for none
  std::optional<Seal> from_us, from_peer;                // both or none
  Liveness::Duration silence = Liveness::kDefaultLimit;  // of the peer, that is put up with
  int threads = 1;
  int interrupts = -1;  // a descriptor: readable when the user wants to stop
};

class Sender {
 public:
  // All outlive this. `stop` is the source's, too.
  Sender(transport::Connection& lane, std::shared_ptr<transport::Domain> domain, Source& source,
         StopFlag& stop, SenderSettings settings, Progress& progress);
  // Until the receiver has confirmed the end, or why it will not.
  Status Run();
  [[nodiscard]] std::uint64_t sent_bytes() const { return state_.sent_bytes(); }
  [[nodiscard]] std::uint64_t begin_offset() const { return state_.begin_offset(); }
  // As SendState says.
  [[nodiscard]] const std::vector<FailedHop>& failed() const { return state_.failed(); }
  // It failed because of the receiver, or the way there: another one may take the stream.
  [[nodiscard]] bool lost_receiver() const { return !state_.status().ok() && !ours_; }

 private:
  Status Step();
  Result<bool> TakeFromLane();
  bool TakeFromCrew();
  Status Perform();
  void FailOurselves(Status why);
  Status Write(const SendAction& action);
  // Gives back what the receiver has stored, where records are made in its ring.
  void ReleaseStored();
  // How much of what the receiver has from an earlier run is also what we would send: a piece of a
  // block each turn, so that the receiver hears of us meanwhile.
  Status CheckPiece();
  [[nodiscard]] bool CanCheck() const { return checked_ && source_.fixed(); }
  Status Start(std::uint64_t offset);

  transport::Connection& lane_;
  const std::shared_ptr<transport::Domain> domain_;
  Source& source_;
  StopFlag& stop_;
  const SenderSettings settings_;
  Progress& progress_;
  Turns turns_;
  SendState state_;
  SendActions actions_;
  bool ours_ = false;                     // a failure of the source, or an interrupt
  std::optional<std::uint64_t> checked_;  // while checking: so many bytes are the same
  BlockDigest block_;                     // that is being checked
  std::uint64_t hashed_ = 0;              // of it
  std::vector<std::byte> piece_;
  std::unique_ptr<transport::MemoryRegion> memory_;  // null where records are made in the ring
  transport::Connection::PeerMemory ring_;           // which this is
  std::uint64_t released_ = 0;                       // records whose slots were given back
  std::unique_ptr<SendCrew> crew_;
  std::vector<SendCrew::Output> made_;
  struct InFlight {
    transport::Ticket ticket;
    std::uint32_t buffer;
  };
  std::vector<InFlight> in_flight_;
};

// Tells the receiver that there will be no stream, and why.
void SendRefusal(transport::Connection& lane, const Status& why);

}  // namespace rdfs::pipe
