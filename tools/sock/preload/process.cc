// The calls after which another program, or code that this library does not see, has the
// descriptors: what they would find half in memory goes back to TCP before.
#include <aio.h>
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/descriptors.h"
#include "tools/sock/preload/epoll.h"
#include "tools/sock/preload/handover.h"
#include "tools/sock/preload/libc.h"

extern char** environ;

namespace rdfs::sock {
namespace {

// The arguments of execl and its kin, up to the null pointer, as an array of the caller's.
#define RDSOCK_COLLECT(vector, first, arguments)                                  \
  va_list counting;                                                               \
  va_copy(counting, arguments);                                                   \
  std::size_t count = 1;                                                          \
  while (va_arg(counting, char*) != nullptr) ++count;                             \
  va_end(counting);                                                               \
  char** const vector = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  vector[0] = const_cast<char*>(first);                                           \
  for (std::size_t i = 1; i <= count; ++i) vector[i] = va_arg(arguments, char*)

bool ConcernsFirst(long number) {
  switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_shutdown:
    case SYS_dup:
    case SYS_dup2:
    case SYS_dup3:
      return true;
    default:
      return false;
  }
}

// Numbers that file actions of posix_spawn copy, though no other file was there when they were told
// to: such actions may be used again and again, for one connection after the other.
constinit std::array<std::atomic<bool>, 1024> g_passed{};

void WillPass(int fd) {
  const bool connection = Registry().Get(fd).kind() == Word::Kind::kConnection;
  const auto number = static_cast<std::size_t>(fd);  // a negative one is above all
  const int saved = errno;
  if (number < g_passed.size() && (connection || libc().fcntl64(fd, F_GETFD, nullptr) < 0)) {
    g_passed[number] = true;
  }
  errno = saved;
  NeedTcp(fd, Reason::kShared);
}

void BeforePassing() {
  for (std::size_t fd = 0; fd < g_passed.size(); ++fd) {
    if (g_passed[fd]) NeedTcp(static_cast<int>(fd), Reason::kShared);
  }
}

// epoll_wait and its kin by number; the kernel's mask is shorter than the C library's.
int EpollBySystemCall(long number, const long* a) {
  const auto epoll = static_cast<int>(a[0]);
  auto* const events = reinterpret_cast<epoll_event*>(a[1]);
  const auto third = static_cast<int>(a[2]);
  if (number == SYS_epoll_ctl) {
    return EpollControl(epoll, static_cast<int>(a[1]), third, reinterpret_cast<epoll_event*>(a[3]));
  }
  sigset_t mask;
  sigemptyset(&mask);
  const bool masked = number == SYS_epoll_pwait && a[4] != 0;
  if (masked) std::memcpy(&mask, reinterpret_cast<const void*>(a[4]), NSIG / 8);
  return EpollWait(epoll, events, third, static_cast<int>(a[3]), masked ? &mask : nullptr);
}

// Whether the system call makes a child with memory of its own.
bool Forks(long number, const long* arguments) {
  std::uint64_t flags = 0;
  if (number == SYS_clone) flags = static_cast<std::uint64_t>(arguments[0]);
  // A program may ask with nothing whether the kernel has it.
  if (number == SYS_clone3 && arguments[0] == 0) return false;
  if (number == SYS_clone3) {
    std::memcpy(&flags, reinterpret_cast<const void*>(arguments[0]), sizeof(flags));
  }
  return (number == SYS_fork || number == SYS_clone || number == SYS_clone3) &&
         (flags & CLONE_VM) == 0;
}

// exec, with what the next program can take; `path` is null where the C library looks for it.
// Comes back only when it has failed.
template <typename Exec>
int Execute(const char* path, char* const* variables, Exec exec) {
  const Handover handover(path);
  BeforeExec(handover.taken());
  auto** const all = static_cast<char**>(alloca(Handover::Count(variables) * sizeof(char*)));
  handover.Fill(variables, all);
  return exec(all);
}

}  // namespace

