// The calls that move bytes, as programs see them. Each is the C library's for what is no
// connection of ours, or one that stays on TCP.
#include "tools/sock/preload/io.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tools/sock/preload/calling.h"
#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/signals.h"
#include "tools/sock/preload/timeout.h"

namespace rdfs::sock {
namespace {

constexpr int kOnlyTcpSends = MSG_OOB | MSG_FASTOPEN | MSG_ZEROCOPY;

constinit std::atomic<bool> g_sends_zero_copy{false};
// Not of the stream: the kernel's own matter.
constexpr int kBesideTheStream = MSG_OOB | MSG_ERRQUEUE;

std::size_t Total(Buffers buffers) {
  std::size_t total = 0;
  for (const iovec& buffer : buffers) total += buffer.iov_len;
  return total;
}

Patience PatienceFor(const Connection& connection, int flags, std::int64_t timeout_ns) {
  Patience patience;
  patience.wait = (flags & MSG_DONTWAIT) == 0 && !connection.slot().nonblocking;
  patience.all = (flags & MSG_WAITALL) != 0;
  patience.interrupts = SignalsInterrupt;
  if (patience.wait && timeout_ns > 0) {
    patience.deadline = CallDeadlineAfter(std::chrono::nanoseconds(timeout_ns));
    // signal(7): with a timeout set no call is restarted.
    patience.interrupts = [] { return true; };
  }
  return patience;
}

ssize_t SendOnEnd(Connection& connection, int fd, Buffers buffers, int flags) {
  const Calling calling(connection, fd);
  const ssize_t sent = connection.end().Send(
      fd, buffers, PatienceFor(connection, flags, connection.slot().send_timeout_ns));
  Counts& counts = TheCounts();
  ++counts.sends;
  if (sent > 0) counts.bytes_sent += static_cast<std::uint64_t>(sent);
  if (sent < 0 || static_cast<std::size_t>(sent) < Total(buffers)) {
    ++connection.refusals;
    if (connection.in_epoll) EpollRefused(connection, fd);
  }
  if (sent < 0 && errno == EPIPE) {
    // The kernel's socket tells its error instead, which a look at it has taken away.
    const int error = connection.end().memory().receive_error.exchange(0);
    errno = error != 0 ? error : EPIPE;
  }
  if (sent < 0 && errno == ECONNRESET) connection.end().memory().end_told = true;
  if (sent < 0 && errno == EPIPE && (flags & MSG_NOSIGNAL) == 0) {
    raise(SIGPIPE);
    errno = EPIPE;
  }
  return sent;
}

// MSG_TRUNC on a stream: bytes are taken and nobody sees them (tcp(7)).
ssize_t DiscardOnEnd(Connection& connection, int fd, std::size_t count, Patience patience) {
  std::array<std::byte, 4096> nobody;
  std::size_t gone = 0;
  while (gone < count) {
    const iovec buffer{nobody.data(), std::min(nobody.size(), count - gone)};
    const ssize_t got = connection.end().Receive(fd, {&buffer, 1}, patience);
    if (got <= 0) return gone > 0 ? static_cast<ssize_t>(gone) : got;
    gone += static_cast<std::size_t>(got);
    // At an urgent byte, or for a signal.
    if (patience.all && static_cast<std::size_t>(got) < buffer.iov_len) break;
    if (!patience.all) patience.wait = false;
    patience.interrupts = [] { return true; };  // nothing to be restarted
  }
  return static_cast<ssize_t>(gone);
}

// The same with MSG_PEEK: says how many there are, of 4 MiB at most. All pieces are the same
// memory.
ssize_t CountOnEnd(Connection& connection, int fd, std::size_t count, Patience patience) {
  std::array<std::byte, 16 * 1024> nobody;
  std::array<iovec, 256> pieces;
  std::size_t used = 0;
  for (; count > 0 && used < pieces.size(); ++used) {
    pieces[used] = {nobody.data(), std::min(nobody.size(), count)};
    count -= pieces[used].iov_len;
  }
  return connection.end().Receive(fd, {pieces.data(), used}, patience, true);
}

ssize_t ReceiveOnEnd(Connection& connection, int fd, Buffers buffers, int flags) {
  const Calling calling(connection, fd);
  const Patience patience = PatienceFor(connection, flags, connection.slot().receive_timeout_ns);
  if (Total(buffers) == 0) {
    // Says whether something is there, as tcp(7) sockets do for recv, and waits for it once.
    char byte = 0;
    const iovec one{&byte, 1};
    const bool none = connection.end().Receive(fd, {&one, 1}, patience, true) < 0;
    return none && !(patience.wait && (errno == EAGAIN || errno == EINTR)) ? -1 : 0;
  }
  const bool peek = (flags & MSG_PEEK) != 0;
  const auto unseen = peek ? CountOnEnd : DiscardOnEnd;
  const ssize_t got = (flags & MSG_TRUNC) != 0
                          ? unseen(connection, fd, Total(buffers), patience)
                          : connection.end().Receive(fd, buffers, patience, peek);
  Counts& counts = TheCounts();
  ++counts.receives;
  if (got > 0 && !peek) counts.bytes_received += static_cast<std::uint64_t>(got);
  return got;
}

// The C library's call; it may be where the thread is cancelled.
template <typename Kernel>
ssize_t InKernel(Connection& connection, Connection::Road road, Kernel kernel) {
  const bool counted = road == Connection::Road::kCounted;
  const auto drop = [](void* cancelled) { static_cast<Connection*>(cancelled)->DropUser(); };
  const auto leave = [](void* cancelled) {
    static_cast<Connection*>(cancelled)->Leave(0);
    static_cast<Connection*>(cancelled)->DropUser();
  };
  const ssize_t moved = Cancellable(kernel, counted ? +leave : +drop, &connection);
  if (counted) connection.Leave(moved);
  return moved;
}

// `kernel` is the C library's call.
template <typename Kernel>
ssize_t Sending(int fd, Buffers buffers, int flags, Kernel kernel) {
  pthread_testcancel();
  const Use use(fd);
  if (!use) return kernel();
  if ((flags & MSG_ZEROCOPY) != 0) g_sends_zero_copy = true;
  if ((flags & kOnlyTcpSends) != 0) use->NeedTcp(fd, Reason::kNeedsTcp);
  const Connection::Road road = use->Enter(fd, true);
  if (road == Connection::Road::kEnd) return SendOnEnd(*use, fd, buffers, flags);
  return InKernel(*use, road, kernel);
}

template <typename Kernel>
ssize_t Receiving(int fd, Buffers buffers, int flags, Kernel kernel) {
  pthread_testcancel();
  const Use use(fd);
  if (!use) return kernel();
  const Connection::Road road = use->Enter(fd, true);
  if (road == Connection::Road::kEnd && (flags & kBesideTheStream) == 0) {
    return ReceiveOnEnd(*use, fd, buffers, flags);
  }
  return InKernel(*use, road, kernel);
}

// Pieces as the kernel counts them; more than that are its to refuse.
Buffers Vectors(const iovec* vectors, std::size_t count) {
  return {vectors, std::min<std::size_t>(count, IOV_MAX)};
}
// A length as the kernel sees it, which refuses such.
bool BelowZero(std::size_t size) { return size > SSIZE_MAX; }
bool Plausible(const iovec* vectors, long count) {
  if (count < 0 || count > IOV_MAX || (vectors == nullptr && count != 0)) return false;
  return std::all_of(vectors, vectors + count,
                     [](const iovec& v) { return !BelowZero(v.iov_len); });
}

ssize_t Read(int fd, void* to, std::size_t size) {
  // A read of zero bytes is the kernel's, whatever lies in the ring.
  if (size == 0 || BelowZero(size)) return libc().read(fd, to, size);
  const iovec buffer{to, size};
  return Receiving(fd, {&buffer, 1}, 0, [&] { return libc().read(fd, to, size); });
}
ssize_t Recv(int fd, void* to, std::size_t size, int flags) {
  const iovec buffer{to, size};
  return Receiving(fd, {&buffer, 1}, flags, [&] { return libc().recv(fd, to, size, flags); });
}
ssize_t RecvFrom(int fd, void* to, std::size_t size, int flags, sockaddr* address,
                 socklen_t* length) {
  const iovec buffer{to, size};
  bool kernel = false;
  const ssize_t got = Receiving(fd, {&buffer, 1}, flags, [&] {
    kernel = true;
    return libc().recvfrom(fd, to, size, flags, address, length);
  });
  // A stream says nothing of where bytes come from.
  if (!kernel && got >= 0 && address != nullptr && length != nullptr) *length = 0;
  return got;
}
// What recvmsg(2) says beside the bytes: with TCP_INQ how many are left, which is never too many,
// and none only where there are none. One more once the other end has sent its last (tcp_inq_hint()
// in net/ipv4/tcp.c).
void SayUnread(int fd, msghdr& message, std::size_t space) {
  const Use use(fd, Use::Of::kAll);
  if (!use || !use->slot().tells_unread) return;
  if (message.msg_control == nullptr || space < sizeof(cmsghdr)) {
    message.msg_flags |= MSG_CTRUNC;
    return;
  }
  std::uint64_t unread = use->attached() ? use->end().UnreadInRing() : 0;
  if (unread == 0) {
    int in_tcp = 0;
    pollfd tcp{fd, POLLIN | POLLRDHUP, 0};
    const bool more = poll(&tcp, 1, 0) > 0;  // not the program's, in which its thread is cancelled
    const bool over = more && (tcp.revents & ~POLLIN) != 0;
    if (more) (void)libc().ioctl(fd, FIONREAD, &in_tcp);
    // What came meanwhile came before the end.
    if (use->attached()) unread = use->end().UnreadInRing();
    unread += static_cast<unsigned>(in_tcp) + (over ? 1U : 0U);
  }
  const int told = static_cast<int>(std::min<std::uint64_t>(unread, INT_MAX));
  // As much as there is room for (put_cmsg() in net/core/scm.c).
  const std::size_t length = std::min(space, CMSG_LEN(sizeof(told)));
  if (length < CMSG_LEN(sizeof(told))) message.msg_flags |= MSG_CTRUNC;
  cmsghdr head{};
  head.cmsg_level = IPPROTO_TCP;
  head.cmsg_type = TCP_CM_INQ;
  head.cmsg_len = length;
  auto* const control = static_cast<std::byte*>(message.msg_control);
  std::memcpy(control, &head, sizeof(head));
  std::memcpy(control + CMSG_LEN(0), &told, length - CMSG_LEN(0));
  message.msg_controllen = std::min(space, CMSG_SPACE(sizeof(told)));
}

ssize_t RecvMessage(int fd, msghdr* message, int flags) {
  if (message == nullptr || !Plausible(message->msg_iov, static_cast<long>(message->msg_iovlen))) {
    return libc().recvmsg(fd, message, flags);
  }
  bool kernel = false;
  const std::size_t space = message->msg_controllen;
  const ssize_t got = Receiving(fd, Vectors(message->msg_iov, message->msg_iovlen), flags, [&] {
    kernel = true;
    return libc().recvmsg(fd, message, flags);
  });
  if (!kernel && got >= 0) {
    if (message->msg_name != nullptr) message->msg_namelen = 0;
    message->msg_controllen = 0;
    message->msg_flags = flags & MSG_CMSG_CLOEXEC;
    SayUnread(fd, *message, space);
  }
  return got;
}

ssize_t SendMessage(int fd, const msghdr* message, int flags) {
  if (message == nullptr || !Plausible(message->msg_iov, static_cast<long>(message->msg_iovlen))) {
    return libc().sendmsg(fd, message, flags);
  }
  if (message->msg_control != nullptr && message->msg_controllen > 0) LetGo(*message);
  return Sending(fd, Vectors(message->msg_iov, message->msg_iovlen), flags,
                 [&] { return libc().sendmsg(fd, message, flags); });
}

int SendMessages(int fd, mmsghdr* messages, unsigned count, int flags) {
  {
    const Use use(fd);
    if (!use) {
      for (unsigned i = 0; messages != nullptr && i < count; ++i) {
        const msghdr& message = messages[i].msg_hdr;
        if (message.msg_control != nullptr && message.msg_controllen > 0) LetGo(message);
      }
      return libc().sendmmsg(fd, messages, count, flags);
    }
  }
  // As Linux has it (net/socket.c): behind one that went in part the next would leave a hole, and
  // what is wrong with the next one is told only when it is the first.
  unsigned done = 0;
  while (done < std::min<unsigned>(count, IOV_MAX)) {
    const msghdr& message = messages[done].msg_hdr;
    const ssize_t sent = SendMessage(fd, &message, flags);
    if (sent < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(sent);
    if (static_cast<std::size_t>(sent) < Total({message.msg_iov, message.msg_iovlen})) break;
  }
  return static_cast<int>(done);
}

// sendfile(2) into a connection: by way of a buffer. `offset`: null to read from where the file is.
ssize_t SendFile(Connection& connection, int to, int from, off64_t* offset, std::size_t count) {
  std::array<std::byte, 16 * 1024> bytes;
  std::size_t gone = 0;
  if (BelowZero(count)) {
    errno = EINVAL;
    return -1;
  }
  while (gone < count) {
    const std::size_t wanted = std::min(bytes.size(), count - gone);
    const off64_t at = offset != nullptr ? *offset : lseek64(from, 0, SEEK_CUR);
    const ssize_t got = offset == nullptr && at < 0 ? -1 : pread64(from, bytes.data(), wanted, at);
    if (got <= 0) {
      // What has no place, or is a folder (do_sendfile() in fs/read_write.c).
      if (got < 0 && (errno == EISDIR || (errno == ESPIPE && offset == nullptr))) errno = EINVAL;
      return gone > 0 ? static_cast<ssize_t>(gone) : got;
    }
    const iovec buffer{bytes.data(), static_cast<std::size_t>(got)};
    const ssize_t sent = SendOnEnd(connection, to, {&buffer, 1}, 0);
    if (sent < 0) return gone > 0 ? static_cast<ssize_t>(gone) : sent;
    gone += static_cast<std::size_t>(sent);
    if (offset != nullptr) *offset = at + sent;
    if (offset == nullptr) (void)lseek64(from, at + sent, SEEK_SET);
    if (sent < got) break;
  }
  return static_cast<ssize_t>(gone);
}

// As Linux has it (net/socket.c): one recvmsg after the other, and the time is looked at between
// them alone.
int RecvMessages(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const auto kernel = [&] { return libc().recvmmsg(fd, messages, count, flags, timeout); };
  {
    const Use use(fd);
    if (!use || messages == nullptr || !Sane(timeout)) return kernel();
    const Connection::Road road = use->Enter(fd, true);
    if (road != Connection::Road::kEnd) return static_cast<int>(InKernel(*use, road, kernel));
  }
  const CallDeadline deadline = DeadlineOf(timeout);
  int one = flags & ~MSG_WAITFORONE;
  unsigned done = 0;
  while (done < std::min<unsigned>(count, IOV_MAX)) {
    msghdr& message = messages[done].msg_hdr;
    const ssize_t got = RecvMessage(fd, &message, one);
    if (got < 0 && done > 0) {
      const Use use(fd);  // for the next call to tell
      const bool lasts = errno != EAGAIN && errno != EINTR;
      if (lasts && use && use->attached()) use->end().memory().receive_error = errno;
      break;
    }
    if (got < 0) return -1;
    messages[done++].msg_len = static_cast<unsigned>(got);
    if ((flags & MSG_WAITFORONE) != 0) one |= MSG_DONTWAIT;
    if ((message.msg_flags & MSG_OOB) != 0) break;
    if (timeout == nullptr) continue;
    *timeout = Left(deadline);
    if (timeout->tv_sec == 0 && timeout->tv_nsec == 0) break;
  }
  return static_cast<int>(done);
}

// preadv2 and pwritev2 where the descriptor is, and not at a place, which sockets do not have.
// RWF_NOWAIT is MSG_DONTWAIT; what other flags mean is the kernel's.
enum class Flagged { kHere, kKernel };
Flagged LookAtFlags(int fd, const iovec* vectors, int count, off64_t at, int flags) {
  if (at != -1 || !Plausible(vectors, count)) return Flagged::kKernel;
  if ((flags & ~RWF_NOWAIT) == 0 && Total(Vectors(vectors, static_cast<std::size_t>(count))) > 0) {
    return Flagged::kHere;
  }
  NeedTcp(fd);
  return Flagged::kKernel;
}
int NoWait(int flags) { return (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0; }

ssize_t ReadWithFlags(int fd, const iovec* vectors, int count, off64_t at, int flags) {
  const auto kernel = [&] { return libc().preadv2(fd, vectors, count, at, flags); };
  if (LookAtFlags(fd, vectors, count, at, flags) == Flagged::kKernel) return kernel();
  return Receiving(fd, Vectors(vectors, static_cast<std::size_t>(count)), NoWait(flags), kernel);
}
ssize_t WriteWithFlags(int fd, const iovec* vectors, int count, off64_t at, int flags) {
  const auto kernel = [&] { return libc().pwritev2(fd, vectors, count, at, flags); };
  if (LookAtFlags(fd, vectors, count, at, flags) == Flagged::kKernel) return kernel();
  return Sending(fd, Vectors(vectors, static_cast<std::size_t>(count)), NoWait(flags), kernel);
}

ssize_t AnySendFile(int to, int from, off64_t* offset, std::size_t count) {
  const Use use(to);
  const auto kernel = [&] { return libc().sendfile64(to, from, offset, count); };
  if (!use) return kernel();
  const Connection::Road road = use->Enter(to, true);
  if (road == Connection::Road::kEnd) {
    const NotCancelled not_cancelled;  // it is no cancellation point
    return SendFile(*use, to, from, offset, count);
  }
  return InKernel(*use, road, kernel);
}

}  // namespace

void LetGo(const msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      __builtin_memcpy(&fd, reinterpret_cast<const std::byte*>(c) + at, sizeof(fd));
      NeedTcp(fd, Reason::kShared);
    }
  }
}

bool SendsZeroCopy() { return g_sends_zero_copy; }

long SendBySystemCall(long number, const long* a) {
  const auto fd = static_cast<int>(a[0]);
  if (number == SYS_sendmsg) {
    return SendMessage(fd, reinterpret_cast<const msghdr*>(a[1]), static_cast<int>(a[2]));
  }
  return SendMessages(fd, reinterpret_cast<mmsghdr*>(a[1]), static_cast<unsigned>(a[2]),
                      static_cast<int>(a[3]));
}

RDSOCK_EXPORT(ssize_t, read, (int fd, void* to, size_t size)) { return Read(fd, to, size); }
RDSOCK_EXPORT(ssize_t, __read_chk, (int fd, void* to, size_t size, size_t space)) {
  if (size > space) abort();
  return Read(fd, to, size);
}
RDSOCK_EXPORT(ssize_t, recv, (int fd, void* to, size_t size, int flags)) {
  return Recv(fd, to, size, flags);
}
RDSOCK_EXPORT(ssize_t, __recv_chk, (int fd, void* to, size_t size, size_t space, int flags)) {
  if (size > space) abort();
  return Recv(fd, to, size, flags);
}
RDSOCK_EXPORT(ssize_t, recvfrom,
              (int fd, void* to, size_t size, int flags, sockaddr* address, socklen_t* length)) {
  return RecvFrom(fd, to, size, flags, address, length);
}
RDSOCK_EXPORT(ssize_t, __recvfrom_chk,
              (int fd, void* to, size_t size, size_t space, int flags, sockaddr* address,
               socklen_t* length)) {
  if (size > space) abort();
  return RecvFrom(fd, to, size, flags, address, length);
}
RDSOCK_EXPORT(ssize_t, readv, (int fd, const iovec* vectors, int count)) {
  if (!Plausible(vectors, count)) return libc().readv(fd, vectors, count);
  const Buffers buffers = Vectors(vectors, static_cast<std::size_t>(count));
  if (Total(buffers) == 0) return libc().readv(fd, vectors, count);  // nothing, whatever there is
  return Receiving(fd, buffers, 0, [&] { return libc().readv(fd, vectors, count); });
}
RDSOCK_EXPORT(ssize_t, recvmsg, (int fd, msghdr* message, int flags)) {
  return RecvMessage(fd, message, flags);
}
RDSOCK_EXPORT(int, recvmmsg,
              (int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout)) {
  return RecvMessages(fd, messages, count, flags, timeout);
}
RDSOCK_EXPORT(ssize_t, preadv2, (int fd, const iovec* vectors, int count, off64_t at, int flags)) {
  return ReadWithFlags(fd, vectors, count, at, flags);
}
RDSOCK_EXPORT(ssize_t, preadv64v2,
              (int fd, const iovec* vectors, int count, off64_t at, int flags)) {
  return ReadWithFlags(fd, vectors, count, at, flags);
}

RDSOCK_EXPORT(ssize_t, write, (int fd, const void* from, size_t size)) {
  if (BelowZero(size)) return libc().write(fd, from, size);
  const iovec buffer{const_cast<void*>(from), size};
  return Sending(fd, {&buffer, 1}, 0, [&] { return libc().write(fd, from, size); });
}
RDSOCK_EXPORT(ssize_t, send, (int fd, const void* from, size_t size, int flags)) {
  const iovec buffer{const_cast<void*>(from), size};
  return Sending(fd, {&buffer, 1}, flags, [&] { return libc().send(fd, from, size, flags); });
}
RDSOCK_EXPORT(ssize_t, sendto,
              (int fd, const void* from, size_t size, int flags, const sockaddr* address,
               socklen_t length)) {
  const iovec buffer{const_cast<void*>(from), size};
  return Sending(fd, {&buffer, 1}, flags,
                 [&] { return libc().sendto(fd, from, size, flags, address, length); });
}
RDSOCK_EXPORT(ssize_t, writev, (int fd, const iovec* vectors, int count)) {
  if (!Plausible(vectors, count)) return libc().writev(fd, vectors, count);
  const Buffers buffers = Vectors(vectors, static_cast<std::size_t>(count));
  if (Total(buffers) == 0) return libc().writev(fd, vectors, count);  // nothing, also at the end
  return Sending(fd, buffers, 0, [&] { return libc().writev(fd, vectors, count); });
}
RDSOCK_EXPORT(ssize_t, sendmsg, (int fd, const msghdr* message, int flags)) {
  return SendMessage(fd, message, flags);
}
RDSOCK_EXPORT(int, sendmmsg, (int fd, mmsghdr* messages, unsigned count, int flags)) {
  return SendMessages(fd, messages, count, flags);
}
RDSOCK_EXPORT(ssize_t, pwritev2, (int fd, const iovec* vectors, int count, off64_t at, int flags)) {
  return WriteWithFlags(fd, vectors, count, at, flags);
}
RDSOCK_EXPORT(ssize_t, pwritev64v2,
              (int fd, const iovec* vectors, int count, off64_t at, int flags)) {
  return WriteWithFlags(fd, vectors, count, at, flags);
}
RDSOCK_EXPORT(ssize_t, sendfile, (int to, int from, off64_t* offset, size_t count)) {
  return AnySendFile(to, from, offset, count);
}
RDSOCK_EXPORT(ssize_t, sendfile64, (int to, int from, off64_t* offset, size_t count)) {
  return AnySendFile(to, from, offset, count);
}
RDSOCK_EXPORT(ssize_t, splice,
              (int from, off64_t* from_at, int to, off64_t* to_at, size_t count, unsigned flags)) {
  NeedTcp(from);
  NeedTcp(to);
  return libc().splice(from, from_at, to, to_at, count, flags);
}

}  // namespace rdfs::sock
