#include "server/loop/loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "server/identity/as_server.h"
#include "server/loop/worker.h"
#include "transport/base/log.h"
#include "transport/base/processors.h"
#include "transport/base/turn_clock.h"

namespace rdfs::server {
namespace {

// What a program with one thread takes between two requests: its own work, and FUSE's. Short enough
// that an idle machine does not notice.
constexpr std::chrono::nanoseconds kLongestSpin{200'000};
// Rounds between two looks at what sleeps in epoll, and how long there may be none while the loop
// has work: a round takes as long as its messages do.
constexpr unsigned kRoundsBetweenLooks = 16;
constexpr std::chrono::nanoseconds kBetweenLooks{500'000};
// What was posted may take as long in a round.
constexpr std::chrono::nanoseconds kMostPosted{2'000'000};
// What the loop carries itself (READs, WRITEs, large messages) is worth a message in so many bytes.
constexpr std::uint64_t kBytesLikeAMessage = 64 * 1024;
// How often a lane is looked at whose peer does not take its answers.
constexpr std::chrono::milliseconds kBacklogLook{2};
// How long a stop waits for file I/O that is under way.
constexpr std::chrono::seconds kLongestFarewell{2};
// How often in a session's lease lanes are looked at, and how many looks in a row one may be
// silent: it ends after one and a half to two leases. Its client asks when it has heard nothing for
// a third of one. Looks are counted, not time: a server that was stopped itself, or a host that was
// suspended, makes one for all that while, and has heard who lives by the next.
constexpr int kLooksInALease = 2;
constexpr unsigned kMostSilentLooks = 3;
// How long the goodbyes of lanes that end together may take, those of a session or of a loop that
// stops; behind that nobody is waited for.
constexpr std::chrono::milliseconds kLongestGoodbyes{200};

}  // namespace

Result<std::unique_ptr<Loop>> Loop::Create(unsigned index) {
  RDFS_ASSIGN_OR_RETURN(std::unique_ptr<FileIo> io, FileIo::Create());
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::FromErrno(errno, "epoll_create1");
  epoll_event event{.events = EPOLLIN, .data = {.fd = io->fd()}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, io->fd(), &event) != 0) {
    return Status::FromErrno(errno, "epoll_ctl");
  }
  return std::unique_ptr<Loop>(new Loop(std::move(io), std::move(epoll), index));
}

Loop::Loop(std::unique_ptr<FileIo> io, Fd epoll, unsigned index)
    : io_(std::move(io)),
      epoll_(std::move(epoll)),
      index_(index),
      gives_way_(!RoomForAChain()),
      spin_(kLongestSpin) {}

Loop::~Loop() {
  Stop();
  Join();
}

void Loop::Join() {
  if (thread_.joinable()) thread_.join();
}

void Loop::Start(Core& core, LaneGone lane_gone) {
  lane_gone_ = std::move(lane_gone);
  thread_ = std::thread([this, &core] { Run(core); });
}

void Loop::Stop() {
  stop_.store(true);
  io_->Post([] {});
}

void Loop::AddLane(SessionPtr session, std::unique_ptr<transport::Connection> connection) {
  lane_count_.fetch_add(1);
  // A task must be copyable; the connection is moved out when it runs, once.
  auto holder = std::make_shared<std::unique_ptr<transport::Connection>>(std::move(connection));
  Post([this, session = std::move(session), holder] { AddOnLoop(session, std::move(*holder)); });
}

void Loop::DropLanes(std::uint64_t session, const Status& why) {
  Post([this, session, why] {
    std::vector<LaneEntry> gone;
    for (const auto& [fd, lane] : lanes_) {
      if (lane->session()->id() == session) gone.push_back(lane);
    }
    RemoveTogether(gone, why);
  });
}

void Loop::Post(std::function<void()> task) { io_->Post(std::move(task)); }

void Loop::After(std::chrono::nanoseconds delay, std::function<void()> task) {
  const TimePoint due = BootClock::now() + delay;
  Post([this, due, task = std::move(task)] { timers_.emplace(due, task); });
}

void Loop::AddOnLoop(const SessionPtr& session, std::unique_ptr<transport::Connection> connection) {
  const int fd = connection->fd();
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (session->ended() || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    lane_count_.fetch_sub(1);
    lane_gone_(session);
    return;
  }
  LogDebug("loop {}: lane of {} over {}", index_, session->params().client, connection->Describe());
  core_->counters.lanes_opened.fetch_add(1);
  const LaneEntry lane = ConnLane::Create(
      session, std::move(connection), core_->staging, core_->options.epoch,
      [this](std::function<void()> task) { Post(std::move(task)); }, unflushed_, times_);
  lanes_[fd] = lane;
  active_.Add(session->id(), lane);
  LookForSilentLater();
}

void Loop::Run(Core& core) {
  ::prctl(PR_SET_NAME, ("rdfsd-loop-" + std::to_string(index_)).c_str());
  core_ = &core;
  Worker worker(core, *io_);
  dispatcher_ = std::make_unique<Dispatcher>(worker);
  TimePoint before{};  // the last round's time, where that was busy
  while (!stop_.load(std::memory_order_relaxed)) {
    bool busy = ServeLanes();
    TimePoint now = looked_ == TimePoint{} ? BootClock::now() : looked_;
    looked_ = {};
    busy |= RunTimers(now);
    bool served_io = io_ready_ || io_->in_flight() > 0 || io_->has_posted();
    if (served_io) {
      io_ready_ = false;
      // As long as the lanes have had: behind a recall many of many clients may wait.
      io_->Poll(before == TimePoint{} ? FileIo::kPostedTurn
                                      : std::clamp<std::chrono::nanoseconds>(
                                            now - before, FileIo::kPostedTurn, kMostPosted));
    }
    io_->Submit();
    served_io |= io_->in_flight() > 0;
    busy |= io_->has_posted();
    FlushAnswers();
    if (io_->has_deferred()) {
      io_->RunDeferred();
      busy = true;
    }
    if (busy) {
      spin_.Came();
      LookAround(now);
      before = now;
      continue;
    }
    before = {};
    if (served_io) now = BootClock::now();  // which may have taken long
    if (Idle(now)) Sleep(now);
  }
  FinishIo();
  RemoveAll();
  dispatcher_.reset();
}

// Lanes that sleep must not starve behind a busy one.
void Loop::LookAround(TimePoint now) {
  if (last_look_ == TimePoint{}) last_look_ = now;  // out of a sleep
  if (++rounds_ % kRoundsBetweenLooks != 0 && now - last_look_ < kBetweenLooks) return;
  last_look_ = now;
  Wait(0);
}

void Loop::FlushAnswers() {
  if (!unflushed_.empty()) times_.GoOut(BootClock::now());
  for (const std::weak_ptr<ConnLane>& weak : std::exchange(unflushed_, {})) {
    if (const LaneEntry lane = weak.lock()) (void)lane->Flush();
  }
}

void Loop::FinishIo() {
  const Deadline until = DeadlineAfter(kLongestFarewell);
  do {
    io_->Submit();
    pollfd ready{.fd = io_->fd(), .events = POLLIN, .revents = 0};
    const bool waits = io_->in_flight() > 0 && !io_->has_posted();
    if (waits) ::poll(&ready, 1, PollTimeoutMs(until, BootClock::now()));
    io_->Poll();
    FlushAnswers();
  } while ((io_->in_flight() > 0 || io_->has_posted()) && BootClock::now() < until);
}

bool Loop::ServeLanes() {
  return active_.Round(
      [this](const LaneEntry& lane, std::size_t most) { return Serve(lane, most); },
      [] { return BootClock::now(); }, [this] { return looked_; });
}

std::size_t Loop::Serve(const LaneEntry& lane, std::size_t most) {
  const std::uint64_t carried_before = lane->connection().carried_bytes();
  const auto carried_since = [&] {
    const std::uint64_t bytes = lane->connection().carried_bytes() - carried_before;
    return static_cast<std::size_t>(bytes / kBytesLikeAMessage);
  };
  if (lane->BacklogFull()) (void)lane->Flush();
  if (lane->BacklogFull()) return Carried(carried_since());
  if (lane->TooManyUnread()) most = 1;
  std::array<transport::Completion, Turns<LaneEntry>::kMostMessages> completions;
  const Result<std::size_t> count = lane->connection().Poll(std::span(completions).first(most));
  if (!count.ok()) {
    Remove(lane, count.status());
    return 1;
  }
  const std::size_t carried = carried_since();
  if (*count == 0) return Carried(carried);
  lane->NoteWord();
  // With several messages the answers wait, since a Send would end the others' validity.
  if (*count > 1) lane->Hold();
  bool fine = true;
  for (std::size_t i = 0; i < *count && fine; ++i) {
    if (completions[i].kind != transport::Completion::Kind::kMessage) continue;
    const TurnClock::Turn turn;
    fine = dispatcher_->Handle(lane, completions[i].message);
  }
  lane->Release();
  looked_ = BootClock::now();
  times_.GoOut(looked_);
  (void)lane->Flush();
  if (lane->BacklogTooLarge()) {
    Remove(lane, Status(Code::kProtocolError, "the client does not take its answers"));
  } else if (!fine) {
    Remove(lane, Status(Code::kProtocolError, "the client sent a malformed request"));
  } else if (!lane->failure().ok()) {
    Remove(lane, lane->failure());
  }
  return *count + carried;
}

std::size_t Loop::Carried(std::size_t like_messages) {
  if (like_messages > 0) looked_ = BootClock::now();
  return like_messages;
}

void Loop::Remove(const LaneEntry& lane, const Status& why) {
  if (lane->closed()) return;
  const LaneEntry keep = lane;  // the caller's reference may be in a list
  const int fd = keep->connection().fd();
  if (why.code() == Code::kProtocolError) {
    LogWarn("ended a connection of {}: {}", keep->session()->params().client, why.message());
  } else {
    LogDebug("lane of {} ended: {}", keep->session()->params().client, why.message());
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  lanes_.erase(fd);
  active_.Remove(keep->session()->id(), keep);
  // A goodbye to who does not take it would keep all other lanes waiting.
  const bool waited_for =
      why.code() != Code::kDeadlineExceeded && why.code() != Code::kProtocolError;
  if (!waited_for) keep->connection().Abandon();
  keep->Close();
  lane_count_.fetch_sub(1);
  core_->leases.LaneClosed(keep);
  lane_gone_(keep->session());
}

void Loop::RemoveTogether(const std::vector<LaneEntry>& lanes, const Status& why) {
  const Deadline until = DeadlineAfter(kLongestGoodbyes);
  for (const LaneEntry& lane : lanes) {
    const bool late = BootClock::now() >= until;
    Remove(lane, Status(late ? Code::kDeadlineExceeded : why.code(), why.message()));
  }
}

void Loop::RemoveAll() {
  std::vector<LaneEntry> all;
  for (const auto& [fd, lane] : lanes_) all.push_back(lane);
  RemoveTogether(all, Status(Code::kDisconnected, "server stops"));
}

void Loop::LookForSilentLater() {
  if (lanes_.empty() || std::exchange(looks_for_silent_, true)) return;
  timers_.emplace(BootClock::now() + core_->options.session_lease / kLooksInALease, [this] {
    looks_for_silent_ = false;
    RemoveSilent();
    LookForSilentLater();
  });
}

void Loop::RemoveSilent() {
  std::vector<LaneEntry> silent;
  for (const auto& [fd, lane] : lanes_) {
    if (lane->NoteLook() > kMostSilentLooks) silent.push_back(lane);
  }
  for (const LaneEntry& lane : silent) {
    Remove(lane,
           Status(Code::kDeadlineExceeded, "nothing was heard of it for longer than a lease"));
  }
}

bool Loop::RunTimers(TimePoint now) {
  if (timers_.empty() || timers_.begin()->first > now) return false;
  const AsServer rights;
  const Deadline until = DeadlineAfter(Turns<LaneEntry>::kTurn);
  do {
    const auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  } while (!timers_.empty() && timers_.begin()->first <= now && BootClock::now() < until);
  return true;
}

bool Loop::Idle(TimePoint now) {
  if (active_.empty()) return true;
  if (!spin_.GoOn(now)) return true;
  LookAround(now);
  if (gives_way_) looked_ = GiveWay(spin_, now);
  return false;
}

void Loop::Sleep(TimePoint now) {
  std::vector<LaneEntry> failed;
  std::vector<LaneEntry> stuck;
  for (const LaneEntry& lane : active_.TakeAll()) {
    if (lane->BacklogFull()) {
      stuck.push_back(lane);
      continue;
    }
    const Result<bool> armed = lane->connection().Arm();
    if (!armed.ok()) {
      failed.push_back(lane);
    } else if (!*armed) {
      active_.Add(lane->session()->id(), lane);
    } else {
      lane->armed = true;
    }
  }
  for (const LaneEntry& lane : failed) Remove(lane, Status(Code::kDisconnected, "arm failed"));
  // Otherwise something came while arming.
  if (active_.empty()) {
    last_look_ = {};
    WaitBeside(stuck, now);
  }
  for (const LaneEntry& lane : stuck) {
    if (!lane->closed()) active_.Add(lane->session()->id(), lane);
  }
}

// The descriptors of lanes that are stuck may stay readable, and a wait for them would not sleep:
// they are left out, so that the others wake us at once.
void Loop::WaitBeside(const std::vector<LaneEntry>& stuck, TimePoint now) {
  std::optional<Deadline> until;
  if (!timers_.empty()) until = timers_.begin()->first;
  if (!stuck.empty()) until = std::min(until.value_or(now + kBacklogLook), now + kBacklogLook);
  for (const LaneEntry& lane : stuck) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane->connection().fd(), nullptr);
  }
  Wait(until ? PollTimeoutMs(*until, now) : -1);
  for (const LaneEntry& lane : stuck) {
    const int fd = lane->connection().fd();
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      Remove(lane, Status::FromErrno(errno, "epoll_ctl"));
    }
  }
}

void Loop::Wait(int timeout_ms) {
  std::array<epoll_event, 64> events;
  // Lanes that are awake may be readable, too, and fill the events of some calls.
  for (std::size_t left = lanes_.size() + 1; left > 0; timeout_ms = 0) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    const auto told = static_cast<std::size_t>(std::max(count, 0));
    for (const epoll_event& event : std::span(events).first(told)) Woken(event.data.fd);
    if (told < events.size()) return;
    left -= std::min(left, told);
  }
}

void Loop::Woken(int fd) {
  if (fd == io_->fd()) {
    io_ready_ = true;
    return;
  }
  const auto it = lanes_.find(fd);
  if (it == lanes_.end() || !it->second->armed) return;
  it->second->armed = false;
  active_.Add(it->second->session()->id(), it->second);
}

}  // namespace rdfs::server
