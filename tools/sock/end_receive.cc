// The receiving half of an End, and leaving with both.
#include <limits.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/sock/end_parts.h"
#include "tools/sock/peer_socket.h"
#include "transport/base/processors.h"

namespace rdfs::sock {
namespace {

// Looks at the ring between two looks at the clock.
constexpr int kLooksPerClock = 16;
// How often a look (MSG_PEEK) that waits for all of its bytes begins anew: what is there keeps the
// kernel's socket readable, so that nothing tells of what comes behind.
constexpr std::chrono::milliseconds kPeekAgain{1};

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// The kernel closes what a killed process held in the order of its descriptors: the connection
// comes before the bells, which follow at once.
constexpr int kHangUpMs = 10;

// Whether an urgent byte is what the kernel's socket has next: a read ends before it.
bool AtMark(int tcp) {
  int at_mark = 0;
  return ioctl(tcp, SIOCATMARK, &at_mark) == 0 && at_mark != 0;
}

// Whether a step may be one that takes from the ring.
bool MayTake(Receiver::State state) {
  return state == Receiver::State::kRing || state == Receiver::State::kLooked;
}

}  // namespace

ssize_t End::Receive(int tcp, Buffers buffers, const Patience& patience, bool peek) {
  Cursor cursor(buffers);
  const auto result = [&] { return cursor.gone() > 0 ? static_cast<ssize_t>(cursor.gone()) : -1; };
  bool arm = false;
  bool last_look = false;
  for (;;) {
    const std::size_t before = cursor.gone();
    const Stand stand =
        ReceiveSome(tcp, cursor, {.bytes = cursor.left(), .follow = true, .sleep = arm}, peek);
    const bool came = cursor.gone() > before;
    if (came && (!patience.all || cursor.left() == 0)) return result();
    if (came && peek) {
      std::array<pollfd, 1> ended = {pollfd{tcp, POLLRDHUP | POLLPRI, 0}};
      const Patience now = With(cursor.gone(), patience);
      if (last_look || !patience.wait || !Sleep(ended, now, kPeekAgain)) return result();
      last_look = ended[0].revents != 0;
      cursor = Cursor(buffers);
      continue;
    }
    if (stand == Stand::kDone && !came) {
      const bool end = cursor.gone() == 0 && cursor.left() > 0;
      if (!end) return static_cast<ssize_t>(cursor.gone());
      const bool died = DiedUnread(tcp);
      if (memory_.end_told.exchange(true) || !died) return 0;
      errno = ECONNRESET;
      return -1;
    }
    if (stand == Stand::kError || (came && PhaseInRing() == 0 && AtMark(tcp))) return result();
    if (came) {
      arm = false;
      continue;
    }
    if (!patience.wait) {
      // The kernel has announced it, maybe: a ring that stays empty has to be told why.
      const bool look = stand == Stand::kRingEmpty && !tcp_ended_;
      if (look && LookForEnd(tcp)) continue;
      if (AwaitsCarrier() && !hung_up_ && LookForHangUp()) continue;
      errno = EAGAIN;
      return result();
    }
    if (!arm && stand == Stand::kRingEmpty && SpinForBytes()) continue;
    if (arm && !WaitToReceive(tcp, false, With(cursor.gone(), patience))) return result();
    arm = !arm;
  }
}

End::Stand End::RepairReceive(int tcp) {
  if (!memory_.repair_receive) return Stand::kDone;
  const Result<std::uint64_t> position = ReceivedPosition(tcp);
  if (!position.ok()) return Broken(tcp);
  memory_.receiver.Recover(*position, incoming_.words->consumed.load() & ~kTakenBack);
  memory_.repair_receive = false;
  return Stand::kDone;
}

End::Stand End::ReceiveSome(int tcp, Cursor& cursor, const Receiver::Wish& wish, bool peek) {
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  if (!hold.held()) {
    errno = EAGAIN;
    return Stand::kError;
  }
  if (RepairReceive(tcp) != Stand::kDone) return Stand::kError;
  Receiver& receiver = memory_.receiver;
  constexpr TimePoint time{};  // how long to wait when leaving is the caller's matter
  const std::size_t before = cursor.gone();
  bool peeked = false;
  bool onward = false;  // one road is done, and nobody has looked at the other yet
  for (;;) {
    const bool came = cursor.gone() > before;
    // Who waits for edges takes less than it asked for as a word that there is no more (epoll(7)).
    const bool more = !peeked && (!came || onward || receiver.state() == Receiver::State::kRing);
    Receiver::Wish now = wish;
    // Out of a ring piece by piece; the kernel fills them all at once. With something in hand
    // duties only: recv returns what is there.
    now.bytes = !more ? 0 : MayTake(receiver.state()) ? cursor.piece().size() : cursor.left();
    if (came) now.sleep = false;
    const Receiver::Action action =
        receiver.Next(LookAsReceiver(incoming_, FoundSoFar()), now, time);
    using Step = Receiver::Step;
    if (action.step == Step::kPass) onward = true;
    if (action.step == Step::kReadTcp && std::exchange(onward, false) && came && AtMark(tcp)) {
      receiver.Done(0, time);  // tcp(7): a read ends there
      continue;
    }
    std::size_t moved = 0;
    const bool look = peek && action.step == Step::kTake;
    if (!look && Carry(incoming_, receiver, action, cursor.piece(), sockets_.bells, time, moved)) {
      cursor.Advance(moved);
      continue;
    }
    bool over = false;
    const std::size_t left = cursor.left();
    const Stand stand = ReceiveStep(tcp, action, cursor, peek, over);
    // All that there is before a phase.
    if (action.step == Step::kReadTcp && action.count < left) {
      onward = left - cursor.left() == action.count;
    }
    peeked = peek && cursor.gone() > before;
    // Nobody arms any more, but the bell still tells of an other end that goes, too.
    if (over && wish.sleep && receiver.Left()) TakeRing(sockets_.bells.data);
    if (!over && !look) continue;
    if (peek && cursor.gone() > before) PeekAhead(tcp, cursor);
    return stand;
  }
}

// A step that is the kernel's, or the last of a call (then `over`), or a look into the ring.
End::Stand End::ReceiveStep(int tcp, const Receiver::Action& action, Cursor& cursor, bool peek,
                            bool& over) {
  using Step = Receiver::Step;
  Receiver& receiver = memory_.receiver;
  over = true;
  switch (action.step) {
    case Step::kTake:
      CopyFromRing(receiver.ring_bytes(), action.at, action.count, cursor);
      return Stand::kDone;
    case Step::kReadTcp: {
      const std::uint64_t came = ReceiveTcp(tcp, cursor, action.count, peek);
      receiver.Done(peek && came != Receiver::kEof ? 0 : came, TimePoint());
      if (came != Receiver::kEof) cursor.Advance(came);
      over = receiver.Left() && came != Receiver::kEof;
      return came == 0 ? Stand::kWantsBytes : Stand::kDone;
    }
    case Step::kSleep:
      return receiver.state() == Receiver::State::kRing ? Stand::kRingEmpty : Stand::kWantsBytes;
    case Step::kWaitReturned:
      return Stand::kWantsBytes;
    case Step::kBroken:
      return Broken(tcp);
    case Step::kEnd: {
      const int error = cursor.gone() > 0 ? 0 : memory_.receive_error.exchange(0);
      if (error == 0) return Stand::kDone;
      memory_.end_told = true;
      errno = error;
      return Stand::kError;
    }
    default:
      return Stand::kDone;
  }
}

void End::CopyFromRing(std::uint64_t ring_bytes, std::uint64_t at, std::uint64_t count,
                       Cursor& cursor) {
  for (const ByteSpan part : Pieces(incoming_, ring_bytes, at, count)) {
    std::copy(part.begin(), part.end(), cursor.piece().begin());
    cursor.Advance(part.size());
  }
}

// What comes behind bytes that a look has found. A program that waits for the whole of a header
// this way would otherwise wait for ever where that lies on both roads.
void End::PeekAhead(int tcp, Cursor& cursor) {
  using Where = Receiver::Ahead::Where;
  while (cursor.left() > 0) {
    const Receiver::Ahead ahead =
        memory_.receiver.LookAhead(LookAsReceiver(incoming_, FoundSoFar()), cursor.gone());
    if (ahead.where == Where::kTcp) {
      const std::uint64_t came = ReceiveTcp(tcp, cursor, cursor.left(), true);
      if (came != Receiver::kEof) cursor.Advance(came);
    }
    if (ahead.where != Where::kRing) return;
    CopyFromRing(ahead.ring_bytes, ahead.at,
                 std::min<std::uint64_t>(ahead.count, cursor.piece().size()), cursor);
  }
}

// One non-blocking call of the kernel's, for `most` bytes into the next pieces: how many came, 0
// for none now, kEof.
std::uint64_t End::ReceiveTcp(int tcp, const Cursor& cursor, std::uint64_t most, bool peek) {
  const MutableByteSpan piece = cursor.piece();
  const int flags = MSG_DONTWAIT | (peek ? MSG_PEEK : 0);
  for (;;) {
    const ssize_t came =
        piece.size() < std::min<std::uint64_t>(most, cursor.left())
            ? ReceivePieces(tcp, cursor, most, flags)
            : recv(tcp, piece.data(), std::min<std::size_t>(piece.size(), most), flags);
    if (came > 0) return static_cast<std::uint64_t>(came);
    if (came < 0 && errno == EINTR) continue;
    if (came < 0 && errno == EAGAIN) return 0;
    if (came < 0) NoteError(errno);
    tcp_ended_ = true;
    return Receiver::kEof;
  }
}

// As many as a program may have: what is looked at cannot be had in several goes. They are a lot
// for a small stack, so only who has them needs the room.
[[gnu::noinline]] ssize_t End::ReceivePieces(int tcp, const Cursor& cursor, std::uint64_t most,
                                             int flags) {
  std::array<iovec, IOV_MAX> vectors;
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = cursor.Pieces(vectors, most);
  return recvmsg(tcp, &message, flags);
}

bool End::Readable(int tcp, bool arm) {
  const bool readable = LookForBytes(tcp, arm);
  TakeBackIfGone(tcp);  // after arming, which may have taken the ring that told of it
  return readable;
}

bool End::LookForBytes(int tcp, bool arm) {
  using Step = Receiver::Step;
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  if (!hold.held() || RepairReceive(tcp) != Stand::kDone) return true;
  Receiver& receiver = memory_.receiver;
  Receiver::Wish wish{.bytes = 1, .follow = true, .leave = false, .sleep = arm};
  bool found = false;
  for (;;) {
    const Receiver::Action action =
        receiver.Next(LookAsReceiver(incoming_, FoundSoFar()), wish, TimePoint());
    std::size_t moved = 0;
    if (action.step == Step::kTake) return true;
    if (action.step == Step::kReadTcp) {
      std::byte byte;
      const iovec one{&byte, 1};
      const std::uint64_t came = ReceiveTcp(tcp, Cursor({&one, 1}), 1, true);
      receiver.Done(came == Receiver::kEof ? came : 0, TimePoint());
      found = found || came != 0;
      if (receiver.Left()) {
        if (arm && !found) TakeRing(sockets_.bells.data);
        return found;
      }
      if (found) wish.sleep = false;
      if (found) wish.bytes = 0;
      continue;
    }
    if (Carry(incoming_, receiver, action, {}, sockets_.bells, TimePoint(), moved)) continue;
    return found || action.step == Step::kEnd || action.step == Step::kBroken;
  }
}

bool End::ArmForMore(std::uint64_t gate) {
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  Empty(sockets_.bells.data);
  incoming_.words->reader_armed.store(1);
  return IncomingGate() != gate;
}

// How much this end has taken from the ring that it reads; nothing while TCP's bytes are next.
std::optional<std::uint64_t> End::TakenFromRing() {
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  if (!hold.held() || PhaseInRing() == 0) return std::nullopt;
  return memory_.receiver.consumed();
}

// What the peer may change beside the gate tells it nothing: it could have us look for ever.
bool End::SpinForBytes() {
  const DirectionWords& words = *incoming_.words;
  if (words.sender_cpu.load(std::memory_order_relaxed) == 0 || spinning_.test_and_set()) {
    return false;
  }
  spin_.Came();  // whatever was waited for before
  const std::optional<std::uint64_t> before = spin_.Skips() ? std::nullopt : TakenFromRing();
  if (!before || Gate{words.gate.load()}.shut()) {
    spinning_.clear();
    return false;
  }
  const auto changed = [&] {
    const Gate gate{words.gate.load()};
    return gate.cursor() != *before || gate.shut();
  };
  // Who is to send may need this very processor.
  const auto shared = [&] {
    const auto cpu = static_cast<std::uint32_t>(sched_getcpu()) + 1;
    return words.sender_cpu.load(std::memory_order_relaxed) == cpu;
  };
  const auto look = [&] {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (changed()) return true;
      Pause();
    }
    return false;
  };
  bool came = !shared() && look();
  for (TimePoint now; !came && spin_.GoOn(now = BootClock::now());) {
    if (!shared()) {
      came = look();
      continue;
    }
    GiveWay(spin_, now);
    came = changed();
  }
  if (came) spin_.Came();
  spinning_.clear();
  return came;
}

