// The calls that make, copy and close descriptors, and those that change what a socket is.
#include "tools/sock/preload/descriptors.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/timeout.h"

namespace rdfs::sock {
namespace {

bool IsTcp(int domain, int type, int protocol) {
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  return (domain == AF_INET || domain == AF_INET6) && (type & ~kFlags) == SOCK_STREAM &&
         (protocol == 0 || protocol == IPPROTO_TCP);
}

bool IsTcp(int fd) {
  const int saved = errno;
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  const bool tcp = libc().getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
                   protocol == IPPROTO_TCP;
  errno = saved;
  return tcp;
}

// `fd` is what the C library's call returned.
int Accepted(int listener, int fd) {
  if (fd < 0 || !IsThisProcess()) return fd;
  const bool known = Registry().Get(listener).kind() == Word::Kind::kSocket;
  if (!StandsAside() && (known || IsTcp(fd))) {
    NoteConnection(fd, false);
  } else {
    Registry().Forget(fd);
  }
  return fd;
}

int Close(int fd) {
  if (Registry().IsHidden(fd)) {
    errno = EBADF;
    return -1;
  }
  if (Registry().Get(fd).kind() == Word::Kind::kNone || !IsThisProcess()) return libc().close(fd);
  const Closing closing(fd);
  return libc().close(fd);
}

// `copy` is what the C library has just made of `fd`.
int Duplicated(int fd, int copy) {
  if (copy < 0) return copy;
  if (IsThisProcess()) {
    NoteDuplicate(fd, copy);
  } else {
    // A child of vfork makes copies for the program that it is about to become.
    NeedTcp(fd, Reason::kShared);
  }
  return copy;
}

// Our own descriptors are nobody else's.
bool Taken(int fd) {
  if (!Registry().IsHidden(fd)) return false;
  errno = EBUSY;
  return true;
}

int DupTo(int fd, int to, int flags, bool two) {
  const auto call = [&] { return two ? libc().dup2(fd, to) : libc().dup3(fd, to, flags); };
  if (Taken(to)) return -1;
  if (fd == to || (flags & ~O_CLOEXEC) != 0) return call();
  // What is there is of nobody's concern here.
  if (Registry().Get(to).kind() == Word::Kind::kNone) return Duplicated(fd, call());
  if (libc().fcntl64(fd, F_GETFD, nullptr) < 0) return call();
  if (!IsThisProcess()) return Duplicated(fd, call());
  const Closing closing(to);
  return Duplicated(fd, call());
}

// Closes a range around our own descriptors.
int CloseRange(unsigned first, unsigned last, int flags) {
  if ((static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) != 0 || first > last) {
    return libc().close_range(first, last, flags);
  }
  const bool ours = IsThisProcess();
  const auto end = static_cast<unsigned>(Registry().end());
  for (unsigned fd = first; fd < end && fd <= last; ++fd) {
    const auto number = static_cast<int>(fd);
    const Word::Kind kind = Registry().Get(number).kind();
    if (kind == Word::Kind::kHidden) {
      if (fd > first && libc().close_range(first, fd - 1, flags) != 0) return -1;
      first = fd + 1;
    } else if (ours && kind != Word::Kind::kNone) {
      const Closing closing(number);
      libc().close(number);
    }
  }
  return first > last ? 0 : libc().close_range(first, last, flags);
}

int Fcntl(int fd, int command, void* argument) {
  const auto number = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
  if (Registry().Get(fd) == Word()) return libc().fcntl64(fd, command, argument);
  const int result = libc().fcntl64(fd, command, argument);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return Duplicated(fd, result);
  if (command == F_SETFL && result == 0) {
    const Use use(fd);
    if (use) use->slot().nonblocking = (number & O_NONBLOCK) != 0;
    if (use && (number & O_ASYNC) != 0) use->NeedTcp(fd, Reason::kNeedsTcp);
  }
  return result;
}

int Ioctl(int fd, unsigned long request, void* argument) {
  if (Registry().Get(fd).kind() != Word::Kind::kConnection) {
    return libc().ioctl(fd, request, argument);
  }
  if (request == SIOCATMARK) NeedTcp(fd);
  const int result = libc().ioctl(fd, request, argument);
  const Use use(fd);
  if (!use || result != 0 || argument == nullptr) return result;
  if (request == FIOASYNC && *static_cast<int*>(argument) != 0) {
    use->NeedTcp(fd, Reason::kNeedsTcp);
  }
  if (request == FIONBIO) use->slot().nonblocking = *static_cast<int*>(argument) != 0;
  if (request == FIONREAD && use->attached()) {
    *static_cast<int*>(argument) += static_cast<int>(use->end().UnreadInRing());
  }
  return result;
}

// What an option means for a connection.
void OptionSet(int fd, int level, int name, const void* value, socklen_t size) {
  const Use use(fd);
  if (!use) return;
  timeval timeout{};
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO) &&
      size >= sizeof(timeout)) {
    std::memcpy(&timeout, value, sizeof(timeout));
    (name == SO_RCVTIMEO ? use->slot().receive_timeout_ns : use->slot().send_timeout_ns) =
        NanosecondsOf(timeout);
    return;
  }
  int on = 0;
  if (level == IPPROTO_TCP && name == TCP_INQ && size >= sizeof(on)) {
    std::memcpy(&on, value, sizeof(on));
    use->slot().tells_unread = on != 0;
    return;
  }
  const bool socket_only =
      level == SOL_SOCKET &&
      (name == SO_RCVLOWAT || name == SO_TIMESTAMP || name == SO_TIMESTAMPNS ||
       name == SO_TIMESTAMPING || name == SO_PEEK_OFF || name == SO_OOBINLINE ||
       name == SO_BINDTODEVICE || name == SO_ATTACH_FILTER);
  const bool tcp_only =
      level == IPPROTO_TCP && (name == TCP_ULP || name == TCP_REPAIR || name == TCP_MD5SIG);
  if (socket_only || tcp_only) use->NeedTcp(fd, Reason::kNeedsTcp);
}

