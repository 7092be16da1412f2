// The switch-over of one direction of a TCP connection between the kernel's socket and a ring in
// shared memory: what its two ends do next, and when. PROTOCOL.md is the prose and the diagrams.
//
// Pure: no I/O, no clock, no memory but its own. Whoever drives it holds the lock of this half, and
// repeats: read what the view asks for, Next(), carry out that one step, Done() with its outcome,
// until the step is one of those that end a call (see below). Each step is one store, one atomic
// operation or one non-blocking call, and is noted here before it is taken, so that another process
// of this end can go on with Recover() when the driver died inside it.
//
// A Sender or Receiver lives in memory shared by the processes of one end and by nobody else:
// trivially copyable, no pointers. Everything in a view may be a hostile peer's.
//
// Order of the looks behind a view: `lost`, `gone`, `hung_up`, `tcp_ended` and then `complete` and
// `taken_back` first, because they say that something else is final; then `opens`, because it
// announces others; the rest in any order; all after the step before.
#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <type_traits>

#include "transport/base/clock.h"

namespace rdfs::sock {

// Ring sizes are powers of two from here to the channel's largest.
inline constexpr std::uint64_t kLeastRingBytes = 4096;
constexpr bool AllowedRing(std::uint64_t bytes, std::uint64_t largest) {
  return std::has_single_bit(bytes) && bytes >= kLeastRingBytes && bytes <= largest;
}
// Bytes of one kPut or kTake. What one end copies the other can copy on from meanwhile, instead of
// each waiting for the whole of the other's message; a fraction of the processors' caches.
inline constexpr std::uint64_t kMostAtOnce = 64 * 1024;
// How often kWaitQuiet is said before the peer's other processes are woken once.
inline constexpr std::uint32_t kNudgeAfter = 8;
// How long a program that leaves waits for the peer to take back what it did not read.
inline constexpr std::chrono::seconds kLeaveTimeout{1};

// Who is at the other end of the channel: the other end of the connection, or a carrier, which
// moves words and bytes between this channel and one on another host. PROTOCOL.md, "Between hosts".
enum class Far : std::uint8_t { kEnd, kCarrier };

// The word through which bytes become visible: the sender's cursor and who has shut it.
struct Gate {
  static constexpr std::uint64_t kSenderShut = 1;
  static constexpr std::uint64_t kReceiverShut = 2;
  static constexpr std::uint64_t kInitial = kSenderShut | kReceiverShut;
  static constexpr std::uint64_t At(std::uint64_t cursor) { return cursor << 2U; }

  std::uint64_t bits = kInitial;
  [[nodiscard]] std::uint64_t cursor() const { return bits >> 2U; }
  [[nodiscard]] bool sender_shut() const { return (bits & kSenderShut) != 0; }
  [[nodiscard]] bool receiver_shut() const { return (bits & kReceiverShut) != 0; }
  [[nodiscard]] bool shut() const { return (bits & kInitial) != 0; }
};

// What a half still owes to those who sleep until it has done something, and whether it has asked
// to be woken itself. The same for both halves, whose steps have the same names.
struct WakeUps {
  bool armed = false;
  bool bell_due = false;
  bool nudge_due = false;

