// rdrecv: what rdsend sends, to standard output or a file.
#include <fmt/core.h>

#include <thread>

#include "tools/pipe/door.h"
#include "tools/pipe/options.h"
#include "tools/pipe/process.h"
#include "tools/pipe/receiver.h"
#include "tools/pipe/relay.h"
#include "transport/session/acceptor.h"

namespace {

using rdfs::BootClock;
using rdfs::Deadline;
using rdfs::DeadlineAfter;
using rdfs::Fd;
using rdfs::Result;
using rdfs::Status;
using rdfs::transport::Acceptor;
using rdfs::transport::AcceptorOptions;
using namespace rdfs::pipe;  // NOLINT: this is its program

constexpr const char* kName = "rdrecv";

AcceptorOptions AcceptFor(const ReceiveOptions& options) {
  AcceptorOptions accept;
  if (!options.listen.empty()) accept.addresses = {options.listen};
  accept.port = options.port;
  accept.verbs_port = options.verbs_port;
  accept.keys = {{"default", options.key}, {std::string(kRelayKeyName), RelayKey(options.key)}};
  accept.same_user_only = true;
  if (options.require) accept.offer = {*options.require};
  return accept;
}

ReceiverSettings SettingsFor(const ReceiveOptions& options, const Guest& guest) {
  ReceiverSettings settings;
  settings.sink = {options.file, options.keep_partial, options.resume};
  settings.seekable = guest.hello.seekable;
  settings.piece_bytes = options.piece_bytes;
  settings.pieces = options.pieces;
  settings.silence = options.silence;
  settings.threads = CrewSize(guest.hello.sealed, !options.file.empty());
  if (guest.hello.sealed) {
    settings.from_us = Seal(guest.exporter, Direction::kFromReceiver);
    settings.from_peer = Seal(guest.exporter, Direction::kFromSender);
  }
  return settings;
}

// Who gets it from us: whom the sender names, or else whom our user does. Null for nobody.
Result<std::shared_ptr<Relay>> RelayFor(const ReceiveOptions& options, const Hello& hello) {
  SendOptions onwards;
  static_cast<CommonOptions&>(onwards) = options;
  onwards.wait.reset();  // ours was for the sender
  onwards.encrypt = hello.sealed;
  onwards.hosts = options.forward;
  if (!hello.forward.empty()) onwards.hosts.clear();
  for (const std::string& name : hello.forward) {
    RDFS_ASSIGN_OR_RETURN(auto hop, rdfs::transport::HostAndPort::Parse(name, options.port));
    onwards.hosts.push_back(std::move(hop));
  }
  if (onwards.hosts.empty()) return std::shared_ptr<Relay>();
  const bool resumes = options.resume && hello.seekable;
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<Relay> relay, Relay::Create(std::move(onwards), resumes));
  return relay;
}

Status TakeStream(const ReceiveOptions& options, Door& door, int interrupts) {
  std::optional<Deadline> deadline;
  if (options.wait) deadline = DeadlineAfter(*options.wait);
  RDFS_ASSIGN_OR_RETURN(Guest guest, door.Await(interrupts, deadline));
  ReceiverSettings settings = SettingsFor(options, guest);
  settings.interrupts = interrupts;
  RDFS_ASSIGN_OR_RETURN(settings.relay, RelayFor(options, guest.hello));
  Progress progress(ShowsProgress(options), kName, BootClock::now());
  if (guest.hello.size_known) progress.SetSize(guest.hello.size);
  Receiver receiver(*guest.lane, guest.domain, std::move(settings), progress);
  const Status status = receiver.Run();
  if (options.verbosity > 0) {
    if (receiver.begin_offset() > 0) {
      fmt::print(stderr, "{}: went on behind {} bytes\n", kName, receiver.begin_offset());
    }
    fmt::print(stderr, "{}: {} over {}\n", kName,
               progress.Summary(receiver.received_bytes(), BootClock::now()),
               guest.lane->Describe());
  }
  return status;
}

Status Receive(const ReceiveOptions& options) {
  RDFS_RETURN_IF_ERROR(Sink::Check({options.file, options.keep_partial, options.resume}));
  // Before the acceptor's thread is there, which is not to take them.
  RDFS_ASSIGN_OR_RETURN(const Fd interrupts, TakeInterrupts());
  RDFS_ASSIGN_OR_RETURN(const auto door, Door::Create(options.encrypt));
  RDFS_ASSIGN_OR_RETURN(const auto acceptor, Acceptor::Create(AcceptFor(options), *door));
  if (options.verbosity > 0 || options.port == 0) {
    fmt::print(stderr, "{}: listening on port {}\n", kName, acceptor->port());
  }
  std::thread accepting([&] { (void)acceptor->Run(); });
  const Status status = TakeStream(options, *door, interrupts.get());
  acceptor->Stop();
  accepting.join();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  ReceiveOptions options;
  if (const auto exit = ParseReceive(argc, argv, options)) return exit->code;
  SetUpProcess(kName, options);
  const Status status = Receive(options);
  return status.ok() ? 0 : Report(kName, status);
}
