#include "tools/copy/remote/caller.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#include "tools/copy/remote/caller_impl.h"
#include "tools/copy/remote/own_binary.h"
#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/sender.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/remote/threads.h"
#include "tools/copy/remote/wire.h"

namespace rdfs::copy {
namespace {

namespace ssh = transport::ssh;
using std::chrono_literals::operator""s;

// The key exchange, and legs that do not answer, 3 s each.
constexpr auto kTimeToMeet = 30s;
// What answers at all does so by then, on most networks.
constexpr std::chrono::milliseconds kAtOnce{200};

// Over TCP to another host: with one, a round trip of 40 ms bounds it to what its windows hold.
constexpr int kLanesFarAway = 4;

constexpr int kExitNotThere = 127;  // as a shell has it

constexpr ssh::Program kFarRdcp{.name = "rdcp",
                                .arguments = "--far",
                                .magic = kBootstrapMagic,
                                .path_option = "--rdcp-path PATH",
                                .ssh_option = "-e CMD",
                                .deadline_option = ""};

Copied CopiedTo(Report& report) {
  return [&report](const Entry& entry, const std::string& path) {
    if (entry.kind == Kind::kDirectory) return;
    report.Copied();
    report.Done(path);
  };
}

Unsent UnsentTo(Report& report) {
  return [&report](const std::string& path) {
    report.Note("nothing is deleted in " + Shown(path) + ": not all that is in it was sent");
  };
}

}  // namespace

int ExitCodeOf(const Status& status) {
  return status.code() == Code::kUnavailable && status.errno_value() == ENOENT ? kExitNotThere
                                                                               : kExitFailed;
}

Result<std::unique_ptr<FarEnd>> FarEnd::Start(const std::string& destination,
                                              const RemoteOptions& options, FirstLane first) {
  std::unique_ptr<FarEnd> out(new FarEnd(destination, options));
  RDFS_RETURN_IF_ERROR(out->Dial(out->LaunchWith({options.ports, std::nullopt}), kServiceName,
                                 EncodeHello(), nullptr));
  const bool at_once = first == FirstLane::kAtOnce && !options.require;
  RDFS_RETURN_IF_ERROR(at_once ? out->OpenLaneAtOnce() : out->OpenLane());
  return out;
}

Result<std::unique_ptr<FarEnd>> FarEnd::StartTo(const std::string& destination,
                                                const RemoteOptions& options, const Meeting& to) {
  std::unique_ptr<FarEnd> out(new FarEnd(destination, options));
  RDFS_RETURN_IF_ERROR(
      out->Dial(out->LaunchWith({options.ports, to}), kServiceName, EncodeHello(), nullptr));
  RDFS_RETURN_IF_ERROR(out->OpenLane());
  return out;
}

ssh::Launch FarEnd::LaunchWith(const FirstLine& line) const {
  return {.program = kFarRdcp,
          .ssh_command = options_.ssh_command,
          .destination = name_,
          .path = options_.rdcp_path,
          .text = line.ToString(),
          .ask = true};
}

Result<ssh::Started> FarEnd::SendAndStart(const ssh::Launch& launch) {
  ssh::Launch sent = launch;
  RDFS_ASSIGN_OR_RETURN(sent.path, SendOwnBinary(launch, DeadlineAfter(ssh::kTimeToAnswer)));
  sent.program.arguments = kFarAndGone;
  auto started = ssh::Start(sent, DeadlineAfter(ssh::kTimeToAnswer));
  if (!started.ok()) RemoveThere(launch, sent.path, DeadlineAfter(ssh::kTimeToResolve));
  return started;
}

Status FarEnd::Dial(const ssh::Launch& launch, std::string_view service, Bytes request,
                    Meeting* told) {
  auto first = ssh::Start(launch, DeadlineAfter(ssh::kTimeToAnswer));
  if (!first.ok() && options_.bootstrap && ExitCodeOf(first.status()) == kExitNotThere) {
    first = SendAndStart(launch);
  }
  RDFS_ASSIGN_OR_RETURN(ssh::Started started, std::move(first));
  transport::DialOptions dial;
  dial.host = ssh::ResolveHost(launch, DeadlineAfter(ssh::kTimeToResolve));
  if (told != nullptr) *told = {dial.host, 0, started.key};
  dial.stream = std::move(started.stream);
  dial.key = std::move(started.key);
  dial.require = options_.require;
  dial.plaintext = options_.plaintext;
  dial.require_encryption = options_.require_encryption;
  dial.service = std::string(service);
  dial.request = std::move(request);
  dial.deadline = DeadlineAfter(kTimeToMeet);
  domain_ = transport::Domain::Create("rdcp");
  auto session = transport::Session::Dial(std::move(dial), domain_);
  if (!session.ok()) return session.status().WithContext(name_);
  session_ = *std::move(session);
  return {};
}

Status FarEnd::OpenLane() {
  auto lane = session_->OpenLane(DeadlineAfter(kTimeToMeet));
  if (!lane.ok()) return lane.status().WithContext(name_);
  lane_ = *std::move(lane);
  return {};
}

Status FarEnd::OpenLaneAtOnce() {
  better_ = std::make_unique<LaneDialler>(session_, LaneDialler::Direct());
  if (!better_->Await(kAtOnce)) {
    auto stream = session_->OpenStreamLane(DeadlineAfter(kTimeToMeet));
    if (stream.ok()) {
      lane_ = *std::move(stream);
      return {};
    }
    if (!better_->Await(kTimeToMeet)) return stream.status().WithContext(name_);
  }
  lane_ = better_->Take();
  better_.reset();
  return lane_ != nullptr ? Status() : OpenLane();
}

std::string FarEnd::ExplainChoice() const {
  return better_ != nullptr ? "ssh's own stream at first, while better ways are tried"
                            : session_->ExplainChoice();
}

TalkSettings FarEnd::SettingsToMove(Report& report) {
  TalkSettings settings = SettingsFor(report, options_.interrupts);
  if (better_ == nullptr) return settings;
  settings.better = [this] {
    if (next_ == nullptr) next_ = better_->Take();
    return next_.get();
  };
  return settings;
}

bool FarEnd::stays() const { return !options_.require && on_stream(); }

bool FarEnd::on_stream() const {
  if (better_ != nullptr) return false;
  const auto leg =
      std::ranges::find_if(session_->legs(), &Status::ok, &transport::LegReport::status);
  return leg != session_->legs().end() && leg->stdio;
}

void FarEnd::NoteMove(const Talk& talk, bool ended) {
  if (better_ == nullptr || noted_) return;
  const bool dialling = better_->dialling();
  if (next_ == nullptr && !dialling) next_ = better_->Take();
  if (!talk.moved() && !ended && (dialling || next_ != nullptr)) return;
  noted_ = true;
  const bool stays = !talk.moved() && !dialling && next_ == nullptr;
  const auto& say = stays ? options_.warn : options_.note;
  if (!say) return;
  say(name_ + (talk.moved() ? ": moved to " + session_->ExplainChoice()
               : stays      ? ": stays on " + session_->ExplainChoice()
               : dialling   ? ": ended before anything better had answered"
                            : ": ended before it could move"));
}

void FarEnd::NoteLanes() {
  if (options_.note && further_ && further_->lanes() > 0) {
    options_.note(name_ + ": " + std::to_string(1 + further_->lanes()) + " lanes carried the data");
  }
}

Task FarEnd::NewTask() const {
  Task task;
  task.recurse = options_.scan.recurse;
  task.follow = options_.scan.follow;
  task.follow_source = options_.scan.follow_source;
  task.one_file_system = options_.scan.one_file_system;
  task.in_place = options_.in_place;
  task.resume = options_.resume;
  task.keep = options_.keep;
  task.update = options_.policy.update;
  task.sync = options_.policy.sync;
  task.remove = options_.remove;
  task.checksum = options_.policy.checksum;
  task.verify = options_.verify;
  task.dry_run = options_.dry_run;
  task.moves = better_ != nullptr;
  task.limit = options_.limit;
  task.has_list = options_.list != nullptr;
  if (task.has_list) task.listed = options_.list->paths();
  task.rules = options_.rules;
  return task;
}

int FarEnd::FurtherWanted() const {
  const int lanes = options_.lanes.value_or(kLanesFarAway);
  return lanes - 1;
}

bool FarEnd::Counts(const Report& report) const { return report.progress() && !options_.dry_run; }

Status FarEnd::SendTask(const Task& task) {
  RDFS_ASSIGN_OR_RETURN(const std::vector<Bytes> messages, EncodeTask(task));
  for (const Bytes& message : messages) RDFS_RETURN_IF_ERROR(lane_->Send(ByteSpan(message)));
  return lane_->Flush();
}

Status FarEnd::CopyFrom(const std::vector<std::string>& paths, const std::string& destination,
                        bool directory_wanted, Report& report) {
  Task task = NewTask();
  task.role = Task::Role::kSends;
  task.names = paths;
  task.counts = Counts(report);
  task.further_lanes = on_stream() ? 0 : FurtherWanted();
  RDFS_RETURN_IF_ERROR(SendTask(task));
  ReceiverSettings settings;
  settings.destination = destination;
  settings.directory_wanted = directory_wanted;
  settings.options.keep = options_.keep;
  settings.options.umask = options_.umask;
  settings.options.in_place = options_.in_place;
  settings.options.resume = options_.resume;
  settings.allow = [&](const Begin& begin, std::uint64_t told) {
    RDFS_RETURN_IF_ERROR(CheckSources(paths, begin, told));
    return options_.take ? options_.take(begin) : Status();
  };
  settings.threads = CrewThreads();
  settings.copied = CopiedTo(report);
  settings.policy = options_.policy;
  settings.remove = options_.remove;
  settings.verify = options_.verify;
  settings.dry_run = options_.dry_run;
  settings.counts = task.counts;
  settings.asked = options_.scan;
  settings.gone = [&report](const std::string& path) { report.Done(path, "deleted "); };
  settings.unsent = UnsentTo(report);
  Talk talk(*lane_, SettingsToMove(report));
  Receiver receiver(talk, domain_, std::move(settings));
  if (task.further_lanes > 0) {
    further_.emplace(session_, task.further_lanes, options_.lanes.has_value());
    receiver.further = [&] { return further_->Take(talk.lane(), receiver.bytes()); };
  }
  Meter meter(report);
  receiver.on_turn = [&] {
    meter.Show(receiver.bytes(), receiver.kept(), receiver.passed(), receiver.totals());
    NoteMove(talk, false);
    return Status();
  };
  const Status status = receiver.Run();
  meter.Show(receiver.bytes(), receiver.kept(), receiver.passed(), receiver.totals());
  report.Clear();
  NoteMove(talk, true);
  NoteLanes();
  if (!status.ok() && receiver.failed_here()) return status;
  if (!status.ok()) return status.WithContext(name_);
  return {};
}

Status FarEnd::CopyTo(const std::vector<std::string>& paths, const std::string& destination,
                      bool directory_wanted, Report& report) {
  Task task = NewTask();
  task.role = Task::Role::kReceives;
  task.names = {destination};
  task.directory_wanted = directory_wanted;
  task.further_lanes = on_stream() ? 0 : FurtherWanted();
  RDFS_RETURN_IF_ERROR(SendTask(task));
  Talk talk(*lane_, SettingsToMove(report));
  const Found found =
      FindSources(paths, options_.scan.follow || options_.scan.follow_source, false,
                  [&](const std::string& path, const Status& why) { report.Failed(path, why); });
  WalkOptions walk;
  walk.scan = options_.scan;
  walk.keep = options_.keep;
  walk.paths = found.paths;
  walk.copied = CopiedTo(report);
  if (options_.remove) walk.unsent = UnsentTo(report);
  walk.holes = !options_.in_place;
  walk.offers = task.sync || task.update || task.remove || task.checksum || task.dry_run;
  walk.limit = task.limit;
  walk.digests = task.checksum && !task.dry_run;
  walk.resume = task.resume;
  walk.list = options_.list;
  const Counter counter(Counts(report) ? CountOf(walk) : nullptr);
  Sender sender(talk, domain_, found.begin, std::move(walk), CrewThreads());
  if (task.further_lanes > 0) {
    further_.emplace(session_, task.further_lanes, options_.lanes.has_value());
    sender.further = [&] { return further_->Take(talk.lane(), sender.bytes()); };
  }
  Meter meter(report);
  sender.on_turn = [&] {
    meter.Show(sender.bytes(), sender.kept(), sender.passed(), counter.totals());
    NoteMove(talk, false);
    return Status();
  };
  const Status status = sender.Run();
  meter.Show(sender.bytes(), sender.kept(), sender.passed(), counter.totals());
  report.Clear();
  NoteMove(talk, true);
  NoteLanes();
  if (!status.ok()) return status.WithContext(name_);
  return {};
}

}  // namespace rdfs::copy
