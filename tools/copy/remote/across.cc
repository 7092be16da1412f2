#include "tools/copy/remote/across.h"

#include <chrono>
#include <memory>
#include <utility>

#include "tools/copy/remote/lane_dialler.h"
#include "tools/copy/remote/progress.h"
#include "tools/copy/remote/roles.h"
#include "tools/copy/remote/sender.h"
#include "tools/copy/remote/threads.h"
#include "transport/session/session.h"

namespace rdfs::copy {
namespace {

using std::chrono_literals::operator""s;

// The other is there and waits: it answers at once, or there is no way to it. Firewalls say
// nothing.
constexpr auto kReachPatience = 5s;
// Legs that do not answer, 3 s each.
constexpr auto kLanePatience = 20s;
constexpr std::chrono::milliseconds kLookEvery{200};

struct Other {
  std::shared_ptr<transport::Domain> domain;
  std::shared_ptr<transport::Session> session;
  std::unique_ptr<transport::Connection> lane;
};

Result<Other> Reach(const Meeting& meeting) {
  transport::DialOptions dial;
  dial.host = meeting.host;
  dial.port = meeting.port;
  dial.key = meeting.key;
  dial.service = std::string(kServiceName);
  dial.request = EncodeHello();
  dial.deadline = DeadlineAfter(kReachPatience);
  Other out;
  out.domain = transport::Domain::Create("copy");
  RDFS_ASSIGN_OR_RETURN(out.session, transport::Session::Dial(std::move(dial), out.domain));
  RDFS_ASSIGN_OR_RETURN(out.lane, out.session->OpenLane(DeadlineAfter(kLanePatience)));
  return out;
}

Status GiveTask(transport::Connection& lane, const Task& task) {
  RDFS_ASSIGN_OR_RETURN(const std::vector<Bytes> messages, EncodeTask(task));
  for (const Bytes& message : messages) RDFS_RETURN_IF_ERROR(lane.Send(ByteSpan(message)));
  return lane.Flush();
}

// Keeps the caller convinced that we live, and hears when it does not: a connection that is only
// polled may not tell for long that its peer is gone.
std::function<Status()> Attend(Talk& caller) {
  return [&caller, next = TimePoint{}]() mutable -> Status {
    const TimePoint now = BootClock::now();
    if (now >= next) {
      next = now + kLookEvery;
      RDFS_RETURN_IF_ERROR(caller.Checked(caller.lane().Arm().status()));
    }
    return caller.Hear([](MessageType, ByteSpan) { return Status(); }, nullptr).status();
  };
}

// The caller may know that it would replace what another machine has brought. It answers at once,
// or we hear of its end.
Status AskCaller(Talk& caller, const Begin& begin) {
  RDFS_ASSIGN_OR_RETURN(const std::vector<Bytes> messages, begin.Encode());
  for (const Bytes& message : messages) RDFS_RETURN_IF_ERROR(caller.Say(message));
  bool goes = false;
  const Talk::OnMessage on_message = [&](MessageType type, ByteSpan) {
    goes = type == MessageType::kGo;
    return goes ? Status() : OutOfTurn();
  };
  return caller.HearUntil(goes, on_message);
}

Status Send(Talk& caller, Talk& talk, const Other& other, const Task& task) {
  RDFS_RETURN_IF_ERROR(GiveTask(*other.lane, TaskOfOther(task)));
  const Found found =
      FindSources({task.names.begin() + 1, task.names.end()}, task.follow || task.follow_source,
                  true, [&](const std::string& path, const Status& why) {
                    const Notice notice{Notice::What::kFailed, path, why.message()};
                    (void)caller.Tell(notice);
                    (void)talk.Say(notice.Encode());  // which counts what was asked for
                  });
  Selection selection(task);
  RDFS_RETURN_IF_ERROR(selection.status());
  if (task.asks) {
    const Status status = AskCaller(caller, found.begin);
    if (!status.ok()) return talk.Part(status);
  }
  ProgressTeller teller(caller, task.counts);
  WalkOptions walk = WalkFor(task, found, selection);
  walk.copied = teller.copied();
  const Counter counter(task.counts ? CountOf(walk) : nullptr);
  Sender sender(talk, other.domain, found.begin, std::move(walk), CrewThreads());
  FurtherLanes further(other.session, task.further_lanes, false);
  sender.further = [&] { return further.Take(*other.lane, sender.bytes()); };
  sender.on_turn = [&, attend = Attend(caller)] {
    RDFS_RETURN_IF_ERROR(teller.Turn(sender.bytes(), sender.kept(), sender.passed(),
                                     counter.totals(), BootClock::now()));
    return attend();
  };
  const Status sent = sender.Run();
  further.Settle();
  RDFS_RETURN_IF_ERROR(sent);
  return caller.Say(sender.done().Encode(MessageType::kDone));
}

Status Fetch(Talk& caller, Talk& talk, const Other& other, const Task& task, mode_t mask) {
  const Task there = TaskOfOther(task);
  RDFS_RETURN_IF_ERROR(GiveTask(*other.lane, there));
  Selection selection(task);
  RDFS_RETURN_IF_ERROR(selection.status());
  ReceiverSettings settings = ReceiverFor(task, task.names.front(), selection, mask);
  settings.allow = [&](const Begin& begin, std::uint64_t told) {
    RDFS_RETURN_IF_ERROR(CheckSources(there.names, begin, told));
    return task.asks ? AskCaller(caller, begin) : Status();
  };
  ProgressTeller teller(caller, task.counts);
  settings.counts = task.counts;
  settings.copied = teller.copied();
  Receiver receiver(talk, other.domain, std::move(settings));
  FurtherLanes further(other.session, task.further_lanes, false);
  receiver.further = [&] { return further.Take(*other.lane, receiver.bytes()); };
  receiver.on_turn = [&, attend = Attend(caller)] {
    RDFS_RETURN_IF_ERROR(teller.Turn(receiver.bytes(), receiver.kept(), receiver.passed(),
                                     receiver.totals(), BootClock::now()));
    return attend();
  };
  const Status received = receiver.Run();
  further.Settle();
  RDFS_RETURN_IF_ERROR(received);
  return caller.Say(receiver.done().Encode(MessageType::kDone));
}

// Waits for the caller's last word, so that ours has arrived.
Status AwaitFarewell(Talk& caller) {
  bool over = false;
  const Talk::OnMessage on_message = [&](MessageType type, ByteSpan) {
    over = type == MessageType::kFarewell;
    return Status();
  };
  return caller.HearUntil(over, on_message);
}

}  // namespace

Status RunAcross(Talk& caller, const Task& task, const Meeting& meeting, int interrupts,
                 mode_t mask) {
  RDFS_ASSIGN_OR_RETURN(const Other other, Reach(meeting));
  RDFS_RETURN_IF_ERROR(caller.Say(EncodeMet(other.session->ExplainChoice())));
  RDFS_RETURN_IF_ERROR(caller.lane().Flush());
  TalkSettings settings;
  settings.interrupts = interrupts;
  settings.tell = [&](const Notice& notice) { (void)caller.Tell(notice); };
  Talk talk(*other.lane, std::move(settings));
  RDFS_RETURN_IF_ERROR(task.role == Task::Role::kForwards ? Send(caller, talk, other, task)
                                                          : Fetch(caller, talk, other, task, mask));
  return AwaitFarewell(caller);
}

}  // namespace rdfs::copy
