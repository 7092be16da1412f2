// The sending half of an End.
#include <linux/sock_diag.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "tools/sock/end_parts.h"

namespace rdfs::sock {
namespace {

// Rings that are found full so often are exchanged for larger ones.
constexpr std::uint32_t kFullToGrow = 4;
// How old what is known of the peer may be when something is sent.
constexpr std::int64_t kLookEveryNs = 20'000'000;
// Who waits for the peer's one system call gives the processor away so often, and then sleeps.
constexpr int kMostYields = 1000;
// A reader that has taken nothing from a full ring for so long is not waited for: bytes go on over
// TCP, whose buffers are larger, and programs may count on those and write to each other before
// either reads. Sooner where bytes for this end lie unread as well. (No bell tells who sleeps for
// room that another thread, or process, shuts this half down: that is found then, too.) Between
// hosts what the reader has taken is known only when the network, and two carriers, have said so.
constexpr std::chrono::milliseconds kStuck{100};
constexpr std::chrono::milliseconds kBothStuck{5};
constexpr std::chrono::milliseconds kBothStuckFar{30};

// How many bytes the kernel's socket takes now, whatever its peer reads: less than the free memory
// says, because a packet has a head (sk_stream_memory_free() in net/core/stream.c).
std::uint64_t TcpRoom(int tcp) {
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t size = sizeof(memory);
  if (getsockopt(tcp, SOL_SOCKET, SO_MEMINFO, memory.data(), &size) != 0) return 0;
  const std::uint64_t most = memory[SK_MEMINFO_SNDBUF];
  const std::uint64_t queued = memory[SK_MEMINFO_WMEM_QUEUED];
  return (most - std::min(most, queued)) / 8 * 7;
}

}  // namespace

Sender::Wish End::SendWish(std::size_t bytes, bool sleep) const {
  return {.bytes = bytes, .ring = ring_, .leave = false, .sleep = sleep, .ring_bytes = ring_bytes_};
}

ssize_t End::Send(int tcp, Buffers buffers, const Patience& patience) {
  PublishCpu();
  LookNowAndThen();
  Cursor cursor(buffers);
  const auto sent = [&] { return static_cast<ssize_t>(cursor.gone()); };
  int yields = 0;
  for (;;) {
    if (memory_.send_over) {  // another thread may shut it down while this one sleeps
      errno = EPIPE;
      return sent() > 0 ? sent() : -1;
    }
    const Stand stand = SendSome(tcp, cursor, SendWish(cursor.left(), patience.wait));
    if (stand == Stand::kError && sent() > 0) NoteUntold(errno);
    if (stand == Stand::kError) return sent() > 0 ? sent() : -1;
    if (stand == Stand::kDone) return sent();
    if (stand == Stand::kSoon && !patience.wait) (void)LookForHangUp();
    if (!patience.wait) errno = EAGAIN;
    if (!patience.wait || !WaitToSend(tcp, stand, With(cursor.gone(), patience), yields)) {
      return sent() > 0 ? sent() : -1;
    }
  }
}

// For the receiver, which does not spin where that keeps us from running. A carrier does not ask.
void End::PublishCpu() {
  if (sockets_.far == Far::kCarrier) return;
  const auto cpu = static_cast<std::uint32_t>(sched_getcpu()) + 1;
  if (cpu_.load(std::memory_order_relaxed) == cpu) return;
  cpu_.store(cpu, std::memory_order_relaxed);
  outgoing_.words->sender_cpu.store(cpu, std::memory_order_relaxed);
}

// A ring has room for a peer that is gone, too, and who only writes would not hear of it. The
// coarse clock takes no system call and few cycles.
void End::LookNowAndThen() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const std::int64_t ns = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  if (hung_up() || ns - looked_ns_.load(std::memory_order_relaxed) < kLookEveryNs) return;
  looked_ns_.store(ns, std::memory_order_relaxed);
  (void)LookForHangUp();
}

// A ring that is full again and again is too small.
void End::NoteFull() {
  if (++full_ % kFullToGrow == 0 && ring_bytes_ * 2 <= outgoing_.ring.size()) {
    ring_bytes_ = std::min<std::uint64_t>(ring_bytes_ * 4, outgoing_.ring.size());
  }
}

std::chrono::nanoseconds End::PatienceForRoom() const {
  if (!RingHasBytes()) return kStuck;
  return sockets_.far == Far::kCarrier ? kBothStuckFar : kBothStuck;
}

