#include "tools/copy/remote/far.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "tools/copy/command/setup.h"
#include "tools/copy/remote/across.h"
#include "tools/copy/remote/door.h"
#include "tools/copy/remote/errand.h"
#include "tools/copy/remote/progress.h"
#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/roles.h"
#include "tools/copy/remote/sender.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/remote/threads.h"
#include "tools/pipe/command/process.h"
#include "transport/base/log.h"
#include "transport/session/acceptor.h"
#include "transport/ssh/stdio.h"

namespace rdfs::copy {
namespace {

namespace ssh = transport::ssh;
using transport::Acceptor;
using transport::AcceptorOptions;
using transport::Completion;
using std::chrono_literals::operator""s;

// ssh has asked for its passwords before it starts us: the line comes at once or not at all.
constexpr auto kBootstrapPatience = 30s;
// For the caller's lane, or another far end, whose user may be asked for a password first. A caller
// that is gone is not waited for.
constexpr auto kLanePatience = 300s;
constexpr auto kTaskPatience = 60s;
// Between looks for another lane while none has said anything.
constexpr std::chrono::milliseconds kLaneTurn{20};
constexpr std::string_view kTypedByHand =
    "--far is for rdcp, which starts it over ssh on the other machine; give SRC and DST instead";

AcceptorOptions OptionsFor(const transport::Key& key) {
  AcceptorOptions options;
  options.port = 0;
  options.keys.push_back({"ssh", key});
  options.same_user_only = true;
  return options;
}

// On the first port of the range that is free; without any, on ssh's stream alone.
Result<std::unique_ptr<Acceptor>> Listen(const transport::Key& key, const PortRange& ports,
                                         Door& door) {
  AcceptorOptions options = OptionsFor(key);
  Status why;
  for (std::uint32_t port = ports.first; port <= ports.last; ++port) {
    options.port = static_cast<std::uint16_t>(port);
    // The next in the range, too.
    options.verbs_port = port < ports.last ? static_cast<std::uint16_t>(port + 1) : options.port;
    if (port == 0) options.verbs_port = 0;
    auto acceptor = Acceptor::Create(options, door);
    if (acceptor.ok()) return acceptor;
    why = acceptor.status();
  }
  LogInfo("cannot listen: {}", why.message());
  options.listen_tcp = false;
  return Acceptor::Create(options, door);
}

// The caller's lanes: the one that it speaks on, and the one that it may move to.
struct Lanes {
  Door& door;
  Guest& guest;
  std::unique_ptr<transport::Connection> other;

