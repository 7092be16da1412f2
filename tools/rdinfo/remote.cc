#include "tools/rdinfo/remote.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>

#include <array>
#include <memory>

#include "transport/session/session.h"
#include "transport/tcp/transport.h"

namespace rdfs::rdinfo {
namespace {

using transport::Kind;
using transport::Session;

// Every address of the name; empty when it has none.
std::vector<std::string> Resolve(const std::string& host, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    why = gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

// The steps before any transport; the session when all of them worked.
std::unique_ptr<Session> Reach(const PeerOptions& options, Section& section) {
  std::string why;
  const auto addresses = Resolve(options.host, why);
  if (addresses.empty()) {
    section.facts.push_back(
        {"name", why, false,
         "check the spelling of '" + options.host + "', /etc/hosts and the name server"});
    return nullptr;
  }
  section.facts.push_back({"name", fmt::format("{}", fmt::join(addresses, ", ")), true, ""});

  const std::string port = fmt::format("TCP port {}", options.port);
  const Deadline deadline = DeadlineAfter(options.timeout);
  if (auto socket = transport::tcp::ConnectSocket(options.host, options.port, deadline);
      !socket.ok()) {
    section.facts.push_back({port, "not reached", false, socket.status().message()});
    return nullptr;
  }
  section.facts.push_back({port, "open", true, ""});

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
  return *std::move(session);
}

}  // namespace

Section DescribePeer(const PeerOptions& options) {
  Section section{options.host, {}};
  const auto session = Reach(options, section);
  if (session == nullptr) return section;
  for (const Kind kind : {Kind::kShm, Kind::kVerbs, Kind::kTcp}) {
    const auto lane = session->OpenLaneOver(kind, DeadlineAfter(options.timeout));
    const std::string name(transport::Name(kind));
    if (lane.ok()) {
      section.facts.push_back({name, "works: " + (*lane)->Describe(), true, ""});
      continue;
    }
    // Between hosts, the want of shared memory is nothing to mend.
    const bool expected = kind == Kind::kShm && lane.status().code() == Code::kUnavailable;
    section.facts.push_back({name,
                             expected ? "not used: " + lane.status().message() : "does not work",
                             expected, expected ? "" : lane.status().message()});
  }
  return section;
}

}  // namespace rdfs::rdinfo
