#include "tools/pipe/delivery.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "tools/pipe/process.h"
#include "tools/pipe/sender.h"
#include "transport/base/log.h"
#include "transport/session/derive.h"
#include "transport/session/session.h"

namespace rdfs::pipe {
namespace {

using transport::Connection;
using transport::Domain;
using transport::Session;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// For what is behind the connection: key exchange, TLS, the lane.
constexpr auto kHandshake = 10s;

transport::DialOptions DialFor(const SendOptions& options, const transport::HostAndPort& to,
                               const Hello& hello) {
  transport::DialOptions dial;
  dial.host = to.host;
  dial.port = to.port;
  dial.key = options.relayed ? RelayKey(options.key) : options.key;
  if (options.relayed) dial.key_name = kRelayKeyName;
  dial.require = options.require;
  dial.plaintext = options.plaintext;
  dial.service = std::string(kServiceName);
  dial.request = hello.Encode();
  return dial;
}

// Tries again until `until` while nobody answers there: rdrecv may be started in a moment.
Result<std::unique_ptr<Session>> DialUntil(const SendOptions& options,
                                           const transport::HostAndPort& to, const Hello& hello,
                                           Deadline until, const std::shared_ptr<Domain>& domain,
                                           const StopFlag& stop) {
  bool told = false;
  for (;;) {
    auto dial = DialFor(options, to, hello);
    dial.deadline = std::max(until, DeadlineAfter(kHandshake));
    auto session = Session::Dial(std::move(dial), domain);
    if (session.ok() || session.status().code() != Code::kDisconnected) return session;
    if (BootClock::now() >= until || stop) {
      const std::string& why = session.status().message();
      return Status(Code::kDisconnected, "rdrecv does not answer: " + why);
    }
    if (!told) LogInfo("waiting for rdrecv at {}", HopName(to));
    told = true;
    std::this_thread::sleep_for(100ms);
  }
}

struct Reached {
  std::size_t hop = 0;
  std::unique_ptr<Session> session;
  std::unique_ptr<Connection> lane;
};

Hello HelloFor(const SendOptions& options, const Result<std::unique_ptr<Source>>& source) {
  Hello hello;
  hello.sealed = options.encrypt;
  if (!source.ok()) return hello;
  hello.size_known = (*source)->size().has_value();
  hello.size = (*source)->size().value_or(0);
  hello.seekable = (*source)->seekable();
  return hello;
}

Result<Reached> Reach(const SendOptions& options, std::size_t hop, Hello hello,
                      std::chrono::milliseconds wait, const std::shared_ptr<Domain>& domain,
                      const StopFlag& stop) {
  for (std::size_t i = hop + 1; i < options.hosts.size(); ++i) {
    hello.forward.push_back(HopName(options.hosts[i]));
  }
  Reached out{.hop = hop, .session = nullptr, .lane = nullptr};
  RDFS_ASSIGN_OR_RETURN(out.session, DialUntil(options, options.hosts[hop], hello,
                                               DeadlineAfter(wait), domain, stop));
  RDFS_ASSIGN_OR_RETURN(out.lane, out.session->OpenLane(DeadlineAfter(kHandshake)));
  return out;
}

// The first receiver that takes it; those before it are in `failed`.
Result<Reached> ReachFirst(const SendOptions& options, const Hello& hello,
                           std::chrono::milliseconds wait, const std::shared_ptr<Domain>& domain,
                           const StopFlag& stop, std::vector<FailedHop>& failed) {
  for (std::size_t hop = 0;; ++hop) {
    auto reached = Reach(options, hop, hello, wait, domain, stop);
    if (reached.ok()) return reached;
    if (options.hosts.size() > 1) {
      failed.push_back({HopName(options.hosts[hop]), reached.status()});
    }
    if (hop + 1 == options.hosts.size()) return reached;
  }
}

SenderSettings SettingsFor(const SendOptions& options, const Session& session,
                           const Source& source) {
  SenderSettings settings;
  settings.level = options.level;
  settings.silence = options.silence;
  settings.threads = source.of_program()
                         ? 1
                         : CrewSize(options.level || options.encrypt, source.size().has_value());
  if (options.encrypt) {
    settings.from_us = Seal(session.exporter(), Direction::kFromSender);
    settings.from_peer = Seal(session.exporter(), Direction::kFromReceiver);
  }
  return settings;
}

// What has become of the receivers, when the stream has ended at the one that was reached.
void Account(const SendOptions& options, std::size_t reached, const std::vector<FailedHop>& told,
             Delivery& out) {
  const std::string name = HopName(options.hosts[reached]);
  for (const FailedHop& hop : told) {
    out.failed.push_back({hop.name.empty() ? name : hop.name, hop.why});
  }
  if (out.status.ok() || options.hosts.size() == 1) return;
  out.failed.push_back({name, out.status});
  for (std::size_t i = reached + 1; i < options.hosts.size(); ++i) {
    out.failed.push_back(
        {HopName(options.hosts[i]), Status(Code::kDisconnected,
                                           "not known to have it whole: the stream to it "
                                           "went through " +
                                               name)});
  }
}

}  // namespace

transport::Key RelayKey(const transport::Key& key) {
  const auto from = transport::session::Extract(AsBytes("rdfs pipe 1"), key.bytes());
  return transport::Key(transport::session::Expand(from.bytes(), "rdfs pipe 1 relay").bytes());
}

Delivery Deliver(const SendOptions& options, Result<std::unique_ptr<Source>> source, StopFlag& stop,
                 int interrupts, Progress& progress,
                 const std::function<void(const std::string& how)>& reached) {
  Delivery out;
  const auto domain = Domain::Create("rdsend");
  // A receiver that is there learns that nothing will come; nobody waits for one to say so.
  const auto wait = source.ok() ? options.wait.value_or(10s) : 0ms;
  auto first = ReachFirst(options, HelloFor(options, source), wait, domain, stop, out.failed);
  if (!source.ok()) {
    if (first.ok()) SendRefusal(*first->lane, source.status());
    out.failed.clear();
    out.status = source.status();
    return out;
  }
  if (!first.ok()) {
    out.status = first.status();
    return out;
  }
  out.how = first->session->ExplainChoice();
  if (reached) reached(out.how);
  SenderSettings settings = SettingsFor(options, *first->session, **source);
  settings.interrupts = interrupts;
  progress.SetSize((*source)->size());
  Sender sender(*first->lane, domain, **source, stop, std::move(settings), progress);
  out.status = sender.Run();
  out.bytes = sender.sent_bytes();
  out.begin = sender.begin_offset();
  Account(options, first->hop, sender.failed(), out);
  return out;
}

}  // namespace rdfs::pipe