RDSOCK_EXPORT(int, execve, (const char* path, char* const* arguments, char* const* variables)) {
  return Execute(path, variables,
                 [&](char* const* all) { return libc().execve(path, arguments, all); });
}
RDSOCK_EXPORT(int, execv, (const char* path, char* const* arguments)) {
  return Execute(path, environ,
                 [&](char* const* all) { return libc().execve(path, arguments, all); });
}
RDSOCK_EXPORT(int, execvp, (const char* file, char* const* arguments)) {
  return Execute(nullptr, environ,
                 [&](char* const* all) { return libc().execvpe(file, arguments, all); });
}
RDSOCK_EXPORT(int, execvpe, (const char* file, char* const* arguments, char* const* variables)) {
  return Execute(nullptr, variables,
                 [&](char* const* all) { return libc().execvpe(file, arguments, all); });
}
RDSOCK_EXPORT(int, fexecve, (int fd, char* const* arguments, char* const* variables)) {
  return Execute(nullptr, variables,
                 [&](char* const* all) { return libc().fexecve(fd, arguments, all); });
}
RDSOCK_EXPORT(int, execveat,
              (int folder, const char* path, char* const* arguments, char* const* variables,
               int flags)) {
  return Execute(nullptr, variables, [&](char* const* all) {
    return libc().execveat(folder, path, arguments, all, flags);
  });
}
RDSOCK_EXPORT(int, execl, (const char* path, const char* first, ...)) {
  va_list arguments;
  va_start(arguments, first);
  RDSOCK_COLLECT(vector, first, arguments);
  va_end(arguments);
  return Execute(path, environ, [&](char* const* all) { return libc().execve(path, vector, all); });
}
RDSOCK_EXPORT(int, execlp, (const char* file, const char* first, ...)) {
  va_list arguments;
  va_start(arguments, first);
  RDSOCK_COLLECT(vector, first, arguments);
  va_end(arguments);
  return Execute(nullptr, environ,
                 [&](char* const* all) { return libc().execvpe(file, vector, all); });
}
RDSOCK_EXPORT(int, execle, (const char* path, const char* first, ...)) {
  va_list arguments;
  va_start(arguments, first);
  RDSOCK_COLLECT(vector, first, arguments);
  char* const* const variables = va_arg(arguments, char* const*);
  va_end(arguments);
  return Execute(path, variables,
                 [&](char* const* all) { return libc().execve(path, vector, all); });
}
// The C library carries it out in the child, where a copy no longer closes on exec.
RDSOCK_EXPORT(int, posix_spawn_file_actions_adddup2,
              (posix_spawn_file_actions_t * actions, int fd, int to)) {
  const int error = libc().posix_spawn_file_actions_adddup2(actions, fd, to);
  if (error == 0) WillPass(fd);
  return error;
}
RDSOCK_EXPORT(int, posix_spawn,
              (pid_t * pid, const char* path, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments,
               char* const* variables)) {
  BeforeExec();
  if (actions != nullptr) BeforePassing();
  return libc().posix_spawn(pid, path, actions, attributes, arguments, variables);
}
RDSOCK_EXPORT(int, posix_spawnp,
              (pid_t * pid, const char* file, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments,
               char* const* variables)) {
  BeforeExec();
  if (actions != nullptr) BeforePassing();
  return libc().posix_spawnp(pid, file, actions, attributes, arguments, variables);
}
RDSOCK_EXPORT(pid_t, fork, ()) { return ForkCounted(libc().fork, true); }
RDSOCK_EXPORT(pid_t, _Fork, ()) { return ForkCounted(libc()._Fork, false); }
RDSOCK_EXPORT(int, clone, (int (*child)(void*), void* stack, int flags, void* argument, ...)) {
  va_list arguments;
  va_start(arguments, argument);
  auto* const parent_pid = va_arg(arguments, pid_t*);
  void* const thread = va_arg(arguments, void*);
  auto* const child_pid = va_arg(arguments, pid_t*);
  va_end(arguments);
  if ((flags & CLONE_VM) == 0) BeforeUnseenChild();
  return libc().clone(child, stack, flags, argument, parent_pid, thread, child_pid);
}
RDSOCK_EXPORT(int, system, (const char* command)) {
  BeforeExec();
  return libc().system(command);
}
RDSOCK_EXPORT(FILE*, popen, (const char* command, const char* mode)) {
  BeforeExec();
  return libc().popen(command, mode);
}

