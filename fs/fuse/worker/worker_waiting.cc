// What waits in a worker: requests, until they are taken up again, and what was begun of some.
#include <linux/fuse.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fs/fuse/worker/worker.h"

namespace rdfs::fs::fuse {
namespace {

// How often who waits for writes behind, or for a buffer, is asked whether it still lives.
constexpr std::chrono::seconds kLookForDying{1};

// How often is looked whether another worker is done with what it had read.
constexpr std::chrono::milliseconds kLookAtOrder{1};
// How long who reads pages that this mount writes to lets others begin with what they have.
constexpr std::chrono::microseconds kLetsBegin{50};
// A server that takes longer for a close is asked again all the same.
constexpr std::chrono::seconds kWaitsForOrder{1};

// Those of the queue that are over go on; whether there were any. What has to wait again comes in
// behind: at most one look at each.
template <typename Entry, typename IsOver, typename GoOn>
bool TakeOver(std::deque<Entry>& queue, IsOver is_over, GoOn go_on) {
  bool any = false;
  for (std::size_t left = queue.size(); left > 0; --left) {
    Entry next = std::move(queue.front());
    queue.pop_front();
    if (is_over(next)) {
      go_on(std::move(next));
      any = true;
    } else {
      queue.push_back(std::move(next));
    }
  }
  return any;
}

}  // namespace

void Worker::Postpone(Message message, const Waits& waits, std::function<bool()> is_over) {
  waits_[message.unique] = waits;
  buffer_turns_.Leave(message.unique);
  LookForDying(lane_->Now());
  postponed_.push_back({std::move(message), std::move(is_over)});
}

std::optional<client::Buffer> Worker::TakeBuffer(std::uint64_t unique, std::size_t bytes) {
  if (!buffer_turns_.MayTake(bytes, lane_->Now(), unique)) return std::nullopt;
  std::optional<client::Buffer> buffer = lane_->buffers().Allocate(bytes);
  if (buffer) buffer_turns_.Leave(unique);
  return buffer;
}

void Worker::PostponeForBuffer(Message message, const Waits& waits) {
  const std::uint64_t unique = message.unique;
  const std::size_t wanted = message.Body<fuse_read_in>().size;
  Waits mine = waits;
  if (mine.for_buffer == TimePoint{}) mine.for_buffer = lane_->Now();
  Postpone(std::move(message), mine, [this, unique, wanted] {
    if (!buffer_turns_.MayTake(wanted, lane_->Now(), unique)) return false;
    // In one piece: how much is free does not say that.
    const auto has_room = [&] { return lane_->buffers().Allocate(wanted).has_value(); };
    if (!has_room()) {
      read_ahead_.GiveBack();
      if (!has_room()) return false;
    }
    LeaveTime(unique);
    return true;
  });
  if (BufferTurns::IsLarge(wanted)) buffer_turns_.Wait(unique, mine.for_buffer);
}

void Worker::LeaveTime(std::uint64_t unique) {
  TimePoint& since = waits_[unique].since;
  since = std::max(since, lane_->Now() - filesystem_.options.deadline * 3 / 4);
}

void Worker::LookForDying(TimePoint now) {
  next_look_for_dying_ = std::min(next_look_for_dying_, now + kLookForDying);
}

void Worker::PostponeBehind(const WritesBehind::Wait& wait, Message message, const Waits& waits) {
  message.waited = 1;
  waits_behind_ = true;
  Postpone(std::move(message), waits, [this, wait] { return filesystem_.behind.IsOver(wait); });
}

void Worker::PostponeBehindPages(PageWrites::Number write, Message message, const Waits& waits) {
  waits_behind_ = true;
  const std::uint64_t unique = message.unique;
  Postpone(std::move(message), waits, [this, write, unique] {
    if (!filesystem_.page_writes.IsOver(write)) return false;
    LeaveTime(unique);
    return true;
  });
}

void Worker::LetOthersBegin() {
  if (all_.size() == 1) return;
  lets_begin_ = true;
  for (const Worker* worker : all_) {
    if (worker == this) continue;
    const std::uint64_t turn = worker->request_turns_.load();
    if (turn % 2 == 0) continue;
    const Deadline end = DeadlineAfter(kLetsBegin);
    while (worker->request_turns_.load() == turn && !worker->lets_begin_ &&
           BootClock::now() < end) {
      sched_yield();
    }
  }
  lets_begin_ = false;
}

bool Worker::IsInOrder(NodeId node) const {
  if (all_.size() == 1) return true;
  const auto has_one = [this](const Worker* worker) {
    return worker != this && worker->request_turns_.load() % 2 != 0;
  };
  return std::none_of(all_.begin(), all_.end(), has_one) && !filesystem_.unlocks.any(node);
}

void Worker::PostponeForOrder(NodeId node, Message message, const Waits& waits) {
  struct Turn {
    const Worker* worker;
    std::uint64_t number;
  };
  std::vector<Turn> turns;
  for (const Worker* worker : all_) {
    const std::uint64_t number = worker->request_turns_.load();
    if (worker != this && number % 2 != 0) turns.push_back({worker, number});
  }
  const auto is_over = [this, node, unique = message.unique, turns = std::move(turns),
                        until = lane_->Now() + kWaitsForOrder,
                        unlocks = std::optional<std::vector<std::uint64_t>>()]() mutable {
    const TimePoint now = lane_->Now();
    std::erase_if(
        turns, [](const Turn& turn) { return turn.worker->request_turns_.load() != turn.number; });
    if (turns.empty() && !unlocks) unlocks = filesystem_.unlocks.UnderWay(node);
    if (now < until && (!unlocks || !filesystem_.unlocks.AreOver(*unlocks))) {
      next_look_at_order_ = now + kLookAtOrder;
      return false;
    }
    LeaveTime(unique);
    return true;
  };
  Postpone(std::move(message), waits, is_over);
}

std::chrono::milliseconds Worker::TimeLeft(std::uint64_t unique) const {
  using std::chrono::milliseconds;
  const auto waits = waits_.find(unique);
  if (waits == waits_.end()) return filesystem_.options.deadline;
  const auto waited =
      std::chrono::duration_cast<milliseconds>(BootClock::now() - waits->second.since);
  return std::max(filesystem_.options.deadline - waited, milliseconds(1));
}

// Not only those that the kernel has interrupted: a program that was killed closes its files, and
// of that no signal is told.
void Worker::LetDyingGo(TimePoint now) {
  if (now < next_look_for_dying_) return;
  if (postponed_.empty()) {
    next_look_for_dying_ = TimePoint::max();
    return;
  }
  next_look_for_dying_ = now + kLookForDying;
  const auto let_go = [this](const Message& message) {
    const fuse_in_header header = message.header();
    // Nobody waits for the one, and the other has locks to drop.
    const bool has_to_be =
        header.opcode == FUSE_RELEASE ||
        (header.opcode == FUSE_FLUSH && filesystem_.inodes.may_be_locked(header.nodeid));
    if (has_to_be || !IsDying(static_cast<pid_t>(header.pid))) return false;
    AnswerError(fuse_session_fd(session_), header.unique, EINTR);
    if (header.opcode == FUSE_WRITE) WrotePages(header.unique);
    waits_.erase(header.unique);
    buffer_turns_.Leave(header.unique);
    return true;
  };
  std::erase_if(postponed_, [&](const Postponed& waiting) { return let_go(waiting.message); });
}

Worker::Waits Worker::WaitsOf(std::uint64_t unique) const {
  const auto waits = waits_.find(unique);
  return waits == waits_.end() ? Waits{.since = BootClock::now()} : waits->second;
}

bool Worker::TakeUpAgain() {
  bool any = false;
  while (!resumed_.empty()) {
    Message message = std::move(resumed_.front());
    resumed_.pop_front();
    Process(std::move(message));
    any = true;
  }
  any |= TakeOver(
      awaited_,
      [this](Awaited& awaited) { return awaited.is_over() || lane_->Now() >= awaited.until; },
      [](Awaited awaited) { awaited.then(); });
  return TakeUpPostponed() || any;
}

bool Worker::TakeUpPostponed() {
  const bool any = TakeOver(
      postponed_, [](Postponed& postponed) { return postponed.is_over(); },
      [this](Postponed postponed) { Process(std::move(postponed.message)); });
  if (postponed_.empty()) waits_behind_ = false;
  return any;
}

}  // namespace rdfs::fs::fuse
