#include "tools/sock/end.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

namespace rdfs::sock {
namespace {

// Numbers of <netinet/tcp.h>, which cannot stand beside <linux/tcp.h> (the whole of tcp_info).
enum : std::uint8_t {
  kFinWait1 = 4,
  kFinWait2 = 5,
  kTimeWait = 6,
  kCloseWait = 8,
  kLastAck = 9,
  kClosing = 11
};

bool OurFinWent(std::uint8_t state) {
  return state == kFinWait1 || state == kFinWait2 || state == kTimeWait || state == kLastAck ||
         state == kClosing;
}
bool TheirFinCame(std::uint8_t state) {
  return state == kTimeWait || state == kCloseWait || state == kLastAck || state == kClosing;
}

Result<tcp_info> Info(int tcp) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(tcp, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return Status::FromErrno(errno, "TCP_INFO");
  }
  return info;
}

// TCP_INFO and what `request` counts, of one and the same moment.
struct Moment {
  tcp_info info;
  std::uint64_t queued;
};
Result<Moment> At(int tcp, unsigned long request) {
  for (;;) {
    RDFS_ASSIGN_OR_RETURN(const tcp_info before, Info(tcp));
    int queued = 0;
    if (ioctl(tcp, request, &queued) != 0) return Status::FromErrno(errno, "the socket's queue");
    RDFS_ASSIGN_OR_RETURN(const tcp_info after, Info(tcp));
    if (before.tcpi_bytes_acked == after.tcpi_bytes_acked &&
        before.tcpi_bytes_received == after.tcpi_bytes_received &&
        before.tcpi_state == after.tcpi_state) {
      return Moment{after, static_cast<std::uint64_t>(queued)};
    }
  }
}

// Rings that are found full so often are exchanged for larger ones.
constexpr std::uint32_t kFullToGrow = 4;
// Looks at the ring between two looks at the clock.
constexpr int kLooksPerClock = 16;

bool InitLock(pthread_mutex_t& lock) {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK) == 0 &&
                    pthread_mutex_init(&lock, &attributes) == 0;
  pthread_mutexattr_destroy(&attributes);
  return made;
}

