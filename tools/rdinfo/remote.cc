#include "tools/rdinfo/remote.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <memory>

#include "tools/rdinfo/measure.h"
#include "tools/rdinfo/path.h"
#include "transport/base/resolve.h"
#include "transport/base/url_scheme.h"
#include "transport/session/probe.h"
#include "transport/session/session.h"
#include "transport/tcp/transport.h"

namespace rdfs::rdinfo {
namespace {

using transport::Kind;
using transport::Session;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr auto kMeasureTime = 400ms;  // of each transport
constexpr auto kLook = 2s;            // whether the machine answers at all
// Seconds are what a person and make(1) notice.
constexpr auto kClockTolerance = 1s;

// Every address of the name, as text.
Result<std::vector<std::string>> Resolve(const std::string& host) {
  RDFS_ASSIGN_OR_RETURN(const AddressList list,
                        ResolveHost(host, 0, 0, DeadlineAfter(kResolveTime)));
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

bool ReachPort(const PeerOptions& options, Deadline deadline, Section& section) {
  const std::string port = fmt::format("TCP port {}", options.port);
  const auto socket = transport::tcp::ConnectSocket(options.host, options.port, deadline);
  if (socket.ok()) {
    section.facts.push_back({port, "open", true, ""});
    section.facts.push_back(DescribePath(MeasurePath(socket->get())));
    return true;
  }
  std::string remedy = socket.status().message();
  bool answers = IsRefusal(socket.status());
  if (socket.status().code() == Code::kDeadlineExceeded) {
    answers = MachineAnswers(options.host, DeadlineAfter(kLook));
    remedy += "; " + WhyNoAnswer(answers);
  }
  section.facts.push_back({port, "not reached", false, std::move(remedy), Weight::kStops,
                           answers ? Role::kPlain : Role::kPeerSilent});
  return false;
}

// The server told its time somewhere between `asked` and now: only what lies outside is a
// difference.
void DescribeClock(ByteSpan grant, std::chrono::system_clock::time_point asked, Section& section) {
  using std::chrono::nanoseconds;
  ByteReader reader(grant);
  const auto words = reader.Read<transport::session::ProbeGrant>();
  if (!reader.ok()) return;  // an older server
  const std::chrono::system_clock::time_point told(
      nanoseconds(static_cast<std::int64_t>(std::uint64_t{words.wall_clock_ns} & INT64_MAX)));
  const auto now = std::chrono::system_clock::now();
  const auto behind = told < asked ? asked - told : nanoseconds(0);
  const auto ahead = told > now ? told - now : nanoseconds(0);
  const auto off = std::max<nanoseconds>(behind, ahead);
  if (off < kClockTolerance) {
    section.facts.push_back({"clock", "agrees with ours", true, ""});
    return;
  }
  section.facts.push_back(
      {"clock",
       fmt::format("{:.0f} s {} ours", std::chrono::duration<double>(off).count(),
                   ahead > behind ? "ahead of" : "behind"),
       false,
       "run NTP (chrony, systemd-timesyncd) on both machines: the times of files are the server's, "
       "and "
       "make, rsync and logs go by them",
       Weight::kHinders});
}

// The steps before any transport; the session when all of them worked.
std::unique_ptr<Session> Reach(const PeerOptions& options, Section& section) {
  const auto addresses = Resolve(options.host);
  if (!addresses.ok()) {
    section.facts.push_back({"name", "no address", false, addresses.status().message()});
    return nullptr;
  }
  section.facts.push_back({"name", fmt::format("{}", fmt::join(*addresses, ", ")), true, ""});

  const Deadline deadline = DeadlineAfter(options.timeout);
  if (!ReachPort(options, deadline, section)) return nullptr;
  if (!options.key_problem.ok()) {
    section.facts.push_back(
        {"authentication", "not tried without the key", false, options.key_problem.message()});
    return nullptr;
  }
  const auto asked = std::chrono::system_clock::now();
  transport::DialOptions dial;
  dial.host = options.host;
  dial.port = options.port;
  dial.key = options.key;
  dial.service = transport::kProbeService;
  dial.deadline = deadline;
  auto session = Session::Dial(std::move(dial), transport::Domain::Create("rdinfo"));
  if (!session.ok()) {
    section.facts.push_back({"authentication", "refused", false, session.status().message()});
    return nullptr;
  }
  section.facts.push_back({"authentication",
                           options.key.empty() ? "the server asks for no key" : "key proved", true,
                           ""});
  DescribeClock((*session)->grant(), asked, section);
  return *std::move(session);
}

// A lane of `kind`, measured.
Fact TryLane(Session& session, Kind kind, const transport::MemoryRegion* buffer,
             const PeerOptions& options) {
  const std::string name(transport::Name(kind));
  const auto lane = session.OpenLaneOver(kind, DeadlineAfter(options.timeout));
  if (!lane.ok()) {
    // Between hosts, the want of shared memory is nothing to mend; a machine without RDMA is told
    // about once.
    const bool expected = kind == Kind::kShm && lane.status().code() == Code::kUnavailable;
    if (expected) return {name, "not used: " + lane.status().message(), true, ""};
    return {name, "does not work", false, lane.status().message(),
            kind == Kind::kTcp ? Weight::kStops : Weight::kHinders};
  }
  const std::string works = "works: " + (*lane)->Describe();
  if (buffer == nullptr) return {name, works, true, ""};
  const auto speed = MeasureLane(**lane, *buffer, kMeasureTime);
  if (speed.ok()) return {name, works + "; " + ToString(*speed), true, ""};
  if (speed.status().code() == Code::kUnavailable) {
    return {name, works + "; not measured: " + speed.status().message(), true, ""};
  }
  std::string remedy = speed.status().message();
  if (speed.status().code() == Code::kDeadlineExceeded) {
    remedy +=
        "; check that the MTU is the same on the whole way (ip link; on RoCE, PFC and ECN too)";
  }
  return {name, "connects, and does not carry data", false, std::move(remedy), Weight::kHinders};
}

// The host of "[USER@]HOST:DIR" and "USER@HOST"; empty for everything else.
std::string_view SshHost(std::string_view text) {
  const std::size_t at = text.substr(0, text.find(':')).find('@');
  std::string_view host = at == text.npos ? text : text.substr(at + 1);
  const std::size_t bracket = host.starts_with('[') ? host.find(']') : host.npos;
  const std::size_t colon = host.find(':', bracket == host.npos ? 0 : bracket);
  const bool names_directory = colon != host.npos && colon + 1 < host.size() &&
                               std::string_view("/~.").find(host[colon + 1]) != host.npos;
  return at != text.npos || names_directory ? host.substr(0, colon) : std::string_view();
}

}  // namespace

Status ParsePeer(std::string_view text, PeerOptions& options) {
  constexpr std::string_view kScheme = "rdfs://";
  if (text.starts_with(kScheme)) {
    text.remove_prefix(kScheme.size());
    const std::size_t slash = text.find('/');
    if (slash != text.npos) {
      std::string_view name = text.substr(slash);
      while (name.starts_with('/')) name.remove_prefix(1);
      while (name.ends_with('/')) name.remove_suffix(1);
      options.export_name = name;
    }
    text = text.substr(0, slash);
  }
  if (const std::string_view host = SshHost(text); !host.empty() && SchemeOf(text).empty()) {
    return {Code::kInvalidArgument,
            fmt::format("'{}' is reached through ssh, which starts a server of its own; to try one "
                        "that runs there, rdfsd or 'rdping server', give its HOST: rdinfo {}",
                        text, host)};
  }
  RDFS_ASSIGN_OR_RETURN(const auto named, transport::HostAndPort::Parse(text, options.port));
  if (options.port_is_given && named.port != options.port) {
    return {Code::kInvalidArgument,
            fmt::format("'{}' names its port: leave out {}", text, options.port)};
  }
  options.host = named.host;
  options.port = named.port;
  return {};
}

Section DescribeKey(const Status& key_problem) {
  return {"key", {{"key file", "cannot be used", false, key_problem.message()}}};
}

Section DescribePeer(const PeerOptions& options) {
  Section section{options.host, {}};
  const auto session = Reach(options, section);
  if (session == nullptr) return section;
  const auto buffer = MakeBuffer(*session->domain());
  for (const Kind kind : {Kind::kShm, Kind::kVerbs, Kind::kTcp}) {
    section.facts.push_back(
        TryLane(*session, kind, buffer.ok() ? buffer->get() : nullptr, options));
  }
  return section;
}

}  // namespace rdfs::rdinfo