  // The step that comes before all others; kIdle when there is none.
  template <typename Step>
  Step Owed(bool peer_armed) {
    if (nudge_due) return Step::kNudge;
    bell_due = bell_due && peer_armed;
    return bell_due ? Step::kRingBell : Step::kIdle;
  }
  template <typename Step>
  void Done(Step step) {
    if (step == Step::kArm) armed = true;
    if (step == Step::kRingBell) bell_due = false;
    if (step == Step::kNudge) nudge_due = false;
  }
  // The flag may have been cleared without the bell being rung.
  template <typename Step>
  void Recover(Step interrupted) {
    armed = false;
    nudge_due = nudge_due || interrupted == Step::kRingBell;
  }
};

// What the sender's driver reads of the channel before each step.
struct SenderView {
  // The carrier is gone: what is consumed may be more than `consumed`. Never set with kEnd.
  bool lost = false;
  bool gone = false;  // the bell of an end is hung up, or `abandoned` is set
  Gate gate;
  std::uint64_t consumed = 0;
  std::uint64_t passed = 0;
  std::uint64_t tcp_reads = 0;
  bool reader_armed = false;
};

class Sender {
 public:
  enum class Step : std::uint8_t {
    // End a call:
    kIdle,  // nothing is left to do
    // The ring is full, or a carrier has not said yet that the peer is quiet: wait for a bell or
    // the socket's error, or say EAGAIN.
    kSleep,
    kWaitQuiet,  // the peer is inside a kernel read: ask again soon (it never sleeps in there)
    kBroken,     // reset the connection
    // Done(how many bytes the kernel took; 0 when it would have blocked: then wait for the socket
    // to
    // have room, and for a bell that was not yet known to be hung up, or say EAGAIN):
    kSendTcp,  // the program's bytes, `count` at most
    kResend,   // the ring's bytes [at, at + count)
    // Done(count), or Done(0) when the gate was not what it had to be:
    kPut,  // copy `count` bytes to cursor `at`, then swap the gate from At(at) to At(at + count)
    // Done(the receiver's cursor as it then stands):
    kTakeBack,  // set kTakenBack in consumed: what lies behind is not read from the ring any more
    // Done(0):
    kOpenGate,  // store ring_bytes = `count` and open_at = `at`, then clear kSenderShut
    kAnnounce,  // store opens = `at`
    kShutGate,  // set kSenderShut
    kArm,       // empty the room bell, store writer_armed = 1
    kRingBell,  // exchange reader_armed with 0; ring the data bell if it was 1
    kNudge,     // ring the data bell: somebody may have died before doing what others wait for
    kReturned,  // store returned = 1 (what the peer did not read is all in TCP); ring the data bell
    kKeep,  // store kept = `at`: of this phase nothing is sent again, TCP's bytes come behind it
  };
  struct Action {
    Step step = Step::kIdle;
    std::uint64_t at = 0;
    std::uint64_t count = 0;
  };
  struct Wish {
    std::uint64_t bytes = 0;  // that the program wants to write now
    bool ring = false;        // bytes should go through the ring
    bool leave = false;       // ... and never again: the program goes on without the shim
    bool sleep = true;        // the call may sleep: kSleep comes armed
    std::uint64_t ring_bytes = kLeastRingBytes;
    std::uint64_t tcp_room = 0;  // while Leaving(): bytes that the kernel takes without waiting
  };
  //                  kOpenGate              kAnnounce
  //   kTcp --------> kOpening ------------> kAnnouncing -------> kRing
  //    ^  ^                                                        | kShutGate
  //    |  +------ quiet: no kernel read of the peer's ------ kShut <
  //    +--------- kTakeBack <---- the peer is gone ------------'
  //    leave: kTakingBack (from kTcp, kTakeBack) -> kTakeBack
  enum class State : std::uint8_t {
    kTcp,
    kOpening,
    kAnnouncing,
    kRing,
    kShut,
    kTakingBack,
    kTakeBack,
    kBroken
  };

  // `tcp_sent`: bytes of this direction that TCP has been given so far.
  Sender(std::uint64_t tcp_sent, std::uint64_t largest_ring, Far far = Far::kEnd)
      : far_(far), largest_ring_(largest_ring), tcp_sent_(tcp_sent) {}

  Action Next(const SenderView& view, const Wish& wish);
  void Done(std::uint64_t outcome);
  // After the death of the process that was driving: `tcp_sent` as measured anew.
  void Recover(const SenderView& view, std::uint64_t tcp_sent);

  [[nodiscard]] State state() const { return state_; }
  // Of the phase that is open or was last.
  [[nodiscard]] std::uint64_t ring_bytes() const { return ring_bytes_; }
  // Whether the kernel's socket may be shut down or closed without losing what a gone peer left.
  [[nodiscard]] bool MayEnd() const {
    return state_ != State::kTakingBack && state_ != State::kTakeBack;
  }
  // Whether it has yet to be decided what becomes of what the ring holds.
  [[nodiscard]] bool Leaving() const { return leaving_ && !settled_; }
  // Whether the program may go on without the shim, as far as this half is concerned.
  [[nodiscard]] bool Left() const { return settled_ && state_ == State::kTcp; }

