#include "tools/pipe/send/delivery.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "tools/pipe/command/process.h"
#include "tools/pipe/send/sender.h"
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
// For a connection to somebody who is there, also without a wait for him.
constexpr auto kConnect = 4s;  // two of its packets may be lost
// For the next receiver, when one is lost, to notice that, too; and for each try: the user is heard
// in between.
constexpr auto kNotices = 15s;
constexpr auto kOneTry = 2s;

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

// One way to a receiver, and how to go it.
struct Way {
  const SendOptions& options;
  const std::shared_ptr<Domain>& domain;
  StopFlag& stop;
  std::chrono::milliseconds wait;
  // Another receiver was lost: this one may have yet to notice, and the user wants to be heard.
  bool again = false;
  int interrupts = -1;

  [[nodiscard]] bool Interrupted() const { return stop || (again && IsInterrupted(interrupts)); }
};

// Tries again until `until` while nobody answers there: rdrecv may be started in a moment.
Result<std::unique_ptr<Session>> DialUntil(const Way& way, const transport::HostAndPort& to,
                                           const Hello& hello, Deadline until) {
  bool told = false;
  for (;;) {
    auto dial = DialFor(way.options, to, hello);
    dial.deadline = way.again ? DeadlineAfter(kOneTry) : std::max(until, DeadlineAfter(kHandshake));
    dial.connect_deadline = std::max(until, DeadlineAfter(kConnect));
    auto session = Session::Dial(std::move(dial), way.domain);
    if (session.ok()) return session;
    const Code code = session.status().code();
    // Who is busy may have to notice yet that another one is lost.
    const bool later = code == Code::kDisconnected ||
                       (code == Code::kBusy && (way.again || way.options.relayed)) ||
                       (code == Code::kDeadlineExceeded && way.again);
    const bool silent = code == Code::kDeadlineExceeded && !way.again;
    if (!later && !silent) return session;
    if (silent || BootClock::now() >= until || way.Interrupted()) {
      const std::string& why = session.status().message();
      return Status(silent ? code : Code::kDisconnected, "rdrecv does not answer: " + why);
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

Hello HelloFor(const SendOptions& options, const Source& source) {
  Hello hello;
  hello.sealed = options.encrypt;
  hello.size_known = source.size().has_value();
  hello.size = source.size().value_or(0);
  hello.seekable = source.seekable();
  return hello;
}

Result<Reached> Reach(const Way& way, std::size_t hop, Hello hello) {
  const auto& hosts = way.options.hosts;
  for (std::size_t i = hop + 1; i < hosts.size(); ++i) hello.forward.push_back(HopName(hosts[i]));
  Reached out{.hop = hop, .session = nullptr, .lane = nullptr};
  RDFS_ASSIGN_OR_RETURN(out.session, DialUntil(way, hosts[hop], hello, DeadlineAfter(way.wait)));
  RDFS_ASSIGN_OR_RETURN(out.lane, out.session->OpenLane(DeadlineAfter(kHandshake)));
  return out;
}

// The first receiver from `hop` on that takes it; those before it are in `failed`.
Result<Reached> ReachFirst(const Way& way, std::size_t hop, const Hello& hello,
                           std::vector<FailedHop>& failed) {
  const auto& hosts = way.options.hosts;
  for (;; ++hop) {
    auto reached = Reach(way, hop, hello);
    if (reached.ok()) return reached;
    if (hosts.size() > 1) failed.push_back({HopName(hosts[hop]), reached.status()});
    if (hop + 1 == hosts.size() || (way.again && way.Interrupted())) return reached;
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

Status NotKnown(const std::string& through) {
  return {Code::kDisconnected,
          "not known to have it whole: the stream to it went through " + through};
}

// Those of whom only the receiver that was reached could have told anything.
void Account(const SendOptions& options, const Reached& reached, Delivery& out) {
  const std::string name = HopName(options.hosts[reached.hop]);
  for (std::size_t i = reached.hop + 1; i < options.hosts.size(); ++i) {
    out.failed.push_back({HopName(options.hosts[i]), NotKnown(name)});
  }
}

// The stream to who was reached. Whether those behind it may get it from us, if it is lost.
bool Stream(const Way& way, const Reached& reached, Source& source, Progress& progress,
            Delivery& out) {
  const SendOptions& options = way.options;
  SenderSettings settings = SettingsFor(options, *reached.session, source);
  settings.interrupts = way.interrupts;
  progress.SetSize(source.size());
  Sender sender(*reached.lane, way.domain, source, way.stop, std::move(settings), progress);
  out.how = reached.session->ExplainChoice();
  out.status = sender.Run();
  out.bytes = sender.sent_bytes();
  out.begin = sender.begin_offset();
  const std::string name = HopName(options.hosts[reached.hop]);
  for (const FailedHop& hop : sender.failed()) {
    out.failed.push_back({hop.name.empty() ? name : hop.name, hop.why});
  }
  if (!out.status.ok() && options.hosts.size() > 1) out.failed.push_back({name, out.status});
  return sender.lost_receiver();
}

// The rest of a chain, when the receiver that it went through is lost: they wait for it. `lost` is
// the last one that was reached, then.
void GoOn(Way way, Reached& lost, Source& source, Progress& progress, Delivery& out) {
  way.again = true;
  way.wait = kNotices;
  while (lost.hop + 1 < way.options.hosts.size() && source.Again()) {
    const std::string through = HopName(way.options.hosts[lost.hop]);
    lost.lane.reset();
    lost.session.reset();
    way.stop = false;  // so ended the sender to the one before; who wants an end interrupts
    std::vector<FailedHop> away;
    auto next = ReachFirst(way, lost.hop + 1, HelloFor(way.options, source), away);
    for (const FailedHop& hop : away) LogInfo("{}: {}", hop.name, hop.why.message());
    if (!next.ok()) return;
    for (const FailedHop& hop : away) out.failed.push_back({hop.name, NotKnown(through)});
    lost = *std::move(next);
    if (!Stream(way, lost, source, progress, out)) return;
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
  if (!source.ok()) {
    // A receiver that is there learns that nothing will come; nobody waits for one to say so.
    const Hello hello{.sealed = options.encrypt};
    const auto first = ReachFirst({options, domain, stop, 0ms}, 0, hello, out.failed);
    if (first.ok()) SendRefusal(*first->lane, source.status());
    out.failed.clear();
    out.status = source.status();
    return out;
  }
  const Way way{options, domain, stop, options.wait.value_or(10s), false, interrupts};
  auto first = ReachFirst(way, 0, HelloFor(options, **source), out.failed);
  if (!first.ok()) {
    out.status = first.status();
    return out;
  }
  if (reached) reached(first->session->ExplainChoice());
  if (Stream(way, *first, **source, progress, out)) GoOn(way, *first, **source, progress, out);
  if (!out.status.ok()) Account(options, *first, out);
  return out;
}

}  // namespace rdfs::pipe
