#include "transport/verbs/queue_pair.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>

#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/verbs/errors.h"

namespace rdfs::transport::verbs {
namespace {

// Larger transfers gain nothing and keep a queue pair to themselves for too long.
constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 30;
// How much may travel inside a work request is known only by trying. From what fits a few cache
// lines down; 80 is all that soft-iWARP grants.
constexpr std::array<std::uint32_t, 5> kInlineWishes = {256, 128, 80, 64, 0};

// The vendors of the kernel's own: drivers/infiniband/sw/siw/siw.h and rxe/rxe_param.h.
constexpr std::uint32_t kSoftIwarp = 0x626d74;
constexpr std::uint32_t kSoftRoce = 0xffffff;

// Behind a real one there is a device of a bus; up to Linux 5.10 also behind a software one that
// uses a real network interface.
bool IsSoftware(const ibv_device& device, std::uint32_t vendor) {
  return vendor == kSoftIwarp || vendor == kSoftRoce ||
         access((std::string(device.ibdev_path) + "/device").c_str(), F_OK) != 0;
}

std::uint64_t AddressOf(ByteSpan bytes) { return reinterpret_cast<std::uintptr_t>(bytes.data()); }

}  // namespace

Result<QueuePairLimits> QueryLimits(rdma_cm_id* id) {
  ibv_device_attr device{};
  if (const int error = ibv_query_device(id->verbs, &device); error != 0) {
    return FromReturned(error, "cannot query the RDMA device");
  }
  ibv_port_attr port{};
  const std::uint8_t number = id->port_num != 0 ? id->port_num : std::uint8_t{1};
  if (const int error = ibv_query_port(id->verbs, number, &port); error != 0) {
    return FromReturned(error, "cannot query the RDMA device's port");
  }
  const auto queue_depth = static_cast<std::uint32_t>(std::max(device.max_qp_wr, 0));
  const auto completion_depth = static_cast<std::uint32_t>(std::max(device.max_cqe, 0));
  if (queue_depth <= std::max(kReceiveSlots, kSendSlots) ||
      completion_depth <= kReceiveSlots + kSendSlots || device.max_qp_rd_atom < 1 ||
      device.max_qp_init_rd_atom < 1 || device.max_sge < 1) {
    return Status(Code::kUnavailable,
                  fmt::format("the RDMA device {} cannot serve READs or has too "
                              "short queues",
                              ibv_get_device_name(id->verbs->device)));
  }
  QueuePairLimits limits;
  const bool iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
  limits.fences_reads = !iwarp;
  limits.splits_at_pages = iwarp;
  limits.in_software = IsSoftware(*id->verbs->device, device.vendor_id);
  limits.misses_first_frame = iwarp && limits.in_software;
  const std::uint32_t requests = iwarp ? 2 : 1;  // of a transfer, at most
  limits.max_transfers = std::min({kMaxTransfers, (queue_depth - kSendSlots) / requests,
                                   (completion_depth - kReceiveSlots - kSendSlots) / requests});
  limits.max_transfer_bytes = std::min<std::uint64_t>(port.max_msg_sz, kMaxTransferBytes);
  limits.responder_resources =
      static_cast<std::uint8_t>(std::min<int>(device.max_qp_rd_atom, RDMA_MAX_RESP_RES));
  limits.initiator_depth =
      static_cast<std::uint8_t>(std::min<int>(device.max_qp_init_rd_atom, RDMA_MAX_INIT_DEPTH));
  return limits;
}

Result<std::unique_ptr<QueuePair>> QueuePair::Create(rdma_cm_id* id, const DeviceInDomain& device) {
  RDFS_ASSIGN_OR_RETURN(const QueuePairLimits limits, QueryLimits(id));
  std::unique_ptr<QueuePair> queue_pair(new QueuePair(id, limits));
  RDFS_RETURN_IF_ERROR(queue_pair->Build(device));
  return queue_pair;
}

Status QueuePair::Build(const DeviceInDomain& device) {
  RDFS_ASSIGN_OR_RETURN(memory_, SharedMemory::Create("rdfs verbs control", kControlBytes,
                                                      SharedMemory::Peers::kMayWrite));
  RDFS_ASSIGN_OR_RETURN(memory_region_, device.attachment->RegisterControl(*memory_));
  local_key_ = memory_region_->lkey;
  RDFS_RETURN_IF_ERROR(MakeQueues(*device.attachment));
  for (std::uint32_t slot = 0; slot < kReceiveSlots; ++slot) QueueReceive(slot);
  return PostReceives();
}

Status QueuePair::MakeQueues(const DeviceAttachment& attachment) {
  channel_.reset(ibv_create_comp_channel(id_->verbs));
  if (channel_ == nullptr) return FromErrno("cannot make a completion channel");
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return FromErrno("cannot make a completion channel non-blocking");
  }
  // One queue for both directions, as long as everything that can be posted: it cannot overrun.
  // Connections spread over the device's interrupt vectors.
  const auto vector = static_cast<int>(
      RandomU64() % static_cast<std::uint64_t>(std::max(id_->verbs->num_comp_vectors, 1)));
  completions_.reset(ibv_create_cq(id_->verbs, static_cast<int>(send_depth() + kReceiveSlots),
                                   nullptr, channel_.get(), vector));
  if (completions_ == nullptr) return FromErrno("cannot make a completion queue");
  for (const std::uint32_t wish : kInlineWishes) {
    ibv_qp_init_attr attr{};
    attr.send_cq = completions_.get();
    attr.recv_cq = completions_.get();
    attr.cap = {.max_send_wr = send_depth(),
                .max_recv_wr = kReceiveSlots,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = wish};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 0;
    errno = 0;  // a provider may refuse without a word (bnxt_re does, above its inline limit)
    if (rdma_create_qp(id_, attachment.protection_domain(), &attr) == 0) {
      queue_pair_.reset(id_);
      limits_.max_inline_bytes = attr.cap.max_inline_data;
      return Status::Ok();
    }
    if (errno != 0 && errno != EINVAL && errno != ENOMEM) break;
  }
  if (errno == 0) errno = EINVAL;
  return FromErrno("cannot make a queue pair");
}