 private:
  Action Do(Step step, std::uint64_t at = 0, std::uint64_t count = 0);
  Action Broken();
  [[nodiscard]] bool Plausible(const SenderView& view) const;
  [[nodiscard]] std::uint64_t RingFor(const Wish& wish) const;
  Action OnTcp(const SenderView& view, const Wish& wish);
  Action OnRing(const SenderView& view, const Wish& wish);
  Action OnShut(const SenderView& view, const Wish& wish);
  Action Settle(const SenderView& view, const Wish& wish);
  Action TakeBack(const SenderView& view);
  [[nodiscard]] bool Quiet(const SenderView& view);
  Action WaitQuiet(const Wish& wish);
  // Whether anybody is left who would take bytes out of the ring, or has asked for some back.
  [[nodiscard]] bool Alone() const { return gone_ || lost_; }
  [[nodiscard]] bool HasUnread(const SenderView& view) const {
    return !returned_ && view.consumed != produced_;
  }
  // ... and TCP has carried nothing since.
  [[nodiscard]] bool Returnable(const SenderView& view) const {
    return HasUnread(view) && kept_ != opens_;
  }
  [[nodiscard]] bool OwesBytes(const SenderView& view) const { return Alone() && HasUnread(view); }

  State state_ = State::kTcp;
  Action doing_;
  Far far_;
  bool gone_ = false;
  bool lost_ = false;
  bool leaving_ = false;
  bool settled_ = false;  // ... and the ring's bytes are in TCP, or stay in it
  WakeUps wake_ups_;
  bool returned_ = false;
  bool quiet_marked_ = false;
  std::uint32_t quiet_waits_ = 0;
  std::uint64_t quiet_mark_ = 0;  // tcp_reads, odd, when the gate had just been shut
  std::uint64_t largest_ring_;
  std::uint64_t ring_bytes_ = kLeastRingBytes;
  std::uint64_t tcp_sent_;
  std::uint64_t opens_ = 0;     // phases announced
  std::uint64_t open_at_ = 0;   // tcp_sent_ when the last one began
  std::uint64_t kept_ = 0;      // the last one behind which TCP carries bytes, with some unread
  std::uint64_t produced_ = 0;  // the gate's cursor
  std::uint64_t consumed_seen_ = 0;
  std::uint64_t passed_seen_ = 0;
  std::uint64_t resend_at_ = 0;
};

// What the receiver's driver reads before each step.
struct ReceiverView {
  bool hung_up = false;    // the bell
  bool tcp_ended = false;  // FIN or an error stands at the head of the kernel's queue
  // A carrier has brought all that there is, having been asked for it after FIN.
  bool complete = false;
  bool taken_back = false;  // the sender leaves: what was not consumed comes over TCP
  Gate gate;
  std::uint64_t opens = 0;
  std::uint64_t open_at = 0;
  std::uint64_t ring_bytes = 0;
  bool writer_armed = false;
  bool returned = false;   // what was taken back, or abandoned, is all in TCP
  std::uint64_t kept = 0;  // phase of which nothing comes over TCP any more
};

// Between hosts what was read is told with whatever is told next, and at once only where it is one
// of so many parts of the ring: the sender may wait for room.
inline constexpr std::uint64_t kPartsOfRing = 4;

class Receiver {
 public:
  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
  static constexpr std::uint64_t kEof = ~std::uint64_t{0};  // for Done

  enum class Step : std::uint8_t {
    // End a call:
    kIdle,          // nothing is left to do
    kSleep,         // nothing is there: wait for the data bell or the socket, or say EAGAIN
    kWaitReturned,  // leaving: wait for the bell, until deadline() if Next is told the time
    kEnd,           // the stream is over: FIN, or the socket's error
    kBroken,        // reset the connection
    // Done(how many bytes came, 0 for none now, kEof for FIN or an error):
    kReadTcp,  // at most `count` bytes of the kernel's socket, non-blocking
    // Done(count), or Done(0) when `consumed` was not what it had to be:
    kTake,  // copy `count` bytes from cursor `at`, then swap consumed from `at` to `at` + `count`
    // Done(0):
    kFollow,     // clear kReceiverShut
    kRefuse,     // set kReceiverShut
    kBeginRead,  // store tcp_reads = `at` (odd)
    kEndRead,    // store tcp_reads = `at` (even)
    kPass,       // store passed = `at`
    kAbandon,    // store abandoned = 1; ring the room bell
    kAskEnd,     // store asks_end = 1; ring the room bell
    kArm,        // empty the data bell, store reader_armed = 1
    kRingBell,   // exchange writer_armed with 0; ring the room bell if it was 1
    kNudge,      // ring the room bell: somebody died before doing it
  };
  struct Action {
    Step step = Step::kIdle;
    std::uint64_t at = 0;
    std::uint64_t count = 0;
  };
  struct Wish {
    std::uint64_t bytes = 0;  // that the program wants to read now
    bool follow = false;      // the sender may use the ring
    bool leave = false;       // never again: the program goes on without the shim
    bool sleep = true;        // the call may sleep: kSleep comes armed
  };
  //             kBeginRead            kReadTcp              kEndRead
  //    kTcp ---------------> kReading --------> kReadOver ----------> kLooked
  //     ^  ^                    | limit is 0       ^                    | nothing came, and a phase
  //     |  |                    +------------------+                    | begins here
  //     |  +------ kPass ------- kPassing <------------------ kRing <-----+
  //     +--- something came, or slept (from kLooked)
  //    leave: kAbandoned (kAbandon; until returned) -> kPlain
  enum class State : std::uint8_t {
    kTcp,
    kReading,
    kReadOver,
    kLooked,
    kRing,
    kPassing,
    kAbandoned,
    kPlain,
    kBroken
  };

