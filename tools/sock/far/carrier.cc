#include "tools/sock/far/carrier.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "tools/sock/far/carrier_loop.h"
#include "transport/base/log.h"
#include "transport/base/processors.h"

namespace rdfs::sock::far {
namespace {

// A connection that was looked at so often for nothing is left to its bells.
constexpr unsigned kIdleLooks = 256;
// And after so many what could be put off is told. A program that answers has answered by then.
constexpr unsigned kLooksToRest = 32;
// While it spins, the carrier asks the kernel for news once in so many turns; and behind so many
// bytes, whose sending takes far longer than asking.
constexpr unsigned kTurnsPerPoll = 32;
constexpr std::uint64_t kShippedPerPoll = 1 << 20;
constexpr std::chrono::seconds kTick{5};
constexpr std::chrono::seconds kTickHeld{60};
// An end is inside a system call, whose end only looking tells.
constexpr int kSoonMs = 1;

// Bells cost two descriptors a connection, the channel one.
void RaiseLimits() {
  for (const auto resource : {RLIMIT_NOFILE, RLIMIT_MEMLOCK}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == limit.rlim_max) continue;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(resource, &limit);
  }
}

}  // namespace

CarrierLoop::CarrierLoop(CarrierOptions options, Pairs pairs, std::unique_ptr<PairsFile> file,
                         Askers askers, std::unique_ptr<Roads> roads, Fd epoll, EventFd stop)
    : options_(std::move(options)),
      pairs_(std::move(pairs)),
      file_(std::move(file)),
      epoll_(std::move(epoll)),
      stop_(std::move(stop)),
      askers_(std::move(askers)),
      roads_(std::move(roads)) {
  Watch(stop_.fd(), {Watched::Kind::kStop});
  Watch(askers_.fd(), {Watched::Kind::kListener});
  Watch(file_->fd(), {Watched::Kind::kPairs});
  Watch(roads_->fd(), {Watched::Kind::kNews});
}

CarrierLoop::~CarrierLoop() { lanes_.clear(); }

void CarrierLoop::Stop() {
  stopping_ = true;
  stop_.Ring();
}

// --- What is watched

bool CarrierLoop::Watch(int fd, Watched watched) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return false;
  watched_[fd] = watched;
  return true;
}