QueuePair::~QueuePair() {
  if (queue_pair_ == nullptr) return;
  End();
  Drain();
  // ibv_destroy_cq waits for events that are not acknowledged; ConsumeEvents leaves none.
}

void QueuePair::End() {
  if (ended_) return;
  ended_ = true;
  // Puts the queue pair in error and tells the peer. On an id that is not connected it fails, and
  // the queue pair is put in error directly.
  if (rdma_disconnect(id_) != 0) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    if (const int error = ibv_modify_qp(id_->qp, &attr, IBV_QP_STATE); error != 0) {
      LogDebug("{}", FromReturned(error, "cannot put a queue pair in error").message());
    }
  }
}

void QueuePair::Drain() {
  TimePoint quiet_since = BootClock::now();
  const Deadline deadline = quiet_since + kDrainLimit;
  while (receives_posted_ + signals_posted_ > 0) {
    const Result<std::span<const ibv_wc>> some = PollCompletions();
    if (!some.ok()) return;
    const TimePoint now = BootClock::now();
    if (!(*some).empty()) {
      quiet_since = now;
    } else if (now >= deadline || now >= quiet_since + kQuietLimit) {
      LogDebug("a queue pair ended with {} receives and {} sends not flushed", receives_posted_,
               signals_posted_);
      return;
    } else {
      std::this_thread::yield();
    }
  }
}

ByteSpan QueuePair::receive_buffer(std::uint32_t slot) const {
  return memory_->bytes().subspan(slot * kFrameBytes, kFrameBytes);
}

MutableByteSpan QueuePair::send_buffer(std::uint32_t slot) const {
  return memory_->bytes().subspan((kReceiveSlots + slot) * kFrameBytes, kFrameBytes);
}

void QueuePair::QueueReceive(std::uint32_t slot) {
  QueuedReceive& queued = receives_[receive_count_++];
  queued.element = {.addr = AddressOf(receive_buffer(slot)),
                    .length = static_cast<std::uint32_t>(kFrameBytes),
                    .lkey = local_key_};
  queued.request = {.wr_id = WorkId(WorkKind::kReceive, slot).raw(),
                    .next = nullptr,
                    .sg_list = &queued.element,
                    .num_sge = 1};
}

Status QueuePair::PostReceives() {
  if (receive_count_ == 0) return Status::Ok();
  for (std::uint32_t i = 0; i + 1 < receive_count_; ++i) {
    receives_[i].request.next = &receives_[i + 1].request;
  }
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(id_->qp, &receives_[0].request, &refused);
  if (error != 0) return FromReturned(error, "cannot post receives");
  receives_posted_ += receive_count_;
  receive_count_ = 0;
  return Status::Ok();
}

ibv_send_wr& QueuePair::AddSend() {
  QueuedSend& queued = sends_[send_count_++];
  queued.request = {};
  queued.request.sg_list = &queued.element;
  queued.request.num_sge = 1;
  return queued.request;
}

void QueuePair::QueueSend(std::uint64_t sequence, std::uint32_t length, bool signalled) {
  ibv_send_wr& request = AddSend();
  const auto slot = static_cast<std::uint32_t>(sequence % kSendSlots);
  *request.sg_list = {.addr = AddressOf(send_buffer(slot)), .length = length, .lkey = local_key_};
  request.wr_id = WorkId(WorkKind::kSend, sequence).raw();
  request.opcode = IBV_WR_SEND;
  unsigned flags = 0;
  if (signalled) flags |= IBV_SEND_SIGNALED;
  if (length <= limits_.max_inline_bytes) flags |= IBV_SEND_INLINE;
  request.send_flags = flags;
}

