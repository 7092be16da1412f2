// One direction of a carried connection in virtual time: a program P that writes, channel A, two
// carriers with the real relays, records and WRITEs under way between them, channel B, a program Q
// that reads, and the kernel's TCP from P to Q. Moved one step at a time in an order drawn from a
// seed; every look at a shared word is a step of its own, and every byte is compared at once.
//
// P and Q do what switch_far.pml has them do: the rules that PROTOCOL.md gives the two ends.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "tests/tools/sock/seeds.h"
#include "tools/sock/far/relay.h"

namespace rdfs::sock::far {

// Rules that a test can break, to see that the schedules notice.
enum class Planted : std::uint8_t {
  kNone,
  kEvenAtFirst,       // A's tcp_reads begins even: P takes Q for quiet
  kRecordFirst,       // a record overtakes the bytes that were written before it
  kBytesLost,         // the bytes of a record do not get into the ring
  kConsumedAtOnce,    // the carrier calls consumed what it has shipped
  kPassedFirst,       // A's tcp_reads becomes odd after `passed` was stored
  kEndWithoutAsking,  // Q takes FIN for the end
};

struct Plan {
  unsigned seed = 0;
  std::size_t bytes = 30'000;
  bool freezes = false;       // carriers stand still for long
  bool refuses = false;       // Q now and then wants no ring
  bool q_leaves = false;      // Q goes on without the shim
  bool p_dies = false;        // P's last process is killed somewhere
  bool q_dies = false;        // Q's
  bool carriers_die = false;  // the lane, or one of them
  Planted planted = Planted::kNone;
};

class World {
 public:
  explicit World(const Plan& plan);
  Outcome Run();

 private:
  struct Words {
    Gate gate;
    std::uint64_t opens = 0, open_at = 0, ring_bytes = 0;
    std::uint64_t consumed = 0, passed = 0, tcp_reads = 0;
    bool returned = false, abandoned = false, asks_end = false, complete = false;
    std::array<std::uint8_t, 8192> ring{};
  };
  struct Carrier {
    explicit Carrier(bool at_p) : relay(8192), has_p(at_p) {}
    Relay relay;
    bool has_p;
    unsigned looked = 0;  // how far the view of now has been read
    Relay::View view;
    std::uint64_t frozen_until = 0;
  };
  enum class PAt : std::uint8_t {
    kTcp,
    kOpen,
    kClear,
    kAnnounce,
    kRing,
    kPut,
    kShut,
    kMark,
    kQuiet,
    kResend,
    kReturn,
    kDone
  };
  enum class QAt : std::uint8_t {
    kTcp,
    kBegin,
    kOpens,
    kAt,
    kRead,
    kEnd,
    kComplete,
    kLook,
    kRing,
    kRingLook,
    kLeave,
    kAbandon,
    kReturned,
    kPlain
  };

  std::uint64_t Any(std::uint64_t below) { return random_() % below; }
  void Fail(const std::string& what) {
    if (outcome_.wrong.empty()) outcome_.wrong = what;
  }
  static std::uint8_t ByteAt(std::uint64_t at) {
    return static_cast<std::uint8_t>((at * 2654435761U) >> 11U);
  }
  void SendTcp(std::uint64_t most);
  void Came(std::uint8_t byte);
  void StepP();
  void POnTcp();
  void POnRing();
  bool PGone();
  void StepQ();
  void QReadTcp();
  void QLook();
  void QOnRing();
  void StepQLeaving();
  void StepCarrier(Carrier& carrier);
  void ReadView(Carrier& carrier);
  struct Flight {
    Effect effect;
    std::vector<std::uint8_t> bytes;  // in the record
  };
  void Deliver(std::deque<Flight>& flights, Carrier& to);
  void CarryOut(Carrier& carrier, const Effects& effects);
  void Store(Carrier& carrier, const Effect& effect);
  void Put(const Effects& effects, const std::vector<std::uint8_t>& bytes);
  void KillSome();
  void Reset();

  const Plan plan_;
  std::mt19937_64 random_;
  Outcome outcome_;
  std::uint64_t time_ = 0;
  bool reset_ = false;
  bool a_bells_ = true, b_bells_ = true;  // the carriers' side
  bool carriers_dead_ = false;

  std::deque<std::uint8_t> tcp_;
  bool fin_ = false;
  Words a_, b_;
  Carrier ca_{true}, cb_{false};
  std::deque<Flight> ab_, ba_;  // records, and WRITEs of A's ring into B's
  std::uint64_t late_reads_ = 0;

  // P.
  PAt p_ = PAt::kTcp;
  bool p_alive_ = true;
  bool p_gone_ = false;  // has seen that its ring will not be read
  std::uint64_t next_ = 0, sent_ = 0, opens_ = 0, open_at_ = 0, produced_ = 0, seen_ = 0, mark_ = 0;
  std::uint64_t ring_bytes_ = 4096, resend_ = 0;

  // Q.
  QAt q_ = QAt::kTcp;
  std::uint64_t q_naps_until_ = 0;
  bool q_alive_ = true, q_leaving_ = false, q_wish_ = true, q_eof_ = false, q_came_ = false;
  bool q_complete_ = false, q_hung_up_ = false, q_saw_end_ = false;
  std::uint64_t got_ = 0, position_ = 0, mine_ = 0, q_opens_ = 0, q_at_ = 0, taken_ = 0;
};

}  // namespace rdfs::sock::far
