// One end of a switched connection, as one process sees it: send and receive as the kernel's calls
// do, over the kernel's socket and the channel.
//
// EndMemory is shared by the processes of the end (MAP_SHARED before fork) and by nobody else. It
// holds both halves' machines and their locks; a lock is never held asleep, and one whose holder
// died is repaired by the next. An End is a process's own view of it, any thread; it owns none of
// the descriptors, which stay valid while it lives.
//
// It does not decide when ring or TCP is better: prefer_ring() is told to it.
#pragma once

#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "tools/sock/call_clock.h"
#include "tools/sock/ring.h"
#include "tools/sock/switch.h"
#include "transport/base/adaptive_spin.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::sock {

// Bytes of each direction that TCP has carried, as the kernel counts them (tcp(7), TCP_INFO): taken
// while no call of this end is in flight. `opened`: this end called connect. Errors: kErrno.
Result<std::uint64_t> SentPosition(int tcp, bool opened);
Result<std::uint64_t> ReceivedPosition(int tcp);

struct EndMemory {
  pthread_mutex_t send_lock, receive_lock;  // shared by processes, robust; neither inside the other
  Sender sender{0, kLeastRingBytes};
  Receiver receiver{0, kLeastRingBytes};
  bool repair_send = false, repair_receive = false;  // under its lock: a holder died
  std::atomic<int> receive_error{0};   // what the kernel's socket said, or NoteDeath; not told yet
  std::atomic<bool> send_over{false};  // the program has shut its sending half down
  std::atomic<bool> end_told{false};   // to the program: end of file, DiedUnread, or a reset

  // In place, once, before the memory is shared.
  static Result<EndMemory*> Create(void* place, int tcp, bool opened, std::uint32_t largest_ring,
                                   Far far = Far::kEnd);
};

// About what a sleep and the wake-up out of it cost together, both processors idle.
inline constexpr std::chrono::microseconds kLongestSpin{50};

// How long who waits for the peer's one system call sleeps between two looks: no bell tells of it,
// and the peer may have been stopped in there.
inline constexpr std::chrono::milliseconds kQuietLook{1};

// How long who leaves waits until its own bytes may go, or have gone, over TCP: for a peer that is
// stopped or takes nothing, or for the network between two carriers.
inline constexpr std::chrono::seconds kQuietTimeout{10};

// A call's pieces of memory, as readv(2) and writev(2) have them.
using Buffers = std::span<const iovec>;

// How long a call may take.
struct Patience {
  bool wait = true;                             // else as with MSG_DONTWAIT
  bool all = false;                             // as with MSG_WAITALL
  CallDeadline deadline = CallDeadline::max();  // EAGAIN then, as with SO_RCVTIMEO
  // Asked when a signal has ended a sleep: whether the call fails with EINTR. None: it goes on.
  bool (*interrupts)() = nullptr;
};

class End {
 public:
  struct Sockets {
    Bells bells;
    bool opened = false;  // this end called connect
    Far far = Far::kEnd;
  };
  // What a sender has to wait for.
  enum class Outlet : std::uint8_t { kRoom, kFull, kSoon, kTcp };

  End(EndMemory& memory, const Direction& outgoing, const Direction& incoming,
      const Sockets& sockets)
      : memory_(memory), outgoing_(outgoing), incoming_(incoming), sockets_(sockets) {}