  transport::Connection* Other() {
    if (other == nullptr) other = door.TakeOther();
    return other.get();
  }
};

// Message by message, and nothing behind the task: that is for whoever does it. Of two lanes that
// come at once either may be seen first: the one with the task is the one that is used.
Result<Task> ReadTask(Lanes& lanes) {
  TaskReader reader;
  const Deadline deadline = DeadlineAfter(kTaskPatience);
  for (bool begun = false;;) {
    Completion completion;
    const Deadline turn = begun ? deadline : std::min(deadline, DeadlineAfter(kLaneTurn));
    RDFS_ASSIGN_OR_RETURN(const std::size_t count,
                          lanes.guest.lane->Wait(std::span<Completion>(&completion, 1), turn));
    if (count == 0) {
      if (BootClock::now() >= deadline) {
        return Status(Code::kDeadlineExceeded, "the calling rdcp gave no task in time");
      }
      if (lanes.Other() != nullptr) std::swap(lanes.guest.lane, lanes.other);
      continue;
    }
    if (completion.kind != Completion::Kind::kMessage) continue;
    begun = true;
    RDFS_ASSIGN_OR_RETURN(const bool complete, reader.Take(completion.message));
    if (complete) return std::move(reader.task());
  }
}

// Those that come behind the lane that we may move to.
std::function<std::unique_ptr<transport::Connection>()> FurtherOf(Door& door, const Task& task) {
  if (task.further_lanes == 0) return nullptr;
  return [&door] { return door.TakeOther(); };
}

Status SendFiles(Talk& talk, Door& door, const Guest& guest, const Task& task) {
  Status told;
  const Found found =
      FindSources(task.names, task.follow || task.follow_source, true,
                  [&](const std::string& path, const Status& why) {
                    if (told.ok()) told = talk.Tell({Notice::What::kFailed, path, why.message()});
                  });
  RDFS_RETURN_IF_ERROR(told);
  Selection selection(task);
  if (!selection.status().ok()) return talk.Part(selection.status());
  WalkOptions walk = WalkFor(task, found, selection);
  const Counter counter(task.counts ? CountOf(walk) : nullptr);
  Sender sender(talk, guest.domain, found.begin, std::move(walk), CrewThreads());
  sender.counter = &counter;
  sender.further = FurtherOf(door, task);
  return sender.Run();
}

Status ReceiveFiles(Talk& talk, Door& door, const Guest& guest, const Task& task, mode_t mask) {
  Selection selection(task);
  if (!selection.status().ok()) return talk.Part(selection.status());
  ReceiverSettings settings = ReceiverFor(task, task.names.front(), selection, mask);
  if (task.names.size() > 1) {
    settings.allow = [asked = std::vector(task.names.begin() + 1, task.names.end())](
                         const Begin& begin, std::uint64_t told) {
      return CheckSources(asked, begin, told);
    };
  }
  ProgressTeller teller(talk, task.counts);
  settings.copied = teller.copied();
  Receiver receiver(talk, guest.domain, std::move(settings));
  receiver.further = FurtherOf(door, task);
  receiver.on_turn = [&] {
    if (!receiver.working()) return Status();
    return teller.Turn(receiver.bytes(), receiver.kept(), receiver.passed(), std::nullopt,
                       BootClock::now());
  };
  return receiver.Run();
}

Status Across(Talk& caller, const Task& task, const std::optional<Meeting>& meeting, int interrupts,
              mode_t mask) {
  if (!meeting) {
    return caller.Part({Code::kProtocolError, "nobody was named to copy to or from"});
  }
  return caller.Part(RunAcross(caller, task, *meeting, interrupts, mask));
}

Status ServeCaller(Door& door, const std::optional<Meeting>& meeting, int interrupts, mode_t mask) {
  RDFS_ASSIGN_OR_RETURN(Guest guest, door.Await(interrupts, DeadlineAfter(kLanePatience)));
  Lanes lanes{door, guest, nullptr};
  TalkSettings settings;
  settings.interrupts = interrupts;
  auto task = ReadTask(lanes);
  if (task.ok() && task->moves) settings.better = [&lanes] { return lanes.Other(); };
  Talk talk(*guest.lane, std::move(settings));
  if (!task.ok()) return talk.Part(task.status());
  if (const Status fine = door.Check(*task); !fine.ok()) return talk.Part(fine);
  switch (task->role) {
    case Task::Role::kSends:
      return SendFiles(talk, door, guest, *task);
    case Task::Role::kReceives:
      return ReceiveFiles(talk, door, guest, *task, mask);
    case Task::Role::kForwards:
    case Task::Role::kFetches:
      break;
  }
  return Across(talk, *task, meeting, interrupts, mask);
}

int Refuse(const Status& status) {
  ssh::Answer(kBootstrapMagic, status);
  // The other end tells its user; a person who typed this sees no answer worth reading.
  if (isatty(STDIN_FILENO) != 0) LogError("{}", status.message());
  return 1;
}

}  // namespace

int RunFar() {
  SetLogName("rdcp");
  SetLogLevel(LogLevel::kError);
  const mode_t mask = SetUpProcess();
  const auto bootstrap =
      ssh::ReadBootstrap(kBootstrapMagic, kTypedByHand, DeadlineAfter(kBootstrapPatience));
  if (!bootstrap.ok()) return Refuse(bootstrap.status());
  const auto line = FirstLine::Parse(bootstrap->text);
  if (!line.ok()) return Refuse(line.status());
  // Before the acceptor's thread is there, which is not to take them.
  const auto interrupts = pipe::TakeInterrupts();
  if (!interrupts.ok()) return Refuse(interrupts.status());
  const auto door = Door::Create();
  if (!door.ok()) return Refuse(door.status());
  const auto acceptor = Listen(bootstrap->key, line->ports, **door);
  if (!acceptor.ok()) return Refuse(acceptor.status());
  (*door)->set_port((*acceptor)->port());
  ssh::Answer(kBootstrapMagic, Status::Ok());
  (*acceptor)->Serve(ssh::TakeStdio());
  std::thread accepting([&] { (void)(*acceptor)->Run(); });
  const Status status = ServeCaller(**door, line->meeting, interrupts->get(), mask);
  (*acceptor)->Stop();
  accepting.join();
  return status.ok() ? 0 : 1;
}

}  // namespace rdfs::copy
