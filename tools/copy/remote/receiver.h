// Receiver: drives one copy from a lane into a destination, at either end.
//
//   Begin --> DST looked at --> Welcome --> batches --> credits --> End --> Done --> Farewell
//
// Blocks in Run, on the caller's thread; making files is done by threads of its own (ReceiveCrew).
// No memory is shared with the peer before it has said what it will send.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/copy/remote/receive_crew.h"
#include "tools/copy/remote/receive_lanes.h"
#include "tools/copy/remote/talk.h"
#include "tools/pipe/wire/ring.h"

namespace rdfs::copy {

struct ReceiverSettings {
  std::string destination;        // DST
  bool directory_wanted = false;  // it must be one that is there
  DestinationOptions options;     // report is the receiver's own
  // Whether that is what was asked for; `told`: of so many failures the sender has told before.
  std::function<Status(const Begin&, std::uint64_t told)> allow;
  int threads = 1;
  Copied copied;  // may be empty
  Policy policy;
  bool remove = false;  // --delete
  bool verify = false;
  bool dry_run = false;  // nothing is changed; what would be is told by notices
  bool counts = false;   // the sender was asked for Totals
  ScanOptions asked;     // see ReceiveCrewSettings, as for `gone`
  std::function<void(const std::string& path)> gone;
  std::function<void(const std::string& path)> unsent;  // likewise
};

class Receiver {
 public:
  // All outlive this.
  Receiver(Talk& talk, std::shared_ptr<transport::Domain> domain, ReceiverSettings settings);
  // Until everything is made and the sender knows, or why it is not.
  Status Run();
  // What has been made.
  [[nodiscard]] const Tally& done() const { return done_; }
  // So far.
  [[nodiscard]] std::uint64_t bytes() const {
    return crew_ == nullptr ? done_.bytes : crew_->bytes();
  }
  // What an interrupted copy had brought already.
  [[nodiscard]] std::uint64_t kept() const { return crew_ == nullptr ? kept_ : crew_->kept(); }
  [[nodiscard]] Totals passed() const { return crew_ == nullptr ? passed_ : crew_->passed(); }
  // Its end was the destination, before anything was made: nothing that the peer could mend.
  [[nodiscard]] bool failed_here() const { return failed_here_; }
  // Files are being made.
  [[nodiscard]] bool working() const { return crew_ != nullptr; }
  // What there is to do, when the sender has told.
  [[nodiscard]] const std::optional<Totals>& totals() const { return totals_; }
  // Called now and then while it runs; an error ends it.
  std::function<Status()> on_turn;
  // Lanes to the same peer that may bring batches; see Sender.
  std::function<std::unique_ptr<transport::Connection>()> further;

 private:
  Status Drive();
  Status OnMessage(MessageType type, ByteSpan message);
  Status OnBegin(const Begin& begin);
  Status OpenDestination(const Begin& begin);
  Status OnBatch(const BatchWire& batch);
  Status OnEnd(ByteSpan message);
  // Everything that was to come is here: it is what was sent.
  Status CheckDigest() const;
  Result<bool> TakeFromLanes();
  // Tells the sender that there is a better lane, and behind the move of the ring there.
  Status OfferMove();
  Result<bool> CollectFromCrew();
  Status TellLate();
  Status Tell(const Notice& notice);
  // Everything has been made: finishes directories and says so.
  Status Finish();

  Talk& talk_;
  const std::shared_ptr<transport::Domain> domain_;
  const ReceiverSettings settings_;
  pipe::Ring ring_;
  std::optional<transport::RemoteRegion> moved_ring_;  // over the better lane
  std::vector<std::string> names_;                     // of the sources, for messages

  std::mutex late_mutex_;
  std::vector<Notice> late_;  // under late_mutex_: what Destination reports
  std::unique_ptr<Destination> destination_;
  std::unique_ptr<ReceiveCrew> crew_;

  BeginReader begin_;
  bool begun_ = false, over_ = false, offered_ = false, failed_here_ = false;
  std::uint64_t next_ = 0;                    // the number that the next batch must have
  std::map<std::uint64_t, BatchWire> early_;  // that further lanes brought before it
  std::uint64_t finished_ = 0;                // batches
  std::optional<Tally> end_;
  bool confirmed_ = false;
  pipe::StreamDigest digest_;
  Tally done_;
  std::uint64_t kept_ = 0;
  Totals passed_;
  std::optional<Totals> totals_;
  std::vector<ReceiveCrew::Output> outputs_;
  std::vector<BatchWire> brought_;
  std::unique_ptr<ReceiveLanes> lanes_;  // ends before the ring
};

}  // namespace rdfs::copy
