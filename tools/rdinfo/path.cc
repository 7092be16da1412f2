#include "tools/rdinfo/path.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "transport/tcp/transport.h"

namespace rdfs::rdinfo {
namespace {

constexpr std::uint32_t kIpv4AndTcp = 40, kIpv6AndTcp = 60, kTimestamps = 12;  // header bytes
// Beyond it (loopback) the kernel sends less than the peer takes: half a window at a time.
constexpr std::uint32_t kLargestMtu = 16'384;
// A port that hardly any machine leaves unanswered: either sshd or a refusal.
constexpr std::uint16_t kSshPort = 22;

bool IsIpv4(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return true;
  if (peer.ss_family == AF_INET) return true;
  const auto& six = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  return peer.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six);
}

}  // namespace

PathFacts MeasurePath(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  PathFacts path;
  path.mtu = info.tcpi_pmtu;
  path.round_trip = std::chrono::microseconds(info.tcpi_rtt);
  if (path.mtu <= kLargestMtu) {
    path.peer_mtu = info.tcpi_snd_mss + (IsIpv4(socket) ? kIpv4AndTcp : kIpv6AndTcp) +
                    ((info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0 ? kTimestamps : 0);
  }
  return path;
}

Fact DescribePath(const PathFacts& path) {
  std::string value = fmt::format("MTU {}, round trip {} us", path.mtu, path.round_trip.count());
  if (path.peer_mtu == 0 || path.peer_mtu >= path.mtu) return {"path", std::move(value), true, ""};
  return {"path", fmt::format("MTU {} here, and the other end takes {}", path.mtu, path.peer_mtu),
          false,
          fmt::format("give the interfaces of both ends and the switches between them the same MTU "
                      "(as root: ip link set INTERFACE mtu {}): larger packets of RoCE and UDP are "
                      "lost",
                      path.peer_mtu),
          Weight::kHinders};
}

bool IsRefusal(const Status& failure) {
  return failure.code() == Code::kDisconnected && failure.errno_value() != ENETUNREACH &&
         failure.errno_value() != EHOSTUNREACH;
}

bool MachineAnswers(const std::string& host, Deadline deadline) {
  const auto socket = transport::tcp::ConnectSocket(host, kSshPort, deadline);
  return socket.ok() || IsRefusal(socket.status());
}

std::string WhyNoAnswer(bool machine_answers) {
  return machine_answers
             ? "the machine is up and answers on another port, so a firewall there or between "
               "drops this one: open it, and the next one for RDMA (4791/udp for RoCE)"
             : "nothing of that machine answers: check that it is up, its address, and the "
               "network between";
}

}  // namespace rdfs::rdinfo