void QueuePair::QueueTransfer(const Transfer& transfer) {
  if (limits_.fences_reads || transfer.opcode != IBV_WR_RDMA_READ) return AddTransfer(transfer);
  Transfer unfenced = transfer;
  unfenced.fenced = false;
  if (const auto read = gate_.Enter(unfenced, transfer.fenced)) AddTransfer(*read);
}

// Soft-iWARP mixes up the bytes of a short transfer whose source crosses a page: it sends them from
// its header buffer, and copies as many from the first page as belong to the second (seen with
// Linux 7.2: a READ of 14 bytes, 12 of them on the first page, brought 2 right ones). Two requests
// avoid it; transfers of one direction end in order, so that the second's completion is both's.
void QueuePair::AddTransfer(const Transfer& transfer) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint32_t kShort = 64;  // above what that header buffer takes
  const std::uint64_t source =
      transfer.opcode == IBV_WR_RDMA_READ ? transfer.remote_address : transfer.local_address;
  const auto to_page_end = static_cast<std::uint32_t>(kPage - source % kPage);
  if (!limits_.splits_at_pages || transfer.length > kShort || transfer.length <= to_page_end) {
    return AddRequest(transfer, true);
  }
  Transfer piece = transfer;
  piece.length = to_page_end;
  AddRequest(piece, false);
  piece.length = transfer.length - to_page_end;
  piece.local_address += to_page_end;
  piece.remote_address += to_page_end;
  AddRequest(piece, true);
}

void QueuePair::AddRequest(const Transfer& transfer, bool signalled) {
  ibv_send_wr& request = AddSend();
  *request.sg_list = {
      .addr = transfer.local_address, .length = transfer.length, .lkey = transfer.local_key};
  request.wr_id = transfer.id.raw();
  request.opcode = transfer.opcode;
  // Each transfer bears a signal: a READ may complete after a later WRITE (soft-iWARP does it), so
  // one completion cannot stand for another.
  unsigned flags = 0;
  if (signalled) flags |= IBV_SEND_SIGNALED;
  if (transfer.fenced) flags |= IBV_SEND_FENCE;
  request.send_flags = flags;
  request.wr.rdma.remote_addr = transfer.remote_address;
  request.wr.rdma.rkey = transfer.remote_key;
}

Status QueuePair::PostSends() {
  if (send_count_ == 0) return Status::Ok();
  std::uint32_t signalled = 0;
  for (std::uint32_t i = 0; i < send_count_; ++i) {
    ibv_send_wr& request = sends_[i].request;
    if (i + 1 < send_count_) request.next = &sends_[i + 1].request;
    if ((request.send_flags & IBV_SEND_SIGNALED) != 0) ++signalled;
  }
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(id_->qp, &sends_[0].request, &refused);
  send_count_ = 0;
  if (error != 0) return FromReturned(error, "cannot post to the send queue");
  signals_posted_ += signalled;
  return Status::Ok();
}

void QueuePair::Count(const ibv_wc& completion) {
  const WorkId id = WorkId::FromRaw(completion.wr_id);
  if (id.kind() == WorkKind::kReceive) {
    --receives_posted_;
  } else if (signals_posted_ > 0) {
    // A flush brings back SENDs without a signal, too; Drain may then end early by as many, and
    // destroying the queue pair does the rest.
    --signals_posted_;
  }
  if (id.kind() != WorkKind::kRead || limits_.fences_reads) return;
  gate_.OnCompleted();
  if (completion.status != IBV_WC_SUCCESS) return;
  while (const auto read = gate_.Next()) AddTransfer(*read);
}

Result<std::span<const ibv_wc>> QueuePair::PollCompletions() {
  const int count = ibv_poll_cq(completions_.get(), kPollBatch, batch_.data());
  if (count < 0) return Status(Code::kDisconnected, "the RDMA device failed (ibv_poll_cq)");
  const std::span<const ibv_wc> out(batch_.data(), static_cast<std::size_t>(count));
  for (const ibv_wc& completion : out) Count(completion);
  return out;
}

Status QueuePair::Arm() {
  const int error = ibv_req_notify_cq(completions_.get(), 0);
  return error == 0 ? Status::Ok() : FromReturned(error, "cannot arm a completion queue");
}

Result<bool> QueuePair::ConsumeEvents() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  // One arming, one event.
  if (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    // Here, at once, although it takes a lock: this is the path of a wake-up, not of the data.
    ibv_ack_cq_events(completions_.get(), 1);
    return true;
  }
  if (errno != EAGAIN && errno != EINTR) return FromErrno("cannot read RDMA events");
  return false;
}

}  // namespace rdfs::transport::verbs
