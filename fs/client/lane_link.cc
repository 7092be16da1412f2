// A lane loses its connection and gets another; its timers.
#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "fs/client/lane_impl.h"
#include "transport/base/log.h"

namespace rdfs::fs::client {
namespace {

// One-sided operations of a call that is too late have this long: longer than it takes a busy
// connection to get to them, shorter than a program is kept waiting for its own memory.
constexpr std::chrono::milliseconds kMemoryPatience{2000};
// And so often again where other operations end meanwhile.
constexpr std::uint8_t kMostLateTurns = 30;

}  // namespace

void LaneImpl::OpenMailbox() {
  Mailbox::Letters letters = mailbox_->Take();
  if (letters.connection_destroyed) OnConnectionDestroyed();
  if (letters.link != nullptr) TakeLink(std::move(letters.link));
  for (const CallTicket ticket : letters.cancels) Cancel(ticket);
}

// No device touches our memory any more.
void LaneImpl::OnConnectionDestroyed() {
  wire_.EndQuarantine();
  table_.LocalOperationsOver();
  for (Slot slot = 0; slot < calls_.size(); ++slot) {
    if (!table_.IsOpen(slot)) {
      GiveRoundBack(calls_[slot]);
    } else if (calls_[slot].late) {
      FinishLate(slot);
    }
  }
  // What the server had answered already needs no other connection.
  for (const Waiting& waiting : restart_) {
    if (!StillWaits(waiting)) continue;
    Call& call = calls_[waiting.slot];
    if (call.kind != Call::Kind::kWrite || !call.write.answered) continue;
    call.waiting = false;
    AfterChunk(waiting.slot);
  }
}

void LaneImpl::TakeLink(std::unique_ptr<LaneLink> link) {
  const bool another_server = was_connected_ && link->epoch != epoch_;
  session_ = link->session;
  epoch_ = link->epoch;
  incarnation_ = link->incarnation;
  stale_session_ = false;
  round_trip_ = {};
  staging_ = link->staging;
  SetStaging(link->slot_bytes, link->slots);
  heartbeat_ = Heartbeat(link->lease, mount_.options().timeout);
  heartbeat_.OnReceived(clock_.Now());
  wire_.Connect(std::move(link->connection));
  for (const ArenaMessage& arena : link->arenas) OnArena(arena);
  if (another_server) ShowTheWay();
  if (another_server) OnRecall(RecallNotice{.number = kRecallEarlier, .handle = {}});
  for (const std::vector<std::byte>& recall : link->recalls) OnRecall(recall);
  for (const OpenPtr& open : link->without_locks) {
    open->set_incarnation(incarnation_);
    AskForLocksLater(open);
  }
  if (was_connected_) counters_->reconnects.Add();
  was_connected_ = true;

  const std::deque<Waiting> restart = std::exchange(restart_, {});
  for (const Waiting& waiting : restart) {
    if (StillWaits(waiting)) Restart(waiting.slot);
  }
  StartWaitingWrites();
}

// Of requests that must not be done twice. The others are asked again under another number when the
// server says that it does not know a handle (StaleRecovery); for these it would have to say EIO.
void LaneImpl::ShowTheWay() {
  const PathFinder& finder = mount_.path_finder();
  if (!finder) return;
  using Whose = std::pair<std::uint32_t, std::uint32_t>;
  std::map<Whose, Path> ways;
  for (Slot slot = 0; slot < calls_.size(); ++slot) {
    if (!table_.IsOpen(slot) || table_.IsIdle(slot) || !table_.MayHaveArrived(slot)) continue;
    const CallContext& context = calls_[slot].context;
    Path& steps = ways[{context.uid, context.gid}];
    for (const Handle& handle : HandlesToFind(calls_[slot].opcode, calls_[slot].body.bytes())) {
      for (Path& way : finder(handle)) {
        for (PathStep& step : way) {
          if (std::ranges::find(steps, step) == steps.end()) steps.push_back(std::move(step));
        }
      }
    }
  }
  for (const auto& [whose, steps] : ways) LookUp(steps, {.uid = whose.first, .gid = whose.second});
}

void LaneImpl::LookUp(std::span<const PathStep> steps, const CallContext& whose) {
  for (const PathStep& step : steps) {
    std::array<std::byte, 4 + kMaxHandleBytes + kMaxNameBytes> body;
    ByteWriter writer(body);
    WriteHandle(writer, step.parent);
    writer.WriteSized16(AsBytes(step.name));
    IssueUrgent(Opcode::kLookup, writer.written());
    if (whose.uid != 0) IssueUrgent(Opcode::kLookup, writer.written(), {}, whose);
  }
}

// All of them are free: no call has a slot of a connection that is gone.
void LaneImpl::SetStaging(std::uint32_t slot_bytes, std::uint32_t slots) {
  slot_bytes_ = slot_bytes;
  staging_slots_ = slots;
  free_staging_.clear();
  for (std::uint32_t i = slots; i-- > 0;) free_staging_.push_back(i);
}

void LaneImpl::LoseConnection() {
  LogInfo("lane {}: {}; connecting anew", number_, wire_.failure().message());
  counters_->connections_lost.Add();
  std::unique_ptr<transport::Connection> connection = wire_.Disconnect();
  grants_.Clear();
  arenas_.clear();
  prefetching_.clear();
  waiting_reads_.clear();
  waiting_writes_.clear();
  SetStaging(0, 0);
  LeaveLocks();
  for (Call& call : calls_) {
    call.write.staged = false;
    call.write.inquiring = false;
    call.write.staging = kNoStaging;
  }

  const RequestTable::Lost lost = table_.ConnectionLost();
  counters_->retries.Add(lost.again);
  restart_.clear();
  for (const Slot slot : lost.idle) {
    if (!calls_[slot].reclaiming && !calls_[slot].late) Wait(restart_, slot);
  }
  for (Slot slot = 0; slot < calls_.size(); ++slot) {
    if (!table_.IsOpen(slot) || !calls_[slot].late) continue;
    table_.Withdraw(slot);  // a commit whose answer was lost: not again
    table_.NeverExpire(slot);
  }
  for (const Slot slot : lost.urgent) Finish(slot, Status(Code::kDisconnected, EIO, {}));
  // What was interrupted is not asked again.
  for (Slot slot = 0; slot < calls_.size(); ++slot) {
    const bool forsaken = calls_[slot].cancelled || calls_[slot].caller_gone;
    if (table_.IsOpen(slot) && forsaken && !calls_[slot].late) {
      GiveUp(slot, Status(Code::kErrno, EINTR, {}));
    }
  }
  mount_.Lost(number_, std::move(connection), incarnation_, stale_session_);
}

void LaneImpl::WaitForMemory(Slot slot) {
  Call& call = calls_[slot];
  call.late = true;
  call.late_turns = 0;
  call.waiting = false;
  call.reclaiming = false;
  table_.Withdraw(slot);
  // A connection that is lost already ends by itself.
  wire_.connected() ? table_.ExpireAt(slot, now_ + kMemoryPatience) : table_.NeverExpire(slot);
}

void LaneImpl::FinishLate(Slot slot) {
  Finish(slot, Status(Code::kDeadlineExceeded, ETIMEDOUT, {}));
}

void LaneImpl::OnTimers() {
  for (const Slot slot : table_.Expire(now_)) {
    // A callback of this loop may have ended it, or its slot be another's by now.
    if (!table_.IsOpen(slot) || table_.DeadlineOf(slot) > now_) continue;
    if (Call& call = calls_[slot]; call.late) {
      // On a slow link the others' bytes are ahead of it.
      const TimePoint moved = operation_done_at_ + kMemoryPatience;
      if (now_ < moved && ++call.late_turns < kMostLateTurns) {
        table_.ExpireAt(slot, moved);
        continue;
      }
      table_.NeverExpire(slot);
      wire_.Fail({Code::kDisconnected, "one-sided operations did not end in time"});
      continue;
    }
    counters_->timeouts.Add();
    if (calls_[slot].context.keeps_memory && table_.HasLocal(slot)) {
      WaitForMemory(slot);
      continue;
    }
    const Status late(Code::kDeadlineExceeded, ETIMEDOUT, {});
    if (!LetCallerGo(slot, late)) Finish(slot, late);
  }
  if (!wire_.connected()) return;
  AskForLocks();
  switch (heartbeat_.Check(now_)) {
    case Heartbeat::Action::kNone:
      break;
    case Heartbeat::Action::kAsk:
      IssueUrgent(Opcode::kRenew, {});
      break;
    case Heartbeat::Action::kDead:
      wire_.Fail({Code::kDisconnected, "the server is silent"});
      LoseConnection();
      break;
  }
}

}  // namespace rdfs::fs::client
