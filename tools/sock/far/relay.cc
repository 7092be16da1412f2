#include "tools/sock/far/relay.h"

#include <algorithm>

namespace rdfs::sock::far {
namespace {

using Kind = Effect::Kind;

Status Impossible(const char* what) { return {Code::kProtocolError, what}; }

}  // namespace

// --- FromEnd

Status FromEnd::Look(const FromEndView& view, bool hung_up, bool may_ship, Effects& out) {
  waits_ = false;
  if (abandoned_) {
    // The gate is shut by us: nothing is owed when all that it lets through was read.
    const bool nothing = view.gate.cursor() == consumed_;
    if (!returned_ && (view.returned || nothing)) {
      returned_ = true;
      out.Tell(Type::kReturned);
    }
    if (!returned_ && view.kept == view.opens) return Impossible("bytes that TCP's come behind");
    drained_ = hung_up;
  } else {
    RDFS_RETURN_IF_ERROR(Announce(view, out));
    RDFS_RETURN_IF_ERROR(Ship(view, hung_up, may_ship, out));
  }
  // A sender that has not noticed the refusal could put into a phase that was passed because of it.
  if (follow_due_ && view.gate.sender_shut()) {
    follow_due_ = false;
    out.Add({.kind = Kind::kFollow});
  }
  // Asked for after FIN: the gate as seen now is the last.
  const bool all = told_ == view.opens && shipped_ == view.gate.cursor();
  if (flush_due_ && (abandoned_ || all)) {
    flush_due_ = false;
    flushed_ = true;
    follow_due_ = false;
    out.Tell(Type::kFlushed);
    // FIN is not the only end: a reader may have shut its half down, and our end sends on, by TCP.
    if (!abandoned_) out.Add({.kind = Kind::kRefuse});
  }
  return {};
}

Status FromEnd::Announce(const FromEndView& view, Effects& out) {
  if (view.opens == told_) return {};
  if (flushed_) return Impossible("a phase behind the end");
  if (view.opens != told_ + 1 || shut_ != told_ || passed_ != told_) {
    return Impossible("a phase out of order");
  }
  if (view.open_at < open_at_ || !AllowedRing(view.ring_bytes, largest_ring_)) {
    return Impossible("a phase that cannot be");
  }
  ++told_;
  open_at_ = view.open_at;
  ring_bytes_ = static_cast<std::uint32_t>(view.ring_bytes);
  out.Tell(Type::kPhase, open_at_, ring_bytes_);
  return {};
}

Status FromEnd::Ship(const FromEndView& view, bool hung_up, bool may_ship, Effects& out) {
  const std::uint64_t cursor = view.gate.cursor();
  if (shut_ == told_) {
    // A phase that was announced behind the look at `opens` is found by the next look.
    const bool more = cursor != shipped_;
    if (more && hung_up) return Impossible("bytes outside of a phase");
    drained_ = hung_up;
    return {};
  }
  if (cursor < shipped_ || cursor - consumed_ > ring_bytes_) {
    return Impossible("a cursor that cannot be");
  }
  const std::uint64_t count = std::min(cursor - shipped_, kMostShipped);
  const bool few = count <= kMostInRecord;
  if (count > 0 && (few || may_ship)) {
    out.Add({.kind = few ? Kind::kSend : Kind::kShip,
             .at = shipped_,
             .count = count,
             .ring_bytes = ring_bytes_});
    shipped_ += count;
    if (!few) out.Tell(Type::kCursor, shipped_);
  }
  waits_ = shipped_ != cursor;
  // The same load of the gate said cursor and bits.
  if (!waits_ && (view.gate.shut() || hung_up)) {
    ++shut_;
    out.Tell(Type::kShut);
    drained_ = hung_up;
  }
  return {};
}

Status FromEnd::On(const Word& word, Effects& out) {
  if (abandoned_) return Impossible("a word behind the last one");
  switch (word.type) {
    case Type::kConsumed:
      return OnConsumed(word.value, out);
    case Type::kPassed:
      return OnPassed(word.value, out);
    case Type::kQuiet:
      return OnQuiet(word.value, out);
    case Type::kWish:
      follow_due_ = false;
      out.Add({.kind = Kind::kRefuse});
      return {};
    case Type::kFollow:
      follow_due_ = !flushed_;
      return {};
    case Type::kFlush:
      flush_due_ = true;
      return {};
    case Type::kAbandoned:
      follow_due_ = false;
      out.Add({.kind = Kind::kRefuse});
      RDFS_RETURN_IF_ERROR(OnConsumed(word.value, out));
      abandoned_ = true;
      out.Add({.kind = Kind::kAbandon});
      return {};
    default:
      return Impossible("a word of the wrong side");
  }
}

Status FromEnd::OnConsumed(std::uint64_t cursor, Effects& out) {
  if (cursor < consumed_ || cursor > shipped_) return Impossible("more read than was sent");
  consumed_ = cursor;
  out.Add({.kind = Kind::kStoreConsumed, .at = cursor});
  return {};
}

Status FromEnd::OnPassed(std::uint64_t phase, Effects& out) {
  if (phase != passed_ + 1 || phase > shut_ || consumed_ != shipped_) {
    return Impossible("a phase passed too early");
  }
  passed_ = phase;
  // Before our end can open the next phase, of which the other end knows nothing.
  if (reads_ % 2 == 0) out.Add({.kind = Kind::kStoreReads, .at = ++reads_});
  out.Add({.kind = Kind::kStorePassed, .at = phase});
  return {};
}

Status FromEnd::OnQuiet(std::uint64_t phase, Effects& out) {
  if (phase != told_ || passed_ >= phase || reads_ % 2 == 0) return Impossible("quiet out of turn");
  out.Add({.kind = Kind::kStoreReads, .at = ++reads_});
  return {};
}

// --- ToEnd

bool ToEnd::Plausible(const ToEndView& view) const {
  if (view.consumed < consumed_ || view.consumed > cursor_) return false;
  if (view.passed == passed_) return true;
  return view.passed == passed_ + 1 && view.passed == opens_ && !open_ && view.consumed == cursor_;
}

Status ToEnd::Look(const ToEndView& view, bool hung_up, Effects& out) {
  if (dropped_ || abandoned_told_) return {};
  if (!Plausible(view)) return Impossible("words that cannot be");
  if (hung_up || view.abandoned) {
    abandoned_told_ = true;
    out.Tell(Type::kAbandoned, view.consumed);
    // Behind the end nothing can be sent again.
    if (!complete_ || hung_up) return {};
    if (view.consumed != cursor_) return Impossible("bytes left behind that nobody can return");
    out.Add({.kind = Kind::kReturned});
    return {};
  }
  read_ = view.consumed;
  const bool passes = view.passed != passed_;
  if (passes || view.rests || read_ - consumed_ >= ring_bytes_ / kPartsOfRing) {
    TellConsumed(out);
  }
  if (passes) {
    quiet_ = Quiet::kTold;
    out.Tell(Type::kPassed, passed_ = view.passed);
  }
  LookForQuiet(view.tcp_reads, out);
  if (view.receiver_shut != wish_) {
    wish_ = view.receiver_shut;
    out.Tell(wish_ ? Type::kWish : Type::kFollow);
  }
  if (view.asks_end && !flush_told_ && !complete_) {
    flush_told_ = true;
    out.Tell(Type::kFlush);
  }
  return {};
}

void ToEnd::LookBehind(Effects& out) {
  if (!out.empty() && !dropped_ && !abandoned_told_) TellConsumed(out);
}

void ToEnd::TellConsumed(Effects& out) {
  if (read_ != consumed_) out.Tell(Type::kConsumed, consumed_ = read_);
}

void ToEnd::LookForQuiet(std::uint64_t tcp_reads, Effects& out) {
  if (quiet_ == Quiet::kTold) return;
  if (quiet_ == Quiet::kToLook && tcp_reads % 2 != 0) {
    quiet_ = Quiet::kMarked;
    mark_ = tcp_reads;
    return;
  }
  if (quiet_ == Quiet::kMarked && tcp_reads == mark_) return;
  quiet_ = Quiet::kTold;
  out.Tell(Type::kQuiet, opens_);
}

Status ToEnd::On(const Word& word, Effects& out) {
  if (word.type == Type::kReturned) {
    if (!abandoned_told_ || returned_) return Impossible("returned what nobody left");
    returned_ = true;
    if (!dropped_ && !complete_) out.Add({.kind = Kind::kReturned});
    return {};
  }
  // What our end will not read is not even looked at.
  if (dropped_ || abandoned_told_) return {};
  switch (word.type) {
    case Type::kPhase:
      return OnPhase(word, out);
    case Type::kCursor:
      if (word.value <= cursor_ || !HasRoom(word.value - cursor_)) {
        return Impossible("a cursor that cannot be");
      }
      Advance(word.value - cursor_, out);
      return {};
    case Type::kBytes:
      return OnBytes(word.value, out);
    case Type::kShut:
      if (!open_) return Impossible("a phase shut twice");
      open_ = false;
      out.Add({.kind = Kind::kShut});
      return {};
    case Type::kFlushed:
      if (!flush_told_ || complete_) return Impossible("an end that nobody asked for");
      Complete(out);
      return {};
    default:
      return Impossible("a word of the wrong side");
  }
}

Status ToEnd::OnPhase(const Word& word, Effects& out) {
  if (open_ || passed_ != opens_ || complete_ || word.value < open_at_ ||
      !AllowedRing(word.ring_bytes, largest_ring_)) {
    return Impossible("a phase that cannot be");
  }
  ++opens_;
  open_ = true;
  open_at_ = word.value;
  ring_bytes_ = word.ring_bytes;
  quiet_ = Quiet::kToLook;
  out.Add({.kind = Kind::kOpenPhase, .at = open_at_, .count = opens_, .ring_bytes = ring_bytes_});
  return {};
}

// The other end has only the room that it was told of.
bool ToEnd::HasRoom(std::uint64_t count) const {
  return open_ && count <= ring_bytes_ - (cursor_ - consumed_);
}

void ToEnd::Advance(std::uint64_t count, Effects& out) {
  out.Add({.kind = Kind::kAdvance, .count = count});
  cursor_ += count;
}

Status ToEnd::OnBytes(std::uint64_t count, Effects& out) {
  if (count == 0 || !HasRoom(count)) return Impossible("more bytes than there is room for");
  out.Add({.kind = Kind::kPut, .at = cursor_, .count = count, .ring_bytes = ring_bytes_});
  Advance(count, out);
  return {};
}

void ToEnd::Complete(Effects& out) {
  if (complete_ || dropped_) return;
  complete_ = true;
  out.Add({.kind = Kind::kComplete});
}

// --- Relay

Status Relay::Look(const View& view, bool may_ship, Effects& out) {
  if (gone_told_) return {};
  RDFS_RETURN_IF_ERROR(to_.Look(view.to, view.hung_up, out));
  RDFS_RETURN_IF_ERROR(from_.Look(view.from, view.hung_up, may_ship, out));
  to_.LookBehind(out);
  if (view.hung_up && from_.Drained()) {
    gone_told_ = true;
    to_.Drop();
    out.Tell(Type::kGone, 0);
  }
  return {};
}

Status Relay::On(const Word& word, Effects& out) {
  if (peer_gone_) return Impossible("a word behind the last one");
  switch (word.type) {
    case Type::kPhase:
    case Type::kCursor:
    case Type::kBytes:
    case Type::kShut:
    case Type::kFlushed:
    case Type::kReturned:
      return to_.On(word, out);
    case Type::kGone:
      break;
    default:
      return from_.On(word, out);
  }
  if (word.value > 1) return Impossible("gone for no known reason");
  peer_gone_ = true;
  // Bytes that our end left behind, and that nobody can send again now, are lost to it.
  if (word.value != 0 || to_.Owed()) {
    Break(out);
  } else {
    to_.Complete(out);
  }
  return {};
}

void Relay::Break(Effects& out) {
  out.Add({.kind = Kind::kCloseBells});
  to_.Drop();
  if (gone_told_) return;
  gone_told_ = true;
  out.Tell(Type::kGone, 1);
}

}  // namespace rdfs::sock::far
