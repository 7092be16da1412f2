// What one carrier does for one carried connection: which words of the channel here it stores, and
// what it tells the carrier of the other host. PROTOCOL.md, "Between hosts"; the model is
// switch_far.pml.
//
// Pure: no I/O, no clock. Whoever drives it looks at the channel (Look) when a bell has rung, while
// it spins, and after each record that came (On); it carries the effects out at once, in order. A
// WRITE of the ring's bytes and the record behind it are posted one after the other: that the
// record arrives behind the bytes is the transport's promise. Few bytes travel in a record instead.
//
// A view may be a hostile program's, a record a hostile carrier's. Both are checked here: an error
// of Look breaks this connection, an error of On the whole lane.
//
// Order of the looks behind a view: `hung_up`, `abandoned` and `asks_end` first; then `opens`;
// `passed` before `consumed`; the rest in any order; all after the effects before.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tools/sock/far/wire.h"
#include "tools/sock/switch.h"
#include "transport/base/status.h"

namespace rdfs::sock::far {

// Of one WRITE: the first bytes go on their way before the last ones have come.
inline constexpr std::uint64_t kMostShipped = 256 * 1024;

struct Effect {
  enum class Kind : std::uint8_t {
    kTell,  // `word`, to the other carrier
    // The bytes [at, at + count) of the ring from our end, of its first `ring_bytes` bytes:
    kShip,  // by a WRITE
    kSend,  // in a record
    // Words of the direction from our end, whose receiver we are to it:
    kStoreReads,     // tcp_reads = at
    kStoreConsumed,  // consumed = at; the room bell
    kStorePassed,    // passed = at; the room bell
    kRefuse,         // set the receiver's bit; the room bell
    kFollow,         // clear the receiver's bit; the room bell
    kAbandon,        // abandoned = 1; both bells
    // Words of the direction to our end, whose sender we are to it:
    kOpenPhase,   // ring_bytes, open_at = at; clear the sender's bit; opens = count
    kPut,         // the record's bytes to [at, at + count) of the ring, as in kSend
    kAdvance,     // the gate's cursor by `count`; the data bell
    kShut,        // set the sender's bit; the data bell
    kComplete,    // complete = 1; the data bell
    kReturned,    // returned = 1; the data bell
    kCloseBells,  // our end cannot be served any more
  };
  Kind kind{};
  std::uint64_t at = 0;
  std::uint64_t count = 0;
  std::uint32_t ring_bytes = 0;
  Word word{};
};

// What one look or one record has led to.
class Effects {
 public:
  void Add(const Effect& effect) { effects_[count_++] = effect; }
  void Tell(Type type, std::uint64_t value = 0, std::uint32_t ring_bytes = 0) {
    Add({.kind = Effect::Kind::kTell, .word = {type, value, ring_bytes}});
  }
  void Clear() { count_ = 0; }
  [[nodiscard]] std::span<const Effect> all() const { return {effects_.data(), count_}; }
  [[nodiscard]] bool empty() const { return count_ == 0; }

 private:
  std::array<Effect, 24> effects_;  // more than Look ever makes
  std::size_t count_ = 0;
};

// The direction from our end to the other host.
struct FromEndView {
  Gate gate{};
  std::uint64_t opens = 0;
  std::uint64_t open_at = 0;
  std::uint64_t ring_bytes = 0;
  bool returned = false;
  std::uint64_t kept = 0;
};

class FromEnd {
 public:
  explicit FromEnd(std::uint64_t largest_ring) : largest_ring_(largest_ring) {}

  // Stored before our end sees the channel: it may not take the other host's end for quiet.
  static constexpr std::uint64_t kFirstReads = 1;

  // `hung_up`: none of our end's processes is left. `may_ship`: a WRITE can be posted now.
  Status Look(const FromEndView& view, bool hung_up, bool may_ship, Effects& out);
  Status On(const Word& word, Effects& out);
  // Whether nothing can come any more, and all of it has been shipped.
  [[nodiscard]] bool Drained() const { return drained_; }
  // Whether the last look has left bytes because it might not ship.
  [[nodiscard]] bool Waits() const { return waits_; }

 private:
  Status Announce(const FromEndView& view, Effects& out);
  Status Ship(const FromEndView& view, bool hung_up, bool may_ship, Effects& out);
  Status OnConsumed(std::uint64_t cursor, Effects& out);
  Status OnPassed(std::uint64_t phase, Effects& out);
  Status OnQuiet(std::uint64_t phase, Effects& out);

