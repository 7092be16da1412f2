// One direction of a connection in virtual time: several processes that write, several that read, a
// TCP stream, a channel and two bells, all moved one step at a time in an order drawn from a seed.
//
// Each look at a shared word, each store and each call of the kernel is a step of its own, so that
// whatever two real processes could do between them happens here sooner or later. A process may be
// killed between any two steps. Every byte that comes out is compared at once.
//
// A carried direction has two channels, and a carrier at each that moves words and bytes between
// them as PROTOCOL.md says under "Between hosts", through two queues that keep their order.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/tools/sock/seeds.h"
#include "tools/sock/switch.h"

namespace rdfs::sock {

// Rules of the driver that a test can break, to see that the schedules notice.
enum class Planted : std::uint8_t {
  kNone,
  kEndSeenLast,       // tcp_ended is looked at after the gate
  kOpensAnywhere,     // opens is looked at after what it announces
  kArmsAfterLooking,  // sleeps without looking again once armed
  kWrongPosition,     // counts one byte of TCP too many from the start
  kNoLock,            // two processes drive one half at once
  kStaleConsumed,     // gives room back before the bytes are copied out
  kBellForAll,        // a process that is not going to look empties the bell
  kLeavesRing,        // who leaves lets lie what the ring holds, and says nothing of it
  kTakesBlindly,      // consumed is stored, whatever it was
  kTrustsTakenBack,   // taken back is taken for returned
  // Of a carried direction:
  kEvenFirst,       // tcp_reads of the sender's channel says even from the beginning
  kOddLate,         // ... and odd only after the phase was passed
  kQuietEarly,      // Quiet is said without having looked
  kNoFlush,         // Flushed is said without having sent all
  kNoAsk,           // FIN is the end, without asking
  kCompleteLast,    // complete is looked at after what it makes final
  kWishShuts,       // the receiver takes its own bit for the end of a phase
  kLostPasses,      // the receiver goes on with TCP when it loses its carrier in a phase
  kLostIsGone,      // a sender that loses its carrier sends again what was not consumed
  kReturnedEarly,   // the carrier answers for a sender that owes bytes
  kNotLookedAgain,  // a carrier sleeps without looking again once armed
};

struct Plan {
  unsigned seed = 0;
  std::size_t bytes = 40'000;
  unsigned writers = 1, readers = 1;
  bool kills = false;          // some processes die somewhere
  bool reader_leaves = false;  // the readers' end goes on without the shim
  bool writer_leaves = false;
  bool refuses = false;  // the reader now and then wants no ring
  bool carried = false;
  bool carriers_die = false;
  Planted planted = Planted::kNone;
};

class World {
 public:
  explicit World(const Plan& plan);
  Outcome Run();

 private:
  struct Tcp {
    std::vector<std::uint8_t> bytes;
    std::size_t arrived = 0, read = 0;
    bool fin = false;
    bool reader_gone = false;
  };
  struct Channel {
    std::uint64_t gate = Gate::kInitial, opens = 0, open_at = 0, ring_bytes = 0;
    std::uint64_t consumed = 0, passed = 0, tcp_reads = 0;
    bool writer_armed = false, reader_armed = false, returned = false, abandoned = false;
    bool asks_end = false, complete = false, taken_back = false;
    std::uint64_t kept = 0;
    unsigned data_bell = 0, room_bell = 0;
    std::vector<std::uint8_t> ring;
  };
  enum class Word : std::uint8_t {
    kPhase,
    kBytes,
    kShut,
    kFlushed,
    kReturned,
    kConsumed,
    kPassed,
    kQuiet,
    kWish,
    kFollow,
    kFlush,
    kAbandon
  };
  struct Message {
    Word word;
    std::uint64_t value = 0, more = 0;
    std::vector<std::uint8_t> bytes;
  };
  // What both carriers have.
  struct Carrier {
    std::deque<Message> inbox;
    int part = 0;  // of the message being carried out
    bool idle = false, armed = false, asleep = false;
    bool closed = false;  // its bells
  };
  struct NearCarrier : Carrier {
    std::uint64_t told = 0, shut = 0, shipped = 0;
    bool follow = false, flush = false, abandoned = false, answered = false;
  };
  struct FarCarrier : Carrier {
    std::uint64_t consumed = 0, passed = 0, mark = 0;
    bool quiet = true, wish = true, asked = false, abandoned = false;
  };
  // The lock of one half, and whether its holder died.
  struct Lock {
    int holder = -1;
    bool owner_died = false;
  };
  enum class At : std::uint8_t {
    kOutside,
    kLooking,
    kDeciding,
    kStepping,
    kAsleep,
    kWaiting,
    kOver,
    kDead
  };
  // What both kinds of process have.
  struct Process {
    At at = At::kOutside;
    std::vector<int> looks;  // fields of the view still to be loaded, last first
    int part = 0;            // of the step being carried out
    bool recovering = false;
    std::uint64_t copied = 0;
    bool plain = false;  // goes on without the shim
  };
  struct Writer : Process {
    SenderView view;
    Sender::Wish wish;
    Sender::Action action;
    bool ending = false;
  };
  struct Reader : Process {
    ReceiverView view;
    Receiver::Wish wish;
    Receiver::Action action;
    std::vector<std::uint8_t> buffer;
    bool keeps = false;  // a keeper's process, beside that of the program that goes on
  };

