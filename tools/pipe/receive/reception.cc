#include "tools/pipe/receive/reception.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tools/pipe/command/process.h"
#include "tools/pipe/receive/relay.h"
#include "tools/pipe/send/delivery.h"
#include "transport/base/log.h"

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
  accept.key_advice = "give both ends the same key";
  accept.same_user_only = true;
  if (options.require) accept.offer = {*options.require};
  return accept;
}

// What cannot be offered is not waited for: no sender could come over it.
Status CheckOffered(const ReceiveOptions& options, const Acceptor& acceptor) {
  if (!options.require) return {};
  const std::string why = acceptor.WhyNotOffered(*options.require);
  if (why.empty()) return {};
  return {Code::kUnavailable, fmt::format("{} is required, and cannot be offered here: {}",
                                          Name(*options.require), why)};
}

// Who gets it from us: whom the sender names, and behind them whom our user does. Null for nobody.
// `resumes`: we may have the beginning of it.
Result<std::shared_ptr<Relay>> RelayFor(const ReceiveOptions& options, const Hello& hello,
                                        bool resumes) {
  SendOptions onwards;
  static_cast<CommonOptions&>(onwards) = options;
  onwards.wait.reset();  // ours was for the sender
  onwards.encrypt = hello.sealed;
  for (const std::string& name : hello.forward) {
    RDFS_ASSIGN_OR_RETURN(auto hop, transport::HostAndPort::Parse(name, options.port));
    onwards.hosts.push_back(std::move(hop));
  }
  for (const transport::HostAndPort& hop : options.forward) {
    const std::string name = HopName(hop);
    const bool named = std::ranges::any_of(
        onwards.hosts, [&](const transport::HostAndPort& other) { return HopName(other) == name; });
    if (!named) onwards.hosts.push_back(hop);
  }
  if (onwards.hosts.empty()) return std::shared_ptr<Relay>();
  RDFS_RETURN_IF_ERROR(CheckHops(onwards.hosts));
  RDFS_ASSIGN_OR_RETURN(std::shared_ptr<Relay> relay,
                        Relay::Create(std::move(onwards), resumes && hello.seekable));
  return relay;
}

// How long somebody else of a chain may take to go on: as long as a sender may be silent.
std::chrono::milliseconds WaitFor(const ReceiveOptions& options) {
  if (options.silence.count() > 0) return options.silence;
  return std::chrono::duration_cast<std::chrono::milliseconds>(Liveness::kDefaultLimit);
}

}  // namespace

Result<std::unique_ptr<Reception>> Reception::Create(ReceiveOptions options,
                                                     std::shared_ptr<Handover> program) {
  SinkOptions sink{options.file, options.keep_partial, options.resume, std::move(program)};
  if (sink.program == nullptr) RDFS_RETURN_IF_ERROR(Sink::Check(sink));
  RDFS_ASSIGN_OR_RETURN(auto door, Door::Create({.require_sealed = options.encrypt,
                                                 .passes_on = sink.program == nullptr,
                                                 .require = options.require}));
  RDFS_ASSIGN_OR_RETURN(auto acceptor, Acceptor::Create(AcceptFor(options), *door));
  RDFS_RETURN_IF_ERROR(CheckOffered(options, *acceptor));
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

Result<ReceiverSettings> Reception::SettingsFor(const Guest& guest, int interrupts,
                                                bool has_part) const {
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
  settings.leaves_part = guest.relays;
  RDFS_ASSIGN_OR_RETURN(settings.relay,
                        RelayFor(options_, guest.hello, options_.resume || has_part));
  return settings;
}

std::optional<Receiver::Left> Reception::Take(Guest guest, std::unique_ptr<Sink> part,
                                              int interrupts, bool shows_progress, Arrival& out) {
  auto settings = SettingsFor(guest, interrupts, part != nullptr);
  if (!settings.ok()) {
    out.status = settings.status();
    return std::nullopt;
  }
  settings->part = std::move(part);
  const std::shared_ptr<Relay> relay = settings->relay;
  Progress progress(shows_progress, "rdrecv", BootClock::now());
  if (guest.hello.size_known) progress.SetSize(guest.hello.size);
  Receiver receiver(*guest.lane, guest.domain, *std::move(settings), progress);
  out.status = receiver.Run();
  out.begin = receiver.begin_offset();
  out.summary = progress.Summary(receiver.received_bytes(), BootClock::now());
  auto left = receiver.TakeLeft();
  if (relay != nullptr && !out.status.ok()) {
    // Who knows those behind us may reach them, when it is we who fail, or somebody between.
    using Sender = ReceiveState::Sender;
    const bool between = receiver.sender() == Sender::kFine ||
                         (receiver.sender() == Sender::kGoesOn && guest.relays);
    relay->BreakOff(left || (!guest.hello.forward.empty() && between));
  }
  return left;
}

Arrival Reception::Run(int interrupts, bool shows_progress,
                       const std::function<void(const std::string& how)>& came) {
  Arrival out;
  std::optional<Receiver::Left> left;
  std::optional<Deadline> deadline;
  if (options_.wait) deadline = DeadlineAfter(*options_.wait);
  for (;;) {
    auto guest = door_->Await(interrupts, deadline);
    if (!guest.ok()) {
      // Where nobody goes on it is the loss of the one before that counts.
      const bool late = guest.status().code() == Code::kDeadlineExceeded;
      if (!left || !late) out.status = guest.status();
      break;
    }
    out.how = guest->lane->Describe();
    if (came) came(out.how);
    auto part = left ? std::move(left->part) : nullptr;
    left = Take(*std::move(guest), std::move(part), interrupts, shows_progress, out);
    if (!left) return out;
    const auto wait = WaitFor(options_);
    LogWarn("{}; waiting {} s for another one of the chain to go on", out.status.message(),
            std::chrono::duration_cast<std::chrono::seconds>(wait).count());
    deadline = DeadlineAfter(wait);
    door_->Reopen();
  }
  if (left && left->part != nullptr) out.status = WithKept(out.status, left->part->Abandon(0));
  return out;
}

}  // namespace rdfs::pipe