// Only while it is still watched for that: its number may be somebody else's by now.
void CarrierLoop::Unwatch(int fd, const void* what) {
  const auto found = watched_.find(fd);
  if (found == watched_.end() || found->second.what != what) return;
  watched_.erase(found);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void CarrierLoop::Wake(Carried& connection) {
  connection.idle_looks = 0;
  if (!connection.begun()) return;
  // The answer will come that way; and a WRITE may be posted, which takes another Arm.
  if (Entry* const entry = EntryOf(*connection.lane)) entry->armed = false;
  connection.Disarm();
  if (connection.awake) return;
  connection.awake = true;
  awake_.push_back(&connection);
}

void CarrierLoop::Forget(Carried& connection) {
  for (const int fd : connection.watched) Unwatch(fd, &connection);
  std::replace(awake_.begin(), awake_.end(), &connection, static_cast<Carried*>(nullptr));
  std::erase(busy_before_, &connection);
  if (connection.begun() || connection.watched[0] >= 0) {
    --carried_;
    pinned_bytes_ -= 2 * std::uint64_t{connection.largest_ring()};
  }
}

CarrierLoop::Entry* CarrierLoop::EntryOf(const Lane& lane) {
  const auto found =
      std::ranges::find_if(lanes_, [&](const Entry& e) { return e.lane.get() == &lane; });
  return found == lanes_.end() ? nullptr : &*found;
}

void CarrierLoop::Note(Entry& entry, const Status& status) {
  if (entry.over.ok()) entry.over = status;
}

void CarrierLoop::RemoveDead() {
  for (auto entry = lanes_.begin(); entry != lanes_.end();) {
    if (entry->over.ok()) {
      ++entry;
      continue;
    }
    LogInfo("no road to '{}' any more: {}", entry->lane->pair(), entry->over.message());
    Lane* const lane = entry->lane.get();
    Unwatch(lane->fd(), lane);
    wants_.remove_if([&](const Want& want) { return want.lane == lane; });
    for (Asker& asker : askers_.all()) {
      if (asker.pair == lane->pair()) asker.told = false;
    }
    entry = lanes_.erase(entry);
  }
}

// --- The loop

Status CarrierLoop::Run() {
  RaiseLimits();
  // What is waited for by the clock takes seconds, so it is read only where it is needed exactly,
  // and now and then.
  TimePoint now = BootClock::now();
  busy_ = tick_ = now;
  unsigned turns = 0;
  bool worked = false;  // since `now`
  while (!stopping_) {
    if (now >= tick_) Tick(now);
    const bool something = Turn(now);
    RemoveDead();
    if (something) spin_.Came();
    const bool ask = ++turns >= kTurnsPerPoll || shipped_ >= kShippedPerPoll;
    if (ask) {
      turns = 0;
      shipped_ = 0;
    }
    if (ask || (worked && !something)) now = BootClock::now();
    worked = something && !ask;
    if (something || (!awake_.empty() && spin_.GoOn(now))) {
      if (!something) now = GiveWay(spin_, now);  // whoever is to go on may need this processor
      if (ask) Events(0, now);
      continue;
    }
    ArmConnections();
    worked = true;
    // Lanes behind everything that was to be sent: one says when it has room, too.
    const bool more = Turn(now) || !ArmLanes(now);
    RemoveDead();
    if (more && !ask) continue;
    Events(more || stopping_ ? 0 : Patience(now), now);
    worked = more;
  }
  return {};
}

// Everything that is awake once; true when there was something.
bool CarrierLoop::Turn(TimePoint now) {
  bool something = false;
  for (Entry& entry : lanes_) {
    if (entry.armed || !entry.over.ok()) continue;
    const auto came = entry.lane->Poll(now);
    if (!came.ok()) Note(entry, came.status());
    something = something || (came.ok() && *came);
  }
  something = LookAtAll() || something;
  for (Entry& entry : lanes_) {
    if (entry.over.ok()) Note(entry, entry.lane->Flush(now));
    shipped_ += entry.lane->TakeShipped();
  }
  return something;
}

bool CarrierLoop::LookAtAll() {
  bool something = false;
  for (std::size_t i = 0; i < awake_.size(); ++i) {
    Carried* const connection = awake_[i];
    if (connection == nullptr) continue;
    Lane& lane = *connection->lane;
    Entry* const entry = EntryOf(lane);
    if (!entry->over.ok()) continue;
    const auto found = lane.Look(*connection, connection->idle_looks >= kLooksToRest);
    if (!found.ok()) Note(*entry, found.status());
    const bool moved = found.ok() && *found;
    something = something || moved;
    if (moved) entry->armed = false;     // as in Wake: it may have been awake across a sleep
    if (awake_[i] == nullptr) continue;  // it is over
    connection->idle_looks = moved ? 0 : connection->idle_looks + 1;
    if (moved) connection->Disarm();
    if (moved && !std::exchange(connection->busy, true)) busy_before_.push_back(connection);
    if (connection->idle_looks == kIdleLooks) connection->Arm();  // and is looked at once more
  }
  std::erase_if(awake_, [](Carried* connection) {
    if (connection == nullptr) return true;
    const bool stays = connection->Soon() || connection->Waits();
    if (connection->idle_looks <= kIdleLooks || stays) return false;
    connection->awake = false;
    return true;
  });
  WaitersFirst(awake_);
  return something;
}

// Where one is busy again the others that were may be so, too: looked at, they need not ring.
void CarrierLoop::WakeBusy() {
  for (Carried* const connection : std::exchange(busy_before_, {})) {
    connection->busy = false;
    Wake(*connection);
  }
}

// Before sleep: every bell is to wake us. Looking comes after that.
void CarrierLoop::ArmConnections() {
  for (Carried* const connection : awake_) {
    if (connection == nullptr) continue;
    connection->Arm();
    connection->idle_looks = kIdleLooks;
  }
}

// And every lane. False when one has something already.
bool CarrierLoop::ArmLanes(TimePoint now) {
  bool quiet = true;
  for (Entry& entry : lanes_) {
    if (entry.armed || !entry.over.ok()) continue;
    const auto armed = entry.lane->Arm();
    if (!armed.ok()) Note(entry, armed.status());
    entry.armed = armed.ok() && *armed;
    if (entry.armed || !armed.ok()) continue;
    quiet = false;
    const auto came = entry.lane->Poll(now);
    if (!came.ok()) Note(entry, came.status());
  }
  return quiet;
}

int CarrierLoop::Patience(TimePoint now) const {
  const bool soon =
      std::ranges::any_of(awake_, [](const Carried* c) { return c != nullptr && c->Soon(); });
  return soon ? kSoonMs : PollTimeoutMs(tick_, now);
}

// `now` is the time behind the sleep, then.
void CarrierLoop::Events(int timeout_ms, TimePoint& now) {
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  if (timeout_ms != 0) {
    now = BootClock::now();
    if (count > 0) WakeBusy();
  }
  for (int i = 0; i < count; ++i) OnEvent(events[static_cast<std::size_t>(i)], now);
}

void CarrierLoop::OnEvent(const epoll_event& event, TimePoint now) {
  const int fd = event.data.fd;
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  const Watched watched = found->second;
  switch (watched.kind) {
    case Watched::Kind::kStop:
      return;
    case Watched::Kind::kListener:
      return OnNewcomers(now);
    case Watched::Kind::kPairs:
      return OnPairs(now);
    case Watched::Kind::kNews:
      return OnNews();
    case Watched::Kind::kHold:
      Unwatch(fd, nullptr);
      busy_ = now;
      return askers_.DropHold(fd);
    case Watched::Kind::kAsker:
      return OnAsker(*static_cast<Asker*>(watched.what), now);
    case Watched::Kind::kLane: {
      Entry* const entry = EntryOf(*static_cast<Lane*>(watched.what));
      if (entry != nullptr) entry->armed = false;
      return;
    }
    case Watched::Kind::kBell: {
      auto& connection = *static_cast<Carried*>(watched.what);
      connection.Hear(fd, (event.events & (EPOLLHUP | EPOLLERR)) != 0);
      Wake(connection);
    }
  }
}

void CarrierLoop::Tick(TimePoint now) {
  if (deaf_) deaf_ = !Watch(askers_.fd(), {Watched::Kind::kListener});
  // Pairings are looked at when an end of this host's comes, and here for the sake of the others:
  // who dials us with a key that has been forgotten.
  if (roads_ != nullptr) (void)file_->Look(now);
  PlaceAll(now);
  for (auto asker = askers_.all().begin(); asker != askers_.all().end();) {
    Asker& one = *asker++;
    if (now < one.until) continue;
    Done(one, one.ask ? std::optional(Refusal::kAlone) : std::nullopt);
  }
  wants_.remove_if([&](const Want& want) { return now >= want.until; });
  for (Entry& entry : lanes_) {
    const std::string& pair = entry.lane->pair();
    const bool waiting = std::ranges::any_of(
        askers_.all(), [&](const Asker& asker) { return asker.told && asker.pair == pair; });
    Note(entry, entry.lane->Tick(now, waiting));
    // Whatever bell was lost: once in a while everything is looked at.
    entry.lane->WakeAll();
  }
  const bool stays = carried_ > 0 || !askers_.all().empty() || !askers_.holds().empty();
  if (stays) busy_ = now;
  if (now - busy_ >= options_.idle) stopping_ = true;
  const bool fine = !askers_.all().empty() || !wants_.empty() || deaf_;
  tick_ = fine ? now + kFineTick : now + kTick;
  if (!stays) tick_ = std::min<Deadline>(tick_, busy_ + options_.idle);
  // A process that holds us says when it ends; only the pairings have to be looked at.
  if (stays && carried_ == 0 && !fine) tick_ = now + kTickHeld;
}

Result<std::unique_ptr<Carrier>> Carrier::Create(CarrierOptions options) {
  if (options.name.empty()) options.name = CarrierName(geteuid());
  RDFS_ASSIGN_OR_RETURN(Pairs pairs, ReadPairs(options.pairs));
  if (pairs.pairs.empty()) return Status(Code::kNotFound, "no host is paired: rdsock --pair HOST");
  RDFS_ASSIGN_OR_RETURN(Askers askers, Askers::Listen(options.name));
  RDFS_ASSIGN_OR_RETURN(auto file, PairsFile::Create(options.pairs, options.stamp));
  RDFS_ASSIGN_OR_RETURN(auto roads, Roads::Create(pairs));
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::FromErrno(errno, "epoll");
  RDFS_ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  return std::unique_ptr<Carrier>(std::make_unique<CarrierLoop>(
      std::move(options), std::move(pairs), std::move(file), std::move(askers), std::move(roads),
      std::move(epoll), std::move(stop)));
}

}  // namespace rdfs::sock::far
