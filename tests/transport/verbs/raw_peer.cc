#include "tests/transport/verbs/raw_peer.h"

#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace rdfs::transport::verbs {
namespace {

constexpr int kResolveMs = 5000;
constexpr std::chrono::seconds kLimit{3};

// RFC 5040, 5.2: on iWARP the sink of a READ is open to remote writing.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

using AddressPtr = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressPtr NumericAddress(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* address = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &address) != 0) {
    address = nullptr;
  }
  return {address, freeaddrinfo};
}

}  // namespace

std::unique_ptr<RawPeer> RawPeer::Create(const Endpoint& to, std::uint32_t receives) {
  const AddressPtr address = NumericAddress(to.host, to.port);
  if (address == nullptr) return nullptr;
  std::unique_ptr<RawPeer> peer(new RawPeer);
  rdma_cm_id* id = nullptr;
  // Without an event channel librdmacm's calls block until they are done.
  if (rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  peer->id_.reset(id);
  if (rdma_resolve_addr(id, nullptr, address->ai_addr, kResolveMs) != 0 ||
      rdma_resolve_route(id, kResolveMs) != 0 || !peer->MakeQueuePair(receives)) {
    return nullptr;
  }
  return peer;
}

bool RawPeer::MakeQueuePair(std::uint32_t receives) {
  domain_.reset(ibv_alloc_pd(id_->verbs));
  if (domain_ == nullptr) return false;
  receive_buffer_.resize(kReceiveBytes * std::max(receives, 1U));
  region_.reset(ibv_reg_mr(domain_.get(), buffer_.data(), buffer_.size(), kAccess));
  const int may_receive = IBV_ACCESS_LOCAL_WRITE;
  receive_region_.reset(
      ibv_reg_mr(domain_.get(), receive_buffer_.data(), receive_buffer_.size(), may_receive));
  completions_.reset(ibv_create_cq(id_->verbs, 2 * kDepth, nullptr, nullptr, 0));
  if (region_ == nullptr || receive_region_ == nullptr || completions_ == nullptr) return false;
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = completions_.get();
  attr.cap = {.max_send_wr = kDepth,
              .max_recv_wr = std::max(receives, 1U),
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  attr.qp_type = IBV_QPT_RC;
  if (rdma_create_qp(id_.get(), domain_.get(), &attr) != 0) return false;
  queue_pair_.reset(id_.get());
  for (std::uint32_t slot = 0; slot < receives; ++slot) {
    if (!PostReceive(slot)) return false;
  }
  return true;
}

bool RawPeer::Connect(ByteSpan private_data) {
  rdma_conn_param param{};
  param.private_data = private_data.data();
  param.private_data_len = static_cast<std::uint8_t>(private_data.size());
  param.responder_resources = param.initiator_depth = 4;
  param.retry_count = 7;
  param.rnr_retry_count = 3;
  return rdma_connect(id_.get(), &param) == 0;
}

bool RawPeer::PostReceive(std::uint32_t slot) {
  ibv_sge element{
      .addr = reinterpret_cast<std::uintptr_t>(receive_buffer_.data()) + slot * kReceiveBytes,
      .length = kReceiveBytes,
      .lkey = receive_region_->lkey};
  ibv_recv_wr request{.wr_id = slot, .next = nullptr, .sg_list = &element, .num_sge = 1};
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(id_->qp, &request, &refused) == 0;
}

bool RawPeer::Post(ibv_send_wr& request, std::size_t length) {
  ibv_sge element{.addr = reinterpret_cast<std::uintptr_t>(buffer_.data()),
                  .length = static_cast<std::uint32_t>(length),
                  .lkey = region_->lkey};
  request.wr_id = kSendId;
  request.sg_list = &element;
  request.num_sge = length == 0 ? 0 : 1;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(id_->qp, &request, &refused) == 0;
}

std::optional<ibv_wc_status> RawPeer::Send(ByteSpan payload, ibv_wr_opcode opcode) {
  std::ranges::copy(payload, buffer_.begin());
  ibv_send_wr request{};
  request.opcode = opcode;
  if (!Post(request, payload.size())) return std::nullopt;
  return AwaitSend();
}

bool RawPeer::SendMany(ByteSpan payload, std::uint32_t count) {
  std::ranges::copy(payload, buffer_.begin());
  for (; count > 0; --count) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    if (!Post(request, payload.size())) return false;
  }
  return true;
}

std::optional<ibv_wc_status> RawPeer::Access(ibv_wr_opcode opcode, const RemoteRegion& region,
                                             std::uint64_t offset, std::uint32_t length) {
  ibv_send_wr request{};
  request.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic = {.remote_addr = region.address + offset,
                         .compare_add = 1,
                         .swap = 0,
                         .rkey = static_cast<std::uint32_t>(region.key)};
  } else {
    request.wr.rdma = {.remote_addr = region.address + offset,
                       .rkey = static_cast<std::uint32_t>(region.key)};
  }
  if (!Post(request, length)) return std::nullopt;
  return AwaitSend();
}

bool RawPeer::Take() {
  ibv_wc completion{};
  if (ibv_poll_cq(completions_.get(), 1, &completion) < 1) return false;
  if (completion.status != IBV_WC_SUCCESS) ended_ = true;
  if (completion.wr_id == kSendId) {
    sent_.push_back(completion.status);
  } else if (completion.status == IBV_WC_SUCCESS) {
    const auto slot = static_cast<std::uint32_t>(completion.wr_id);
    const ByteSpan bytes =
        ByteSpan(receive_buffer_).subspan(slot * kReceiveBytes, completion.byte_len);
    received_.emplace_back(bytes.begin(), bytes.end());
    (void)PostReceive(slot);
  }
  return true;
}

std::optional<ibv_wc_status> RawPeer::AwaitSend() {
  const Deadline deadline = DeadlineAfter(kLimit);
  while (sent_.empty() && BootClock::now() < deadline) {
    if (!Take()) std::this_thread::yield();
  }
  if (sent_.empty()) return std::nullopt;
  const ibv_wc_status status = sent_.front();
  sent_.erase(sent_.begin());
  return status;
}

std::optional<std::vector<std::byte>> RawPeer::Receive() {
  const Deadline deadline = DeadlineAfter(kLimit);
  while (received_.empty() && !ended_ && BootClock::now() < deadline) {
    if (!Take()) std::this_thread::yield();
  }
  if (received_.empty()) return std::nullopt;
  std::vector<std::byte> message = std::move(received_.front());
  received_.erase(received_.begin());
  return message;
}

std::unique_ptr<RawListener> RawListener::Create(const std::string& host) {
  const AddressPtr address = NumericAddress(host, 0);
  std::unique_ptr<RawListener> listener(new RawListener);
  rdma_cm_id* id = nullptr;
  if (address == nullptr || rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  listener->id_.reset(id);
  if (rdma_bind_addr(id, address->ai_addr) != 0 || rdma_listen(id, 1) != 0) return nullptr;
  return listener;
}

std::uint16_t RawListener::port() const { return ntohs(rdma_get_src_port(id_.get())); }

std::unique_ptr<RawPeer> RawListener::Accept(std::uint32_t receives) {
  rdma_cm_id* id = nullptr;
  if (rdma_get_request(id_.get(), &id) != 0) return nullptr;
  std::unique_ptr<RawPeer> peer(new RawPeer);
  peer->id_.reset(id);
  rdma_conn_param param{};
  param.responder_resources = param.initiator_depth = 4;
  if (!peer->MakeQueuePair(receives) || rdma_accept(id, &param) != 0) return nullptr;
  return peer;
}

}  // namespace rdfs::transport::verbs