int SetOption(int fd, int level, int name, const void* value, socklen_t size) {
  const int result = libc().setsockopt(fd, level, name, value, size);
  if (result == 0) OptionSet(fd, level, name, value, size);
  return result;
}

}  // namespace

bool ChangesDescriptors(long number) {
  switch (number) {
#ifdef SYS_dup2
    case SYS_dup2:
#endif
    case SYS_dup:
    case SYS_dup3:
    case SYS_fcntl:
    case SYS_close:
    case SYS_close_range:
    case SYS_ioctl:
    case SYS_setsockopt:
      return true;
    default:
      return false;
  }
}

int ChangeBySystemCall(long number, const long* a) {
  const auto fd = static_cast<int>(a[0]);
  const auto second = static_cast<int>(a[1]);
  const auto third = static_cast<int>(a[2]);
  switch (number) {
    case SYS_dup:
      return Duplicated(fd, libc().dup(fd));
    case SYS_dup3:
      return DupTo(fd, second, third, false);
    case SYS_fcntl:
      return Fcntl(fd, second, reinterpret_cast<void*>(a[2]));
    case SYS_close:
      return Close(fd);
    case SYS_ioctl:
      return Ioctl(fd, static_cast<unsigned long>(a[1]), reinterpret_cast<void*>(a[2]));
    case SYS_setsockopt:
      return SetOption(fd, second, third, reinterpret_cast<const void*>(a[3]),
                       static_cast<socklen_t>(a[4]));
    case SYS_close_range:
      return CloseRange(static_cast<unsigned>(fd), static_cast<unsigned>(second), third);
    default:
      return DupTo(fd, second, 0, true);
  }
}

RDSOCK_EXPORT(int, socket, (int domain, int type, int protocol)) {
  const int fd = libc().socket(domain, type, protocol);
  if (fd < 0 || !IsThisProcess()) return fd;
  const bool ours = IsTcp(domain, type, protocol) && !StandsAside();
  Registry().Set(fd, ours ? kOwnSocket : Word());
  return fd;
}

