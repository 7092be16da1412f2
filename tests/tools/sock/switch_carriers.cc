// The two carriers of a World: the near one stands at the writers' channel, the far one at the
// readers'. What PROTOCOL.md has as one store is one tick here.
#include <algorithm>
#include <utility>

#include "tests/tools/sock/switch_world.h"

namespace rdfs::sock {

bool World::WritersLeftAlone() const { return plan_.carried ? near_.closed : readers_bell_closed_; }
bool World::ReadersLeftAlone() const { return plan_.carried ? far_.closed : writers_bell_closed_; }

bool World::Runnable(const Carrier& carrier, unsigned bell) const {
  if (!plan_.carried || lane_lost_) return false;
  return !carrier.asleep || !carrier.inbox.empty() || bell > 0;
}

// What was under way between them is lost, and neither touches its channel again.
void World::KillCarriers() { lane_lost_ = true; }

// Nothing was to be done. True: arms now, and looks again before it sleeps.
bool World::Arms(Carrier& carrier, bool& flag, unsigned& bell) {
  if (!carrier.idle) return false;
  carrier.idle = false;
  bell = 0;
  flag = carrier.armed = true;
  carrier.asleep = plan_.planted == Planted::kNotLookedAgain;
  return true;
}
void World::Rest(Carrier& carrier) {
  carrier.asleep = carrier.armed;
  carrier.idle = !carrier.armed;
}

void World::MoveNear() {
  if (near_.asleep) near_.armed = near_.asleep = false;
  if (Arms(near_, near_channel_.reader_armed, near_channel_.data_bell)) return;
  const bool listens = !near_.inbox.empty() && (near_.part > 0 || Below(2) == 0);
  if (listens) return NearHears();
  if (NearActs()) return;
  if (!near_.inbox.empty()) return NearHears();
  Rest(near_);
}

void World::MoveFar() {
  if (far_.asleep) far_.armed = far_.asleep = false;
  if (Arms(far_, far_channel_.writer_armed, far_channel_.room_bell)) return;
  const bool listens = !far_.inbox.empty() && (far_.part > 0 || Below(2) == 0);
  if (listens) return FarHears();
  if (FarActs()) return;
  if (!far_.inbox.empty()) return FarHears();
  // What reads of the kernel's socket have ended rings no bell.
  if (far_.quiet) Rest(far_);
}

// --- near: the receiver's words of the writers' channel

// The first thing that there is to tell.
bool World::NearActs() {
  Channel& c = near_channel_;
  const auto tell = [&](Message message) {
    far_.inbox.push_back(std::move(message));
    return true;
  };
  const Gate gate{c.gate};
  // Asked for after FIN: what the gate says now is the last.
  const bool all = near_.told == c.opens && near_.shipped == gate.cursor();
  if (near_.flush && (all || plan_.planted == Planted::kNoFlush)) {
    near_.flush = false;
    return tell({.word = Word::kFlushed, .bytes = {}});
  }
  if (near_.shut == near_.told && near_.told < c.opens) {
    ++near_.told;
    return tell({.word = Word::kPhase, .value = c.open_at, .more = c.ring_bytes, .bytes = {}});
  }
  const bool open = near_.shut < near_.told;
  if (open && near_.shipped < gate.cursor()) {
    const auto there = static_cast<unsigned>(gate.cursor() - near_.shipped);
    Message message{.word = Word::kBytes, .bytes = {}};
    for (unsigned count = 1 + Below(there); count > 0; --count) {
      message.bytes.push_back(c.ring[near_.shipped++ & (c.ring_bytes - 1)]);
    }
    return tell(std::move(message));
  }
  if (open && near_.shipped == gate.cursor() && gate.shut()) {
    ++near_.shut;
    return tell({.word = Word::kShut, .bytes = {}});
  }
  if (near_.follow && !near_.abandoned && gate.sender_shut()) {
    near_.follow = false;
    c.gate &= ~Gate::kReceiverShut;
    return true;
  }
  if (near_.abandoned && !near_.answered && c.returned) {
    near_.answered = true;
    return tell({.word = Word::kReturned, .bytes = {}});
  }
  // TCP's bytes come behind those that were left, or nobody is there to send them again.
  const bool lost = c.kept == c.opens || writers_bell_closed_;
  if (near_.abandoned && !near_.answered && lost) KillCarriers();
  return false;
}

void World::NearHears() {
  const Message message = near_.inbox.front();
  NearHears(message, near_.part++);
}

// `part` of it; the last one takes it out of the inbox.
void World::NearHears(const Message& message, int part) {
  Channel& c = near_channel_;
  const bool odd = c.tcp_reads % 2 == 1;
  const bool late = plan_.planted == Planted::kOddLate;
  const auto make_odd = [&] { c.tcp_reads += odd || near_.abandoned ? 0 : 1; };
  const int last = late && message.word == Word::kPassed ? 20 : 3;
  bool over = part == last;
  if (part == 2 && std::exchange(c.writer_armed, false)) ++c.room_bell;
  switch (message.word) {
    case Word::kConsumed:
      if (part == 0) c.consumed = message.value;
      break;
    case Word::kPassed:
      if (part == (late ? last : 0)) make_odd();
      if (part == (late ? 0 : 1)) c.passed = message.value;
      break;
    case Word::kQuiet:
      if (part == 0 && c.passed < message.value && odd) ++c.tcp_reads;
      break;
    case Word::kWish:
      near_.follow = false;
      c.gate |= Gate::kReceiverShut;
      break;
    case Word::kFollow:
      near_.follow = true;
      over = true;
      break;
    case Word::kFlush:
      near_.flush = true;
      over = true;
      break;
    default:  // kAbandon
      if (part == 0) c.consumed = message.value;
      if (part == 1) {
        near_.abandoned = true;
        c.gate |= Gate::kReceiverShut;
        c.tcp_reads += odd ? 1 : 0;
      }
      if (part == 2) {
        const bool nothing = Gate{c.gate}.cursor() == c.consumed;
        near_.answered = nothing || plan_.planted == Planted::kReturnedEarly;
        if (near_.answered) far_.inbox.push_back({.word = Word::kReturned, .bytes = {}});
        c.abandoned = true;
        ++c.room_bell;
      }
  }
  if (!over) return;
  near_.part = 0;
  near_.inbox.pop_front();
}

// --- far: the sender's words of the readers' channel

bool World::FarActs() {
  Channel& c = far_channel_;
  const auto tell = [&](Word word, std::uint64_t value) {
    near_.inbox.push_back({.word = word, .value = value, .bytes = {}});
    return true;
  };
  if (far_.abandoned) return false;
  if (c.abandoned || readers_bell_closed_) {
    far_.abandoned = far_.quiet = true;
    return tell(Word::kAbandon, c.consumed);
  }
  if (far_.consumed != c.consumed) return tell(Word::kConsumed, far_.consumed = c.consumed);
  const bool seen = far_.mark % 2 == 0 || c.tcp_reads != far_.mark || c.passed == c.opens;
  if (!far_.quiet && (seen || plan_.planted == Planted::kQuietEarly)) {
    far_.quiet = true;
    return tell(Word::kQuiet, c.opens);
  }
  if (far_.passed != c.passed) {
    // What was read comes before that it was passed.
    const std::uint64_t passed = c.passed;
    if (far_.consumed != c.consumed) return tell(Word::kConsumed, far_.consumed = c.consumed);
    far_.quiet = true;
    return tell(Word::kPassed, far_.passed = passed);
  }
  if (const bool wish = Gate{c.gate}.receiver_shut(); far_.wish != wish) {
    far_.wish = wish;
    return tell(wish ? Word::kWish : Word::kFollow, 0);
  }
  if (c.asks_end && !far_.asked) {
    far_.asked = true;
    return tell(Word::kFlush, 0);
  }
  return false;
}

void World::FarHears() {
  const Message message = far_.inbox.front();
  const bool about_end = message.word == Word::kFlushed || message.word == Word::kReturned;
  if (far_.abandoned && !about_end) {
    far_.part = 0;
    far_.inbox.pop_front();
    return;
  }
  FarHears(message, far_.part++);
}

void World::FarHears(const Message& message, int part) {
  Channel& c = far_channel_;
  const std::uint64_t cursor = Gate{c.gate}.cursor();
  switch (message.word) {
    case Word::kPhase:
      if (part == 0) c.ring_bytes = message.more;
      if (part == 1) c.open_at = message.value;
      if (part == 2) c.gate &= ~Gate::kSenderShut;
      if (part == 3) {
        ++c.opens;
        far_.mark = c.tcp_reads;
        far_.quiet = false;
      }
      break;
    case Word::kBytes:
      if (part == 0) {
        if (cursor + message.bytes.size() - c.consumed > c.ring_bytes) Wrong("no room in the ring");
        for (std::size_t i = 0; i < message.bytes.size(); ++i) {
          c.ring[(cursor + i) & (c.ring_bytes - 1)] = message.bytes[i];
        }
      }
      if (part == 1) c.gate += Gate::At(message.bytes.size());
      break;
    case Word::kShut:
      if (part == 0) c.gate |= Gate::kSenderShut;
      break;
    case Word::kFlushed:
      if (part == 0) c.complete = true;
      break;
    default:  // kReturned
      if (part == 0) c.returned = true;
  }
  const bool always = message.word == Word::kFlushed || message.word == Word::kReturned;
  if (part == 4 && (std::exchange(c.reader_armed, false) || always)) ++c.data_bell;
  if (part < 4) return;
  far_.part = 0;
  far_.inbox.pop_front();
}

}  // namespace rdfs::sock
