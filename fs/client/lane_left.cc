// Calls whose callers wait no longer, and what the server may have done for them all the same.
#include <cerrno>

#include "fs/client/attach.h"
#include "fs/client/lane_impl.h"

namespace rdfs::fs::client {
namespace {

bool Opens(Opcode opcode) {
  return opcode == Opcode::kOpen || opcode == Opcode::kCreate || opcode == Opcode::kTmpfile ||
         opcode == Opcode::kOpenDir;
}

// Whether asking again tells what became of it, and leaves nothing behind where it had not arrived.
// A file must not be made, or cut short, long after its caller has heard that it was not.
bool MayBeOpenedAgain(Call& call) {
  if (call.opcode == Opcode::kTmpfile || call.opcode == Opcode::kOpenDir) return true;
  if (call.opcode != Opcode::kOpen) return false;
  const std::uint32_t flags = ByteReader(call.body.bytes()).Read<OpenRequest>().flags;
  return (flags & (kOpenCreate | kOpenTruncate)) == 0;
}

}  // namespace

bool LaneImpl::LetCallerGo(Slot slot, Status status) {
  Call& call = calls_[slot];
  const bool lock = call.lock != 0 && table_.MayHaveArrived(slot);
  const bool on_its_way = wire_.connected() && table_.IsSent(slot);
  const bool open =
      Opens(call.opcode) && table_.MayHaveArrived(slot) && (on_its_way || MayBeOpenedAgain(call));
  if (!IsRelease(call.opcode) && call.opcode != Opcode::kFlush && !lock && !open) return false;
  table_.NeverExpire(slot);
  if (!std::exchange(call.caller_gone, true)) {
    ready_.push_back({.completion = std::move(call.completion), .status = std::move(status)});
    call.completion = Ignore;
  }
  if (lock) LetLockGo(slot);
  if (open) LetOpenGo(slot);
  return true;
}

void LaneImpl::GiveUp(Slot slot, Status status) {
  if (!LetCallerGo(slot, status)) FinishLater(slot, std::move(status));
}

bool LaneImpl::EndCancelled(Slot slot) {
  const Call& call = calls_[slot];
  if (!call.cancelled || IsRelease(call.opcode) || call.opcode == Opcode::kFlush) return false;
  FinishLater(slot, Status(Code::kErrno, EINTR, {}));
  return true;
}

void LaneImpl::LetOpenGo(Slot slot) {
  Call& call = calls_[slot];
  const Opcode release = call.opcode == Opcode::kOpenDir ? Opcode::kReleaseDir : Opcode::kRelease;
  call.completion = [this, context = call.context, release](Answer& answer) {
    if (!answer.status.ok() || answer.body.remaining() < sizeof(OpenReply)) return true;
    const std::uint64_t open = answer.body.Read<OpenReply>().open;
    Issue(context, release, Ignore,
          [&](ByteWriter& writer) { writer.Write(ReleaseRequest{.open = open}); });
    return true;
  };
}

void LaneImpl::SendOwed() {
  while (!owed_.empty() && !table_.full()) {
    const Owed owed = std::move(owed_.front());
    owed_.pop_front();
    if (!owed.flush) {
      Release(owed.context, owed.open, [](Status&&) {});
    } else if (owed.flush->asked == owed.open->inode().locks.asked()) {
      FlushFile(owed.context, owed.open, owed.flush->lock_owner, [](Status&&) {});
    }
  }
}

// What is not waited for is asked for again after a loss, to hear what became of it. What is waited
// for may be so for long: it is interrupted instead, or undone without having been heard of.
void LaneImpl::LetLockGo(Slot slot) {
  Call& call = calls_[slot];
  const auto undo = [this, context = call.context, open = call.open,
                     number = call.lock](Answer& answer) {
    if (answer.status.ok()) UndoLock(context, open, answer.request, number);
    return true;
  };
  if (!table_.Waits(slot)) {
    call.completion = undo;
  } else if (wire_.connected() && table_.IsSent(slot)) {
    call.completion = undo;
    if (std::exchange(call.cancelled, true)) return;
    InterruptAtServer(slot);
  } else {
    // The server may not have noticed the loss yet, and have it wait there still.
    if (table_.SequenceOf(slot) != 0) InterruptAtServer(slot);
    UndoLock(call.context, call.open, call.body.bytes(), call.lock);
    call.completion = [](Answer&) { return true; };
    FinishLater(slot, Status(Code::kErrno, EINTR, {}));
  }
}

void LaneImpl::UndoLock(CallContext context, const OpenPtr& open, ByteSpan set,
                        std::uint64_t number) {
  const auto granted = ByteReader(set).Read<LockRequest>();
  const bool flock = (granted.flags & kLockFlock) != 0;
  context.timeout = std::chrono::milliseconds(0);
  HeldLocks& locks = open->inode().locks;
  const std::shared_ptr<void> undoing = locks.BeginUndo();
  const Lock lock{.owner = granted.owner,
                  .start = granted.start,
                  .end = granted.end,
                  .type = static_cast<LockType>(std::uint32_t{granted.type}),
                  .pid = granted.pid};
  for (const Lock& piece : locks.ToUndo({open.get(), flock, lock})) {
    const bool had = piece.type != LockType::kUnlock;
    const CallTicket ticket =
        LockCall(context, Opcode::kSetLock, open, piece, flock ? kLockFlock : 0,
                 [this, open, undoing, had](Answer& answer) {
                   if (had && !closing_ && !answer.status.ok()) LoseLock(*open);
                   return true;
                 });
    if (const std::optional<Slot> slot = table_.Find(ticket)) calls_[*slot].undoes = number;
  }
}

}  // namespace rdfs::fs::client
