#include "transport/verbs/connect.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "transport/base/sigpipe.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/private_data.h"

namespace rdfs::transport::verbs {
namespace {

// Attempts while the local port that was drawn is taken: iWARP's TCP may still remember a
// connection from it to the same place. Each draws another one.
constexpr int kTriesForAPort = 5;
// So does InfiniBand's connection manager at the peer of a queue pair's number, and says so (its
// IB_CM_REJ_STALE_CONN). It then ends what it had, which takes a moment.
constexpr int kStaleConnection = 10;
constexpr auto kStaleTime = std::chrono::milliseconds(50);
// The kernel can miss the answer to its question for a neighbour's address, where that comes at
// once, and then looks only when the time is over that it was given for it.
constexpr int kAddressTimeMs = 100;

Status Refused(const std::string& where) {
  return {Code::kDisconnected,
          fmt::format("{} refuses RDMA connections; is rdfsd running there, with verbs, on this "
                      "port?",
                      where)};
}

Status Unreachable(const std::string& where) {
  return {Code::kDisconnected,
          fmt::format("{} does not answer over RDMA; is its RDMA device up, and does a firewall "
                      "let it through (RoCE: UDP port 4791, iWARP: TCP on this port)?",
                      where)};
}

Status Stale(const std::string& where) {
  return {Code::kDisconnected, EADDRINUSE,
          fmt::format("{} takes this RDMA connection for one that it still has; try again", where)};
}

// An event's or a call's errno while an address is being resolved and connected.
Status FromConnectErrno(int errno_value, const std::string& where) {
  switch (errno_value) {
    case ECONNREFUSED:
    case ECONNRESET:
      return Refused(where);
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Unreachable(where);
    case ENODEV:
      return {Code::kUnavailable, errno_value,
              fmt::format("no RDMA device of this host leads to {}; see 'rdma link' and 'ip route "
                          "get'",
                          where)};
    default:
      return FromReturned(errno_value, "cannot connect to " + where);
  }
}

// What an event other than the expected one means.
Status FromEvent(const CmEvent& event, const std::string& where) {
  switch (event.type) {
    case RDMA_CM_EVENT_REJECTED:
      if (std::optional<Status> why = DecodeReject(event.private_data)) return *std::move(why);
      return event.status == kStaleConnection ? Stale(where) : Refused(where);
    case RDMA_CM_EVENT_UNREACHABLE:
      return Unreachable(where);
    default:
      // -1 is no errno: librdmacm could not deal with the answer, whose sender has gone again.
      if (event.status < -1) return FromConnectErrno(-event.status, where);
      return {Code::kDisconnected, fmt::format("cannot connect to {} over RDMA ({}, {})", where,
                                               rdma_event_str(event.type), event.status)};
  }
}

// One attempt at one address.
class Attempt {
 public:
  Attempt(SocketAddress address, Deadline deadline)
      : address_(address), where_(AddressText(address_.get())), deadline_(deadline) {}

  Result<std::unique_ptr<Connection>> Run(const std::shared_ptr<Domain>& domain, ByteSpan token);

 private:
  Status ResolveAddress(CmChannel& channel, rdma_cm_id* id);
  Status Resolve(CmChannel& channel, rdma_cm_id* id);
  Status Establish(VerbsConnection& connection, ByteSpan token);
  Status Expect(CmChannel& channel, rdma_cm_event_type expected);
  [[nodiscard]] int TimeoutMs() const {
    return std::max(PollTimeoutMs(deadline_, BootClock::now()), 1);
  }