  // `tcp`, here and below: any descriptor of the kernel's socket that stays open meanwhile. How
  // many bytes went, or -1 with errno, as send(2) and recv(2) have it. ECONNRESET too when the ends
  // could not be kept in step; the kernel's connection is then reset. EAGAIN without waiting also
  // for a signal handler that has interrupted a call of its own thread on this half. Sends no
  // signal. With `peek` what is received stays; then not all that has come need be seen, but the
  // beginning of it also where TCP's bytes go on in the ring, or the ring's in TCP.
  ssize_t Send(int tcp, Buffers buffers, const Patience& patience);
  ssize_t Receive(int tcp, Buffers buffers, const Patience& patience, bool peek = false);
  // shutdown(2) of the sending half, or with SHUT_RDWR of both.
  int ShutdownSend(int tcp, int how = SHUT_WR);
  // Makes both directions plain TCP for good, for a program that goes on without the shim: blocks
  // for at most kLeaveTimeout, or until `deadline` but for one look, and before that kQuietTimeout
  // if the other end is stopped inside a call or takes nothing. May be called again. kOwed: what
  // the ring held for this end is not in TCP yet, because the other end's program makes no call;
  // somebody has to AwaitReturn(), or Reset(). kReset: the connection had to be reset.
  enum class Departure : std::uint8_t { kDone, kOwed, kReset };
  Departure Leave(int tcp, std::optional<Deadline> deadline = std::nullopt);
  // After kOwed, until `deadline` (default: for as long as it takes). False: the bytes have not
  // come, or the other end died, and the connection was reset.
  bool AwaitReturn(int tcp, Deadline deadline = Deadline::max());
  // Both ends get ECONNRESET: the one way to say that bytes cannot be kept in order (RFC 9293,
  // ABORT).
  static void Reset(int tcp);

  // Whether Receive would return at once. With `arm` a no is followed by the data bell when bytes
  // come by the ring; FIN and errors are the kernel's to announce.
  bool Readable(int tcp, bool arm);
  // kRoom: Send would return at once. kFull: when there is room; with `arm` the room bell tells.
  // kSoon: when the peer has left the system call that it is in; nothing tells, so look again after
  // kQuietLook. kTcp: when the kernel's socket takes bytes.
  Outlet Writable(int tcp, bool arm);
  // The word in which bytes become visible, to see whether more have come, with what a carrier says
  // of the end; and the data bell for when they do, though some may be unread. True: `gate` is old
  // already.
  [[nodiscard]] std::uint64_t IncomingGate() const {
    const std::uint64_t gate = incoming_.words->gate.load();
    if (sockets_.far == Far::kEnd) return gate;
    return gate ^ (hung_up_ ? kLostMark : 0) ^
           (incoming_.words->complete.load() != 0 ? kCompleteMark : 0);
  }
  bool ArmForMore(std::uint64_t gate);
  // Whether the ring has bytes for this end; a glance, of what the peer may change.
  [[nodiscard]] bool RingHasBytes() const {
    const std::uint64_t consumed = incoming_.words->consumed.load();
    return (consumed & kTakenBack) == 0 && Gate{incoming_.words->gate.load()}.cursor() != consumed;
  }
  // How long at most a wait for kFull to end may last before Writable is asked again: it is kTcp
  // then, if the reader has taken nothing meanwhile.
  [[nodiscard]] std::chrono::nanoseconds PatienceForRoom() const;
  // Looks for bytes that are about to come, as long as that has paid lately. Worth it only where
  // Readable said no. True: look again.
  bool SpinForBytes();
  // poll(2) found a bell hung up.
  void HungUp() { hung_up_ = true; }
  // The same of the kernel's socket: an error. Nothing that is sent arrives any more.
  void Failed() { failed_ = true; }
  [[nodiscard]] bool hung_up() const { return hung_up_ || failed_; }
  // Before the last close: what is sent from now on goes over TCP, whose answer is the kernel's.
  void RefuseMore();
  // What the ring holds for this end, as far as the peer can be believed.
  std::uint64_t UnreadInRing();
  // What the ring still holds for the other end, or what has to go back to TCP, before close(2).
  void BeforeClose(int tcp);

  // Whether to send through the ring, and through how large a one at first. It grows when it is
  // found full again and again.
  void prefer_ring(bool ring, std::uint64_t ring_bytes = kLeastRingBytes) {
    ring_ = ring;
    ring_bytes_ = ring_bytes;
  }
  [[nodiscard]] const Bells& bells() const { return sockets_.bells; }
  EndMemory& memory() { return memory_; }

 private:
  // Above any cursor that a gate comes to.
  static constexpr std::uint64_t kLostMark = std::uint64_t{1} << 63U;
  static constexpr std::uint64_t kCompleteMark = std::uint64_t{1} << 62U;

