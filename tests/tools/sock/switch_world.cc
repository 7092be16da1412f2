#include "tests/tools/sock/switch_world.h"

#include <algorithm>
#include <array>
#include <utility>

namespace rdfs::sock {
namespace {

constexpr std::uint64_t kLargestRing = 16 * 1024;
constexpr std::size_t kTcpCapacity = 9000;

}  // namespace

World::World(const Plan& plan)
    : plan_(plan),
      random_(plan.seed),
      sender_(plan.planted == Planted::kWrongPosition ? 1 : 0, kLargestRing,
              plan.carried ? Far::kCarrier : Far::kEnd),
      receiver_(0, kLargestRing, plan.carried ? Far::kCarrier : Far::kEnd),
      stickiness_(std::array{0U, 32U, 56U, 62U}[Below(4)]),
      writers_(plan.writers),
      readers_(plan.readers) {
  leavers_close_bells_ = (plan.reader_leaves || plan.writer_leaves) && Below(2) == 0;
  near_channel_.ring.resize(kLargestRing);
  far_channel_.ring.resize(kLargestRing);
  if (plan.carried && plan.planted != Planted::kEvenFirst) near_channel_.tcp_reads = 1;
}

std::uint8_t World::Pattern(std::size_t index) {
  const auto mixed = static_cast<std::uint32_t>(index) * 2654435761U;
  return static_cast<std::uint8_t>(mixed >> 24U);
}

void World::Wrong(const std::string& what) {
  if (outcome_.wrong.empty()) {
    outcome_.wrong = what + " (" + std::to_string(delivered_) + " of " + std::to_string(accepted_) +
                     " bytes read, phase " + std::to_string(near_channel_.opens) + "; sender " +
                     std::to_string(static_cast<int>(sender_.state())) + ", receiver " +
                     std::to_string(static_cast<int>(receiver_.state())) + "; processes";
    for (const Writer& w : writers_) outcome_.wrong += " " + std::to_string(static_cast<int>(w.at));
    outcome_.wrong += ",";
    for (const Reader& r : readers_) outcome_.wrong += " " + std::to_string(static_cast<int>(r.at));
    outcome_.wrong += ")";
  }
}

Outcome World::Run() {
  for (int tick = 0; tick < 2'000'000 && outcome_.wrong.empty() && !reset_; ++tick) {
    if (plan_.kills && Below(3000) == 0) KillSomebody();
    if (plan_.reader_leaves && Below(4000) == 0) reader_leaving_ = true;
    if (plan_.writer_leaves && Below(4000) == 0) writer_leaving_ = true;
    if (plan_.carriers_die && Below(6000) == 0) KillCarriers();
    if (Below(8) == 0) CloseEnds();
    if (!Tick() && !CloseEnds()) break;
  }
  const auto over = [](const Process& process) {
    return process.at == At::kOver || process.at == At::kDead;
  };
  const bool all_over = std::ranges::all_of(writers_, over) && std::ranges::all_of(readers_, over);
  if (!reset_ && !all_over) Wrong("nobody moves any more");
  outcome_.broken = reset_;
  outcome_.complete = end_seen_ && delivered_ == accepted_;
  if (end_seen_ && delivered_ != accepted_) Wrong("the end came before the last byte");
  outcome_.phases = near_channel_.opens;
  return outcome_;
}

// Moves one of those that can move; false when there is none.
bool World::Tick() {
  std::vector<int> movable;
  const int writers = static_cast<int>(writers_.size());
  const int readers = static_cast<int>(readers_.size());
  for (int i = 0; i < writers; ++i) {
    if (Runnable(writers_[static_cast<std::size_t>(i)])) movable.push_back(i);
  }
  for (int i = 0; i < readers; ++i) {
    if (Runnable(readers_[static_cast<std::size_t>(i)])) movable.push_back(writers + i);
  }
  constexpr int kNear = -2;
  constexpr int kFar = -3;
  if (Runnable(near_, near_channel_.data_bell)) movable.push_back(kNear);
  if (Runnable(far_, far_channel_.room_bell)) movable.push_back(kFar);
  const bool in_flight = tcp_.arrived < tcp_.bytes.size();
  if (in_flight) movable.push_back(-1);
  if (movable.empty()) {
    // Time passes only for those who wait for it; the kernel closes, and carriers answer, sooner.
    if (CloseEnds()) return true;
    for (Reader& reader : readers_) {
      if (reader.at != At::kWaiting) continue;
      // Looks again first: no bell tells of `kept`, and another process may have taken one.
      const bool news = Receiving().returned || Receiving().kept > receiver_.passed();
      if (!news && reader.keeps) continue;
      if (news) {
        reader.at = At::kOutside;
      } else {
        KeepFor(reader);
      }
      return true;
    }
    return false;
  }
  // Often the same one goes on for a while, as when the others are not scheduled.
  const bool goes_on =
      std::ranges::find(movable, last_) != movable.end() && Below(64) < stickiness_;
  const int who = goes_on ? last_ : movable[Below(static_cast<unsigned>(movable.size()))];
  last_ = who;
  if (who == kNear) {
    MoveNear();
  } else if (who == kFar) {
    MoveFar();
  } else if (who < 0) {
    const auto left = static_cast<unsigned>(tcp_.bytes.size() - tcp_.arrived);
    tcp_.arrived += 1 + Below(left);
  } else if (who < writers) {
    Move(writers_[static_cast<std::size_t>(who)], who);
  } else {
    Move(readers_[static_cast<std::size_t>(who - writers)], who - writers);
  }
  return true;
}

bool World::Runnable(const Writer& writer) const {
  if (writer.at == At::kOver || writer.at == At::kDead) return false;
  if (writer.at == At::kOutside) {
    return writer.plain || tx_.holder < 0 || plan_.planted == Planted::kNoLock;
  }
  if (writer.at == At::kWaiting) {
    // In a read of the other direction, which looks at this one, too.
    return delivered_ == accepted_ || tcp_.reader_gone || near_.closed || near_channel_.abandoned;
  }
  if (writer.at != At::kAsleep) return true;
  const bool tcp_has_room = tcp_.bytes.size() - tcp_.read < kTcpCapacity || tcp_.reader_gone;
  const bool for_tcp =
      writer.action.step == Sender::Step::kSendTcp || writer.action.step == Sender::Step::kResend;
  const bool news = WritersLeftAlone() && !writer.view.gone && !writer.view.lost;
  return news || (for_tcp ? tcp_has_room : near_channel_.room_bell > 0);
}

bool World::Runnable(const Reader& reader) const {
  if (reader.at == At::kOver || reader.at == At::kDead) return false;
  if (reader.plain) {
    return tcp_.read < tcp_.arrived ||
           (tcp_.fin && tcp_.read == tcp_.bytes.size() && receiver_.Left());
  }
  if (reader.at == At::kOutside) return rx_.holder < 0 || plan_.planted == Planted::kNoLock;
  if (reader.at == At::kWaiting) return Receiving().data_bell > 0 || ReadersLeftAlone();
  if (reader.at != At::kAsleep) return true;
  return Receiving().data_bell > 0 || ReadersLeftAlone() || tcp_.read < tcp_.arrived ||
         (tcp_.fin && tcp_.read == tcp_.bytes.size());
}

bool World::Take(Lock& lock, int who, Process& process) {
  if (lock.holder >= 0 && plan_.planted != Planted::kNoLock) return false;
  lock.holder = who;
  process.recovering = lock.owner_died;
  lock.owner_died = false;
  return true;
}

void World::Kill(Process& process, Lock& lock, int who) {
  if (process.at == At::kOver || process.at == At::kDead) return;
  process.at = At::kDead;
  if (lock.holder == who) {
    lock.holder = -1;
    lock.owner_died = true;
  }
}

void World::KillSomebody() {
  const unsigned who = Below(static_cast<unsigned>(writers_.size() + readers_.size()));
  if (who < writers_.size()) {
    Kill(writers_[who], tx_, static_cast<int>(who));
  } else {
    const std::size_t reader = who - writers_.size();
    if (readers_[reader].keeps) return;  // the program has what it kept
    Kill(readers_[reader], rx_, static_cast<int>(reader));
  }
}

// The kernel closes what the last process of an end held: bell and socket, in either order. False
// when there was nothing to close.
bool World::CloseEnds() {
  const auto gone = [](const Process& process) {
    return process.at == At::kDead || process.at == At::kOver;
  };
  std::vector<bool*> closing;
  if (std::ranges::all_of(writers_, gone)) closing = {&tcp_.fin, &writers_bell_closed_};
  if (std::ranges::all_of(readers_, gone)) {
    closing.push_back(&tcp_.reader_gone);
    closing.push_back(&readers_bell_closed_);
  }
  if (lane_lost_) {
    closing.push_back(&near_.closed);
    closing.push_back(&far_.closed);
  }
  // Without the shim a program has no bell; one that has it, too, and has left, may keep it.
  const bool writers_left =
      std::ranges::all_of(writers_, [&](const Writer& w) { return w.plain || gone(w); });
  if (leavers_close_bells_ && receiver_.Left()) closing.push_back(&readers_bell_closed_);
  if (leavers_close_bells_ && writers_left) closing.push_back(&writers_bell_closed_);
  std::erase_if(closing, [](const bool* closed) { return *closed; });
  if (closing.empty()) return false;
  *closing[Below(static_cast<unsigned>(closing.size()))] = true;
  if (writers_bell_closed_) near_.asleep = false;
  return true;
}

// --- writers

void World::Move(Writer& writer, int who) {
  switch (writer.at) {
    case At::kOutside:
      if (writer.plain) return WritePlain(writer);
      if (!Take(tx_, who, writer)) return;
      Wish(writer);
      break;
    case At::kLooking:
      return Look(writer);
    case At::kDeciding:
      return Decide(writer);
    case At::kStepping:
      return Carry(writer);
    default:  // woken
      writer.at = At::kOutside;
  }
}

// The kernel's call alone: what it takes is no half's to know.
void World::WritePlain(Writer& writer) {
  const std::size_t left = plan_.bytes - std::min(plan_.bytes, accepted_);
  if (left == 0 || pipe_broken_) {
    writer.at = At::kOver;
    return;
  }
  writer.action = {.step = Sender::Step::kSendTcp};
  if (SendTcp(std::min<std::size_t>(left, 1 + Below(900)), nullptr) == 0) writer.at = At::kAsleep;
}

void World::Wish(Writer& writer) {
  const std::size_t left = plan_.bytes - std::min(plan_.bytes, accepted_);
  writer.wish.bytes = std::min<std::size_t>(left, 1 + Below(Below(3) == 0 ? 20'000 : 900));
  writer.wish.ring = Below(5) != 0;
  writer.wish.leave = writer_leaving_;
  writer.wish.sleep = Below(4) != 0;
  writer.wish.ring_bytes = kLeastRingBytes << Below(3);
  const std::size_t queued = std::min(kTcpCapacity, tcp_.bytes.size() - tcp_.read);
  const bool leaves_ring = plan_.planted == Planted::kLeavesRing;
  writer.wish.tcp_room =
      leaves_ring || (writer_leaving_ && Below(4) == 0) ? 0 : kTcpCapacity - queued;
  writer.ending = left == 0 || pipe_broken_;
  if (writer.ending) writer.wish.bytes = 0;
  writer.looks.clear();
  writer.at = At::kLooking;
}

void World::Look(Writer& writer) {
  std::vector<int>& looks = writer.looks;
  if (looks.empty()) {
    looks = {1, 2, 3, 4, 5};
    std::ranges::shuffle(looks, random_);
    looks.push_back(0);
    if (plan_.carried) looks.push_back(6);
  }
  SenderView& view = writer.view;
  switch (looks.back()) {
    case 0:
      view.gone = near_channel_.abandoned || (!plan_.carried && readers_bell_closed_) ||
                  (plan_.planted == Planted::kLostIsGone && near_.closed);
      break;
    case 1:
      view.gate.bits = near_channel_.gate;
      break;
    case 2:
      view.consumed = near_channel_.consumed;
      break;
    case 3:
      view.passed = near_channel_.passed;
      break;
    case 4:
      view.tcp_reads = near_channel_.tcp_reads;
      break;
    case 5:
      view.reader_armed = near_channel_.reader_armed;
      break;
    default:
      view.lost = near_.closed;
  }
  looks.pop_back();
  if (looks.empty()) writer.at = At::kDeciding;
}

void World::Decide(Writer& writer) {
  using Step = Sender::Step;
  if (writer.recovering) {
    sender_.Recover(writer.view, tcp_.bytes.size());
    writer.recovering = false;
  }
  writer.action = sender_.Next(writer.view, writer.wish);
  writer.part = 0;
  switch (writer.action.step) {
    case Step::kIdle:
      writer.plain = writer.wish.leave && sender_.Left();
      writer.at = writer.ending && sender_.MayEnd() ? At::kOver : At::kOutside;
      // Now and then the program expects an answer to all that it wrote.
      if (!plan_.kills && !writer.ending && Below(3) == 0) writer.at = At::kWaiting;
      return Release(tx_);
    case Step::kSleep:
      writer.at = writer.wish.sleep ? At::kAsleep : At::kOutside;
      return Release(tx_);
    case Step::kWaitQuiet:
      writer.at = At::kOutside;
      return Release(tx_);
    case Step::kBroken:
      if (!plan_.kills && !plan_.reader_leaves && !plan_.carriers_die) Wrong("the sender gave up");
      reset_ = true;
      return;
    default:
      writer.at = At::kStepping;
  }
}

std::uint64_t World::SendTcp(std::uint64_t count, const std::uint8_t* from) {
  if (tcp_.reader_gone) {
    pipe_broken_ = true;  // EPIPE: as a program that then gives up
    return count;
  }
  const std::size_t room = kTcpCapacity - std::min(kTcpCapacity, tcp_.bytes.size() - tcp_.read);
  const std::size_t most = std::min<std::size_t>(room, count);
  if (most == 0) return 0;
  const std::size_t taken = 1 + Below(static_cast<unsigned>(most));
  for (std::size_t i = 0; i < taken; ++i) {
    tcp_.bytes.push_back(from != nullptr ? from[i] : Pattern(accepted_ + i));
  }
  if (from == nullptr) accepted_ += taken;
  return taken;
}

// One part of the step; the last one ends in StepDone.
void World::Carry(Writer& writer) {
  using Step = Sender::Step;
  const Sender::Action& action = writer.action;
  const int part = writer.part++;
  switch (action.step) {
    case Step::kSendTcp:
    case Step::kResend: {
      // What was sent is noted a step later: somebody may be killed in between.
      if (part == 1) return StepDone(writer, writer.copied);
      std::vector<std::uint8_t> again;
      if (action.step == Step::kResend) {
        const std::uint64_t mask = near_channel_.ring_bytes - 1;
        for (std::uint64_t i = 0; i < action.count; ++i) {
          again.push_back(near_channel_.ring[(action.at + i) & mask]);
        }
      }
      writer.copied = SendTcp(action.count, again.empty() ? nullptr : again.data());
      if (!again.empty()) outcome_.resent += writer.copied;
      return;
    }
    case Step::kPut:
      if (part == 0) {
        for (std::uint64_t i = 0; i < action.count; ++i) {
          near_channel_.ring[(action.at + i) & (near_channel_.ring_bytes - 1)] =
              Pattern(accepted_ + i);
        }
      } else if (part == 1) {
        writer.copied = near_channel_.gate == Gate::At(action.at) ? action.count : 0;
        if (writer.copied == 0) return;
        near_channel_.gate = Gate::At(action.at + action.count);
        accepted_ += action.count;
        outcome_.through_ring += action.count;
      } else {
        StepDone(writer, writer.copied);
      }
      return;
    case Step::kOpenGate:
      if (part == 0) near_channel_.ring_bytes = action.count;
      if (part == 1) near_channel_.open_at = action.at;
      if (part == 2) near_channel_.gate &= ~Gate::kSenderShut;
      break;
    case Step::kAnnounce:
      if (part == 0) near_channel_.opens = action.at;
      break;
    case Step::kShutGate:
      if (part == 0) near_channel_.gate |= Gate::kSenderShut;
      break;
    case Step::kArm:
      if (part == 0) near_channel_.room_bell = 0;
      if (part == 1) near_channel_.writer_armed = true;
      break;
    case Step::kRingBell:
      if (part == 0) writer.copied = std::exchange(near_channel_.reader_armed, false) ? 1 : 0;
      if (part == 1) near_channel_.data_bell += static_cast<unsigned>(writer.copied);
      break;
    case Step::kNudge:
      if (part == 0) ++near_channel_.data_bell;
      break;
    case Step::kTakeBack:
      if (part == 0) near_channel_.taken_back = true;
      if (part == 0) writer.copied = near_channel_.consumed;
      if (part == 1) StepDone(writer, writer.copied);
      return;
    case Step::kKeep:
      if (part == 0 && plan_.planted != Planted::kLeavesRing) near_channel_.kept = action.at;
      break;
    default:  // kReturned
      if (part == 0) near_channel_.returned = true;
      if (part == 1) ++near_channel_.data_bell;
  }
  if (part == 3) StepDone(writer, 0);
}

void World::StepDone(Writer& writer, std::uint64_t outcome) {
  const bool tcp =
      writer.action.step == Sender::Step::kSendTcp || writer.action.step == Sender::Step::kResend;
  sender_.Done(outcome);
  const bool programs =
      writer.action.step == Sender::Step::kSendTcp || writer.action.step == Sender::Step::kPut;
  if (programs) writer.wish.bytes -= std::min(writer.wish.bytes, outcome);
  writer.at = At::kLooking;
  if (tcp && outcome == 0) {  // the kernel's buffer is full
    writer.at = At::kAsleep;
    Release(tx_);
  }
}

// --- readers

void World::Move(Reader& reader, int who) {
  switch (reader.at) {
    case At::kOutside:
      if (reader.plain) return ReadPlain(reader);
      if (!Take(rx_, who, reader)) return;
      Wish(reader);
      break;
    case At::kLooking:
      return Look(reader);
    case At::kDeciding:
      return Decide(reader);
    case At::kStepping:
      return Carry(reader);
    default:
      if (reader.at == At::kWaiting) Receiving().data_bell = 0;
      reader.at = At::kOutside;
  }
}

// A second has passed: the program goes on, and finds TCP's bytes alone. FIN is kept from it.
void World::KeepFor(Reader& reader) {
  reader.keeps = true;
  readers_.emplace_back().plain = true;
}

void World::ReadPlain(Reader& reader) {
  const std::size_t there = tcp_.arrived - tcp_.read;
  const std::size_t count = there == 0 ? 0 : 1 + Below(static_cast<unsigned>(there));
  Deliver(tcp_.bytes.data() + tcp_.read, count);
  tcp_.read += count;
  if (count > 0) return;
  end_seen_ = true;
  reader.at = At::kOver;
}

void World::Wish(Reader& reader) {
  if (plan_.planted == Planted::kBellForAll && Below(2) == 0) Receiving().data_bell = 0;
  reader.wish.bytes = 1 + Below(Below(3) == 0 ? 20'000 : 900);
  reader.wish.follow = !plan_.refuses || Below(6) != 0;
  reader.wish.leave = reader_leaving_;
  reader.wish.sleep = Below(4) != 0;
  reader.looks.clear();
  reader.at = At::kLooking;
}

void World::Look(Reader& reader) {
  std::vector<int>& looks = reader.looks;
  if (looks.empty()) {
    looks = {2, 4, 5, 6, 7};
    if (plan_.planted == Planted::kOpensAnywhere) looks.push_back(3);
    std::ranges::shuffle(looks, random_);
    if (plan_.planted != Planted::kOpensAnywhere) looks.push_back(3);
    if (plan_.planted == Planted::kCompleteLast) {
      looks.insert(looks.begin(), 8);
    } else if (plan_.carried) {
      looks.push_back(8);
    }
    looks.push_back(9);
    looks.push_back(1);
    if (plan_.planted == Planted::kEndSeenLast) {
      looks.insert(looks.begin(), 0);
    } else {
      looks.push_back(0);
    }
  }
  ReceiverView& view = reader.view;
  switch (looks.back()) {
    case 0:
      view.tcp_ended = tcp_.fin && tcp_.read == tcp_.bytes.size();
      break;
    case 1:
      view.hung_up = ReadersLeftAlone();
      break;
    case 2:
      view.gate.bits = Receiving().gate;
      if ((plan_.planted == Planted::kWishShuts && view.gate.receiver_shut()) ||
          (plan_.planted == Planted::kLostPasses && view.hung_up)) {
        view.gate.bits |= Gate::kSenderShut;
      }
      break;
    case 3:
      view.opens = Receiving().opens;
      break;
    case 4:
      view.open_at = Receiving().open_at;
      break;
    case 5:
      view.ring_bytes = Receiving().ring_bytes;
      break;
    case 6:
      view.writer_armed = Receiving().writer_armed;
      break;
    case 7:
      view.kept = Receiving().kept;
      view.returned =
          Receiving().returned || (view.taken_back && plan_.planted == Planted::kTrustsTakenBack);
      break;
    case 9:
      view.taken_back = Receiving().taken_back;
      break;
    default:
      view.complete = Receiving().complete || plan_.planted == Planted::kNoAsk;
  }
  looks.pop_back();
  if (looks.empty()) reader.at = At::kDeciding;
}

void World::Decide(Reader& reader) {
  using Step = Receiver::Step;
  if (reader.recovering) {
    receiver_.Recover(tcp_.read, Receiving().consumed);
    reader.recovering = false;
  }
  reader.action = receiver_.Next(reader.view, reader.wish, TimePoint());
  reader.part = 0;
  switch (reader.action.step) {
    case Step::kIdle:
      reader.at = reader.keeps || Retires() ? At::kOver : At::kOutside;
      return Release(rx_);
    case Step::kSleep:
      reader.at = reader.wish.sleep ? At::kAsleep : At::kOutside;
      return Release(rx_);
    case Step::kWaitReturned:
      reader.at = At::kWaiting;
      return Release(rx_);
    case Step::kEnd:
      end_seen_ = true;
      reader.at = At::kOver;
      return Release(rx_);
    case Step::kBroken:
      if (!plan_.kills && !plan_.reader_leaves && !plan_.carriers_die)
        Wrong("the receiver gave up");
      reset_ = true;
      return;
    default:
      reader.at = At::kStepping;
  }
}

// A process may stop reading as long as another goes on.
bool World::Retires() {
  if (plan_.kills || Below(20) != 0) return false;
  return std::ranges::count_if(readers_,
                               [](const Reader& reader) { return reader.at != At::kOver; }) > 1;
}

void World::Deliver(const std::uint8_t* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (delivered_ >= accepted_ || bytes[i] != Pattern(delivered_)) return Wrong("a wrong byte");
    ++delivered_;
  }
}

void World::Carry(Reader& reader) {
  using Step = Receiver::Step;
  const Receiver::Action& action = reader.action;
  const int part = reader.part++;
  switch (action.step) {
    case Step::kReadTcp: {
      if (part == 1) return StepDone(reader, reader.copied);
      const std::size_t there = std::min<std::size_t>(tcp_.arrived - tcp_.read, action.count);
      const std::size_t count = there == 0 ? 0 : 1 + Below(static_cast<unsigned>(there));
      Deliver(tcp_.bytes.data() + tcp_.read, count);
      tcp_.read += count;
      const bool eof = count == 0 && tcp_.fin && tcp_.read == tcp_.bytes.size();
      reader.copied = eof ? Receiver::kEof : count;
      return;
    }
    case Step::kTake:
      if (part == 2) return StepDone(reader, reader.copied);
      if (part == (plan_.planted == Planted::kStaleConsumed ? 1 : 0)) {
        reader.buffer.clear();
        for (std::uint64_t i = 0; i < action.count; ++i) {
          reader.buffer.push_back(Receiving().ring[(action.at + i) & (Receiving().ring_bytes - 1)]);
        }
      } else {
        const bool mine = !Receiving().taken_back || plan_.planted == Planted::kTakesBlindly;
        reader.copied = mine ? action.count : 0;
        Receiving().consumed += reader.copied;
      }
      // Whoever is killed behind the swap has got them.
      if (part == 1) Deliver(reader.buffer.data(), reader.copied);
      return;
    case Step::kFollow:
      if (part == 0) Receiving().gate &= ~Gate::kReceiverShut;
      break;
    case Step::kRefuse:
      if (part == 0) Receiving().gate |= Gate::kReceiverShut;
      break;
    case Step::kBeginRead:
    case Step::kEndRead:
      if (part == 0) Receiving().tcp_reads = action.at;
      break;
    case Step::kPass:
      if (part == 0) Receiving().passed = action.at;
      break;
    case Step::kAbandon:
      if (part == 0) Receiving().abandoned = true;
      if (part == 1) ++Receiving().room_bell;
      break;
    case Step::kAskEnd:
      if (part == 0) Receiving().asks_end = true;
      if (part == 1) ++Receiving().room_bell;
      break;
    case Step::kArm:
      if (part == 0) Receiving().data_bell = 0;
      if (part == 1) Receiving().reader_armed = true;
      break;
    case Step::kRingBell:
      if (part == 0) reader.copied = std::exchange(Receiving().writer_armed, false) ? 1 : 0;
      if (part == 1) Receiving().room_bell += static_cast<unsigned>(reader.copied);
      break;
    default:  // kNudge
      if (part == 0) ++Receiving().room_bell;
  }
  if (part == 2) StepDone(reader, 0);
}

void World::StepDone(Reader& reader, std::uint64_t outcome) {
  using Step = Receiver::Step;
  receiver_.Done(outcome, TimePoint());
  const bool got = reader.action.step == Step::kTake ||
                   (reader.action.step == Step::kReadTcp && outcome != Receiver::kEof);
  if (got) reader.wish.bytes -= std::min(reader.wish.bytes, outcome);
  reader.at = At::kLooking;
  if (receiver_.Left() && outcome == 0) {  // an ordinary blocking read
    reader.at = At::kAsleep;
    Release(rx_);
  }
  if (reader.action.step == Step::kArm && plan_.planted == Planted::kArmsAfterLooking) {
    reader.at = At::kAsleep;
    Release(rx_);
  }
}

}  // namespace rdfs::sock
