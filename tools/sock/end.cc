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

bool InitLock(pthread_mutex_t& lock) {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    pthread_mutex_init(&lock, &attributes) == 0;
  pthread_mutexattr_destroy(&attributes);
  return made;
}

// Holds a half's lock; notes in `repair` that the holder before died with it.
class Hold {
 public:
  Hold(pthread_mutex_t& lock, bool& repair) : lock_(lock) {
    if (pthread_mutex_lock(&lock_) != EOWNERDEAD) return;
    repair = true;
    pthread_mutex_consistent(&lock_);
  }
  ~Hold() { pthread_mutex_unlock(&lock_); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  pthread_mutex_t& lock_;
};

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

// --- sending

ssize_t End::Send(ByteSpan bytes, bool wait) {
  std::size_t sent = 0;
  for (;;) {
    const Sender::Wish wish{.bytes = bytes.size() - sent,
                            .ring = ring_,
                            .leave = false,
                            .sleep = wait,
                            .ring_bytes = ring_bytes_};
    const Stand stand = SendSome(bytes, wish, sent);
    if (stand == Stand::kError) return sent > 0 ? static_cast<ssize_t>(sent) : -1;
    if (stand == Stand::kDone) return static_cast<ssize_t>(sent);
    if (!wait) {
      if (sent > 0) return static_cast<ssize_t>(sent);
      errno = EAGAIN;
      return -1;
    }
    WaitToSend(stand);
  }
}

// Under the lock until nothing more can be done at once. Adds to `sent`.
End::Stand End::SendSome(ByteSpan bytes, const Sender::Wish& wish, std::size_t& sent) {
  using Step = Sender::Step;
  const Hold hold(memory_.send_lock, memory_.repair_send);
  Sender& sender = memory_.sender;
  if (memory_.repair_send) {
    const Result<std::uint64_t> position = SentPosition(sockets_.tcp, sockets_.opened);
    if (!position.ok()) return Reset();
    sender.Recover(LookAsSender(outgoing_, hung_up_), *position);
    memory_.repair_send = false;
  }
  const std::size_t goal = sent + wish.bytes;
  for (;;) {
    Sender::Wish now = wish;
    now.bytes = goal - sent;
    const Sender::Action action = sender.Next(LookAsSender(outgoing_, hung_up_), now);
    std::size_t moved = 0;
    const ByteSpan rest = bytes.subspan(sent, now.bytes);
    if (Carry(outgoing_, sender, action, rest, sockets_.bells, moved)) {
      sent += moved;
      continue;
    }
    switch (action.step) {
      case Step::kSendTcp:
      case Step::kResend: {
        int error = 0;
        const std::size_t went = SendTcp(action, rest, error);
        if (action.step == Step::kSendTcp) sent += went;
        sender.Done(went);
        if (error != 0 && error != EAGAIN) {
          errno = error;
          return Stand::kError;
        }
        if (went == 0) return Stand::kWantsTcp;
        break;
      }
      case Step::kSleep:
        return Stand::kWantsRoom;
      case Step::kWaitQuiet:
        return Stand::kSoon;
      case Step::kBroken:
        return Reset();
      default:
        return Stand::kDone;
    }
  }
}

// One non-blocking call of the kernel's. How many bytes it took, and errno in `error`.
std::size_t End::SendTcp(const Sender::Action& action, ByteSpan bytes, int& error) {
  std::array<ByteSpan, 2> pieces = {bytes.first(std::min<std::size_t>(bytes.size(), action.count)),
                                    ByteSpan()};
  if (action.step == Sender::Step::kResend) {
    pieces = Pieces(outgoing_, memory_.sender.ring_bytes(), action.at, action.count);
  }
  std::array<iovec, 2> vectors{};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    vectors[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = pieces[1].empty() ? 1 : 2;
  for (;;) {
    const ssize_t went = sendmsg(sockets_.tcp, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (went >= 0) return static_cast<std::size_t>(went);
    if (errno == EINTR) continue;
    error = errno;
    return 0;
  }
}

void End::WaitToSend(Stand stand) {
  if (stand == Stand::kSoon) {  // the peer's one system call
    sched_yield();
    return;
  }
  const bool hung_up = hung_up_;
  const bool for_room = stand == Stand::kWantsRoom;
  std::array<pollfd, 2> fds = {
      pollfd{sockets_.tcp, static_cast<short>(for_room ? 0 : POLLOUT), 0},
      pollfd{hung_up ? -1 : sockets_.bells.room, static_cast<short>(for_room ? POLLIN : 0), 0}};
  (void)poll(fds.data(), fds.size(), -1);
  if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  // A dead connection needs no room to be found out.
  if ((fds[0].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
}

int End::ShutdownSend() {
  std::size_t none = 0;
  for (;;) {
    const Stand stand = SendSome({}, {.ring = ring_, .ring_bytes = ring_bytes_}, none);
    if (stand != Stand::kWantsTcp) break;
    WaitToSend(stand);
  }
  return shutdown(sockets_.tcp, SHUT_WR);
}

// --- receiving

ssize_t End::Receive(MutableByteSpan bytes, bool wait) {
  for (;;) {
    std::size_t got = 0;
    const Stand stand =
        ReceiveSome(bytes, {.bytes = bytes.size(), .follow = true, .sleep = wait}, got);
    if (got > 0) return static_cast<ssize_t>(got);
    if (stand == Stand::kDone) return 0;
    if (stand == Stand::kError) return -1;
    if (!wait) {
      errno = EAGAIN;
      return -1;
    }
    WaitToReceive(false);
  }
}

End::Stand End::ReceiveSome(MutableByteSpan bytes, const Receiver::Wish& wish, std::size_t& got) {
  using Step = Receiver::Step;
  const Hold hold(memory_.receive_lock, memory_.repair_receive);
  Receiver& receiver = memory_.receiver;
  if (memory_.repair_receive) {
    const Result<std::uint64_t> position = ReceivedPosition(sockets_.tcp);
    if (!position.ok()) return Reset();
    receiver.Recover(*position);
    memory_.repair_receive = false;
  }
  for (;;) {
    Receiver::Wish now = wish;
    if (got > 0) now.bytes = 0;  // duties only: recv returns what is there
    const TimePoint time = BootClock::now();
    const Receiver::Action action =
        receiver.Next(LookAsReceiver(incoming_, hung_up_, tcp_ended_), now, time);
    std::size_t moved = 0;
    if (Carry(incoming_, receiver, action, bytes, sockets_.bells, time, moved)) {
      got += moved;
      continue;
    }
    switch (action.step) {
      case Step::kReadTcp: {
        const std::uint64_t came =
            ReceiveTcp(bytes.first(std::min<std::size_t>(bytes.size(), action.count)));
        receiver.Done(came, time);
        if (came != Receiver::kEof) got += came;
        if (receiver.Left() && came == 0) return Stand::kWantsBytes;
        break;
      }
      case Step::kSleep:
      case Step::kWaitReturned:
        return Stand::kWantsBytes;
      case Step::kBroken:
        return Reset();
      case Step::kEnd: {
        const int error = memory_.receive_error.exchange(0);
        if (error == 0) return Stand::kDone;
        errno = error;
        return Stand::kError;
      }
      default:
        return Stand::kDone;
    }
  }
}

// One non-blocking call of the kernel's: how many bytes came, 0 for none now, kEof.
std::uint64_t End::ReceiveTcp(MutableByteSpan bytes) {
  for (;;) {
    const ssize_t came = recv(sockets_.tcp, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (came > 0) return static_cast<std::uint64_t>(came);
    if (came < 0 && errno == EINTR) continue;
    if (came < 0 && errno == EAGAIN) return 0;
    if (came < 0) memory_.receive_error = errno;
    return Receiver::kEof;
  }
}

// A program that leaves waits for the peer's answer only, and not for ever.
void End::WaitToReceive(bool leaving) {
  const int timeout =
      leaving ? static_cast<int>(std::chrono::milliseconds(kLeaveTimeout).count()) : -1;
  std::array<pollfd, 2> fds = {pollfd{leaving ? -1 : sockets_.tcp, POLLIN, 0},
                               pollfd{hung_up_ ? -1 : sockets_.bells.data, POLLIN, 0}};
  if (poll(fds.data(), fds.size(), timeout) <= 0) return;
  if ((fds[1].revents & (POLLHUP | POLLERR)) != 0) hung_up_ = true;
  if (fds[0].revents != 0) LookForEnd();
}

// The kernel's socket is readable: with bytes, or because the stream is over. Looking takes an
// error away, so it is kept for the call that tells it.
void End::LookForEnd() {
  std::byte byte;
  const ssize_t came = recv(sockets_.tcp, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (came > 0 || (came < 0 && (errno == EAGAIN || errno == EINTR))) return;
  if (came < 0) memory_.receive_error = errno;
  tcp_ended_ = true;
}

// --- both

bool End::Leave() {
  std::size_t none = 0;
  const Sender::Wish last{.leave = true, .ring_bytes = ring_bytes_};
  for (Stand stand; (stand = SendSome({}, last, none)) != Stand::kDone;) {
    if (stand == Stand::kError) return false;
    WaitToSend(stand);
  }
  for (Stand stand; (stand = ReceiveSome({}, {.leave = true}, none)) != Stand::kDone;) {
    if (stand == Stand::kError) return false;
    WaitToReceive(true);
    Empty(sockets_.bells.data);
  }
  return true;
}

// Both ends get ECONNRESET: the one way to say that bytes cannot be kept in order (RFC 9293,
// ABORT).
End::Stand End::Reset() {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  (void)connect(sockets_.tcp, &none, sizeof(none));
  errno = ECONNRESET;
  return Stand::kError;
}

}  // namespace rdfs::sock