  // Where a call stands when the lock is given back.
  enum class Stand : std::uint8_t {
    kDone,
    kWantsRoom,
    kWantsBytes,
    kRingEmpty,
    kWantsTcp,
    kSoon,
    kError
  };
  class Cursor;

  [[nodiscard]] Found FoundSoFar() const {
    return {.hung_up = hung_up_, .failed = failed_, .tcp_ended = tcp_ended_, .far = sockets_.far};
  }
  [[nodiscard]] Sender::Wish SendWish(std::size_t bytes, bool sleep) const;
  Stand RepairSend(int tcp);
  Stand RepairReceive(int tcp);
  Stand SendSome(int tcp, Cursor& cursor, const Sender::Wish& wish);
  std::size_t SendTcp(int tcp, const Sender::Action& action, const Cursor& cursor, int& error);
  Stand SendStep(int tcp, const Sender::Action& action, Cursor& cursor, bool& over);
  Stand ReceiveSome(int tcp, Cursor& cursor, const Receiver::Wish& wish, bool peek);
  Stand ReceiveStep(int tcp, const Receiver::Action& action, Cursor& cursor, bool peek, bool& over);
  std::uint64_t ReceiveTcp(int tcp, const Cursor& cursor, std::uint64_t most, bool peek);
  static ssize_t ReceivePieces(int tcp, const Cursor& cursor, std::uint64_t most, int flags);
  void CopyFromRing(std::uint64_t ring_bytes, std::uint64_t at, std::uint64_t count,
                    Cursor& cursor);
  void PeekAhead(int tcp, Cursor& cursor);
  bool WaitToSend(int tcp, Stand stand, const Patience& patience, int& yields);
  bool WaitForQuiet(int tcp, const Patience& patience, int& yields);
  bool WaitToReceive(int tcp, bool leaving, const Patience& patience);
  Departure ReceiveLast(int tcp, Deadline deadline);
  bool LookForBytes(int tcp, bool arm);
  std::optional<std::uint64_t> TakenFromRing();
  void TakeBackIfGone(int tcp);
  bool LookForHangUp();
  [[nodiscard]] bool HalfClosed(int tcp) const;
  bool DiedUnread(int tcp);
  bool NoteDeath(int tcp);
  void LookNowAndThen();
  bool LookForEnd(int tcp);
  void NoteError(int error);
  void NoteUntold(int error);
  void NoteFull();
  bool IsStuck();
  bool GivesUpOnRing();
  // The phase whose ring is read now; 0: none is.
  [[nodiscard]] std::uint64_t PhaseInRing() const {
    const Receiver& receiver = memory_.receiver;
    return receiver.state() == Receiver::State::kRing ? receiver.passed() + 1 : 0;
  }
  [[nodiscard]] bool AwaitsCarrier() const { return sockets_.far == Far::kCarrier && tcp_ended_; }
  void PublishCpu();
  static Stand Broken(int tcp);

  EndMemory& memory_;
  const Direction outgoing_;
  const Direction incoming_;
  const Sockets sockets_;
  std::atomic<bool> ring_{true};
  std::atomic<std::uint64_t> ring_bytes_{kLeastRingBytes};
  std::atomic<std::uint32_t> full_{0};
  std::atomic<std::uint32_t> cpu_{0};
  std::atomic<std::int64_t> looked_ns_{0};
  // Under the lock of the sending half: since when the ring has been full, with so much taken.
  TimePoint full_since_{};
  std::uint64_t full_at_ = 0;
  bool stuck_ = false;
  // One thread at a time spins.
  std::atomic_flag spinning_ = ATOMIC_FLAG_INIT;
  AdaptiveSpin spin_{kLongestSpin};
  // What poll told; never untrue again.
  std::atomic<bool> hung_up_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> noted_{false};  // and its error is kept, or was told
  // The phase that TCP's bytes were seen to come after; 0: none.
  std::atomic<std::uint64_t> tcp_waits_{0};
  std::atomic<bool> tcp_ended_{false};
  std::atomic<bool> awaited_hang_up_{false};
};

}  // namespace rdfs::sock