  unsigned Below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }
  static std::uint8_t Pattern(std::size_t index);
  void Wrong(const std::string& what);

  bool Tick();
  [[nodiscard]] bool Runnable(const Writer& writer) const;
  [[nodiscard]] bool Runnable(const Reader& reader) const;
  bool Take(Lock& lock, int who, Process& process);
  void Release(Lock& lock) { lock.holder = -1; }
  void KillSomebody();
  void Kill(Process& process, Lock& lock, int who);
  bool CloseEnds();

  void Move(Writer& writer, int who);
  void WritePlain(Writer& writer);
  void Wish(Writer& writer);
  void Look(Writer& writer);
  void Decide(Writer& writer);
  void Carry(Writer& writer);
  void StepDone(Writer& writer, std::uint64_t outcome);
  std::uint64_t SendTcp(std::uint64_t count, const std::uint8_t* from);

  void Move(Reader& reader, int who);
  void ReadPlain(Reader& reader);
  void KeepFor(Reader& reader);
  void Wish(Reader& reader);
  void Look(Reader& reader);
  void Decide(Reader& reader);
  void Carry(Reader& reader);
  void StepDone(Reader& reader, std::uint64_t outcome);
  bool Retires();
  void Deliver(const std::uint8_t* bytes, std::size_t count);

  Channel& Sending() { return near_channel_; }
  Channel& Receiving() { return plan_.carried ? far_channel_ : near_channel_; }
  [[nodiscard]] const Channel& Receiving() const {
    return plan_.carried ? far_channel_ : near_channel_;
  }
  // As the writers see the readers' end go, and the other way round.
  [[nodiscard]] bool WritersLeftAlone() const;
  [[nodiscard]] bool ReadersLeftAlone() const;
  [[nodiscard]] bool Runnable(const Carrier& carrier, unsigned bell) const;
  void KillCarriers();
  void MoveNear();
  void MoveFar();
  bool NearActs();
  bool FarActs();
  void NearHears();
  void FarHears();
  void NearHears(const Message& message, int part);
  void FarHears(const Message& message, int part);
  bool Arms(Carrier& carrier, bool& flag, unsigned& bell);
  void Rest(Carrier& carrier);

  Plan plan_;
  std::mt19937 random_;
  Tcp tcp_;
  Channel near_channel_, far_channel_;
  NearCarrier near_;
  FarCarrier far_;
  bool lane_lost_ = false;
  bool writers_bell_closed_ = false, readers_bell_closed_ = false;
  bool reader_leaving_ = false, writer_leaving_ = false;
  bool leavers_close_bells_ = false;
  Sender sender_;
  Receiver receiver_;
  unsigned stickiness_;  // of 64: how likely the one that moved last moves again
  int last_ = -1;
  Lock tx_, rx_;
  std::deque<Writer> writers_;
  std::deque<Reader> readers_;
  std::size_t accepted_ = 0;   // bytes that write() took
  std::size_t delivered_ = 0;  // bytes that read() gave
  bool reset_ = false, end_seen_ = false, pipe_broken_ = false;
  Outcome outcome_;
};

}  // namespace rdfs::sock
