// Open files and locks that a server of another epoch does not know: it is asked for them again.
#include <algorithm>
#include <cerrno>

#include "fs/client/attach.h"
#include "fs/client/lane_impl.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;

// Pause while another lane reclaims the open file.
constexpr milliseconds kReclaimPause{10};
// The server could not open it, for a reason that may pass.
constexpr milliseconds kReclaimRetry{100};
constexpr std::uint8_t kMostReclaims = 4;

}  // namespace

void LaneImpl::OnWrongEpoch(Slot slot) {
  Call& call = calls_[slot];
  GiveStagingBack(call);
  if (EndCancelled(slot)) return;
  if (call.open == nullptr || ++call.reclaims > kMostReclaims) {
    return Finish(slot, ErrnoStatus(EIO));
  }
  // Of two files it may be either: first the one, then the other.
  const bool other = call.other_open != nullptr && call.reclaims % 2 == 0;
  const OpenPtr open = other ? call.other_open : call.open;
  if (!other && open->server_open() != call.sent_open) return Restart(slot);
  if (!open->BeginReclaim()) {
    // Somebody else's attempt, which ends by its own deadline: only those of this call are counted.
    --call.reclaims;
    return table_.QueueAt(slot, call.opcode, now_ + kReclaimPause);
  }
  ReclaimOpen(slot, open);
}

void LaneImpl::ReclaimOpen(Slot slot, const OpenPtr& open) {
  const CallTicket ticket = table_.TicketOf(slot);
  const CallContext context = calls_[slot].context;
  calls_[slot].reclaiming = true;
  Slot reclaim = kNoSlot;
  Call* call = Begin(
      context, Opcode::kReclaimOpen,
      [this, slot, ticket, open](Answer& answer) {
        const auto reply = answer.body.Read<OpenReply>();
        if (answer.status.ok() && answer.body.ok()) {
          open->set_server_open(reply.open);
          open->set_incarnation(incarnation_);  // of who answers: it may have been sent again
          ReclaimLocks(open);
        } else if (answer.status.errno_value() == ENOENT || answer.status.errno_value() == ESTALE) {
          open->MarkLost(ESTALE);
        }
        open->EndReclaim();
        if (table_.Find(ticket) && calls_[slot].reclaiming) OnReclaimed(slot, answer.status);
        return !answer.status.ok() || answer.body.ok();
      },
      &reclaim);
  if (call == nullptr) return;
  call->body.Encode([&](ByteWriter& writer) { call->opcode = EncodeReclaim(*open, writer); });
  table_.Queue(reclaim, call->opcode);
  // Ahead of it: a server without the right to open by handle knows what it has been led to.
  const CallContext opener{.uid = open->uid(), .gid = open->gid()};
  for (const Path& steps : WaysTo(*open, mount_.path_finder())) LookUp(steps, opener);
}

// They go out ahead of the calls that need the file. What the server has neither given nor refused
// is asked for again, with the file, by the next connection. Meanwhile no lane asks for another
// lock or gives one up: the server must not take up first what was wanted last.
void LaneImpl::ReclaimLocks(const OpenPtr& open) {
  const std::shared_ptr<void> others_wait = open->inode().locks.BeginUndo();
  for (const HeldLocks::Held& held : open->inode().locks.Of(open.get())) {
    const LockRequest lock = EncodeReclaimLock(*open, held);
    const auto then = [this, open, others_wait](Answer& answer) {
      if (answer.status.ok()) return true;
      const Code code = answer.status.code();
      // ENOBUFS: this lane had no room to ask.
      const bool unasked =
          answer.status.errno_value() == ENOBUFS || code == Code::kDeadlineExceeded;
      if (code == Code::kUnavailable || (unasked && wire_.connected() && !closing_)) {
        AskForLocksLater(open);
      } else if (code == Code::kErrno && !closing_ && !unasked) {
        LoseLock(*open);
      } else {
        open->set_incarnation(0);
      }
      return true;
    };
    IssueUrgent(Opcode::kReclaimLock, std::as_bytes(std::span(&lock, 1)), then);
  }
}

void LaneImpl::AskForLocksLater(const OpenPtr& open) {
  if (std::ranges::find(without_locks_, open) == without_locks_.end()) {
    without_locks_.push_back(open);
  }
  ask_for_locks_ = std::min(ask_for_locks_, Now() + kGracePause);
}

void LaneImpl::AskForLocks() {
  if (now_ < ask_for_locks_) return;
  ask_for_locks_ = TimePoint::max();
  for (const OpenPtr& open : std::exchange(without_locks_, {})) {
    if (open->lost_errno() == 0) ReclaimLocks(open);
  }
}

void LaneImpl::LeaveLocks() {
  ask_for_locks_ = TimePoint::max();
  for (const OpenPtr& open : std::exchange(without_locks_, {})) open->set_incarnation(0);
}

// The call goes on with the file, or asks again a moment later, until its own deadline.
void LaneImpl::OnReclaimed(Slot slot, const Status& status) {
  Call& call = calls_[slot];
  if (status.ok() || call.open->lost_errno() != 0 ||
      (call.other_open != nullptr && call.other_open->lost_errno() != 0)) {
    return Restart(slot);
  }
  call.reclaiming = false;
  // What the server cannot open has nothing to give up, and nobody waits.
  if (call.caller_gone) {
    const bool unheard = status.code() == Code::kDeadlineExceeded;
    return unheard ? Restart(slot) : FinishLater(slot, ErrnoStatus(status.errno_value()));
  }
  if (!MayPass(status.errno_value())) return FinishLater(slot, ErrnoStatus(status.errno_value()));
  --call.reclaims;
  table_.QueueAt(slot, call.opcode, now_ + kReclaimRetry);
}

}  // namespace rdfs::fs::client