  // `position`: bytes of this direction that have been read from TCP so far.
  Receiver(std::uint64_t position, std::uint64_t largest_ring, Far far = Far::kEnd)
      : far_(far), largest_ring_(largest_ring), position_(position) {}

  Action Next(const ReceiverView& view, const Wish& wish, TimePoint now);
  void Done(std::uint64_t outcome, TimePoint now);
  // Between two steps: the kernel's queue was seen to hold bytes, and then `view` was read. Breaks
  // where no sender that follows the protocol can have sent them.
  void FoundTcp(const ReceiverView& view);
  // After the death of the process that was driving: `position` as measured anew, `consumed` as the
  // channel says.
  void Recover(std::uint64_t position, std::uint64_t consumed);

  // Where the stream goes on behind `seen` bytes that a look (MSG_PEEK) found, on the other road
  // maybe: `count` bytes of a ring of `ring_bytes` from cursor `at`, or the head of the kernel's
  // queue. Looking changes nothing.
  struct Ahead {
    enum class Where : std::uint8_t { kNothing, kRing, kTcp } where = Where::kNothing;
    std::uint64_t at = 0;
    std::uint64_t count = 0;
    std::uint64_t ring_bytes = 0;
  };
  [[nodiscard]] Ahead LookAhead(const ReceiverView& view, std::uint64_t seen) const;

  [[nodiscard]] State state() const { return state_; }
  // Bytes taken out of the ring so far.
  [[nodiscard]] std::uint64_t consumed() const { return consumed_; }
  [[nodiscard]] std::uint64_t passed() const { return passed_; }
  // Of the phase that is being read, checked; 0 before the first.
  [[nodiscard]] std::uint64_t ring_bytes() const { return ring_bytes_; }
  // When to give up waiting for kWaitReturned.
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  [[nodiscard]] bool Left() const { return state_ == State::kPlain; }

 private:
  Action Do(Step step, std::uint64_t at = 0, std::uint64_t count = 0);
  Action Broken();
  // Whether a phase is announced that has not been passed. Checks the record.
  enum class Pending : std::uint8_t { kNo, kLater, kHere, kImpossible };
  [[nodiscard]] Pending PendingPhase(const ReceiverView& view) const;
  // Whether the record of a phase names a ring that there may be.
  [[nodiscard]] bool RingIsPossible(const ReceiverView& view) const;
  [[nodiscard]] bool Shut(const ReceiverView& view) const;
  // After FIN, and with nothing to be read.
  Action OnEnd(const ReceiverView& view, const Wish& wish);
  Action OnLeave(const ReceiverView& view, TimePoint now);
  // Whether a program that goes on without the shim loses nothing.
  [[nodiscard]] bool MayLeave(const ReceiverView& view, Pending pending) const;
  Action OnReading(const ReceiverView& view, const Wish& wish);
  Action OnLooked(const ReceiverView& view, const Wish& wish);
  Action OnRing(const ReceiverView& view, const Wish& wish);
  Action ArmOrSleep(const Wish& wish);

  State state_ = State::kTcp;
  Action doing_;
  Far far_;
  bool asked_end_ = false;
  bool following_ = false;
  WakeUps wake_ups_;
  bool take_failed_ = false;
  bool eof_ = false;   // TCP said so
  bool came_ = false;  // the last kernel read brought bytes
  std::uint64_t largest_ring_;
  std::uint64_t ring_bytes_ = 0;
  std::uint64_t position_;
  std::uint64_t tcp_reads_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t cursor_seen_ = 0;
  Deadline deadline_{};
};

static_assert(std::is_trivially_copyable_v<Sender> && std::is_trivially_copyable_v<Receiver>);

}  // namespace rdfs::sock
