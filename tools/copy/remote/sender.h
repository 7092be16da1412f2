// Sender: drives one copy from a walk over a lane, at either end.
//
//   Begin --> Welcome --> batches <-- credits --> End --> Done --> Farewell
//
// Blocks in Run, on the caller's thread; reading is done by threads of its own (SendCrew).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tools/copy/remote/send_crew.h"
#include "tools/copy/remote/send_lanes.h"
#include "tools/copy/remote/talk.h"
#include "tools/copy/report/counter.h"

namespace rdfs::copy {

class Sender {
 public:
  // `walk` without slot_bytes. All outlive this.
  Sender(Talk& talk, std::shared_ptr<transport::Domain> domain, Begin begin, WalkOptions walk,
         int threads);
  // Until the receiver has confirmed the end, or why it will not.
  Status Run();
  // As the receiver counts; of a copy that has ended well.
  [[nodiscard]] const Tally& done() const { return done_; }
  // So far.
  [[nodiscard]] std::uint64_t bytes() const { return crew_ == nullptr ? 0 : crew_->bytes(); }
  [[nodiscard]] std::uint64_t kept() const { return crew_ == nullptr ? 0 : crew_->kept(); }
  [[nodiscard]] Totals passed() const { return crew_ == nullptr ? Totals{} : crew_->passed(); }
  // Called now and then while it runs; an error ends it.
  std::function<Status()> on_turn;
  // Lanes to the same peer that carry batches, as they come; called while the talk will not move
  // any more. May be empty.
  std::function<std::unique_ptr<transport::Connection>()> further;
  // Of whom the receiver is told how much there is to do; outlives this, or null.
  const Counter* counter = nullptr;

 private:
  Status Drive();
  Status OnMessage(MessageType type, ByteSpan message);
  Status Start(const Welcome& welcome);
  Status OnCredit(std::uint64_t done);
  Status OnWelcomeBehindMove(const Welcome& welcome);
  // Nothing more is sent before we are on the better lane, and know the ring there.
  [[nodiscard]] bool moves() {
    return peer_ready_ && !ended_ && (talk_.moved() || talk_.better() != nullptr);
  }
  Status Move();
  Status TakeLanes();
  Result<bool> TakeFromCrew();
  // Those whose turn it is and for which there is a slot.
  Status SendReady();
  Status SendBatch(const SendCrew::Batch& batch);
  BatchesUnderWay::Release Release();
  Status SendEnd();
  Status TellTotals();

  Talk& talk_;
  const std::shared_ptr<transport::Domain> domain_;
  const Begin begin_;
  WalkOptions walk_;
  const int threads_;
  Welcome welcome_;
  std::uint64_t next_ = 0;  // the batch that is sent next
  std::uint64_t credit_ = 0;
  std::optional<std::uint64_t> batches_;  // once the walk has ended
  bool ended_ = false, over_ = false;
  bool peer_ready_ = false;  // to move
  bool totals_told_ = false;
  pipe::StreamDigest digest_;
  Tally end_, done_;
  std::map<std::uint64_t, SendCrew::Batch> ready_;
  std::unique_ptr<transport::MemoryRegion> memory_;
  std::unique_ptr<SendCrew> crew_;
  std::vector<SendCrew::Output> made_;
  BatchesUnderWay batches_under_way_;
  std::unique_ptr<SendLanes> lanes_;  // ends before the buffers
};

}  // namespace rdfs::copy
