// VerbsConnection: the Connection of ../transport.h over an RC queue pair.
//
// Messages are SENDs in frames (frame.h), paid for with credits (credit.h); READ and WRITE go to
// the device as they are. Poll looks at the completion queue in memory and makes no system call
// while something comes in; the connection manager is asked before sleeping, after a wake-up, and
// now and then while a caller only spins.
//
// States:
//
//   accepted --first frame of the peer's--> open   (the active side begins there)
//   open     --kBye, DISCONNECTED, failed completion, device gone--> ending
//   ending   --completion queue empty--> over: Poll returns why, for ever
//
// In `ending` what had arrived before is still delivered. Not done here: detection of a dead host
// (an idle queue pair never notices: a lane's client heartbeats, its server ends it), encryption
// (RDMA payload is plain on the wire).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "transport/base/fd.h"
#include "transport/base/sigpipe.h"
#include "transport/transport.h"
#include "transport/verbs/clerk.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/credit.h"
#include "transport/verbs/outbox.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/reassembler.h"

namespace rdfs::transport::verbs {

// How a connection is asked for. The longest that the hardware goes on repeating: the count has
// three bits, and the interval comes from the path. (Ignored when accepting: the asker's holds.)
inline constexpr std::uint8_t kRetries = 7;
// Not 7, which means for ever: credits make sure that a receive is posted, so a peer that is never
// ready is a broken one.
inline constexpr std::uint8_t kReceiverNotReadyRetries = 6;

class VerbsConnection final : public Connection {
 public:
  // Takes an id that has a device (its address is resolved, or it is a peer's request) and makes
  // the queue pair on it, receives posted. The caller then connects or accepts through id(). On
  // failure channel and id stay the caller's, who can still reject.
  static Result<std::unique_ptr<VerbsConnection>> Create(CmChannel& channel, CmIdPtr& id,
                                                         std::shared_ptr<Domain> domain);
  ~VerbsConnection() override;

  [[nodiscard]] rdma_cm_id* id() const { return id_.get(); }
  [[nodiscard]] CmChannel& channel() { return channel_; }
  [[nodiscard]] const QueuePairLimits& limits() const { return queue_pair_->limits(); }
  // The active side, when established: sends the opening.
  Status Open();

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::string Describe() const override;
  using Connection::Send;
  Status Send(std::span<const ByteSpan> parts) override;
  [[nodiscard]] std::size_t backlog_bytes() const override { return outbox_->backlog_bytes(); }
  Result<Ticket> Read(const LocalSlice& to, const RemoteSlice& from, Order order) override;
  Result<Ticket> Write(const LocalSlice& from, const RemoteSlice& to) override;
  Status Flush() override;
  Result<std::size_t> Poll(std::span<Completion> out) override;
  Result<bool> Arm() override;
  [[nodiscard]] int fd() const override { return wake_fd_.get(); }
  [[nodiscard]] Status MayMove(const MemoryRegion& region) const override;
  Result<RemoteRegion> Share(const MemoryRegion& region) override;
  void Unshare(const MemoryRegion& region) override;
  void KeepCredentials() override;
  void Abandon() override { abandoned_ = true; }

 private:
  // Empty polls between two looks at the connection manager: some hundred microseconds of
  // spinning, for a system call of one to twenty.
  static constexpr std::uint32_t kPollsBetweenLooks = 8192;
  // Between frames that the asking side sends until it hears from the peer, and how many (they are
  // paid for with the opening credits). The driver that needs them misses its moment by
  // microseconds, or by a few milliseconds when its processor was taken away.
  static constexpr std::chrono::milliseconds kNudgeInterval{50};
  static constexpr std::uint32_t kNudges = 3;
  // How long the destructor waits for its last frames to leave, unless the peer is abandoned.
  static constexpr std::chrono::milliseconds kByeLimit{100};

  // Makes calls that the kernel carries out, by the clerk if there is one.
  template <typename Call>
  void AsOwner(const Call& call) {
    if (clerk_ != nullptr) return clerk_->Do(call);  // of a program that ignores SIGPIPE
    const SigpipeHeld held;
    call();
  }

  VerbsConnection(CmChannel channel, CmIdPtr id, std::shared_ptr<Domain> domain);
  Status Build();

  Result<Ticket> Transfer(WorkKind kind, const LocalSlice& local, const RemoteSlice& remote,
                          bool fenced);
  [[nodiscard]] Status CheckTransfer(const LocalSlice& local, const RemoteSlice& remote) const;

  // Poll, by steps. Those that return bool say whether `out` has been filled.
  std::size_t HandleCompletions(std::span<Completion> out);
  bool Handle(const ibv_wc& completion, Completion& out);
  bool HandleFrame(std::uint32_t slot, std::uint32_t length, Completion& out);
  bool HandleMessage(const FrameHeader& header, ByteSpan payload, Completion& out);
  [[nodiscard]] Status HandleOpening(ByteSpan payload);
  bool EndByFrame(Status why);
  void Repost();
  void PostSends();
  void LookAtEvents();
  bool ConsumeEvents();  // of completions; whether there was one
  Status StartNudging();
  void Nudge();
  void HandleCmEvent(const CmEvent& event);

  [[nodiscard]] bool ending() const { return !ending_.ok(); }
  void BeginEnding(Status why);
  void SayBye();
  void WaitUntilByeHasGone();

  Capabilities capabilities_;
  Status over_;    // what every call answers once the connection is over
  Status ending_;  // why it is about to be: the first reason wins

  // Declared so that destruction runs QP, CQ, channel, MR, memory (all of queue_pair_), then the
  // domain with its PD, cm_id, event channel.
  CmChannel channel_;
  CmIdPtr id_;
  std::shared_ptr<Domain> domain_;
  std::size_t device_index_ = 0;
  std::unique_ptr<QueuePair> queue_pair_;
  Fd wake_fd_;      // epoll over the completion channel, the event channel and the timer
  Fd nudge_timer_;  // timerfd(2); none where frames are not missed, and once the peer was heard
  std::uint32_t nudges_left_ = kNudges;
  std::unique_ptr<Clerk> clerk_;  // null: this connection's thread may make every call itself

  CreditLedger credits_{kReceiveSlots, kOpeningCredits};
  std::unique_ptr<Outbox> outbox_;
  Reassembler reassembler_;
  bool peer_opened_ = false;
  bool abandoned_ = false;
  bool last_frame_seen_ = false;  // a kBye, or one that no correct peer sends: the rest is ignored

  // Completions taken from the queue and not handled yet.
  std::span<const ibv_wc> batch_;
  // Receive slots to post again at the next Poll: until then the caller may look at their messages.
  std::array<std::uint32_t, kReceiveSlots> used_slots_{};
  std::uint32_t used_slot_count_ = 0;
  // A message in the reassembler's buffer has been delivered: no frame is handled until then.
  bool assembled_delivered_ = false;

  Ticket next_ticket_ = 1;
  // Transfers of no bytes, done already: devices disagree on these (soft-iWARP ends the
  // connection).
  std::deque<Completion> empty_transfers_;
  std::uint32_t transfers_under_way_ = 0;
  std::uint32_t polls_until_look_ = kPollsBetweenLooks;
  bool armed_ = false;             // the completion channel will tell, or has told and was not read
  bool came_since_armed_ = false;  // a completion was seen: it has told, or is about to
};

}  // namespace rdfs::transport::verbs