  SocketAddress address_;
  const std::string where_;
  const Deadline deadline_;
};

Status Attempt::Expect(CmChannel& channel, rdma_cm_event_type expected) {
  const Result<CmEvent> event = channel.Wait(deadline_);
  const bool asks_the_peer = expected == RDMA_CM_EVENT_ESTABLISHED;
  if (asks_the_peer && event.status().code() == Code::kDeadlineExceeded) {
    return {Code::kDeadlineExceeded, Unreachable(where_).message()};
  }
  if (!event.ok()) return event.status().WithContext(where_);
  return (*event).type == expected ? Status::Ok() : FromEvent(*event, where_);
}

Status Attempt::ResolveAddress(CmChannel& channel, rdma_cm_id* id) {
  for (;;) {
    const int time = std::min(TimeoutMs(), kAddressTimeMs);
    if (rdma_resolve_addr(id, nullptr, address_.get(), time) != 0) {
      return FromConnectErrno(errno, where_);
    }
    const Result<CmEvent> event = channel.Wait(deadline_);
    if (!event.ok()) return event.status().WithContext(where_);
    if (event->type == RDMA_CM_EVENT_ADDR_RESOLVED) return {};
    const bool again = event->type == RDMA_CM_EVENT_ADDR_ERROR && event->status == -ETIMEDOUT;
    if (!again) return FromEvent(*event, where_);
  }
}

Status Attempt::Resolve(CmChannel& channel, rdma_cm_id* id) {
  RDFS_RETURN_IF_ERROR(ResolveAddress(channel, id));
  if (rdma_resolve_route(id, TimeoutMs()) != 0) return FromConnectErrno(errno, where_);
  return Expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

Status Attempt::Establish(VerbsConnection& connection, ByteSpan token) {
  const ConnectData data = EncodeConnect(token);
  rdma_conn_param param{};
  param.private_data = &data;
  param.private_data_len = static_cast<std::uint8_t>(1 + token.size());
  param.responder_resources = connection.limits().responder_resources;
  param.initiator_depth = connection.limits().initiator_depth;
  param.retry_count = kRetries;
  param.rnr_retry_count = kReceiverNotReadyRetries;
  {
    const SigpipeHeld held;
    if (rdma_connect(connection.id(), &param) != 0) return FromConnectErrno(errno, where_);
  }
  RDFS_RETURN_IF_ERROR(Expect(connection.channel(), RDMA_CM_EVENT_ESTABLISHED));
  return connection.Open();
}

Result<std::unique_ptr<Connection>> Attempt::Run(const std::shared_ptr<Domain>& domain,
                                                 ByteSpan token) {
  RDFS_ASSIGN_OR_RETURN(CmChannel channel, CmChannel::Create());
  rdma_cm_id* raw = nullptr;
  if (rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP) != 0) {
    return FromErrno("cannot make an RDMA connection");
  }
  CmIdPtr id(raw);
  RDFS_RETURN_IF_ERROR(Resolve(channel, id.get()));
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<VerbsConnection> connection,
                        VerbsConnection::Create(channel, id, domain));
  RDFS_RETURN_IF_ERROR(Establish(*connection, token));
  return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace

Result<std::unique_ptr<Connection>> ConnectTo(const Endpoint& endpoint,
                                              const std::shared_ptr<Domain>& domain, ByteSpan token,
                                              Deadline deadline) {
  if (token.size() > kMaxTokenBytes) {
    return Status(Code::kInvalidArgument, "a token above kMaxTokenBytes");
  }
  RDFS_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                        AddressesOf(endpoint, deadline));
  Status why;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    // An address that swallows packets leaves their share of the time to those behind it.
    const TimePoint now = BootClock::now();
    const auto left = std::max(deadline - now, Deadline::duration::zero());
    const Deadline share = now + left / static_cast<std::int64_t>(addresses.size() - i);
    for (int tries = 0; tries < kTriesForAPort; ++tries) {
      Result<std::unique_ptr<Connection>> connection =
          Attempt(addresses[i], share).Run(domain, token);
      if (connection.ok()) return connection;
      why = connection.status();
      if (why.errno_value() != EADDRINUSE) break;
      if (why.code() != Code::kDisconnected) continue;
      if (BootClock::now() + kStaleTime >= share) break;
      std::this_thread::sleep_for(kStaleTime);
    }
    // The peer itself has answered, or nothing here can: other addresses change nothing.
    if (why.code() == Code::kResourceExhausted) break;
  }
  return why;
}

}  // namespace rdfs::transport::verbs
