// The connection manager's side of a connection: an event channel and what arrives on it.
//
// Each id has a channel of its own, so that the thread that owns a connection reads its events and
// nobody else's. One thread at a time. Sources: rdma_cm(7), rdma_get_cm_event(3).
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/status.h"
#include "transport/transport.h"
#include "transport/verbs/objects.h"

namespace rdfs::transport::verbs {

// An event, copied out and acknowledged.
struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_CONNECT_ERROR;
  int status = 0;  // a negative errno, or for REJECTED the connection manager's reason
  rdma_cm_id* new_id = nullptr;  // of CONNECT_REQUEST: the caller's to own
  // Of CONNECT_REQUEST, from this side's point of view: READs that the peer wants to have under
  // way towards us, and that we may have towards it.
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::vector<std::byte> private_data;  // of CONNECT_REQUEST and REJECTED; hostile
};

class CmChannel {
 public:
  // kUnavailable when there is no connection manager.
  static Result<CmChannel> Create();

  [[nodiscard]] rdma_event_channel* get() const { return channel_.get(); }
  [[nodiscard]] int fd() const { return channel_->fd; }
  // The next event, or nullopt. Never blocks.
  Result<std::optional<CmEvent>> Next();
  // Blocks until an event or `deadline` (kDeadlineExceeded).
  Result<CmEvent> Wait(Deadline deadline);

 private:
  explicit CmChannel(EventChannelPtr channel) : channel_(std::move(channel)) {}
  EventChannelPtr channel_;
};

// "10.9.9.1:7338", "[fd00::1]:7338".
std::string AddressText(const sockaddr* address);

struct SocketAddress {
  sockaddr_storage storage{};
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// What an endpoint's host stands for, as ResolveHost (base/resolve.h).
Result<std::vector<SocketAddress>> AddressesOf(const Endpoint& endpoint, Deadline deadline);

}  // namespace rdfs::transport::verbs
