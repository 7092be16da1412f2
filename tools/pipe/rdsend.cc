// rdsend: standard input or a file to rdrecv on another machine.
#include <fmt/core.h>

#include <thread>

#include "tools/pipe/options.h"
#include "tools/pipe/process.h"
#include "tools/pipe/protocol.h"
#include "tools/pipe/sender.h"
#include "transport/session/session.h"

namespace {

using rdfs::BootClock;
using rdfs::Code;
using rdfs::Deadline;
using rdfs::DeadlineAfter;
using rdfs::Fd;
using rdfs::Result;
using rdfs::Status;
using rdfs::transport::Connection;
using rdfs::transport::Domain;
using rdfs::transport::Session;
using namespace rdfs::pipe;  // NOLINT: this is its program
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr const char* kName = "rdsend";
// For what is behind the connection: key exchange, TLS, the lane.
constexpr auto kHandshake = 10s;

rdfs::transport::DialOptions DialFor(const SendOptions& options, const Hello& hello) {
  rdfs::transport::DialOptions dial;
  dial.host = options.host;
  dial.port = options.port;
  dial.key = options.key;
  dial.require = options.require;
  dial.plaintext = options.plaintext;
  dial.service = std::string(kServiceName);
  dial.request = hello.Encode();
  return dial;
}

// Tries again until `until` while nobody answers there: rdrecv may be started in a moment.
Result<std::unique_ptr<Session>> DialUntil(const SendOptions& options, const Hello& hello,
                                           Deadline until, const std::shared_ptr<Domain>& domain) {
  bool told = false;
  for (;;) {
    auto dial = DialFor(options, hello);
    dial.deadline = std::max(until, DeadlineAfter(kHandshake));
    auto session = Session::Dial(std::move(dial), domain);
    if (session.ok() || session.status().code() != Code::kDisconnected) return session;
    if (BootClock::now() >= until) {
      const std::string& why = session.status().message();
      return Status(Code::kDisconnected, "rdrecv does not answer: " + why);
    }
    if (options.verbosity > 0 && !told) fmt::print(stderr, "{}: waiting for rdrecv\n", kName);
    told = true;
    std::this_thread::sleep_for(100ms);
  }
}

SenderSettings SettingsFor(const SendOptions& options, const Session& session, bool ranged) {
  SenderSettings settings;
  settings.level = options.level;
  settings.silence = options.silence;
  settings.threads = CrewSize(options.level || options.encrypt, ranged);
  if (options.encrypt) {
    settings.from_us = Seal(session.exporter(), Direction::kFromSender);
    settings.from_peer = Seal(session.exporter(), Direction::kFromReceiver);
  }
  return settings;
}

Status Send(const SendOptions& options) {
  StopFlag stop{false};
  auto source = Source::Open(options.file, stop);
  Hello hello;
  hello.sealed = options.encrypt;
  if (source.ok()) {
    hello.size_known = (*source)->size().has_value();
    hello.size = (*source)->size().value_or(0);
    hello.seekable = (*source)->seekable();
  }
  const auto domain = Domain::Create("rdsend");
  // A receiver that is there learns that nothing will come; nobody waits for one to say so.
  const auto wait = source.ok() ? options.wait.value_or(10s) : 0ms;
  auto session = DialUntil(options, hello, DeadlineAfter(wait), domain);
  if (!session.ok()) return source.ok() ? session.status() : source.status();
  auto lane = (*session)->OpenLane(DeadlineAfter(kHandshake));
  if (!lane.ok()) return source.ok() ? lane.status() : source.status();
  if (!source.ok()) {
    SendRefusal(**lane, source.status());
    return source.status();
  }
  RDFS_ASSIGN_OR_RETURN(const Fd interrupts, TakeInterrupts());
  SenderSettings settings = SettingsFor(options, **session, (*source)->seekable());
  settings.interrupts = interrupts.get();
  Progress progress(ShowsProgress(options), kName, BootClock::now());
  progress.SetSize((*source)->size());
  Sender sender(**lane, domain, **source, stop, std::move(settings), progress);
  const Status status = sender.Run();
  if (options.verbosity > 0) {
    if (sender.begin_offset() > 0) {
      fmt::print(stderr, "{}: the receiver had the first {} bytes\n", kName, sender.begin_offset());
    }
    fmt::print(stderr, "{}: {} over {}\n", kName,
               progress.Summary(sender.sent_bytes(), BootClock::now()),
               (*session)->ExplainChoice());
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  SendOptions options;
  if (const auto exit = ParseSend(argc, argv, options)) return exit->code;
  SetUpProcess(kName, options);
  const Status status = Send(options);
  return status.ok() ? 0 : Report(kName, status);
}