// Under the lock of the sending half, when there is no room: whether it has been so for too long.
bool End::IsStuck() {
  if (memory_.sender.state() != Sender::State::kRing) return false;
  const std::uint64_t consumed = outgoing_.words->consumed.load();
  const TimePoint now = BootClock::now();
  if (full_since_ == TimePoint() || consumed != full_at_) {
    full_since_ = now;
    full_at_ = consumed;
  }
  return stuck_ = now - full_since_ >= PatienceForRoom();
}

bool End::GivesUpOnRing() {
  if (memory_.sender.state() != Sender::State::kRing) {
    stuck_ = false;
    full_since_ = {};
  }
  return stuck_;
}

End::Stand End::RepairSend(int tcp) {
  if (!memory_.repair_send) return Stand::kDone;
  const Result<std::uint64_t> position = SentPosition(tcp, sockets_.opened);
  if (!position.ok()) return Broken(tcp);
  memory_.sender.Recover(LookAsSender(outgoing_, FoundSoFar()), *position);
  memory_.repair_send = false;
  return Stand::kDone;
}

// Under the lock until nothing more can be done at once.
End::Stand End::SendSome(int tcp, Cursor& cursor, const Sender::Wish& wish) {
  const Hold hold(memory_.send_lock, memory_.repair_send);
  if (!hold.held()) {
    errno = EAGAIN;
    return Stand::kError;
  }
  if (RepairSend(tcp) != Stand::kDone) return Stand::kError;
  // Behind FIN nothing is read any more: another thread may have sent that just now.
  if (memory_.send_over && cursor.left() > 0) {
    errno = EPIPE;
    return Stand::kError;
  }
  Sender& sender = memory_.sender;
  for (;;) {
    Sender::Wish now = wish;
    // Into a ring piece by piece; the kernel takes them all at once.
    const bool ring = sender.state() == Sender::State::kRing;
    now.bytes = ring ? cursor.piece().size() : cursor.left();
    now.ring = wish.ring && !GivesUpOnRing();
    const bool leaves = wish.leave || sender.Leaving();
    if (leaves && !memory_.send_over) now.tcp_room = TcpRoom(tcp);
    const Sender::Action action = sender.Next(LookAsSender(outgoing_, FoundSoFar()), now);
    std::size_t moved = 0;
    if (Carry(outgoing_, sender, action, cursor.piece(), sockets_.bells, moved)) {
      cursor.Advance(moved);
      continue;
    }
    bool over = false;
    const Stand stand = SendStep(tcp, action, cursor, over);
    if (over) return stand;
  }
}

// A step that is the kernel's, or the last of a call: then `over`.
End::Stand End::SendStep(int tcp, const Sender::Action& action, Cursor& cursor, bool& over) {
  using Step = Sender::Step;
  over = true;
  switch (action.step) {
    case Step::kSendTcp:
    case Step::kResend: {
      const bool died = action.step == Step::kResend && NoteDeath(tcp);
      int error = 0;
      const std::size_t went = SendTcp(tcp, action, cursor, error);
      if (action.step == Step::kSendTcp) cursor.Advance(went);
      memory_.sender.Done(went);
      if (died && cursor.left() > 0) error = EPIPE;  // as it is once the answer is here
      if (error != 0 && error != EAGAIN) {
        errno = error;
        return Stand::kError;
      }
      over = went == 0;
      return Stand::kWantsTcp;
    }
    case Step::kSleep:
      if (memory_.sender.state() == Sender::State::kRing) NoteFull();
      if (!IsStuck()) return Stand::kWantsRoom;
      over = false;
      return Stand::kDone;
    case Step::kWaitQuiet:
      return Stand::kSoon;
    case Step::kBroken:
      return Broken(tcp);
    default:
      return Stand::kDone;
  }
}