// A carrier's gate is not the peer's.
void End::RefuseMore() {
  if (sockets_.far == Far::kEnd) incoming_.words->gate.fetch_or(Gate::kReceiverShut);
}

std::uint64_t End::UnreadInRing() {
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  const Gate gate{incoming_.words->gate.load()};
  if ((incoming_.words->consumed.load() & kTakenBack) != 0) return 0;
  const std::uint64_t consumed = memory_.receiver.consumed();
  return gate.cursor() > consumed
             ? std::min<std::uint64_t>(gate.cursor() - consumed, incoming_.ring.size())
             : 0;
}

// A program that leaves waits for the peer's answer only, and not for ever.
bool End::WaitToReceive(int tcp, bool leaving, const Patience& patience) {
  if (!leaving) TakeBackIfGone(tcp);  // arming may have taken the ring that told of it
  // The kernel's socket would say again and again what it has said: that it has ended, or has bytes
  // from behind a phase whose end is still on its way. Not in the next phase, which may be here by
  // now.
  const std::uint64_t behind = tcp_waits_.exchange(0);
  const bool bell_only = leaving || AwaitsCarrier() || (behind != 0 && behind == PhaseInRing());
  std::array<pollfd, 2> fds = {pollfd{bell_only ? -1 : tcp, POLLIN, 0},
                               pollfd{hung_up() ? -1 : sockets_.bells.data, POLLIN, 0}};
  if (!Sleep(fds, patience)) return false;
  if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  if (fds[0].revents != 0) (void)LookForEnd(tcp);
  if (!leaving) TakeBackIfGone(tcp);
  return true;
}

