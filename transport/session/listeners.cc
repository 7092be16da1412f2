#include "transport/session/listeners.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "transport/base/log.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"
#include "transport/verbs/transport.h"

namespace rdfs::transport::session {
namespace {

bool Offered(const AcceptorOptions& options, Kind kind) {
  return std::ranges::find(options.offer, kind) != options.offer.end();
}

using LaneListeners = std::vector<std::unique_ptr<Listener>>;

// The first verbs listener: on the port that was asked for, else the one behind the TCP port, else
// any. The port spaces of soft-iWARP and TCP are one, so a free TCP port need not be free here.
Result<std::unique_ptr<Listener>> ListenVerbs(Transport& transport, const std::string& host,
                                              const AcceptorOptions& options,
                                              std::uint16_t tcp_port) {
  std::uint16_t port = options.verbs_port;
  const bool settable = port == 0;
  if (settable && tcp_port != 0 && tcp_port != 0xffff) {
    port = static_cast<std::uint16_t>(tcp_port + 1);
  }
  auto listener = transport.Listen({Kind::kVerbs, host, port});
  if (listener.ok() || !settable || port == 0) return listener;
  auto other = transport.Listen({Kind::kVerbs, host, 0});
  // Whoever took any TCP port has opened none to others.
  if (other.ok() && options.port != 0) {
    LogWarn("RDMA's port {} cannot be had ({}), so it listens on {}: let that through the firewall",
            port, listener.status().message(), (*other)->endpoint().port);
  }
  return other;
}

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

// One for each address that an RDMA device has, all on one port: clients are told a single one. To
// RDMA's connection manager loopback is every address of every device, beside which there is none
// (cma_any_addr): it is for those that listen there alone.
Result<LaneListeners> ListenVerbsAt(Transport& transport, std::vector<std::string> hosts,
                                    const AcceptorOptions& options, std::uint16_t tcp_port) {
  std::stable_partition(hosts.begin(), hosts.end(),
                        [](const std::string& host) { return !IsLoopback(host); });
  LaneListeners out;
  Status refused;
  for (const std::string& host : hosts) {
    if (!out.empty() && IsLoopback(host)) break;
    auto listener = out.empty()
                        ? ListenVerbs(transport, host, options, tcp_port)
                        : transport.Listen({Kind::kVerbs, host, out.front()->endpoint().port});
    if (listener.ok()) {
      out.push_back(*std::move(listener));
    } else if (refused.ok()) {
      refused = listener.status();
    }
  }
  if (out.empty()) return refused;
  if (!refused.ok()) LogInfo("verbs listens on some addresses only: {}", refused.message());
  return out;
}

// Numeric, but for loopback's and those that only a link knows.
std::vector<std::string> OwnAddresses() {
  std::vector<std::string> out;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return out;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const sockaddr* address = entry->ifa_addr;
    if (address == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const bool v4 = address->sa_family == AF_INET;
    if (!v4 && address->sa_family != AF_INET6) continue;
    const socklen_t size = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    const int failed =
        getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    const std::string_view host = text.data();
    if (failed == 0 && host.find('%') == std::string_view::npos) out.emplace_back(host);
  }
  return out;
}

// To soft-iWARP every address is one socket for each device of the kernel, by the number of its
// interface: where another network namespace has a device of the same number there is no port that
// is free of both.
Result<LaneListeners> ListenVerbs(Transport& transport, const AcceptorOptions& options,
                                  std::uint16_t tcp_port) {
  const std::vector<std::string>& named = options.addresses;
  auto out = ListenVerbsAt(transport, named.empty() ? std::vector<std::string>(1) : named, options,
                           tcp_port);
  if (out.ok() || !named.empty()) return out;
  std::vector<std::string> own = OwnAddresses();
  if (own.empty()) return out;
  auto each = ListenVerbsAt(transport, std::move(own), options, tcp_port);
  return each.ok() ? std::move(each) : std::move(out);
}

Result<LaneListeners> ListenShm(Transport& transport) {
  RDFS_ASSIGN_OR_RETURN(auto listener, transport.Listen({Kind::kShm, "", 0}));
  LaneListeners out;
  out.push_back(std::move(listener));
  return out;
}

}  // namespace

Result<std::unique_ptr<Listeners>> Listeners::Open(const AcceptorOptions& options) {
  std::unique_ptr<Listeners> out(new Listeners());
  RDFS_RETURN_IF_ERROR(out->OpenTcp(options));
  auto shm = options.peers_share ? shm::MakeTransport() : shm::MakeTransport(0);
  out->offers_.push_back(out->OpenLanes(options, Kind::kShm, std::move(shm)));
  out->offers_.push_back(out->OpenLanes(options, Kind::kVerbs, verbs::MakeTransport()));
  return out;
}

bool Listeners::LookAgain(const AcceptorOptions& options) {
  const auto offer = std::ranges::find(offers_, Kind::kVerbs, &Offer::kind);
  if (offer == offers_.end() || offer->available || !Offered(options, Kind::kVerbs)) return false;
  Offer now = OpenLanes(options, Kind::kVerbs, verbs::MakeTransport(), offer->reason);
  if (!now.available && now.reason == offer->reason) return false;
  if (now.available) LogInfo("verbs is offered from now on");
  *offer = std::move(now);
  return true;
}

void Listeners::Close() {
  sockets_.clear();
  lanes_.clear();
}

Status Listeners::OpenTcp(const AcceptorOptions& options) {
  Offer offer{Kind::kTcp, options.listen_tcp, 0, "", "it serves only the stream it was started on"};
  if (options.listen_tcp) {
    std::vector<std::string> hosts = options.addresses;
    if (hosts.empty()) hosts.emplace_back();
    port_ = options.port;
    for (const std::string& host : hosts) {
      RDFS_ASSIGN_OR_RETURN(Fd socket, tcp::ListenSocket(host, port_));
      RDFS_ASSIGN_OR_RETURN(port_, tcp::LocalPort(socket.get()));
      sockets_.push_back(std::move(socket));
    }
    offer.port = port_;
    offer.available = Offered(options, Kind::kTcp);
    if (!offer.available) offer.reason = "it is switched off there";
  }
  offers_.push_back(std::move(offer));
  return Status::Ok();
}

Offer Listeners::OpenLanes(const AcceptorOptions& options, Kind kind,
                           std::unique_ptr<Transport> transport, const std::string& known) {
  Offer offer{kind, false, 0, "", ""};
  const Viability viability = transport->Probe();
  if (!Offered(options, kind)) {
    offer.reason = "it is switched off there";
  } else if (!viability.viable) {
    offer.reason = viability.reason;
  } else {
    auto listeners =
        kind == Kind::kVerbs ? ListenVerbs(*transport, options, port_) : ListenShm(*transport);
    if (listeners.ok()) {
      const Endpoint endpoint = listeners->front()->endpoint();
      offer.available = true;
      offer.port = endpoint.port;
      if (kind == Kind::kShm) offer.name = endpoint.host;
      for (auto& listener : *listeners) lanes_.push_back({kind, std::move(listener)});
      transports_.push_back(std::move(transport));
    } else {
      offer.reason = listeners.status().message();
      if (offer.reason != known) LogWarn("{} is not offered: {}", Name(kind), offer.reason);
    }
  }
  return offer;
}

}  // namespace rdfs::transport::session
