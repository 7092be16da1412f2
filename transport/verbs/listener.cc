#include "transport/verbs/listener.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "transport/base/log.h"
#include "transport/base/resolve.h"
#include "transport/base/sigpipe.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/private_data.h"

namespace rdfs::transport::verbs {
namespace {

// Requests that may wait for Accept; the kernel refuses more.
constexpr int kBacklog = 128;
// Events that one call of Accept looks at: what is nobody's must not keep its caller for ever.
constexpr int kEventsACall = 64;

class VerbsIncoming final : public Incoming {
 public:
  VerbsIncoming(CmChannel channel, CmIdPtr id, CmEvent request, std::vector<std::byte> token)
      : channel_(std::move(channel)),
        id_(std::move(id)),
        request_(std::move(request)),
        token_(std::move(token)),
        peer_(AddressText(rdma_get_peer_addr(id_.get()))) {}
  ~VerbsIncoming() override {
    if (id_ != nullptr) Reject({Code::kDisconnected, "the server dropped the request"});
  }

  [[nodiscard]] ByteSpan token() const override { return token_; }
  [[nodiscard]] std::string peer() const override { return peer_; }
  Result<std::unique_ptr<Connection>> Accept(const std::shared_ptr<Domain>& domain) override;
  void Reject(const Status& why) override;

 private:
  CmChannel channel_;
  CmIdPtr id_;  // null when used up
  CmEvent request_;
  std::vector<std::byte> token_;
  std::string peer_;
};

Result<std::unique_ptr<Connection>> VerbsIncoming::Accept(const std::shared_ptr<Domain>& domain) {
  if (id_ == nullptr) return Status(Code::kInvalidArgument, "this peer was answered already");
  rdma_cm_id* id = id_.get();
  Result<std::unique_ptr<VerbsConnection>> made = VerbsConnection::Create(channel_, id_, domain);
  if (!made.ok()) {
    Reject(made.status().WithContext("the server cannot take another RDMA connection"));
    return made.status();
  }
  VerbsConnection& connection = **made;
  rdma_conn_param param{};
  param.responder_resources =
      std::min(request_.responder_resources, connection.limits().responder_resources);
  param.initiator_depth = std::min(request_.initiator_depth, connection.limits().initiator_depth);
  param.retry_count = kRetries;
  param.rnr_retry_count = kReceiverNotReadyRetries;
  const SigpipeHeld held;
  if (rdma_accept(id, &param) != 0) return FromErrno("cannot accept an RDMA connection");
  return std::unique_ptr<Connection>(*std::move(made));
}

void VerbsIncoming::Reject(const Status& why) {
  if (id_ == nullptr) return;
  const SigpipeHeld held;
  const RejectData data = EncodeReject(why);
  if (rdma_reject(id_.get(), &data, sizeof(data)) != 0) {
    LogDebug("{}", FromErrno("cannot reject an RDMA connection").message());
  }
  id_.reset();
}

// Host names and ports of a Listen, with every address when there is no host. An IPv6 wildcard
// takes IPv4 too (ListenAt sees to it).
Result<std::vector<SocketAddress>> ListenAddresses(const Endpoint& endpoint) {
  if (!endpoint.host.empty()) return AddressesOf(endpoint, DeadlineAfter(kResolveTime));
  std::vector<SocketAddress> any(2);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(any[0].get());
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(endpoint.port);
  auto* v4 = reinterpret_cast<sockaddr_in*>(any[1].get());
  v4->sin_family = AF_INET;
  v4->sin_port = htons(endpoint.port);
  return any;
}

Result<CmIdPtr> ListenAt(const CmChannel& channel, SocketAddress& address,
                         const Endpoint& endpoint) {
  rdma_cm_id* raw = nullptr;
  if (rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP) != 0) {
    return FromErrno("cannot make an RDMA listener");
  }
  CmIdPtr id(raw);
  // Else net.ipv6.bindv6only says it. Where it cannot be set, IPv6 alone is better than nothing.
  int one_family = 0;
  if (endpoint.host.empty() && address.get()->sa_family == AF_INET6 &&
      rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one_family,
                      sizeof(one_family)) != 0) {
    LogDebug("{}", FromErrno("an RDMA listener may take IPv6 alone").message());
  }
  if (rdma_bind_addr(id.get(), address.get()) != 0 || rdma_listen(id.get(), kBacklog) != 0) {
    return FromListen(errno, endpoint);
  }
  return id;
}

}  // namespace

Result<std::unique_ptr<Listener>> VerbsListener::Create(const Endpoint& endpoint) {
  RDFS_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, ListenAddresses(endpoint));
  RDFS_ASSIGN_OR_RETURN(CmChannel channel, CmChannel::Create());
  Status why;
  for (SocketAddress& address : addresses) {
    Result<CmIdPtr> id = ListenAt(channel, address, endpoint);
    if (!id.ok()) {
      if (why.ok()) why = id.status();
      continue;
    }
    Endpoint taken = endpoint;
    taken.kind = Kind::kVerbs;
    taken.port = ntohs(rdma_get_src_port((*id).get()));
    return std::unique_ptr<Listener>(
        new VerbsListener(std::move(channel), *std::move(id), std::move(taken)));
  }
  return why;
}

Result<std::unique_ptr<Incoming>> VerbsListener::Accept() {
  for (int i = 0; i < kEventsACall; ++i) {
    RDFS_ASSIGN_OR_RETURN(std::optional<CmEvent> event, channel_.Next());
    if (!event) return std::unique_ptr<Incoming>();
    if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      return Status(Code::kUnavailable,
                    "the RDMA device that the listener is bound to was removed");
    }
    // Others concern requests whose peers have given up meanwhile.
    if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    CmIdPtr id(event->new_id);
    // Such peers are not rdfs; destroying the id rejects them.
    const std::optional<ByteSpan> token = DecodeConnect(event->private_data);
    if (!token) continue;
    RDFS_ASSIGN_OR_RETURN(CmChannel channel, CmChannel::Create());
    if (rdma_migrate_id(id.get(), channel.get()) != 0) {
      LogDebug("{}", FromErrno("cannot move an RDMA request to its own channel").message());
      continue;
    }
    std::vector<std::byte> copy(token->begin(), token->end());
    return std::unique_ptr<Incoming>(std::make_unique<VerbsIncoming>(
        std::move(channel), std::move(id), *std::move(event), std::move(copy)));
  }
  return std::unique_ptr<Incoming>();  // the channel stays readable
}

}  // namespace rdfs::transport::verbs
