#include "tools/pipe/reception.h"

#include <utility>

#include "tools/pipe/delivery.h"
#include "tools/pipe/process.h"
#include "tools/pipe/relay.h"

namespace rdfs::pipe {
namespace {

using transport::Acceptor;
using transport::AcceptorOptions;

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

// Who gets it from us: whom the sender names, or else whom our user does. Null for nobody.
Result<std::shared_ptr<Relay>> RelayFor(const ReceiveOptions& options, const Hello& hello) {
  SendOptions onwards;
  static_cast<CommonOptions&>(onwards) = options;
  onwards.wait.reset();  // ours was for the sender
  onwards.encrypt = hello.sealed;
  onwards.hosts = options.forward;
  if (!hello.forward.empty()) onwards.hosts.clear();
  for (const std::string& name : hello.forward) {
    RDFS_ASSIGN_OR_RETURN(auto hop, transport::HostAndPort::Parse(name, options.port));
    onwards.hosts.push_back(std::move(hop));
  }
  if (onwards.hosts.empty()) return std::shared_ptr<Relay>();
  const bool resumes = options.resume && hello.seekable;
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<Relay> relay, Relay::Create(std::move(onwards), resumes));
  return relay;
}

}  // namespace

Result<std::unique_ptr<Reception>> Reception::Create(ReceiveOptions options,
                                                     std::shared_ptr<Handover> program) {
  SinkOptions sink{options.file, options.keep_partial, options.resume, std::move(program)};
  if (sink.program == nullptr) RDFS_RETURN_IF_ERROR(Sink::Check(sink));
  RDFS_ASSIGN_OR_RETURN(auto door, Door::Create({.require_sealed = options.encrypt,
                                                 .passes_on = sink.program == nullptr}));
  RDFS_ASSIGN_OR_RETURN(auto acceptor, Acceptor::Create(AcceptFor(options), *door));
  return std::unique_ptr<Reception>(
      new Reception(std::move(options), std::move(sink), std::move(door), std::move(acceptor)));
}

Reception::Reception(ReceiveOptions options, SinkOptions sink, std::unique_ptr<Door> door,
                     std::unique_ptr<Acceptor> acceptor)
    : options_(std::move(options)),
      sink_(std::move(sink)),
      door_(std::move(door)),
      acceptor_(std::move(acceptor)),
      accepting_([this] { (void)acceptor_->Run(); }) {}

Reception::~Reception() {
  acceptor_->Stop();
  accepting_.join();
}

Result<ReceiverSettings> Reception::SettingsFor(const Guest& guest, int interrupts) const {
  ReceiverSettings settings;
  settings.sink = sink_;
  settings.seekable = guest.hello.seekable;
  settings.piece_bytes = options_.piece_bytes;
  settings.pieces = options_.pieces;
  settings.silence = options_.silence;
  settings.threads =
      sink_.program != nullptr ? 1 : CrewSize(guest.hello.sealed, !sink_.path.empty());
  if (guest.hello.sealed) {
    settings.from_us = Seal(guest.exporter, Direction::kFromReceiver);
    settings.from_peer = Seal(guest.exporter, Direction::kFromSender);
  }
  settings.interrupts = interrupts;
  RDFS_ASSIGN_OR_RETURN(settings.relay, RelayFor(options_, guest.hello));
  return settings;
}

Arrival Reception::Run(int interrupts, bool shows_progress,
                       const std::function<void(const std::string& how)>& came) {
  Arrival out;
  std::optional<Deadline> deadline;
  if (options_.wait) deadline = DeadlineAfter(*options_.wait);
  auto guest = door_->Await(interrupts, deadline);
  if (!guest.ok()) {
    out.status = guest.status();
    return out;
  }
  out.how = guest->lane->Describe();
  if (came) came(out.how);
  auto settings = SettingsFor(*guest, interrupts);
  if (!settings.ok()) {
    out.status = settings.status();
    return out;
  }
  Progress progress(shows_progress, "rdrecv", BootClock::now());
  if (guest->hello.size_known) progress.SetSize(guest->hello.size);
  Receiver receiver(*guest->lane, guest->domain, *std::move(settings), progress);
  out.status = receiver.Run();
  out.begin = receiver.begin_offset();
  out.summary = progress.Summary(receiver.received_bytes(), BootClock::now());
  return out;
}

}  // namespace rdfs::pipe
