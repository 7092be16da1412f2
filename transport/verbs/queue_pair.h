// QueuePair: an RC queue pair with its completion queue and its control memory, and nothing of a
// protocol. The one place that posts and polls.
//
// Owned by one connection, used by its thread. What is queued reaches the device with Post: one
// list, one doorbell. Work that bears a signal completes exactly once, in PollCompletions, until
// the queue pair has ended; then everything comes back flushed.
//
// Control memory, pinned for the connection's life: kControlBytes = 384 KiB, made of kReceiveSlots
// receive buffers and kSendSlots send buffers of one frame each. (Two lanes and their staging fit
// into the 8 MiB that Linux lets a user lock.) A buffer belongs to the device from its post to its
// completion.
//
// Teardown: the destructor puts the queue pair in error, waits at most kDrainLimit until what was
// posted has come back, acknowledges the events, and destroys in the order of the members,
// reversed. Destroying a queue pair makes the device let go of everything; the wait is what lets
// work that the device is in the middle of end in order.
//
// Sources: ibv_post_send(3), ibv_poll_cq(3), rdma_create_qp(3).
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>

#include "transport/base/shared_memory.h"
#include "transport/base/status.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/objects.h"
#include "transport/verbs/read_gate.h"
#include "transport/verbs/registration.h"
#include "transport/verbs/work_id.h"

namespace rdfs::transport::verbs {

inline constexpr std::uint32_t kReceiveSlots = 64;
inline constexpr std::uint32_t kSendSlots = 32;
inline constexpr std::size_t kControlBytes = (kReceiveSlots + kSendSlots) * kFrameBytes;
// READs and WRITEs under way: enough to cover a long, fast wire with 1 MiB each, and the depth that
// a random-read load asks for. A device that has shorter queues gets fewer.
inline constexpr std::uint32_t kMaxTransfers = 128;

// What a connection may do on its device; asked, never assumed.
struct QueuePairLimits {
  std::uint32_t max_transfers = 0;       // READs and WRITEs posted and not completed
  std::uint64_t max_transfer_bytes = 0;  // of one work request
  std::uint32_t max_inline_bytes = 0;    // of a SEND whose bytes travel in the request itself
  std::uint8_t responder_resources = 0;  // READs of the peer's that the device serves at a time
  std::uint8_t initiator_depth = 0;      // READs of ours that it has under way at a time
  bool fences_reads = false;             // otherwise fenced READs are kept back here
  bool in_software = false;              // the device is a driver's alone
  bool splits_at_pages = false;          // short transfers are split at pages, see AddTransfer
  // The accepting side may leave what comes first where it is until something else comes:
  // soft-iWARP answers the asker before it looks at what arrives (siw_accept, Linux 5.3 to 7.2).
  bool misses_first_frame = false;
};

class QueuePair {
 public:
  // On the device of `id`, which must outlive this; its receives are posted. Errors:
  // kResourceExhausted (memlock, queues), kUnavailable.
  static Result<std::unique_ptr<QueuePair>> Create(rdma_cm_id* id, const DeviceInDomain& device);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair();

  [[nodiscard]] const QueuePairLimits& limits() const { return limits_; }

  [[nodiscard]] ByteSpan receive_buffer(std::uint32_t slot) const;
  [[nodiscard]] MutableByteSpan send_buffer(std::uint32_t slot) const;

  // Each queues one work request; never blocks. The caller keeps to the limits: at most
  // kReceiveSlots receives, kSendSlots SENDs and max_transfers transfers between their queuing and
  // their completion.
  void QueueReceive(std::uint32_t slot);
  // `sequence` names the frame and, modulo kSendSlots, its buffer. Only a signalled SEND completes;
  // its completion stands for every SEND before it.
  void QueueSend(std::uint64_t sequence, std::uint32_t length, bool signalled);
  struct Transfer {
    WorkId id;
    ibv_wr_opcode opcode = IBV_WR_RDMA_READ;
    bool fenced = false;  // starts when every free READ before it has completed
    std::uint64_t local_address = 0;
    std::uint32_t local_key = 0;
    std::uint32_t length = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
  };
  void QueueTransfer(const Transfer& transfer);  // a fenced one may start later by itself
  [[nodiscard]] bool has_queued_sends() const { return send_count_ > 0; }
  // Software devices, whose doorbell is a write(2) to the kernel.
  [[nodiscard]] bool posts_by_system_call() const { return limits_.in_software; }
  // Hands what is queued to the device.
  Status PostReceives();
  Status PostSends();

  // At most kPollBatch completions; no system call. Valid until the next call.
  static constexpr int kPollBatch = 16;
  Result<std::span<const ibv_wc>> PollCompletions();

  // The completion channel: fd() turns readable at the first completion after Arm.
  [[nodiscard]] int fd() const { return channel_->fd; }
  Status Arm();
  // Takes the events off the channel, so that fd() is quiet again; true if there was one.
  Result<bool> ConsumeEvents();

  // Puts the queue pair in error: what is posted comes back flushed, the peer is told. Idempotent.
  void End();

 private:
  static constexpr std::chrono::milliseconds kDrainLimit{200};
  // What a queue pair in error has not given back after this long without any completion never
  // comes: soft-iWARP loses SENDs that were posted just as it went into error.
  static constexpr std::chrono::milliseconds kQuietLimit{10};

  QueuePair(rdma_cm_id* id, QueuePairLimits limits) : id_(id), limits_(limits) {}
  Status Build(const DeviceInDomain& device);
  Status MakeQueues(const DeviceAttachment& attachment);
  void Drain();
  void Count(const ibv_wc& completion);
  ibv_send_wr& AddSend();
  void AddTransfer(const Transfer& transfer);
  void AddRequest(const Transfer& transfer, bool signalled);
  // Of the send queue; a transfer that is split takes two requests.
  [[nodiscard]] std::uint32_t send_depth() const {
    return limits_.max_transfers * (limits_.splits_at_pages ? 2 : 1) + kSendSlots;
  }

  rdma_cm_id* id_;
  QueuePairLimits limits_;
  std::uint32_t local_key_ = 0;

  // Declared so that destruction runs QP, CQ, channel, MR, memory.
  std::shared_ptr<SharedMemory> memory_;
  MemoryRegionPtr memory_region_;
  CompletionChannelPtr channel_;
  CompletionQueuePtr completions_;
  QueuePairPtr queue_pair_;

  // Lists being built: a work request and its one element each, chained when posted.
  struct QueuedSend {
    ibv_send_wr request;
    ibv_sge element;
  };
  struct QueuedReceive {
    ibv_recv_wr request;
    ibv_sge element;
  };
  std::array<QueuedSend, 2 * kMaxTransfers + kSendSlots> sends_;
  std::uint32_t send_count_ = 0;
  std::array<QueuedReceive, kReceiveSlots> receives_;
  std::uint32_t receive_count_ = 0;

  ReadGate<Transfer> gate_;

  std::array<ibv_wc, kPollBatch> batch_;
  // Posted and not completed, for Drain: receives, and sends that bear a signal.
  std::uint32_t receives_posted_ = 0;
  std::uint32_t signals_posted_ = 0;
  bool ended_ = false;
};

// The limits of the device behind `id`. `kUnavailable` for one that cannot do what rdfs needs.
Result<QueuePairLimits> QueryLimits(rdma_cm_id* id);

}  // namespace rdfs::transport::verbs
