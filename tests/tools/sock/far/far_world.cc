#include "tests/tools/sock/far/far_world.h"

#include <algorithm>

namespace rdfs::sock::far {
namespace {

constexpr std::size_t kTcpRoom = 3000;
constexpr std::uint64_t kPhases = 30;
constexpr std::uint64_t kMostSteps = 4'000'000;

}  // namespace

World::World(const Plan& plan) : plan_(plan), random_(plan.seed) {
  a_.tcp_reads = plan.planted == Planted::kEvenAtFirst ? 0 : FromEnd::kFirstReads;
}

Outcome World::Run() {
  while (outcome_.wrong.empty() && !reset_ && time_ < kMostSteps) {
    ++time_;
    KillSome();
    switch (Any(6)) {
      case 0:
        StepP();
        break;
      case 1:
        StepQ();
        break;
      case 2:
        StepCarrier(ca_);
        break;
      case 3:
        StepCarrier(cb_);
        break;
      case 4:
        Deliver(ab_, cb_);
        break;
      default:
        Deliver(ba_, ca_);
        break;
    }
    const bool ends = !p_alive_ && !q_alive_;
    const bool relays = carriers_dead_ || (ca_.relay.Over() && cb_.relay.Over());
    if (ends && relays) break;
  }
  if (time_ == kMostSteps) {
    Fail("stands still: P " + std::to_string(static_cast<int>(p_)) + ", Q " +
         std::to_string(static_cast<int>(q_)) + ", " + std::to_string(got_) + " of " +
         std::to_string(next_) + " bytes");
  }
  outcome_.broken = reset_;
  outcome_.complete = q_saw_end_ && got_ == next_;
  if (q_saw_end_ && got_ != next_) Fail("the end came too early");
  outcome_.phases = opens_;
  return outcome_;
}

void World::KillSome() {
  if (plan_.p_dies && p_alive_ && Any(20'000) == 0) {
    p_alive_ = false;
    fin_ = true;
  }
  if (plan_.q_dies && q_alive_ && Any(20'000) == 0) q_alive_ = false;
  if (plan_.q_leaves && Any(5000) == 0) q_leaving_ = true;
  if (plan_.carriers_die && !carriers_dead_ && Any(20'000) == 0) {
    carriers_dead_ = true;
    a_bells_ = b_bells_ = false;
    ab_.clear();
    ba_.clear();
  }
}

void World::Reset() { reset_ = true; }

// --- P

void World::SendTcp(std::uint64_t most) {
  for (; most > 0 && next_ < plan_.bytes && tcp_.size() < kTcpRoom; --most, ++next_, ++sent_) {
    tcp_.push_back(ByteAt(next_));
  }
}

void World::StepP() {
  if (!p_alive_) return;
  switch (p_) {
    case PAt::kTcp:
      return POnTcp();
    case PAt::kOpen:
      a_.ring_bytes = ring_bytes_ = Any(2) == 0 ? 4096 : 8192;
      a_.open_at = open_at_ = sent_;
      p_ = PAt::kClear;
      return;
    case PAt::kClear:
      a_.gate.bits &= ~Gate::kSenderShut;
      p_ = PAt::kAnnounce;
      return;
    case PAt::kAnnounce:
      a_.opens = ++opens_;
      p_ = PAt::kRing;
      return;
    case PAt::kRing:
      seen_ = a_.consumed;
      p_ = PAt::kPut;
      return;
    case PAt::kPut:
      return POnRing();
    case PAt::kShut:
      a_.gate.bits |= Gate::kSenderShut;
      p_ = PAt::kMark;
      return;
    case PAt::kMark:
      mark_ = a_.tcp_reads;
      p_ = PAt::kQuiet;
      return;
    case PAt::kQuiet:
      if (PGone()) return;
      if (mark_ % 2 == 0 || a_.tcp_reads != mark_ || a_.passed == opens_) p_ = PAt::kTcp;
      return;
    case PAt::kResend:
      for (; resend_ < produced_; ++resend_, ++sent_, ++outcome_.resent) {
        tcp_.push_back(a_.ring[resend_ % ring_bytes_]);
      }
      if (resend_ == produced_) p_ = PAt::kReturn;
      return;
    case PAt::kReturn:
      a_.returned = true;
      p_ = PAt::kTcp;
      return;
    case PAt::kDone:
      fin_ = true;
      if (PGone()) return;
      if (Any(500) == 0) p_alive_ = false;
      return;
  }
}

// Whether nobody reads the ring any more, and what has to be done about it.
bool World::PGone() {
  const bool hung_up = !a_bells_;  // before the words
  const bool gone = a_.abandoned;
  if (p_gone_ || (!hung_up && !gone)) return false;
  const std::uint64_t consumed = a_.consumed;
  p_gone_ = true;
  if (consumed == produced_) {
    a_.gate.bits |= Gate::kSenderShut;
    if (p_ != PAt::kDone) p_ = PAt::kTcp;
    return true;
  }
  // Behind what TCP has carried since, or behind FIN, nothing can be sent again.
  if (!gone || sent_ != open_at_ || fin_) {
    Reset();
    return true;
  }
  a_.gate.bits |= Gate::kSenderShut;
  resend_ = consumed;
  p_ = PAt::kResend;
  return true;
}

void World::POnTcp() {
  if (PGone()) return;
  if (next_ == plan_.bytes) {
    p_ = PAt::kDone;
    return;
  }
  const bool may_open = !p_gone_ && !a_.gate.receiver_shut() && opens_ < kPhases;
  if (may_open && a_.passed == opens_ && Any(3) == 0) {
    p_ = PAt::kOpen;
  } else {
    SendTcp(1 + Any(700));
  }
}

void World::POnRing() {
  p_ = PAt::kRing;
  if (PGone()) return;
  if (next_ == plan_.bytes) {
    p_ = PAt::kDone;
    return;
  }
  if (a_.gate.receiver_shut() || Any(12) == 0) {
    p_ = PAt::kShut;
    return;
  }
  const std::uint64_t room = ring_bytes_ - (produced_ - seen_);
  const std::uint64_t count = std::min({room, plan_.bytes - next_, 1 + Any(1500)});
  for (std::uint64_t i = 0; i < count; ++i) {
    a_.ring[(produced_ + i) % ring_bytes_] = ByteAt(next_ + i);
  }
  // The swap fails where the gate was shut since.
  if (a_.gate.bits != Gate::At(produced_)) return;
  produced_ += count;
  next_ += count;
  outcome_.through_ring += count;
  a_.gate.bits = Gate::At(produced_);
}

// --- Q

void World::Came(std::uint8_t byte) {
  if (byte != ByteAt(got_)) Fail("byte " + std::to_string(got_) + " is wrong");
  ++got_;
}

void World::StepQ() {
  if (!q_alive_) {
    if (!q_saw_end_) tcp_.clear();  // the kernel takes what comes for nobody
    return;
  }
  if (time_ < q_naps_until_) return;
  if (Any(100) == 0) q_naps_until_ = time_ + Any(2000);  // the kernel runs somebody else
  switch (q_) {
    case QAt::kTcp:
      if (q_leaving_) {
        q_ = QAt::kLeave;
        return;
      }
      if (q_wish_ && b_.gate.sender_shut() && b_bells_) {
        b_.gate.bits &= ~Gate::kReceiverShut;
        q_wish_ = false;
      }
      q_ = QAt::kBegin;
      return;
    case QAt::kBegin:
      ++b_.tcp_reads;
      q_came_ = false;
      q_ = QAt::kOpens;
      return;
    case QAt::kOpens:
      q_opens_ = b_.opens;
      q_ = QAt::kAt;
      return;
    case QAt::kAt:
      q_at_ = b_.open_at;
      q_ = QAt::kRead;
      return;
    case QAt::kRead:
      return QReadTcp();
    case QAt::kEnd:
      ++b_.tcp_reads;
      q_ = q_came_ ? QAt::kTcp : QAt::kComplete;
      return;
    case QAt::kComplete:
      q_hung_up_ = !b_bells_;
      q_complete_ = b_.complete || plan_.planted == Planted::kEndWithoutAsking;
      q_ = QAt::kLook;
      return;
    case QAt::kLook:
      return QLook();
    case QAt::kRing:
      q_hung_up_ = !b_bells_;
      if (!q_eof_) q_eof_ = fin_ && tcp_.empty();
      q_complete_ = b_.complete || plan_.planted == Planted::kEndWithoutAsking;
      q_ = QAt::kRingLook;
      return;
    case QAt::kRingLook:
      return QOnRing();
    default:
      return StepQLeaving();
  }
}

void World::QReadTcp() {
  q_ = QAt::kEnd;
  std::uint64_t limit = 1 + Any(900);
  if (q_opens_ != mine_) {
    if (q_opens_ != mine_ + 1 || q_at_ < position_) return Fail("an impossible phase");
    limit = std::min(limit, q_at_ - position_);
  }
  for (; limit > 0 && !tcp_.empty(); --limit, ++position_) {
    Came(tcp_.front());
    tcp_.pop_front();
    q_came_ = true;
  }
  if (limit > 0 && tcp_.empty() && !q_came_) q_eof_ = fin_;
}

void World::QLook() {
  q_ = QAt::kTcp;
  const std::uint64_t opens = b_.opens;
  if (opens != mine_) {
    if (b_.open_at == position_) {
      q_ = QAt::kRing;
    } else if (q_eof_) {
      Reset();  // TCP ended before the place where the phase begins
    }
    return;
  }
  if (!q_eof_) return;
  if (q_complete_) {
    q_saw_end_ = true;
    q_alive_ = false;
  } else if (q_hung_up_) {
    Reset();
  } else {
    b_.asks_end = true;
  }
}

void World::QOnRing() {
  q_ = QAt::kRing;
  const Gate gate = b_.gate;
  const std::uint64_t cursor = gate.cursor();
  if (cursor - taken_ > b_.ring_bytes) return Fail("a ring fuller than full");
  if (cursor != taken_) {
    if (q_leaving_) {
      q_ = QAt::kLeave;
      return;
    }
    for (std::uint64_t most = 1 + Any(2000); taken_ < cursor && most > 0; --most) {
      Came(b_.ring[taken_ % b_.ring_bytes]);
      ++taken_;
    }
    b_.consumed = taken_;
    return;
  }
  if (gate.sender_shut()) {
    b_.passed = ++mine_;
    q_ = QAt::kTcp;
    return;
  }
  if (q_eof_ && q_complete_) {
    q_saw_end_ = true;
    q_alive_ = false;
    return;
  }
  if (q_hung_up_) return Reset();
  if (q_eof_) b_.asks_end = true;
  if (q_leaving_) {
    q_ = QAt::kLeave;
  } else if (plan_.refuses && !q_wish_ && Any(20) == 0) {
    b_.gate.bits |= Gate::kReceiverShut;
    q_wish_ = true;
  }
}

void World::StepQLeaving() {
  switch (q_) {
    case QAt::kLeave:
      b_.gate.bits |= Gate::kReceiverShut;
      q_ = QAt::kAbandon;
      return;
    case QAt::kAbandon:
      b_.abandoned = true;
      q_ = QAt::kReturned;
      return;
    case QAt::kReturned:
      q_hung_up_ = !b_bells_;
      if (b_.returned) {
        q_ = QAt::kPlain;
      } else if (q_hung_up_) {
        Reset();
      }
      return;
    default:
      if (tcp_.empty() && fin_) {
        q_saw_end_ = true;
        q_alive_ = false;
        return;
      }
      for (std::uint64_t most = 1 + Any(900); most > 0 && !tcp_.empty(); --most) {
        Came(tcp_.front());
        tcp_.pop_front();
      }
  }
}

// --- The carriers

void World::StepCarrier(Carrier& carrier) {
  if (carriers_dead_ || carrier.relay.Over() || time_ < carrier.frozen_until) return;
  if (plan_.freezes && Any(300) == 0) carrier.frozen_until = time_ + Any(3000);
  ReadView(carrier);
  if (carrier.looked != 0) return;
  Effects effects;
  const Status status = carrier.relay.Look(carrier.view, Any(4) != 0, effects);
  if (!status.ok()) {
    // Only the ends' own words lead there; a receiver that left bytes behind the end may do so.
    if (!plan_.q_leaves) Fail("a carrier found: " + status.message());
    carrier.relay.Break(effects);
  }
  CarryOut(carrier, effects);
}

// A few words at a time, in the order that relay.h asks for.
void World::ReadView(Carrier& carrier) {
  const Words& words = carrier.has_p ? a_ : b_;
  Relay::View& view = carrier.view;
  switch (carrier.looked++) {
    case 0:
      view = {};
      view.hung_up = carrier.has_p ? !p_alive_ : !q_alive_;
      return;
    case 1:
      if (!carrier.has_p) view.to.abandoned = words.abandoned;
      if (!carrier.has_p) view.to.asks_end = words.asks_end;
      return;
    case 2:
      if (carrier.has_p) view.from.opens = words.opens;
      if (!carrier.has_p) view.to.passed = words.passed;
      return;
    case 3:
      if (carrier.has_p) view.from.gate = words.gate;
      if (!carrier.has_p) view.to.consumed = words.consumed;
      return;
    default:
      carrier.looked = 0;
      if (carrier.has_p) {
        view.from.open_at = words.open_at;
        view.from.ring_bytes = words.ring_bytes;
        view.from.returned = words.returned;
      } else {
        view.to.receiver_shut = words.gate.receiver_shut();
        view.to.tcp_reads = words.tcp_reads;
        view.to.rests = Any(8) == 0;
      }
  }
}

void World::CarryOut(Carrier& carrier, const Effects& effects) {
  auto& flights = carrier.has_p ? ab_ : ba_;
  for (const Effect& effect : effects.all()) {
    using Kind = Effect::Kind;
    if (effect.kind == Kind::kTell || effect.kind == Kind::kShip) {
      flights.push_back({effect, {}});
      if (plan_.planted == Planted::kRecordFirst && effect.word.type == Type::kCursor) {
        std::swap(flights.back(), flights[flights.size() - 2]);
      }
      if (plan_.planted == Planted::kConsumedAtOnce && effect.word.type == Type::kCursor) {
        a_.consumed = effect.word.value;
      }
    } else if (effect.kind == Kind::kSend) {
      Flight flight;
      flight.effect = {.kind = Kind::kTell, .word = {Type::kBytes, effect.count}};
      for (std::uint64_t i = effect.at; i < effect.at + effect.count; ++i) {
        flight.bytes.push_back(a_.ring[i % effect.ring_bytes]);
      }
      flights.push_back(std::move(flight));
    } else {
      Store(carrier, effect);
    }
  }
}

void World::Store(Carrier& carrier, const Effect& effect) {
  using Kind = Effect::Kind;
  Words& words = carrier.has_p ? a_ : b_;
  // Of the direction from Q to P there is nothing here.
  const bool of_receiver = effect.kind < Kind::kOpenPhase;
  if (effect.kind != Kind::kCloseBells && of_receiver != carrier.has_p) return;
  switch (effect.kind) {
    case Kind::kPut:
      return;  // Put has
    case Kind::kStoreReads:
      if (plan_.planted == Planted::kPassedFirst && effect.at % 2 == 1) {
        late_reads_ = effect.at;
        return;
      }
      words.tcp_reads = effect.at;
      return;
    case Kind::kStoreConsumed:
      words.consumed = effect.at;
      return;
    case Kind::kStorePassed:
      words.passed = effect.at;
      return;
    case Kind::kRefuse:
      words.gate.bits |= Gate::kReceiverShut;
      return;
    case Kind::kFollow:
      words.gate.bits &= ~Gate::kReceiverShut;
      return;
    case Kind::kAbandon:
      words.abandoned = true;
      return;
    case Kind::kOpenPhase:
      words.ring_bytes = effect.ring_bytes;
      words.open_at = effect.at;
      words.gate.bits &= ~Gate::kSenderShut;
      words.opens = effect.count;
      return;
    case Kind::kAdvance:
      words.gate.bits += Gate::At(effect.count);
      return;
    case Kind::kShut:
      words.gate.bits |= Gate::kSenderShut;
      return;
    case Kind::kComplete:
      words.complete = true;
      return;
    case Kind::kReturned:
      words.returned = true;
      return;
    default:
      (carrier.has_p ? a_bells_ : b_bells_) = false;
  }
}

// What a record has brought, into the ring to Q.
void World::Put(const Effects& effects, const std::vector<std::uint8_t>& bytes) {
  for (const Effect& effect : effects.all()) {
    if (effect.kind != Effect::Kind::kPut || plan_.planted == Planted::kBytesLost) continue;
    if (effect.count != bytes.size()) Fail("other bytes than there are in the record");
    for (std::uint64_t i = 0; i < effect.count; ++i) {
      b_.ring[(effect.at + i) % effect.ring_bytes] = bytes[i];
    }
  }
}

void World::Deliver(std::deque<Flight>& flights, Carrier& to) {
  // Nothing comes to a carrier in the middle of a look.
  if (flights.empty() || carriers_dead_ || time_ < to.frozen_until || to.looked != 0) return;
  if (late_reads_ != 0 && Any(300) == 0) a_.tcp_reads = std::exchange(late_reads_, 0);
  const auto [effect, bytes] = std::move(flights.front());
  flights.pop_front();
  if (effect.kind == Effect::Kind::kShip) {  // into the ring, whoever looks
    for (std::uint64_t i = effect.at; i < effect.at + effect.count; ++i) {
      b_.ring[i % effect.ring_bytes] = a_.ring[i % effect.ring_bytes];
    }
    return;
  }
  Effects effects;
  const Status status = to.relay.On(effect.word, effects);
  if (!status.ok()) return Fail("a carrier refused a record: " + status.message());
  if (!bytes.empty()) Put(effects, bytes);
  CarryOut(to, effects);
}

}  // namespace rdfs::sock::far
