#include "tools/sock/switch.h"

#include <algorithm>
#include <bit>

namespace rdfs::sock {

// --- Sender

Sender::Action Sender::Do(Step step, std::uint64_t at, std::uint64_t count) {
  doing_ = {.step = step, .at = at, .count = count};
  return doing_;
}

Sender::Action Sender::Broken() {
  state_ = State::kBroken;
  return Do(Step::kBroken);
}

bool Sender::Plausible(const SenderView& view) const {
  return view.gate.cursor() == produced_ && view.consumed >= consumed_seen_ &&
         view.consumed <= produced_ && view.passed >= passed_seen_ && view.passed <= opens_;
}

// Whether every kernel read of the peer's from now on sees the last phase's record, and so cannot
// run past its beginning.
bool Sender::Quiet(const SenderView& view) {
  if (view.passed == opens_ || view.tcp_reads % 2 == 0) return true;
  if (!quiet_marked_) {
    quiet_marked_ = true;
    quiet_mark_ = view.tcp_reads;
  }
  return view.tcp_reads != quiet_mark_;
}

Sender::Action Sender::Next(const SenderView& view, const Wish& wish) {
  if (state_ == State::kBroken) return Do(Step::kBroken);
  if (state_ == State::kTakeBack) return TakeBack(view);
  if (!Plausible(view)) return Broken();
  consumed_seen_ = view.consumed;
  passed_seen_ = view.passed;
  gone_ = gone_ || view.gone;
  lost_ = !gone_ && (lost_ || view.lost);
  leaving_ = leaving_ || wish.leave;
  const Step owed = wake_ups_.Owed<Step>(view.reader_armed);
  if (owed != Step::kIdle) return Do(owed);
  switch (state_) {
    case State::kTcp:
      return OnTcp(view, wish);
    case State::kOpening:
      return Do(Step::kOpenGate, open_at_, ring_bytes_);
    case State::kAnnouncing:
      return Do(Step::kAnnounce, opens_);
    case State::kTakingBack:
      return Do(Step::kTakeBack);
    case State::kRing:
      return OnRing(view, wish);
    default:
      return OnShut(view, wish);
  }
}

Sender::Action Sender::OnTcp(const SenderView& view, const Wish& wish) {
  // A phase that is over here, and that the peer will now never read to its end.
  if (OwesBytes(view)) return TakeBack(view);
  if (Leaving()) return Settle(view, wish);
  if (wish.bytes == 0) return Do(Step::kIdle);
  const bool may_open =
      !Alone() && !leaving_ && view.passed == opens_ && !view.gate.receiver_shut();
  if (!wish.ring || !may_open) {
    // Before the look that finds the peer still there: else it could leave in between, and would
    // wait for bytes while these come in their place.
    if (Returnable(view)) return Do(Step::kKeep, opens_);
    return Do(Step::kSendTcp, 0, wish.bytes);
  }
  open_at_ = tcp_sent_;
  ring_bytes_ = RingFor(wish);
  state_ = State::kOpening;
  return Do(Step::kOpenGate, open_at_, ring_bytes_);
}

// Soon nobody drives this half any more, and TCP carries bytes of which it does not know. What the
// ring holds goes before them now, if TCP takes it at once: the peer may leave, too, and finds it
// there. Else it can only be read from the ring, and a peer that leaves it unread has lost it.
Sender::Action Sender::Settle(const SenderView& view, const Wish& wish) {
  if (Returnable(view)) {
    const bool may = far_ == Far::kEnd && produced_ - view.consumed <= wish.tcp_room;
    if (!may) return Do(Step::kKeep, opens_);
    state_ = State::kTakingBack;
    return Do(Step::kTakeBack);
  }
  settled_ = true;
  return OnTcp(view, wish);
}

std::uint64_t Sender::RingFor(const Wish& wish) const {
  return std::bit_ceil(std::clamp(wish.ring_bytes, kLeastRingBytes, largest_ring_));
}

Sender::Action Sender::OnRing(const SenderView& view, const Wish& wish) {
  const bool stay = wish.ring && !Alone() && !leaving_ && RingFor(wish) <= ring_bytes_;
  if (view.gate.shut() || !stay) return Do(Step::kShutGate);
  if (wish.bytes == 0) return Do(Step::kIdle);
  // A hostile peer passes a phase of a larger ring that it has not read.
  const std::uint64_t unread = produced_ - view.consumed;
  const std::uint64_t room = unread < ring_bytes_ ? ring_bytes_ - unread : 0;
  if (room > 0) {
    wake_ups_.armed = false;
    return Do(Step::kPut, produced_, std::min({room, wish.bytes, kMostAtOnce}));
  }
  if (!wake_ups_.armed && wish.sleep) return Do(Step::kArm);
  wake_ups_.armed = false;
  return Do(Step::kSleep);
}

Sender::Action Sender::OnShut(const SenderView& view, const Wish& wish) {
  if (OwesBytes(view)) return TakeBack(view);
  // A gone peer makes no more reads that follow the protocol. One that a lost carrier had told of
  // the phase, and that is in a read from before, finds itself behind the phase's begin: a reset.
  if (!Alone() && !Quiet(view)) {
    return wish.bytes == 0 && !leaving_ ? Do(Step::kIdle) : WaitQuiet(wish);
  }
  state_ = State::kTcp;
  return OnTcp(view, wish);
}

Sender::Action Sender::WaitQuiet(const Wish& wish) {
  if (far_ == Far::kCarrier) {  // the network's time, not a system call's
    if (!wake_ups_.armed && wish.sleep) return Do(Step::kArm);
    wake_ups_.armed = false;
    return Do(Step::kSleep);
  }
  // A process of the peer's may have died in there, and the others sleep.
  if (quiet_waits_++ == kNudgeAfter) return Do(Step::kNudge);
  return Do(Step::kWaitQuiet);
}

// `consumed` is final: the peer's last process that could read the ring is gone.
Sender::Action Sender::TakeBack(const SenderView& view) {
  if (state_ != State::kTakeBack) {
    // Bytes behind the phase may be in TCP already: those of the ring cannot come before them. And
    // what a lost carrier did not say was read may have been: sent again it would come twice.
    if (lost_ || !Returnable(view)) return Broken();
    state_ = State::kTakeBack;
    resend_at_ = view.consumed;
  }
  if (resend_at_ == produced_) return Do(Step::kReturned);
  return Do(Step::kResend, resend_at_, produced_ - resend_at_);
}

void Sender::Done(std::uint64_t outcome) {
  wake_ups_.Done(doing_.step);
  switch (doing_.step) {
    case Step::kSendTcp:
      tcp_sent_ += std::min(outcome, doing_.count);
      break;
    case Step::kResend:
      outcome = std::min(outcome, doing_.count);
      tcp_sent_ += outcome;
      resend_at_ += outcome;
      break;
    case Step::kPut:
      if (outcome == 0) break;
      produced_ = doing_.at + doing_.count;
      wake_ups_.bell_due = true;
      break;
    case Step::kOpenGate:
      ++opens_;
      state_ = State::kAnnouncing;
      break;
    case Step::kAnnounce:
      state_ = State::kRing;
      wake_ups_.bell_due = far_ == Far::kCarrier;
      break;
    case Step::kShutGate:
      state_ = State::kShut;
      wake_ups_.bell_due = wake_ups_.bell_due || far_ == Far::kCarrier;
      quiet_marked_ = false;
      quiet_waits_ = 0;
      wake_ups_.armed = false;
      break;
    case Step::kTakeBack:
      resend_at_ = outcome;
      state_ = outcome < consumed_seen_ || outcome > produced_ ? State::kBroken : State::kTakeBack;
      break;
    case Step::kReturned:
      returned_ = true;
      state_ = State::kTcp;
      break;
    case Step::kKeep:
      kept_ = doing_.at;
      break;
    default:
      break;
  }
  doing_ = {};
}

void Sender::Recover(const SenderView& view, std::uint64_t tcp_sent) {
  const Action interrupted = doing_;
  wake_ups_.Recover(interrupted.step);
  if (interrupted.step == Step::kPut) {
    // It happened if the gate says so; any other cursor is found implausible by Next.
    Done(view.gate.cursor() == interrupted.at + interrupted.count ? interrupted.count : 0);
  } else if (interrupted.step == Step::kSendTcp || interrupted.step == Step::kResend) {
    Done(tcp_sent - tcp_sent_);
  }
  // Every other step is taken again.
  doing_ = {};
}

// --- Receiver

Receiver::Action Receiver::Do(Step step, std::uint64_t at, std::uint64_t count) {
  doing_ = {.step = step, .at = at, .count = count};
  return doing_;
}

Receiver::Action Receiver::Broken() {
  state_ = State::kBroken;
  return Do(Step::kBroken);
}

Receiver::Pending Receiver::PendingPhase(const ReceiverView& view) const {
  if (view.opens == passed_) return Pending::kNo;
  if (view.opens != passed_ + 1 || view.open_at < position_) return Pending::kImpossible;
  return view.open_at == position_ ? Pending::kHere : Pending::kLater;
}

bool Receiver::RingIsPossible(const ReceiverView& view) const {
  return AllowedRing(view.ring_bytes, largest_ring_);
}

// A carrier's gate is shut when the sender's bit says so: our own bit is only a wish there.
bool Receiver::Shut(const ReceiverView& view) const {
  return far_ == Far::kEnd ? view.gate.shut() : view.gate.sender_shut();
}

Receiver::Action Receiver::Next(const ReceiverView& view, const Wish& wish, TimePoint now) {
  if (state_ == State::kBroken) return Do(Step::kBroken);
  if (state_ == State::kPlain) {
    if (eof_) return Do(Step::kEnd);
    return wish.bytes == 0 ? Do(Step::kIdle) : Do(Step::kReadTcp, 0, wish.bytes);
  }
  const Step owed = wake_ups_.Owed<Step>(view.writer_armed);
  if (owed != Step::kIdle) return Do(owed);
  const bool midway =
      state_ == State::kReading || state_ == State::kReadOver || state_ == State::kPassing;
  if ((wish.leave && !midway) || state_ == State::kAbandoned) return OnLeave(view, now);
  // When nobody is left to put anything more, shutting makes what the gate shows the last word.
  const bool follow = wish.follow && !view.hung_up;
  if (!midway && following_ && !follow) return Do(Step::kRefuse);
  // A sender that has not noticed the refusal may still put into a phase that was passed because of
  // it: the gate is given back only when the sender's own bit says that it knows.
  if (!midway && !following_ && follow && view.gate.sender_shut()) return Do(Step::kFollow);
  switch (state_) {
    case State::kTcp:
      return wish.bytes == 0 ? Do(Step::kIdle) : Do(Step::kBeginRead, tcp_reads_ + 1);
    case State::kReading:
      return OnReading(view, wish);
    case State::kReadOver:
      return Do(Step::kEndRead, tcp_reads_ + 1);
    case State::kLooked:
      return OnLooked(view, wish);
    case State::kPassing:
      return Do(Step::kPass, passed_);
    default:
      return OnRing(view, wish);
  }
}

Receiver::Action Receiver::OnReading(const ReceiverView& view, const Wish& wish) {
  std::uint64_t limit = kUnlimited;
  switch (PendingPhase(view)) {
    case Pending::kImpossible:
      return Broken();
    case Pending::kNo:
      break;
    case Pending::kLater:
      limit = view.open_at - position_;
      break;
    case Pending::kHere:
      limit = 0;
      break;
  }
  limit = std::min(limit, wish.bytes);
  if (limit > 0 && !eof_) return Do(Step::kReadTcp, 0, limit);
  state_ = State::kReadOver;
  return Do(Step::kEndRead, tcp_reads_ + 1);
}

Receiver::Action Receiver::OnLooked(const ReceiverView& view, const Wish& wish) {
  switch (PendingPhase(view)) {
    case Pending::kImpossible:
      return Broken();
    case Pending::kNo:
      return eof_ ? OnEnd(view, wish) : ArmOrSleep(wish);
    case Pending::kLater:
      return eof_ ? Broken() : ArmOrSleep(wish);
    default:
      break;
  }
  if (!RingIsPossible(view)) return Broken();
  ring_bytes_ = view.ring_bytes;
  state_ = State::kRing;
  return OnRing(view, wish);
}

// No phase was seen after FIN was: an end has announced all its phases then. A carrier is asked,
// for FIN overtakes what it brings.
Receiver::Action Receiver::OnEnd(const ReceiverView& view, const Wish& wish) {
  // A sender that took bytes back died before it had sent them.
  if (view.taken_back && !view.returned) return Broken();
  if (far_ == Far::kEnd || view.complete) return Do(Step::kEnd);
  if (view.hung_up) return Broken();
  if (!asked_end_) return Do(Step::kAskEnd);
  return ArmOrSleep(wish);
}

Receiver::Action Receiver::OnRing(const ReceiverView& view, const Wish& wish) {
  const std::uint64_t cursor = view.gate.cursor();
  if (cursor < cursor_seen_ || cursor - consumed_ > ring_bytes_) return Broken();
  cursor_seen_ = cursor;
  if (cursor != consumed_ && !view.taken_back) {
    if (take_failed_) return Broken();  // somebody else wrote the word that only we move on
    wake_ups_.armed = false;
    if (wish.bytes == 0) return Do(Step::kIdle);
    return Do(Step::kTake, consumed_, std::min({cursor - consumed_, wish.bytes, kMostAtOnce}));
  }
  if (Shut(view) || view.taken_back) {
    // Noted before the peer can see it: it may open the next phase at once.
    ++passed_;
    state_ = State::kPassing;
    return Do(Step::kPass, passed_);
  }
  if (view.tcp_ended) return OnEnd(view, wish);
  // Bytes may be lost that TCP's already come behind.
  if (far_ == Far::kCarrier && view.hung_up && !view.complete) return Broken();
  return wish.bytes == 0 ? Do(Step::kIdle) : ArmOrSleep(wish);
}

Receiver::Action Receiver::ArmOrSleep(const Wish& wish) {
  if (!wake_ups_.armed && wish.sleep) return Do(Step::kArm);
  wake_ups_.armed = false;
  if (state_ == State::kLooked) state_ = State::kTcp;  // the kernel's socket is asked first
  return Do(Step::kSleep);
}

// Ends in kPlain, or in kBroken where bytes in the ring could neither be read nor sent again.
Receiver::Action Receiver::OnLeave(const ReceiverView& view, TimePoint now) {
  if (following_) return Do(Step::kRefuse);
  const Pending pending = PendingPhase(view);
  const std::uint64_t cursor = view.gate.cursor();
  if (pending == Pending::kImpossible || cursor < cursor_seen_) return Broken();
  if (MayLeave(view, pending)) {
    state_ = State::kPlain;
    return Do(Step::kIdle);
  }
  if (state_ != State::kAbandoned && (far_ == Far::kEnd || !view.hung_up)) {
    return Do(Step::kAbandon);
  }
  if (view.hung_up || view.kept > passed_ || now >= deadline_) return Broken();
  return Do(Step::kWaitReturned);
}

bool Receiver::MayLeave(const ReceiverView& view, Pending pending) const {
  if (view.taken_back) return view.returned;
  if (state_ == State::kAbandoned && view.returned) return true;
  // With an empty ring TCP's bytes are in order as they stand; but more may be on its way with a
  // carrier.
  return pending == Pending::kNo ? far_ == Far::kEnd || view.complete
                                 : far_ == Far::kEnd && view.gate.cursor() == consumed_;
}

Receiver::Ahead Receiver::LookAhead(const ReceiverView& view, std::uint64_t seen) const {
  using Where = Ahead::Where;
  if (view.taken_back) return {};
  const bool here = state_ == State::kRing;
  if (!here) {  // the kernel's bytes were seen: all of them that come before the next phase?
    if (state_ == State::kPlain || PendingPhase(view) != Pending::kLater ||
        seen < view.open_at - position_ || !RingIsPossible(view)) {
      return {};
    }
    seen -= view.open_at - position_;
  }
  const std::uint64_t ring_bytes = here ? ring_bytes_ : view.ring_bytes;
  const std::uint64_t cursor = view.gate.cursor();
  if (cursor < cursor_seen_ || cursor - consumed_ > ring_bytes || cursor - consumed_ < seen) {
    return {};
  }
  const std::uint64_t rest = cursor - consumed_ - seen;
  if (rest > 0) return {Where::kRing, consumed_ + seen, rest, ring_bytes};
  return {here && Shut(view) ? Where::kTcp : Where::kNothing};
}

void Receiver::Done(std::uint64_t outcome, TimePoint now) {
  wake_ups_.Done(doing_.step);
  switch (doing_.step) {
    case Step::kReadTcp:
      eof_ = outcome == kEof;
      came_ = outcome != 0 && !eof_;
      if (came_) position_ += std::min(outcome, doing_.count);
      if (state_ != State::kPlain) state_ = State::kReadOver;
      break;
    case Step::kTake:
      take_failed_ = outcome == 0;
      if (take_failed_) break;
      consumed_ = doing_.at + doing_.count;
      // A carrier tells what was read with what it has to say next (far/relay.h): it is woken up
      // for room that may be waited for.
      wake_ups_.bell_due = wake_ups_.bell_due || far_ == Far::kEnd ||
                           cursor_seen_ - doing_.at >= ring_bytes_ / kPartsOfRing;
      break;
    case Step::kFollow:
      following_ = true;
      wake_ups_.bell_due = wake_ups_.bell_due || far_ == Far::kCarrier;
      break;
    case Step::kAskEnd:
      asked_end_ = true;
      break;
    case Step::kRefuse:
      following_ = false;
      wake_ups_.bell_due = true;
      break;
    case Step::kBeginRead:
      tcp_reads_ = doing_.at;
      came_ = false;
      state_ = State::kReading;
      break;
    case Step::kEndRead:
      tcp_reads_ = doing_.at;
      state_ = came_ ? State::kTcp : State::kLooked;
      break;
    case Step::kPass:
      state_ = State::kTcp;
      // Who sleeps for room, while another process takes back what fills the ring, learns it here.
      wake_ups_.bell_due = true;
      break;
    case Step::kAbandon:
      state_ = State::kAbandoned;
      deadline_ = now + kLeaveTimeout;
      break;
    default:
      break;
  }
  doing_ = {};
}

// What comes behind a phase is in TCP only once the gate is shut, and of what came before nothing
// is left. A carrier's gate is shut later than that.
void Receiver::FoundTcp(const ReceiverView& view) {
  const bool open =
      far_ == Far::kEnd && state_ == State::kRing && !view.gate.shut() && !view.taken_back;
  if (open && view.gate.cursor() == consumed_) state_ = State::kBroken;
}

void Receiver::Recover(std::uint64_t position, std::uint64_t consumed) {
  position_ = position;
  wake_ups_.Recover(doing_.step);
  const bool took = doing_.step == Step::kTake && consumed == doing_.at + doing_.count;
  if (took) Done(doing_.count, TimePoint());
  eof_ = false;  // asked again
  came_ = true;  // as far as we know: look at the kernel's socket once more
  if (doing_.step == Step::kFollow) following_ = true;
  if (doing_.step == Step::kBeginRead) tcp_reads_ = doing_.at;
  if (doing_.step == Step::kBeginRead || state_ == State::kReading) state_ = State::kReadOver;
  if (state_ == State::kLooked) state_ = State::kTcp;
  // Every other step is taken again.
  doing_ = {};
}

}  // namespace rdfs::sock