// Whether the other end is known to have sent FIN by shutdown(2) and to be open. Not where this end
// has done the same: it is shut both ways then, as if it were being closed.
bool End::HalfClosed(int tcp) const {
  if (memory_.send_over) return false;
  const Result<std::optional<PeerSocket>> peer = FindPeerSocket(tcp);
  return peer.ok() && peer->has_value() && (*peer)->half_closed;
}

// Whether FIN came from the death of an end that had not read all that it was sent, which is RST
// where TCP's queue holds that (RFC 2525, 2.17). One that has shut its half down, or left, lives
// on.
bool End::DiedUnread(int tcp) {
  const DirectionWords& words = *outgoing_.words;
  const auto unread = [&] { return Gate{words.gate.load()}.cursor() != words.consumed.load(); };
  if (sockets_.far == Far::kCarrier || !unread() || words.abandoned != 0) return false;
  pollfd bell{sockets_.bells.room, 0, 0};
  if (!hung_up_ && !awaited_hang_up_.exchange(true) && !HalfClosed(tcp)) {
    (void)poll(&bell, 1, kHangUpMs);
  }
  // What it has read is final only now: it may have read the rest, and closed, meanwhile.
  return LookForHangUp() && words.abandoned == 0 && unread();
}

// Before bytes are sent again: whether the other end, which has not read them, has died, as above,
// and the program is not told of it yet. The kernel will say EPIPE, for RST comes behind FIN.
bool End::NoteDeath(int tcp) {
  if (sockets_.far == Far::kCarrier || !hung_up_ || outgoing_.words->abandoned != 0) return false;
  if (memory_.end_told || noted_) return false;
  pollfd fin{tcp, POLLRDHUP, 0};
  // Of RST the kernel tells.
  if (poll(&fin, 1, 0) <= 0 || fin.revents != POLLRDHUP) return false;
  NoteError(ECONNRESET);
  return true;
}

