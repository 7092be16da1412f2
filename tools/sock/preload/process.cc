// The calls after which another program, or code that this library does not see, has the
// descriptors: what they would find half in memory goes back to TCP before.
#include <aio.h>
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
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
#include "tools/sock/preload/io.h"
#include "tools/sock/preload/libc.h"
#include "tools/sock/preload/poll.h"
#include "tools/sock/preload/uring.h"

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
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_shutdown:
      return true;
    default:
      return false;
  }
}

// What the kernel reads and writes at its leisure.
void BeforeSubmitting(long count, const iocb* const* blocks) {
  for (long i = 0; i < count && blocks != nullptr; ++i) {
    if (blocks[i] != nullptr) NeedTcp(static_cast<int>(blocks[i]->aio_fildes));
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

void BeforeSpawn(const posix_spawn_file_actions_t* actions) {
  BeforeExec();
  if (actions != nullptr) BeforePassing();
}

// Of C libraries that have it (glibc 2.39), and not among libc()'s: a search in vain allocates
// memory, and libc() may be called first from within an allocator.
int PidfdSpawn(const char* name, int* pidfd, const char* path,
               const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
               char* const* arguments, char* const* variables) {
  int (*spawn)(int*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
               char* const*, char* const*) = nullptr;
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) return ENOSYS;
  std::memcpy(&spawn, &found, sizeof(spawn));
  BeforeSpawn(actions);
  return spawn(pidfd, path, actions, attributes, arguments, variables);
}

// A mask of signals as the kernel has it, which is shorter than the C library's.
const sigset_t* KernelMask(long address, sigset_t& mask) {
  if (address == 0) return nullptr;
  sigemptyset(&mask);
  std::memcpy(&mask, reinterpret_cast<const void*>(address), NSIG / 8);
  return &mask;
}

// epoll_wait and its kin by number.
int EpollBySystemCall(long number, const long* a) {
  const auto epoll = static_cast<int>(a[0]);
  auto* const events = reinterpret_cast<epoll_event*>(a[1]);
  const auto third = static_cast<int>(a[2]);
  if (number == SYS_epoll_ctl) {
    return EpollControl(epoll, static_cast<int>(a[1]), third, reinterpret_cast<epoll_event*>(a[3]));
  }
  sigset_t mask;
  const sigset_t* const masked = number == SYS_epoll_wait ? nullptr : KernelMask(a[4], mask);
  if (number == SYS_epoll_pwait2) {
    return EpollWait(epoll, events, third, reinterpret_cast<const timespec*>(a[3]), masked);
  }
  return EpollWait(epoll, events, third, static_cast<int>(a[3]), masked);
}

// poll, select and their kin by number. ppoll and pselect6 leave in the timeout what is left of it;
// nobody leans on that by number.
bool WaitsBySystemCall(long number, const long* a, int& result) {
  sigset_t mask;
  auto* const fds = reinterpret_cast<pollfd*>(a[0]);
  const auto count = static_cast<nfds_t>(a[1]);
  const auto set = [&](int i) { return reinterpret_cast<fd_set*>(a[i]); };
  switch (number) {
#ifdef SYS_poll
    case SYS_poll:
      result = PollForProgram(fds, count, static_cast<int>(a[2]));
      return true;
    case SYS_select:
      result = SelectForProgram(static_cast<int>(a[0]), set(1), set(2), set(3),
                                reinterpret_cast<timeval*>(a[4]));
      return true;
#endif
    case SYS_ppoll:
      result = PPollForProgram(fds, count, reinterpret_cast<const timespec*>(a[2]),
                               KernelMask(a[3], mask));
      return true;
    case SYS_pselect6: {
      // Its sixth argument is a pair: the mask's address and its size.
      const long masked = a[5] == 0 ? 0 : *reinterpret_cast<const long*>(a[5]);
      result = PSelectForProgram(static_cast<int>(a[0]), set(1), set(2), set(3),
                                 reinterpret_cast<const timespec*>(a[4]), KernelMask(masked, mask));
      return true;
    }
    default:
      return false;
  }
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

// exec, with what the next program can take. Comes back only when it has failed.
template <typename Exec>
int Execute(const Successor& next, Exec exec) {
  const Handover handover(next);
  BeforeExec(handover.taken());
  auto** const all = static_cast<char**>(alloca(Handover::Count(next.variables) * sizeof(char*)));
  handover.Fill(next.variables, all);
  return exec(all);
}

}  // namespace

RDSOCK_EXPORT(int, execve, (const char* path, char* const* arguments, char* const* variables)) {
  return Execute({path, variables},
                 [&](char* const* all) { return libc().execve(path, arguments, all); });
}
RDSOCK_EXPORT(int, execv, (const char* path, char* const* arguments)) {
  return Execute({path, environ},
                 [&](char* const* all) { return libc().execve(path, arguments, all); });
}
RDSOCK_EXPORT(int, execvp, (const char* file, char* const* arguments)) {
  return Execute({file, environ, true},
                 [&](char* const* all) { return libc().execvpe(file, arguments, all); });
}
RDSOCK_EXPORT(int, execvpe, (const char* file, char* const* arguments, char* const* variables)) {
  return Execute({file, variables, true},
                 [&](char* const* all) { return libc().execvpe(file, arguments, all); });
}
RDSOCK_EXPORT(int, fexecve, (int fd, char* const* arguments, char* const* variables)) {
  return Execute({nullptr, variables},
                 [&](char* const* all) { return libc().fexecve(fd, arguments, all); });
}
RDSOCK_EXPORT(int, execveat,
              (int folder, const char* path, char* const* arguments, char* const* variables,
               int flags)) {
  return Execute({nullptr, variables}, [&](char* const* all) {
    return libc().execveat(folder, path, arguments, all, flags);
  });
}
RDSOCK_EXPORT(int, execl, (const char* path, const char* first, ...)) {
  va_list arguments;
  va_start(arguments, first);
  RDSOCK_COLLECT(vector, first, arguments);
  va_end(arguments);
  return Execute({path, environ},
                 [&](char* const* all) { return libc().execve(path, vector, all); });
}
RDSOCK_EXPORT(int, execlp, (const char* file, const char* first, ...)) {
  va_list arguments;
  va_start(arguments, first);
  RDSOCK_COLLECT(vector, first, arguments);
  va_end(arguments);
  return Execute({file, environ, true},
                 [&](char* const* all) { return libc().execvpe(file, vector, all); });
}
RDSOCK_EXPORT(int, execle, (const char* path, const char* first, ...)) {
  va_list arguments;
  va_start(arguments, first);
  RDSOCK_COLLECT(vector, first, arguments);
  char* const* const variables = va_arg(arguments, char* const*);
  va_end(arguments);
  return Execute({path, variables},
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
  BeforeSpawn(actions);
  return libc().posix_spawn(pid, path, actions, attributes, arguments, variables);
}
RDSOCK_EXPORT(int, posix_spawnp,
              (pid_t * pid, const char* file, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments,
               char* const* variables)) {
  BeforeSpawn(actions);
  return libc().posix_spawnp(pid, file, actions, attributes, arguments, variables);
}
RDSOCK_EXPORT(int, pidfd_spawn,
              (int* pidfd, const char* path, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments,
               char* const* variables)) {
  return PidfdSpawn("pidfd_spawn", pidfd, path, actions, attributes, arguments, variables);
}
RDSOCK_EXPORT(int, pidfd_spawnp,
              (int* pidfd, const char* file, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments,
               char* const* variables)) {
  return PidfdSpawn("pidfd_spawnp", pidfd, file, actions, attributes, arguments, variables);
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

// libaio(3), whose functions make system calls of their own.
RDSOCK_EXPORT(int, io_submit, (aio_context_t context, long count, iocb** blocks)) {
  BeforeSubmitting(count, blocks);
  const long result = libc().syscall(SYS_io_submit, static_cast<long>(context), count,
                                     reinterpret_cast<long>(blocks), 0, 0, 0);
  return result < 0 ? -errno : static_cast<int>(result);
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
  switch (number) {
    case SYS_io_submit:
      BeforeSubmitting(a[1], reinterpret_cast<const iocb* const*>(a[2]));
      break;
    case SYS_io_uring_enter:
    case SYS_io_uring_register:
      BeforeUringCall(number, a);
      break;
    case SYS_sendmsg:
    case SYS_sendmmsg:
      return SendBySystemCall(number, a);
    case SYS_epoll_ctl:
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      return EpollBySystemCall(number, a);
    default:
      break;
  }
  int waited = 0;
  if (WaitsBySystemCall(number, a, waited)) return waited;
  if (ChangesDescriptors(number)) return ChangeBySystemCall(number, a);
  // What goes through it would not be seen.
  if (number == SYS_io_uring_setup) {
    errno = ENOSYS;
    return -1;
  }
  return libc().syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // namespace rdfs::sock