RDSOCK_EXPORT(int, connect, (int fd, const sockaddr* address, socklen_t length)) {
  const Word::Kind kind = Registry().Get(fd).kind();
  if (kind != Word::Kind::kSocket) {
    // AF_UNSPEC: an end, or a new beginning.
    if (kind == Word::Kind::kConnection && address != nullptr && address->sa_family == AF_UNSPEC) {
      NeedTcp(fd);
    }
    return libc().connect(fd, address, length);
  }
  const int result = libc().connect(fd, address, length);
  if ((result == 0 || errno == EINPROGRESS || errno == EINTR) && IsThisProcess()) {
    const int saved = errno;
    const bool shared = Registry().Get(fd) == kSharedSocket;
    NoteConnection(fd, true);
    if (shared) NeedTcp(fd, Reason::kShared);
    errno = saved;
  }
  return result;
}

RDSOCK_EXPORT(int, accept, (int listener, sockaddr* address, socklen_t* length)) {
  return Accepted(listener, libc().accept(listener, address, length));
}
RDSOCK_EXPORT(int, accept4, (int listener, sockaddr* address, socklen_t* length, int flags)) {
  return Accepted(listener, libc().accept4(listener, address, length, flags));
}

RDSOCK_EXPORT(int, shutdown, (int fd, int how)) {
  {
    const Use use(fd);
    if (use && !use->attached()) use->NeedTcp(fd, Reason::kEnded);
    const NotCancelled not_cancelled;
    if (use && use->attached() && how != SHUT_RD) return use->end().ShutdownSend(fd, how);
  }
  return libc().shutdown(fd, how);
}

RDSOCK_EXPORT(int, getsockopt, (int fd, int level, int name, void* value, socklen_t* size)) {
  // Takes bytes of the stream, and may do so without a mapping.
  if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE) NeedTcp(fd, Reason::kNeedsTcp);
  const int result = libc().getsockopt(fd, level, name, value, size);
  if (result != 0 || level != SOL_SOCKET || name != SO_ERROR || *size < sizeof(int)) return result;
  const Use use(fd);
  if (!use || !use->attached()) return result;
  EndMemory& memory = use->end().memory();
  int& error = *static_cast<int*>(value);
  // EPIPE: the answer to what was sent again to an end that has died.
  const int noted = error == 0 || error == EPIPE ? memory.receive_error.exchange(0) : 0;
  if (noted != 0) error = noted;
  if (error == ECONNRESET) memory.end_told = true;
  return result;
}
RDSOCK_EXPORT(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t size)) {
  return SetOption(fd, level, name, value, size);
}

RDSOCK_EXPORT(int, ioctl, (int fd, unsigned long request, ...)) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return Ioctl(fd, request, argument);
}
RDSOCK_EXPORT(int, sockatmark, (int fd)) {
  int at_mark = 0;
  return Ioctl(fd, SIOCATMARK, &at_mark) == 0 ? at_mark : -1;
}
RDSOCK_EXPORT(int, fcntl, (int fd, int command, ...)) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return Fcntl(fd, command, argument);
}
RDSOCK_EXPORT(int, fcntl64, (int fd, int command, ...)) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return Fcntl(fd, command, argument);
}

RDSOCK_EXPORT(int, close, (int fd)) { return Close(fd); }
RDSOCK_EXPORT(int, close_range, (unsigned first, unsigned last, int flags)) {
  return CloseRange(first, last, flags);
}
RDSOCK_EXPORT(void, closefrom, (int first)) {
  (void)CloseRange(static_cast<unsigned>(std::max(first, 0)), UINT_MAX, 0);
}
RDSOCK_EXPORT(int, dup, (int fd)) { return Duplicated(fd, libc().dup(fd)); }
RDSOCK_EXPORT(int, dup2, (int fd, int to)) { return DupTo(fd, to, 0, true); }
RDSOCK_EXPORT(int, dup3, (int fd, int to, int flags)) { return DupTo(fd, to, flags, false); }

}  // namespace rdfs::sock