// What our ring holds for a receiver that is gone has to go over TCP, or it waits in vain.
void End::TakeBackIfGone(int tcp) {
  if (!hung_up() && outgoing_.words->abandoned == 0) return;
  Cursor none{Buffers()};
  if (SendSome(tcp, none, SendWish(0, false)) == Stand::kError) NoteUntold(errno);
}

// The kernel's socket is readable: with bytes, or because the stream is over. Looking takes an
// error away, so it is kept for the call that tells it. Whether the next step tells it.
bool End::LookForEnd(int tcp) {
  const Hold hold(memory_.receive_lock, memory_.repair_receive);  // so that it stays one phase
  std::byte byte;
  const ssize_t came = recv(tcp, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  tcp_waits_ = came > 0 && sockets_.far == Far::kCarrier ? PhaseInRing() : 0;
  if (came > 0) {
    Receiver& receiver = memory_.receiver;
    const bool at_rest = hold.held() && !memory_.repair_receive;
    if (at_rest) receiver.FoundTcp(LookAsReceiver(incoming_, FoundSoFar()));
    return receiver.state() == Receiver::State::kBroken;
  }
  if (came < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (came < 0) NoteError(errno);
  return tcp_ended_ = true;
}

// A connection that has failed takes nothing any more: nobody will read the ring.
void End::NoteError(int error) {
  memory_.receive_error = error;
  failed_ = noted_ = true;
}

// What a send had from the kernel's socket, which says it once, and could not tell the program.
// That this half is over it says again, and what does not end the connection comes again by itself.
void End::NoteUntold(int error) {
  constexpr std::array kOfTheCall = {EPIPE, EAGAIN, EINTR, EFAULT, ENOBUFS, ENOMEM};
  if (!noted_ && std::ranges::find(kOfTheCall, error) == kOfTheCall.end()) NoteError(error);
}

End::Departure End::Leave(int tcp, std::optional<Deadline> deadline) {
  Cursor none{Buffers()};
  Sender::Wish last = SendWish(0, true);
  last.leave = true;
  const CallDeadline quiet_by = CallDeadlineAfter(kQuietTimeout);
  int yields = 0;
  for (Stand stand; (stand = SendSome(tcp, none, last)) != Stand::kDone;) {
    if (stand == Stand::kError) return Departure::kReset;
    // A peer that takes something is given time again.
    const bool sends = stand == Stand::kWantsTcp;
    const Patience patience{.deadline = sends ? CallDeadlineAfter(kQuietTimeout) : quiet_by};
    if (WaitToSend(tcp, stand, patience, yields)) continue;
    Reset(tcp);
    return Departure::kReset;
  }
  return ReceiveLast(tcp, deadline ? *deadline : DeadlineAfter(kLeaveTimeout));
}

bool End::AwaitReturn(int tcp, Deadline deadline) {
  return ReceiveLast(tcp, deadline) == Departure::kDone;
}

End::Departure End::ReceiveLast(int tcp, Deadline deadline) {
  Cursor none{Buffers()};
  for (Stand stand; (stand = ReceiveSome(tcp, none, {.leave = true}, false)) != Stand::kDone;) {
    if (stand == Stand::kError) return Departure::kReset;
    const std::chrono::nanoseconds left = deadline - BootClock::now();
    if (left.count() <= 0) return Departure::kOwed;
    // Looks now and then: another process of this end's may have taken the bell.
    const auto most = std::min<std::chrono::nanoseconds>(left, kLeaveTimeout);
    (void)WaitToReceive(tcp, true, {.deadline = CallDeadlineAfter(most)});
    Empty(sockets_.bells.data);
  }
  return Departure::kDone;
}

}  // namespace rdfs::sock
