// The caller's end of a copy between two other machines.
#include <cerrno>
#include <utility>

#include "tools/copy/remote/caller.h"
#include "tools/copy/remote/caller_impl.h"
#include "tools/copy/remote/relay.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/remote/wire.h"

namespace rdfs::copy {
namespace {

bool IsInterrupt(const Status& status) {
  return status.code() == Code::kErrno && status.errno_value() == EINTR;
}

void Count(const Tally& done, std::uint64_t before, Report& report, Meter& meter) {
  report.Clear();
  report.bytes() = before + done.bytes;
  meter.EndOfOthers();
  report.Copied(done.entries);
}

struct Way {
  const std::string& waits;
  const std::string& reaches;
  bool sends;  // the one that reaches
};

// False if there is no such way; `how` as FarEnd::CopyAcross.
Result<bool> TryWay(const Way& way, const Across& job, const RemoteOptions& options, Report& report,
                    std::string& how) {
  Meeting meeting;
  RDFS_ASSIGN_OR_RETURN(const auto waiting,
                        FarEnd::StartWaiting(way.waits, options, job, way.sends, meeting));
  if (meeting.port == 0) {
    how = "it cannot listen";
    return false;
  }
  RDFS_ASSIGN_OR_RETURN(const auto far, FarEnd::StartTo(way.reaches, options, meeting));
  return far->CopyAcross(job, way.sends, report, how);
}

}  // namespace

Task FarEnd::TaskAcross(const Across& job, bool sends) const {
  Task task = NewTask();
  task.role = sends ? Task::Role::kForwards : Task::Role::kFetches;
  task.names = job.paths;
  task.names.insert(task.names.begin(), job.destination);
  task.directory_wanted = job.directory_wanted;
  task.asks = options_.take != nullptr;
  task.counts = job.counts;
  task.further_lanes = FurtherWanted();
  return task;
}

Result<std::unique_ptr<FarEnd>> FarEnd::StartWaiting(const std::string& destination,
                                                     const RemoteOptions& options,
                                                     const Across& job, bool sends, Meeting& to) {
  std::unique_ptr<FarEnd> out(new FarEnd(destination, options));
  RDFS_ASSIGN_OR_RETURN(const TaskDigest only, DigestOf(TaskOfOther(out->TaskAcross(job, sends))));
  RDFS_RETURN_IF_ERROR(out->Dial(out->LaunchWith({options.ports, std::nullopt}), kMeetService,
                                 EncodeMeet(only), &to));
  RDFS_ASSIGN_OR_RETURN(to.port, DecodePort(out->session_->grant()));
  return out;
}

Result<bool> FarEnd::CopyAcross(const Across& job, bool sends, Report& report, std::string& how) {
  RDFS_RETURN_IF_ERROR(SendTask(TaskAcross(job, sends)));
  Talk talk(*lane_, SettingsFor(report, options_.interrupts));
  const std::uint64_t before = report.bytes();
  bool met = false;
  bool over = false;
  Tally done;
  BeginReader begin;
  bool begun = false;
  const auto on_begin = [&](ByteSpan message) -> Status {
    RDFS_ASSIGN_OR_RETURN(begun, begin.Take(message));
    if (!begun) return {};
    RDFS_RETURN_IF_ERROR(CheckSources(job.paths, begin.begin(), talk.failures_heard()));
    RDFS_RETURN_IF_ERROR(options_.take(begin.begin()));
    return talk.Say(EncodeBare(MessageType::kGo));
  };
  Meter meter(report);
  std::optional<Totals> totals;
  const auto on_count = [&](MessageType type, ByteSpan message) -> Status {
    if (type == MessageType::kTotals) {
      RDFS_ASSIGN_OR_RETURN(totals, DecodeTotals(message));
      return {};
    }
    RDFS_ASSIGN_OR_RETURN(const Progress progress, Progress::Decode(message));
    meter.Show(progress, totals);
    return {};
  };
  const Talk::OnMessage on_message = [&](MessageType type, ByteSpan message) -> Status {
    const bool counts = type == MessageType::kTotals || type == MessageType::kProgress;
    if (counts && met && job.counts) return on_count(type, message);
    if (type == MessageType::kMet && !met) {
      met = true;
      RDFS_ASSIGN_OR_RETURN(how, DecodeMet(message));
      return {};
    }
    if (type == MessageType::kBegin && met && options_.take && !begun) return on_begin(message);
    if (type != MessageType::kDone || !met || (options_.take && !begun)) {
      return OutOfTurn();
    }
    RDFS_ASSIGN_OR_RETURN(done, Tally::Decode(message));
    over = true;
    return talk.Say(EncodeBare(MessageType::kFarewell));
  };
  const Status status = talk.Part(talk.HearUntil(over, on_message));
  if (!status.ok() && !met && !talk.lost() && !IsInterrupt(status)) {
    how = status.message();
    return false;
  }
  report.Clear();
  if (!status.ok()) return status.WithContext(name_);
  Count(done, before, report, meter);
  return true;
}

Status FarEnd::Relay(FarEnd& from, FarEnd& to, const Across& job, Report& report) {
  Task sends = from.NewTask();
  sends.role = Task::Role::kSends;
  sends.names = job.paths;
  sends.counts = job.counts;
  RDFS_RETURN_IF_ERROR(from.SendTask(sends));
  Task receives = to.NewTask();
  receives.role = Task::Role::kReceives;
  receives.names = {job.destination};
  receives.directory_wanted = job.directory_wanted;
  receives.counts = job.counts;
  RDFS_RETURN_IF_ERROR(to.SendTask(receives));
  Talk sender(*from.lane_, SettingsFor(report, from.options_.interrupts));
  Talk receiver(*to.lane_, SettingsFor(report, -1));
  const std::uint64_t before = report.bytes();
  copy::Relay relay({sender, *from.domain_}, {receiver, *to.domain_},
                    [&](const Begin& begin, std::uint64_t told) {
                      RDFS_RETURN_IF_ERROR(CheckSources(job.paths, begin, told));
                      const auto& take = from.options_.take;
                      return take ? take(begin) : Status();
                    });
  Meter meter(report);
  relay.counts = job.counts;
  relay.on_turn = [&] {
    if (relay.progress()) meter.Show(*relay.progress(), relay.totals());
    if (!job.counts) meter.Show(relay.bytes());
    return Status();
  };
  if (const Status status = relay.Run(); !status.ok()) {
    if (sender.lost()) return status.WithContext(from.name_);
    return receiver.lost() ? status.WithContext(to.name_) : status;
  }
  Count(relay.done(), before, report, meter);
  return {};
}

Status CopyAcross(const Across& job, const RemoteOptions& options, Report& report,
                  const std::function<void(const std::string&)>& note) {
  const std::string name = job.from + " to " + job.to + ": ";
  std::string why;
  for (const Way& way : {Way{job.to, job.from, true}, Way{job.from, job.to, false}}) {
    std::string how;
    RDFS_ASSIGN_OR_RETURN(const bool copied, TryWay(way, job, options, report, how));
    if (copied) {
      note(name + "directly, " + (way.sends ? "sent" : "fetched") + " over " + how + why);
      return {};
    }
    why += "; " + way.reaches + " cannot reach " + way.waits + ": " + how;
  }
  RDFS_ASSIGN_OR_RETURN(const auto from,
                        FarEnd::Start(job.from, options, FarEnd::FirstLane::kBest));
  RDFS_ASSIGN_OR_RETURN(const auto to, FarEnd::Start(job.to, options, FarEnd::FirstLane::kBest));
  note(name + "through here, over " + from->ExplainChoice() + " and over " + to->ExplainChoice() +
       why);
  return FarEnd::Relay(*from, *to, job, report);
}

}  // namespace rdfs::copy
