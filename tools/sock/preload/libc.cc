#include "tools/sock/preload/libc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tools/sock/preload/calling.h"
#include "tools/sock/preload/cancel.h"
#include "tools/sock/preload/registry.h"
#include "tools/sock/preload/settings.h"

namespace rdfs::sock {
namespace {

// Filled once; two threads that find it empty write the same.
constinit Libc g_libc;
constinit std::atomic<bool> g_resolved{false};

template <typename Function>
void Find(Function& function, const char* name) {
  const int saved = errno;
  void* const found = dlsym(RTLD_NEXT, name);
  errno = saved;
  if (found != nullptr) std::memcpy(&function, &found, sizeof(function));
}

void Resolve() {
#define RDSOCK_FIND(result, name, parameters) Find(g_libc.name, #name);
  RDSOCK_LIBC_FUNCTIONS(RDSOCK_FIND)
#undef RDSOCK_FIND
  g_resolved.store(true, std::memory_order_release);
}

// What this library opens for itself sits above what programs use, closes on exec, and is known.
int Hide(int fd) {
  if (fd < 0) return fd;
  const int high = libc().fcntl64(fd, F_DUPFD_CLOEXEC,
                                  reinterpret_cast<void*>(std::intptr_t{Registry().hidden_base()}));
  const int saved = errno;
  libc().close(fd);
  errno = saved;
  if (high >= 0) Registry().Hide(high);
  return high;
}

// The same for descriptors that came in a message.
void HideReceived(msghdr* message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::byte* const place = reinterpret_cast<std::byte*>(CMSG_DATA(c)) + i * sizeof(int);
      std::memcpy(&fd, place, sizeof(fd));
      fd = Hide(fd);
      std::memcpy(place, &fd, sizeof(fd));
    }
  }
}

}  // namespace

const Libc& libc() {
  if (!g_resolved.load(std::memory_order_acquire)) Resolve();
  return g_libc;
}

}  // namespace rdfs::sock

// Calls from inside this library. They are the C library's; descriptors that they make are hidden,
// and only a poll that sleeps is one in which a thread is cancelled.
extern "C" {
using rdfs::sock::Hide;
using rdfs::sock::libc;
using rdfs::sock::NotCancelled;
using Number = rdfs::sock::Calling::Number;

int __wrap_socket(int domain, int type, int protocol) {
  return Hide(libc().socket(domain, type, protocol));
}
int __wrap_close(int fd);
int __wrap_socketpair(int domain, int type, int protocol, int* fds) {
  if (libc().socketpair(domain, type, protocol, fds) != 0) return -1;
  fds[0] = Hide(fds[0]);
  fds[1] = Hide(fds[1]);
  if (fds[0] >= 0 && fds[1] >= 0) return 0;
  const int saved = errno;
  for (const int fd : {fds[0], fds[1]}) {
    if (fd >= 0) __wrap_close(fd);
  }
  errno = saved;
  return -1;
}
int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  const NotCancelled not_cancelled;
  return Hide(libc().accept4(fd, address, length, flags));
}
int __wrap_memfd_create(const char* name, unsigned flags) {
  return Hide(libc().memfd_create(name, flags));
}
int __wrap_eventfd(unsigned value, int flags) { return Hide(libc().eventfd(value, flags)); }
int __wrap_epoll_create1(int flags) { return Hide(libc().epoll_create1(flags)); }
ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  const NotCancelled not_cancelled;
  const ssize_t got = libc().recvmsg(Number(fd).get(), message, flags);
  if (got >= 0) rdfs::sock::HideReceived(message);
  return got;
}
int __wrap_close(int fd) {
  const NotCancelled not_cancelled;
  rdfs::sock::Registry().Forget(fd);
  return libc().close(fd);
}
ssize_t __wrap_recv(int fd, void* to, size_t size, int flags) {
  const NotCancelled not_cancelled;
  return libc().recv(Number(fd).get(), to, size, flags);
}
// Bells are all that this library sends so, and sleeps are in poll: worth a count.
ssize_t __wrap_send(int fd, const void* from, size_t size, int flags) {
  const NotCancelled not_cancelled;
  ++rdfs::sock::TheCounts().bells;
  return libc().send(fd, from, size, flags);
}
ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const NotCancelled not_cancelled;
  return libc().sendmsg(Number(fd).get(), message, flags);
}
ssize_t __wrap_write(int fd, const void* from, size_t size) {
  const NotCancelled not_cancelled;
  return libc().write(fd, from, size);
}
int __wrap_poll(pollfd* fds, nfds_t count, int timeout) {
  if (timeout == 0) {
    const NotCancelled not_cancelled;
    for (pollfd* fd = fds; fd != fds + count; ++fd) fd->fd = Number(fd->fd).get();
    return libc().poll(fds, count, timeout);
  }
  for (pollfd* fd = fds; fd != fds + count; ++fd) {
    fd->fd = rdfs::sock::Calling::LastingNumber(fd->fd);
  }
  ++rdfs::sock::TheCounts().sleeps;
  return rdfs::sock::Cancellable([&] { return libc().poll(fds, count, timeout); },
                                 rdfs::sock::Calling::Cancelled, nullptr);
}
int __wrap_connect(int fd, const sockaddr* address, socklen_t length) {
  const NotCancelled not_cancelled;
  return libc().connect(Number(fd).get(), address, length);
}
int __wrap_shutdown(int fd, int how) { return libc().shutdown(Number(fd).get(), how); }
int __wrap_getsockopt(int fd, int level, int name, void* value, socklen_t* size) {
  return libc().getsockopt(Number(fd).get(), level, name, value, size);
}
int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  return libc().setsockopt(Number(fd).get(), level, name, value, size);
}
int __wrap_ioctl(int fd, unsigned long request, void* argument) {
  return libc().ioctl(Number(fd).get(), request, argument);
}
int __wrap_fcntl(int fd, int command, void* argument) {
  return libc().fcntl64(fd, command, argument);
}
int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  return libc().epoll_ctl(epoll, operation, fd, event);
}
int __wrap_epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  return libc().epoll_pwait(epoll, events, most, timeout, nullptr);
}
}