// Holds a half's lock; notes in `repair` that the holder before died with it. Does not hold it when
// this very thread does, of which a signal handler is the only way.
class Hold {
 public:
  Hold(pthread_mutex_t& lock, bool& repair) : lock_(lock) {
    const int result = pthread_mutex_lock(&lock_);
    held_ = result != EDEADLK;
    if (result != EOWNERDEAD) return;
    repair = true;
    pthread_mutex_consistent(&lock_);
  }
  ~Hold() {
    if (held_) pthread_mutex_unlock(&lock_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  [[nodiscard]] bool held() const { return held_; }

 private:
  pthread_mutex_t& lock_;
  bool held_;
};

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Result<std::uint64_t> SentPosition(int tcp, bool opened) {
  RDFS_ASSIGN_OR_RETURN(const Moment moment, At(tcp, SIOCOUTQ));
  const std::uint64_t extra = (opened ? 1U : 0U) + (OurFinWent(moment.info.tcpi_state) ? 1U : 0U);
  return moment.info.tcpi_bytes_acked + moment.queued - extra;
}

Result<std::uint64_t> ReceivedPosition(int tcp) {
  RDFS_ASSIGN_OR_RETURN(const Moment moment, At(tcp, SIOCINQ));
  return moment.info.tcpi_bytes_received - moment.queued -
         (TheirFinCame(moment.info.tcpi_state) ? 1U : 0U);
}

Result<EndMemory*> EndMemory::Create(void* place, int tcp, bool opened,
                                     std::uint32_t largest_ring) {
  RDFS_ASSIGN_OR_RETURN(const std::uint64_t sent, SentPosition(tcp, opened));
  RDFS_ASSIGN_OR_RETURN(const std::uint64_t received, ReceivedPosition(tcp));
  auto* memory = new (place) EndMemory;
  if (!InitLock(memory->send_lock) || !InitLock(memory->receive_lock)) {
    return Status(Code::kUnavailable, "no robust locks between processes here");
  }
  memory->sender = Sender(sent, largest_ring);
  memory->receiver = Receiver(received, largest_ring);
  return memory;
}

// What is left of a call's pieces of memory, and how many bytes have gone.
class End::Cursor {
 public:
  explicit Cursor(Buffers buffers) : buffers_(buffers) {
    for (const iovec& buffer : buffers) left_ += buffer.iov_len;
    Skip();
  }
  [[nodiscard]] std::size_t left() const { return left_; }
  [[nodiscard]] std::size_t gone() const { return gone_; }
  // The piece that is next.
  [[nodiscard]] MutableByteSpan piece() const {
    if (buffers_.empty()) return {};
    const iovec& buffer = buffers_.front();
    return MutableByteSpan(static_cast<std::byte*>(buffer.iov_base), buffer.iov_len).subspan(at_);
  }
  // The next pieces with `most` bytes at most, as many as fit into `out`. Returns how many.
  std::size_t Pieces(std::span<iovec> out, std::size_t most) const {
    std::size_t count = 0;
    std::size_t at = at_;
    for (const iovec& buffer : buffers_) {
      if (count == out.size() || most == 0) break;
      const std::size_t length = std::min(buffer.iov_len - at, most);
      out[count++] = {static_cast<std::byte*>(buffer.iov_base) + at, length};
      most -= length;
      at = 0;
    }
    return count;
  }
  void Advance(std::size_t bytes) {
    gone_ += bytes;
    left_ -= bytes;
    while (bytes > 0) {
      const std::size_t here = std::min(bytes, buffers_.front().iov_len - at_);
      at_ += here;
      bytes -= here;
      Skip();
    }
  }

 private:
  void Skip() {
    while (!buffers_.empty() && at_ == buffers_.front().iov_len) {
      buffers_ = buffers_.subspan(1);
      at_ = 0;
    }
  }
  Buffers buffers_;
  std::size_t at_ = 0;  // in the first of them
  std::size_t left_ = 0;
  std::size_t gone_ = 0;
};

// --- sending

Sender::Wish End::SendWish(std::size_t bytes, bool sleep) const {
  return {.bytes = bytes, .ring = ring_, .leave = false, .sleep = sleep, .ring_bytes = ring_bytes_};
}

ssize_t End::Send(int tcp, Buffers buffers, const Patience& patience) {
  if (memory_.send_over) {
    errno = EPIPE;
    return -1;
  }
  PublishCpu();
  Cursor cursor(buffers);
  const auto sent = [&] { return static_cast<ssize_t>(cursor.gone()); };
  for (;;) {
    const Stand stand = SendSome(tcp, cursor, SendWish(cursor.left(), patience.wait));
    if (stand == Stand::kError) return sent() > 0 ? sent() : -1;
    if (stand == Stand::kDone) return sent();
    if (stand == Stand::kWantsRoom) NoteFull();
    if (stand == Stand::kSoon && !patience.wait) LookForHangUp();
    if (!patience.wait) errno = EAGAIN;
    if (!patience.wait || !WaitToSend(tcp, stand, patience)) return sent() > 0 ? sent() : -1;
  }
}

// For the receiver, which does not spin where that keeps us from running.
void End::PublishCpu() {
  const auto cpu = static_cast<std::uint32_t>(sched_getcpu()) + 1;
  if (cpu_.load(std::memory_order_relaxed) == cpu) return;
  cpu_.store(cpu, std::memory_order_relaxed);
  outgoing_.words->sender_cpu.store(cpu, std::memory_order_relaxed);
}

// A ring that is full again and again is too small.
void End::NoteFull() {
  if (++full_ % kFullToGrow == 0 && ring_bytes_ * 2 <= outgoing_.ring.size()) {
    ring_bytes_ = std::min<std::uint64_t>(ring_bytes_ * 4, outgoing_.ring.size());
  }
}

End::Stand End::RepairSend(int tcp) {
  if (!memory_.repair_send) return Stand::kDone;
  const Result<std::uint64_t> position = SentPosition(tcp, sockets_.opened);
  if (!position.ok()) return Broken(tcp);
  memory_.sender.Recover(LookAsSender(outgoing_, hung_up_), *position);
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
  Sender& sender = memory_.sender;
  for (;;) {
    Sender::Wish now = wish;
    // Into a ring piece by piece; the kernel takes them all at once.
    const bool ring = sender.state() == Sender::State::kRing;
    now.bytes = ring ? cursor.piece().size() : cursor.left();
    const Sender::Action action = sender.Next(LookAsSender(outgoing_, hung_up_), now);
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
      int error = 0;
      const std::size_t went = SendTcp(tcp, action, cursor, error);
      if (action.step == Step::kSendTcp) cursor.Advance(went);
      memory_.sender.Done(went);
      if (error != 0 && error != EAGAIN) {
        errno = error;
        return Stand::kError;
      }
      over = went == 0;
      return Stand::kWantsTcp;
    }
    case Step::kSleep:
      return Stand::kWantsRoom;
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

namespace {

// Sleeps until one of `fds` says something. False, with errno, when the call is over instead.
bool Sleep(std::span<pollfd> fds, const Patience& patience) {
  const TimePoint now = BootClock::now();
  if (now >= patience.deadline) {
    errno = EAGAIN;
    return false;
  }
  if (poll(fds.data(), fds.size(), PollTimeoutMs(patience.deadline, now)) >= 0) return true;
  for (pollfd& fd : fds) fd.revents = 0;
  return errno == EINTR && (patience.interrupts == nullptr || !patience.interrupts());
}

}  // namespace

// The peer is inside a system call, or was killed there.
void End::LookForHangUp() {
  pollfd bell{sockets_.bells.room, 0, 0};
  if (poll(&bell, 1, 0) > 0 && (bell.revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
}

bool End::WaitToSend(int tcp, Stand stand, const Patience& patience) {
  if (stand == Stand::kSoon) {  // the peer's one system call
    LookForHangUp();
    sched_yield();
    return true;
  }
  const bool hung_up = hung_up_;
  const bool for_room = stand == Stand::kWantsRoom;
  std::array<pollfd, 2> fds = {
      pollfd{tcp, static_cast<short>(for_room ? 0 : POLLOUT), 0},
      pollfd{hung_up ? -1 : sockets_.bells.room, static_cast<short>(for_room ? POLLIN : 0), 0}};
  if (!Sleep(fds, patience)) return false;
  if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  // A dead connection needs no room to be found out.
  if ((fds[0].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  return true;
}

int End::ShutdownSend(int tcp, int how) {
  BeforeClose(tcp);
  memory_.send_over = true;
  return shutdown(tcp, how);
}

void End::BeforeClose(int tcp) {
  Cursor none{Buffers()};
  while (SendSome(tcp, none, SendWish(0, false)) == Stand::kWantsTcp) {
    if (WaitToSend(tcp, Stand::kWantsTcp, {.deadline = DeadlineAfter(kLeaveTimeout)})) continue;
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
    const Sender::Action action = sender.Next(LookAsSender(outgoing_, hung_up_), SendWish(1, arm));
    std::size_t moved = 0;
    if (action.step == Step::kPut) return Outlet::kRoom;
    if (action.step == Step::kSleep) return Outlet::kFull;
    if (action.step == Step::kSendTcp || action.step == Step::kResend) return Outlet::kTcp;
    if (!Carry(outgoing_, sender, action, {}, sockets_.bells, moved)) return Outlet::kRoom;
  }
}

// --- receiving

ssize_t End::Receive(int tcp, Buffers buffers, const Patience& patience, bool peek) {
  Cursor cursor(buffers);
  const auto result = [&] { return cursor.gone() > 0 ? static_cast<ssize_t>(cursor.gone()) : -1; };
  bool arm = false;
  for (;;) {
    const std::size_t before = cursor.gone();
    const Stand stand =
        ReceiveSome(tcp, cursor, {.bytes = cursor.left(), .follow = true, .sleep = arm}, peek);
    const bool came = cursor.gone() > before;
    if (came && (!patience.all || peek || cursor.left() == 0)) return result();
    if (stand == Stand::kDone && !came) return static_cast<ssize_t>(cursor.gone());
    if (stand == Stand::kError) return result();
    if (came) {
      arm = false;
      continue;
    }
    if (!patience.wait) {
      // The kernel has announced it, maybe: a ring that stays empty has to be told why.
      const bool look = stand == Stand::kRingEmpty && !tcp_ended_;
      if (look) LookForEnd(tcp);
      if (look && tcp_ended_) continue;
      errno = EAGAIN;
      return result();
    }
    if (!arm && stand == Stand::kRingEmpty && SpinForBytes()) continue;
    if (arm && !WaitToReceive(tcp, false, patience)) return result();
    arm = !arm;
  }
}

End::Stand End::RepairReceive(int tcp) {
  if (!memory_.repair_receive) return Stand::kDone;
  const Result<std::uint64_t> position = ReceivedPosition(tcp);
  if (!position.ok()) return Broken(tcp);
  memory_.receiver.Recover(*position);
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
  for (;;) {
    const bool came = cursor.gone() > before;
    const bool more = !peeked && (!came || receiver.state() == Receiver::State::kRing);
    Receiver::Wish now = wish;
    // With something in hand duties only: recv returns what is there.
    now.bytes = more ? cursor.piece().size() : 0;
    if (came) now.sleep = false;
    const Receiver::Action action =
        receiver.Next(LookAsReceiver(incoming_, hung_up_, tcp_ended_), now, time);
    std::size_t moved = 0;
    const bool look = peek && action.step == Receiver::Step::kTake;
    if (!look && Carry(incoming_, receiver, action, cursor.piece(), sockets_.bells, time, moved)) {
      cursor.Advance(moved);
      continue;
    }
    bool over = false;
    const Stand stand = ReceiveStep(tcp, action, cursor, peek, over);
    peeked = peek && cursor.gone() > before;
    if (over || look) return stand;
  }
}

// A step that is the kernel's, or the last of a call (then `over`), or a look into the ring.
End::Stand End::ReceiveStep(int tcp, const Receiver::Action& action, Cursor& cursor, bool peek,
                            bool& over) {
  using Step = Receiver::Step;
  Receiver& receiver = memory_.receiver;
  const MutableByteSpan piece = cursor.piece();
  over = true;
  switch (action.step) {
    case Step::kTake:
      for (const ByteSpan part :
           Pieces(incoming_, receiver.ring_bytes(), action.at, action.count)) {
        std::copy(part.begin(), part.end(), cursor.piece().begin());
        cursor.Advance(part.size());
      }
      return Stand::kDone;
    case Step::kReadTcp: {
      const std::uint64_t came =
          ReceiveTcp(tcp, piece.first(std::min<std::size_t>(piece.size(), action.count)), peek);
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
      errno = error;
      return Stand::kError;
    }
    default:
      return Stand::kDone;
  }
}

// One non-blocking call of the kernel's: how many bytes came, 0 for none now, kEof.
std::uint64_t End::ReceiveTcp(int tcp, MutableByteSpan bytes, bool peek) {
  for (;;) {
    const ssize_t came =
        recv(tcp, bytes.data(), bytes.size(), MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
    if (came > 0) return static_cast<std::uint64_t>(came);
    if (came < 0 && errno == EINTR) continue;
    if (came < 0 && errno == EAGAIN) return 0;
    if (came < 0) NoteError(errno);
    return Receiver::kEof;
  }
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
        receiver.Next(LookAsReceiver(incoming_, hung_up_, tcp_ended_), wish, TimePoint());
    std::size_t moved = 0;
    if (action.step == Step::kTake) return true;
    if (action.step == Step::kReadTcp) {
      std::byte byte;
      const std::uint64_t came = ReceiveTcp(tcp, MutableByteSpan(&byte, 1), true);
      receiver.Done(came == Receiver::kEof ? came : 0, TimePoint());
      found = found || came != 0;
      if (receiver.Left()) return found;
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

bool End::SpinForBytes() {
  const std::uint32_t cpu = static_cast<std::uint32_t>(sched_getcpu()) + 1;
  const DirectionWords& words = *incoming_.words;
  const std::uint32_t theirs = words.sender_cpu.load(std::memory_order_relaxed);
  // Who shares this processor cannot run while we spin.
  if (theirs == 0 || theirs == cpu || spinning_.test_and_set()) return false;
  const std::uint64_t before = words.consumed.load();
  if (Gate{words.gate.load()}.shut()) {
    spinning_.clear();
    return false;
  }
  const auto changed = [&] {
    const Gate gate{words.gate.load()};
    return gate.cursor() != before || gate.shut();
  };
  spin_.Came();  // whatever was waited for before
  bool came = false;
  do {
    for (int i = 0; i < kLooksPerClock && !came; ++i) {
      came = changed();
      Pause();
    }
  } while (!came && spin_.GoOn(BootClock::now()));
  if (came) spin_.Came();
  spinning_.clear();
  return came;
}

std::uint64_t End::UnreadInRing() {
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  const Gate gate{incoming_.words->gate.load()};
  const std::uint64_t consumed = memory_.receiver.consumed();
  return gate.cursor() > consumed
             ? std::min<std::uint64_t>(gate.cursor() - consumed, incoming_.ring.size())
             : 0;
}

// A program that leaves waits for the peer's answer only, and not for ever.
bool End::WaitToReceive(int tcp, bool leaving, const Patience& patience) {
  if (!leaving) TakeBackIfGone(tcp);  // arming may have taken the ring that told of it
  std::array<pollfd, 2> fds = {pollfd{leaving ? -1 : tcp, POLLIN, 0},
                               pollfd{hung_up_ ? -1 : sockets_.bells.data, POLLIN, 0}};
  if (!Sleep(fds, patience)) return false;
  if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  if (fds[0].revents != 0) LookForEnd(tcp);
  if (!leaving) TakeBackIfGone(tcp);
  return true;
}

// What our ring holds for a receiver that is gone has to go over TCP, or it waits in vain.
void End::TakeBackIfGone(int tcp) {
  if (!hung_up_ && outgoing_.words->abandoned == 0) return;
  Cursor none{Buffers()};
  (void)SendSome(tcp, none, SendWish(0, false));
}

// The kernel's socket is readable: with bytes, or because the stream is over. Looking takes an
// error away, so it is kept for the call that tells it.
void End::LookForEnd(int tcp) {
  std::byte byte;
  const ssize_t came = recv(tcp, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (came > 0 || (came < 0 && (errno == EAGAIN || errno == EINTR))) return;
  if (came < 0) NoteError(errno);
  tcp_ended_ = true;
}

// A connection that has failed takes nothing any more: nobody will read the ring.
void End::NoteError(int error) {
  memory_.receive_error = error;
  hung_up_ = true;
}

// --- both

End::Departure End::Leave(int tcp) {
  Cursor none{Buffers()};
  Sender::Wish last = SendWish(0, true);
  last.leave = true;
  for (Stand stand; (stand = SendSome(tcp, none, last)) != Stand::kDone;) {
    if (stand == Stand::kError || !WaitToSend(tcp, stand, {})) return Departure::kReset;
  }
  return ReceiveLast(tcp, DeadlineAfter(kLeaveTimeout));
}

bool End::AwaitReturn(int tcp) { return ReceiveLast(tcp, Deadline::max()) == Departure::kDone; }

End::Departure End::ReceiveLast(int tcp, Deadline deadline) {
  Cursor none{Buffers()};
  for (Stand stand; (stand = ReceiveSome(tcp, none, {.leave = true}, false)) != Stand::kDone;) {
    if (stand == Stand::kError) return Departure::kReset;
    if (BootClock::now() >= deadline) return Departure::kOwed;
    (void)WaitToReceive(tcp, true, {.deadline = deadline});
    Empty(sockets_.bells.data);
  }
  return Departure::kDone;
}

void End::Reset(int tcp) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  (void)connect(tcp, &none, sizeof(none));
}

End::Stand End::Broken(int tcp) {
  Reset(tcp);
  errno = ECONNRESET;
  return Stand::kError;
}

}  // namespace rdfs::sock