  std::uint64_t largest_ring_;
  std::uint64_t told_ = 0;  // phases announced over there
  std::uint64_t shut_ = 0;  // of these, whose end was told
  std::uint64_t open_at_ = 0;
  std::uint32_t ring_bytes_ = 0;
  std::uint64_t shipped_ = 0;  // cursor
  std::uint64_t consumed_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t reads_ = kFirstReads;
  bool follow_due_ = false;
  bool flush_due_ = false;
  bool flushed_ = false;
  bool abandoned_ = false;
  bool returned_ = false;
  bool drained_ = false;
  bool waits_ = false;
};

// The direction from the other host to our end.
struct ToEndView {
  bool abandoned = false;
  bool asks_end = false;
  bool receiver_shut = true;
  std::uint64_t consumed = 0;
  std::uint64_t passed = 0;
  std::uint64_t tcp_reads = 0;
  bool rests = false;  // the last looks have found nothing: what was put off is told
};

class ToEnd {
 public:
  explicit ToEnd(std::uint64_t largest_ring) : largest_ring_(largest_ring) {}

  Status Look(const ToEndView& view, bool hung_up, Effects& out);
  // Behind all other looks: what was put off, if something is told anyway.
  void LookBehind(Effects& out);
  Status On(const Word& word, Effects& out);
  // Nothing comes any more, and all that came is in the ring.
  void Complete(Effects& out);
  // What comes from now on is not for our end.
  void Drop() { dropped_ = true; }
  // Our end is inside a system call, which we have to see the end of: look again soon.
  [[nodiscard]] bool Soon() const { return quiet_ == Quiet::kMarked && !dropped_; }
  // Our end waits for bytes that only the other host's end can send again.
  [[nodiscard]] bool Owed() const { return abandoned_told_ && !returned_ && !complete_; }

 private:
  // Whether our end can be inside a read of the kernel's socket that does not know of the phase:
  //   kToLook: look at tcp_reads; kMarked: it was odd, wait until it has changed; kTold: it cannot.
  enum class Quiet : std::uint8_t { kTold, kToLook, kMarked };

  [[nodiscard]] bool Plausible(const ToEndView& view) const;
  void TellConsumed(Effects& out);
  void LookForQuiet(std::uint64_t tcp_reads, Effects& out);
  Status OnPhase(const Word& word, Effects& out);
  Status OnBytes(std::uint64_t count, Effects& out);
  [[nodiscard]] bool HasRoom(std::uint64_t count) const;
  void Advance(std::uint64_t count, Effects& out);

  std::uint64_t largest_ring_;
  std::uint64_t opens_ = 0;
  bool open_ = false;  // Shut has not come
  std::uint64_t open_at_ = 0;
  std::uint32_t ring_bytes_ = 0;
  std::uint64_t cursor_ = 0;
  std::uint64_t read_ = 0;      // by our end, as seen
  std::uint64_t consumed_ = 0;  // as told
  std::uint64_t passed_ = 0;    // as told
  Quiet quiet_ = Quiet::kTold;
  std::uint64_t mark_ = 0;
  bool wish_ = true;  // as told: the receiver's bit
  bool flush_told_ = false;
  bool complete_ = false;
  bool abandoned_told_ = false;
  bool returned_ = false;
  bool dropped_ = false;
};

// Both directions, and how the connection ends.
class Relay {
 public:
  struct View {
    bool hung_up = false;  // a bell of our end's was found so
    FromEndView from;
    ToEndView to;
  };

  explicit Relay(std::uint64_t largest_ring) : from_(largest_ring), to_(largest_ring) {}

  // An error: our end does what no shim does. Break() then.
  Status Look(const View& view, bool may_ship, Effects& out);
  // A record of the other carrier's. An error: of the lane.
  Status On(const Word& word, Effects& out);
  // Our end cannot be served any more.
  void Break(Effects& out);

  // Nothing more is said by either side: the other carrier writes to our ring no more.
  [[nodiscard]] bool Over() const { return gone_told_ && peer_gone_; }
  [[nodiscard]] bool Soon() const { return to_.Soon() && !gone_told_; }
  [[nodiscard]] bool Waits() const { return from_.Waits() && !gone_told_; }

 private:
  FromEnd from_;
  ToEnd to_;
  bool gone_told_ = false;
  bool peer_gone_ = false;
};

}  // namespace rdfs::sock::far
