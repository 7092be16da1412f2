// The C library's own functions, under the names that this library gives to programs instead.
//
// Everything in this library that is not such a wrapper may call them by their plain names: the
// linker (--wrap) leads those calls here. What libc() cannot find is null. Any thread, also in a
// signal handler; resolved at the first call.
#pragma once

#include <aio.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace rdfs::sock {

// X(result, name, parameters): what is called through libc().
#define RDSOCK_LIBC_FUNCTIONS(X)                                                       \
  X(ssize_t, read, (int, void*, size_t))                                               \
  X(ssize_t, write, (int, const void*, size_t))                                        \
  X(ssize_t, readv, (int, const iovec*, int))                                          \
  X(ssize_t, writev, (int, const iovec*, int))                                         \
  X(ssize_t, preadv2, (int, const iovec*, int, off64_t, int))                          \
  X(ssize_t, pwritev2, (int, const iovec*, int, off64_t, int))                         \
  X(ssize_t, send, (int, const void*, size_t, int))                                    \
  X(ssize_t, sendto, (int, const void*, size_t, int, const sockaddr*, socklen_t))      \
  X(ssize_t, sendmsg, (int, const msghdr*, int))                                       \
  X(int, sendmmsg, (int, mmsghdr*, unsigned, int))                                     \
  X(ssize_t, recv, (int, void*, size_t, int))                                          \
  X(ssize_t, recvfrom, (int, void*, size_t, int, sockaddr*, socklen_t*))               \
  X(ssize_t, recvmsg, (int, msghdr*, int))                                             \
  X(int, recvmmsg, (int, mmsghdr*, unsigned, int, timespec*))                          \
  X(ssize_t, sendfile64, (int, int, off64_t*, size_t))                                 \
  X(ssize_t, splice, (int, off64_t*, int, off64_t*, size_t, unsigned))                 \
  X(int, socket, (int, int, int))                                                      \
  X(int, socketpair, (int, int, int, int*))                                            \
  X(int, accept, (int, sockaddr*, socklen_t*))                                         \
  X(int, accept4, (int, sockaddr*, socklen_t*, int))                                   \
  X(int, connect, (int, const sockaddr*, socklen_t))                                   \
  X(int, shutdown, (int, int))                                                         \
  X(int, getsockopt, (int, int, int, void*, socklen_t*))                               \
  X(int, setsockopt, (int, int, int, const void*, socklen_t))                          \
  X(int, ioctl, (int, unsigned long, void*))                                           \
  X(int, fcntl64, (int, int, void*))                                                   \
  X(int, close, (int))                                                                 \
  X(int, close_range, (unsigned, unsigned, int))                                       \
  X(int, dup, (int))                                                                   \
  X(int, dup2, (int, int))                                                             \
  X(int, dup3, (int, int, int))                                                        \
  X(int, poll, (pollfd*, nfds_t, int))                                                 \
  X(int, ppoll, (pollfd*, nfds_t, const timespec*, const sigset_t*))                   \
  X(int, select, (int, fd_set*, fd_set*, fd_set*, timeval*))                           \
  X(int, pselect, (int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*))  \
  X(int, epoll_create1, (int))                                                         \
  X(int, eventfd, (unsigned, int))                                                     \
  X(int, epoll_ctl, (int, int, int, epoll_event*))                                     \
  X(int, epoll_wait, (int, epoll_event*, int, int))                                    \
  X(int, epoll_pwait, (int, epoll_event*, int, int, const sigset_t*))                  \
  X(int, epoll_pwait2, (int, epoll_event*, int, const timespec*, const sigset_t*))     \
  X(pid_t, fork, ())                                                                   \
  X(pid_t, _Fork, ())                                                                  \
  X(int, clone, (int (*)(void*), void*, int, void*, pid_t*, void*, pid_t*))            \
  X(int, memfd_create, (const char*, unsigned))                                        \
  X(int, execve, (const char*, char* const*, char* const*))                            \
  X(int, execvpe, (const char*, char* const*, char* const*))                           \
  X(int, fexecve, (int, char* const*, char* const*))                                   \
  X(int, execveat, (int, const char*, char* const*, char* const*, int))                \
  X(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t*, int, int))    \
  X(int, posix_spawn,                                                                  \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, \
     char* const*, char* const*))                                                      \
  X(int, posix_spawnp,                                                                 \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, \
     char* const*, char* const*))                                                      \
  X(int, system, (const char*))                                                        \
  X(FILE*, popen, (const char*, const char*))                                          \
  X(int, prctl, (int, unsigned long, unsigned long, unsigned long, unsigned long))     \
  X(int, daemon, (int, int))                                                           \
  X(int, fclose, (FILE*))                                                              \
  X(FILE*, fdopen, (int, const char*))                                                 \
  X(int, vdprintf, (int, const char*, va_list))                                        \
  X(int, __vdprintf_chk, (int, int, const char*, va_list))                             \
  X(int, aio_read, (aiocb*))                                                           \
  X(int, aio_read64, (aiocb64*))                                                       \
  X(int, aio_write, (aiocb*))                                                          \
  X(int, aio_write64, (aiocb64*))                                                      \
  X(int, lio_listio, (int, aiocb* const*, int, sigevent*))                             \
  X(int, lio_listio64, (int, aiocb64* const*, int, sigevent*))                         \
  X(sighandler_t, signal, (int, sighandler_t))                                         \
  X(sighandler_t, bsd_signal, (int, sighandler_t))                                     \
  X(sighandler_t, ssignal, (int, sighandler_t))                                        \
  X(sighandler_t, sysv_signal, (int, sighandler_t))                                    \
  X(sighandler_t, __sysv_signal, (int, sighandler_t))                                  \
  X(sighandler_t, sigset, (int, sighandler_t))                                         \
  X(int, siginterrupt, (int, int))                                                     \
  X(int, sigaction, (int, const struct sigaction*, struct sigaction*))                 \
  X(long, syscall, (long, long, long, long, long, long, long))

struct Libc {
#define RDSOCK_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  RDSOCK_LIBC_FUNCTIONS(RDSOCK_MEMBER)
#undef RDSOCK_MEMBER
};

const Libc& libc();

// Defines a function under the C library's name: RDSOCK_EXPORT(int, close, (int fd)) { ... }. The
// C++ name is another, so that the header's declaration, whose attributes differ, may be seen too.
#define RDSOCK_EXPORT(result, name, parameters)     \
  extern "C" __attribute__((visibility("default"))) \
  result rdsock_##name parameters __asm__(#name);   \
  result rdsock_##name parameters

}  // namespace rdfs::sock
