#include "transport/verbs/cm.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <array>
#include <cstring>

#include "transport/base/resolve.h"
#include "transport/verbs/errors.h"

namespace rdfs::transport::verbs {
namespace {

bool CarriesPrivateData(rdma_cm_event_type type) {
  return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_REJECTED;
}

CmEvent CopyOf(const rdma_cm_event& event) {
  CmEvent out;
  out.type = event.event;
  out.status = event.status;
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) out.new_id = event.id;
  if (!CarriesPrivateData(event.event)) return out;
  const rdma_conn_param& param = event.param.conn;
  out.responder_resources = param.responder_resources;
  out.initiator_depth = param.initiator_depth;
  if (param.private_data != nullptr) {
    const auto* bytes = static_cast<const std::byte*>(param.private_data);
    out.private_data.assign(bytes, bytes + param.private_data_len);
  }
  return out;
}

}  // namespace

Result<CmChannel> CmChannel::Create() {
  EventChannelPtr channel(rdma_create_event_channel());
  if (channel == nullptr) return FromErrno("cannot reach the RDMA connection manager");
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return FromErrno("cannot make the RDMA event channel non-blocking");
  }
  return CmChannel(std::move(channel));
}

Result<std::optional<CmEvent>> CmChannel::Next() {
  rdma_cm_event* raw = nullptr;
  if (rdma_get_cm_event(channel_.get(), &raw) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<CmEvent>();
    return FromErrno("cannot read from the RDMA connection manager");
  }
  const CmEventPtr event(raw);
  return std::optional<CmEvent>(CopyOf(*event));
}

Result<CmEvent> CmChannel::Wait(Deadline deadline) {
  while (true) {
    RDFS_ASSIGN_OR_RETURN(std::optional<CmEvent> event, Next());
    if (event) return *std::move(event);
    const TimePoint now = BootClock::now();
    if (now >= deadline) {
      return Status(Code::kDeadlineExceeded, "the RDMA connection manager did not answer in time");
    }
    pollfd entry{.fd = fd(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, PollTimeoutMs(deadline, now)) < 0 && errno != EINTR) {
      return FromErrno("cannot wait for the RDMA connection manager");
    }
  }
}

std::string AddressText(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(v4.sin_port));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof(v6));
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), ntohs(v6.sin6_port));
  }
  return "unknown address";
}

Result<std::vector<SocketAddress>> AddressesOf(const Endpoint& endpoint, Deadline deadline) {
  RDFS_ASSIGN_OR_RETURN(const AddressList list,
                        ResolveHost(endpoint.host, endpoint.port, 0, deadline));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    std::memcpy(&addresses.emplace_back().storage, entry->ai_addr, entry->ai_addrlen);
  }
  return addresses;
}

}  // namespace rdfs::transport::verbs