// One non-blocking call of the kernel's. How many bytes it took, and errno in `error`.
std::size_t End::SendTcp(int tcp, const Sender::Action& action, const Cursor& cursor, int& error) {
  std::array<iovec, 16> vectors{};
  msghdr message{};
  message.msg_iov = vectors.data();
  if (action.step == Sender::Step::kResend) {
    for (const ByteSpan piece :
         Pieces(outgoing_, memory_.sender.ring_bytes(), action.at, action.count)) {
      vectors[message.msg_iovlen++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
  } else {
    message.msg_iovlen = cursor.Pieces(vectors, action.count);
  }
  for (;;) {
    const ssize_t went = sendmsg(tcp, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (went >= 0) return static_cast<std::size_t>(went);
    if (errno == EINTR) continue;
    error = errno;
    return 0;
  }
}

// The peer is inside a system call, or was killed there.
bool End::LookForHangUp() {
  const int saved = errno;
  pollfd bell{sockets_.bells.room, 0, 0};
  if (poll(&bell, 1, 0) > 0 && (bell.revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  errno = saved;
  return hung_up_;
}

bool End::WaitForQuiet(int tcp, const Patience& patience, int& yields) {
  (void)LookForHangUp();
  if (++yields <= kMostYields) {
    sched_yield();
    return true;
  }
  std::array<pollfd, 1> dead = {pollfd{tcp, 0, 0}};
  if (!Sleep(dead, patience, kQuietLook)) return false;
  if (dead[0].revents != 0) failed_ = true;
  return true;
}

// `yields`: of this call so far.
bool End::WaitToSend(int tcp, Stand stand, const Patience& patience, int& yields) {
  if (stand == Stand::kSoon) return WaitForQuiet(tcp, patience, yields);
  const bool no_bell = hung_up();
  const bool for_room = stand == Stand::kWantsRoom;
  std::array<pollfd, 2> fds = {
      pollfd{tcp, static_cast<short>(for_room ? 0 : POLLOUT), 0},
      pollfd{no_bell ? -1 : sockets_.bells.room, static_cast<short>(for_room ? POLLIN : 0), 0}};
  const auto most = for_room ? PatienceForRoom() : std::chrono::nanoseconds::max();
  if (!Sleep(fds, patience, most)) return false;
  if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  // A dead connection needs no room to be found out.
  if ((fds[0].revents & (POLLHUP | POLLERR)) != 0) failed_ = true;
  return true;
}

int End::ShutdownSend(int tcp, int how) {
  if (how != SHUT_WR && how != SHUT_RDWR) return shutdown(tcp, how);  // EINVAL, and nothing done
  {
    const Hold hold(memory_.send_lock, memory_.repair_send);
    memory_.send_over = true;
  }
  BeforeClose(tcp);
  return shutdown(tcp, how);
}

void End::BeforeClose(int tcp) {
  Cursor none{Buffers()};
  // After this nobody notices that bytes are lost.
  if (sockets_.far == Far::kCarrier && !hung_up()) (void)LookForHangUp();
  int yields = 0;
  for (Stand stand; (stand = SendSome(tcp, none, SendWish(0, false))) != Stand::kDone;) {
    if (stand == Stand::kError) NoteUntold(errno);
    if (stand != Stand::kWantsTcp) return;
    const Patience patience{.deadline = CallDeadlineAfter(kLeaveTimeout)};
    if (WaitToSend(tcp, stand, patience, yields)) continue;
    Reset(tcp);
    return;
  }
}

End::Outlet End::Writable(int tcp, bool arm) {
  using Step = Sender::Step;
  if (memory_.send_over) return Outlet::kTcp;
  const Hold hold(memory_.send_lock, memory_.repair_send);
  if (!hold.held() || RepairSend(tcp) != Stand::kDone) return Outlet::kRoom;
  Sender& sender = memory_.sender;
  for (;;) {
    Sender::Wish wish = SendWish(1, arm);
    wish.ring = wish.ring && !GivesUpOnRing();
    const Sender::Action action = sender.Next(LookAsSender(outgoing_, FoundSoFar()), wish);
    std::size_t moved = 0;
    if (action.step == Step::kPut) return Outlet::kRoom;
    if (action.step == Step::kSleep && IsStuck()) continue;
    if (action.step == Step::kSleep) return Outlet::kFull;
    // As Send finds it, which says EAGAIN then: the peer may have been killed in there.
    if (action.step == Step::kWaitQuiet && LookForHangUp()) continue;
    if (action.step == Step::kWaitQuiet) return Outlet::kSoon;
    // Only who sends settles what becomes of the ring's bytes (kKeep).
    if (action.step == Step::kSendTcp || action.step == Step::kResend ||
        action.step == Step::kKeep) {
      return Outlet::kTcp;
    }
    if (!Carry(outgoing_, sender, action, {}, sockets_.bells, moved)) return Outlet::kRoom;
  }
}

}  // namespace rdfs::sock