// Streams and formatted output make their system calls themselves.
RDSOCK_EXPORT(FILE*, fdopen, (int fd, const char* mode)) {
  NeedTcp(fd);
  return libc().fdopen(fd, mode);
}
RDSOCK_EXPORT(int, fclose, (FILE * stream)) {
  const int fd = IsThisProcess() ? fileno_unlocked(stream) : -1;
  const Closing closing(fd);
  return libc().fclose(stream);
}
RDSOCK_EXPORT(int, vdprintf, (int fd, const char* format, va_list arguments)) {
  NeedTcp(fd);
  return libc().vdprintf(fd, format, arguments);
}
RDSOCK_EXPORT(int, dprintf, (int fd, const char* format, ...)) {
  NeedTcp(fd);
  va_list arguments;
  va_start(arguments, format);
  const int result = libc().vdprintf(fd, format, arguments);
  va_end(arguments);
  return result;
}
// As programs call them that are compiled with -D_FORTIFY_SOURCE.
RDSOCK_EXPORT(int, __vdprintf_chk, (int fd, int flag, const char* format, va_list arguments)) {
  NeedTcp(fd);
  return libc().__vdprintf_chk(fd, flag, format, arguments);
}
RDSOCK_EXPORT(int, __dprintf_chk, (int fd, int flag, const char* format, ...)) {
  NeedTcp(fd);
  va_list arguments;
  va_start(arguments, format);
  const int result = libc().__vdprintf_chk(fd, flag, format, arguments);
  va_end(arguments);
  return result;
}

// aio(7): threads of the C library make the calls.
#define RDSOCK_ASYNCHRONOUS(name, Block)      \
  RDSOCK_EXPORT(int, name, (Block * block)) { \
    NeedTcp(block->aio_fildes);               \
    return libc().name(block);                \
  }
#define RDSOCK_ASYNCHRONOUS_LIST(name, Block)                                              \
  RDSOCK_EXPORT(int, name, (int mode, Block* const* blocks, int count, sigevent* event)) { \
    for (int i = 0; i < count; ++i) {                                                      \
      if (blocks[i] != nullptr && blocks[i]->aio_lio_opcode != LIO_NOP) {                  \
        NeedTcp(blocks[i]->aio_fildes);                                                    \
      }                                                                                    \
    }                                                                                      \
    return libc().name(mode, blocks, count, event);                                        \
  }
RDSOCK_ASYNCHRONOUS(aio_read, aiocb)
RDSOCK_ASYNCHRONOUS(aio_read64, aiocb64)
RDSOCK_ASYNCHRONOUS(aio_write, aiocb)
RDSOCK_ASYNCHRONOUS(aio_write64, aiocb64)
RDSOCK_ASYNCHRONOUS_LIST(lio_listio, aiocb)
RDSOCK_ASYNCHRONOUS_LIST(lio_listio64, aiocb64)

// Puts another file behind 0, 1 and 2.
RDSOCK_EXPORT(int, daemon, (int stay, int keep)) {
  if (keep == 0) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) NeedTcp(fd);
  }
  return libc().daemon(stay, keep);
}

// seccomp(2): a filter may kill the process for a system call that the program itself never makes.
RDSOCK_EXPORT(int, prctl, (int option, ...)) {
  va_list arguments;
  va_start(arguments, option);
  unsigned long a[4];
  for (unsigned long& argument : a) argument = va_arg(arguments, unsigned long);
  va_end(arguments);
  if (option == PR_SET_SECCOMP) StandAside();
  return libc().prctl(option, a[0], a[1], a[2], a[3]);
}

RDSOCK_EXPORT(long, syscall, (long number, ...)) {
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  if (ConcernsFirst(number)) NeedTcp(static_cast<int>(a[0]));
  if (number == SYS_splice) NeedTcp(static_cast<int>(a[2]));
  if (Forks(number, a)) BeforeUnseenChild();
  if (number == SYS_seccomp) StandAside();
  if (number == SYS_epoll_ctl || number == SYS_epoll_wait || number == SYS_epoll_pwait) {
    return EpollBySystemCall(number, a);
  }
  if (number == SYS_close) return CloseForProgram(static_cast<int>(a[0]));
  // What goes through it would not be seen.
  if (number == SYS_io_uring_setup) {
    errno = ENOSYS;
    return -1;
  }
  return libc().syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // namespace rdfs::sock
