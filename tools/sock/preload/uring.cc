// liburing's calls that give the kernel something to do, as programs see them. What the kernel does
// by itself no library sees: a connection, or an epoll set, that a request names goes back to TCP
// before the request is there. A program that has its rings for files (a database) loses nothing.
//
// Only who calls liburing by its names comes here: the shared one, or one that a module of the
// program's has linked in. Who sets up a ring by syscall(2) is told that there is no io_uring
// (process.cc); of who has liburing linked into the program itself nobody knows.
#include "tools/sock/preload/uring.h"

#include <dlfcn.h>
#include <liburing.h>
#include <link.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tools/sock/preload/connection.h"
#include "tools/sock/preload/io.h"
#include "tools/sock/preload/libc.h"

namespace rdfs::sock {
namespace {

// What liburing 2.3 has no name for.
constexpr unsigned kOpSendMessageZero = 48;   // IORING_OP_SENDMSG_ZC
constexpr unsigned kOpWaitId = 50;            // IORING_OP_WAITID: its fd is a process
constexpr unsigned kOpFutexWait = 51;         // IORING_OP_FUTEX_WAIT: flags in place of its fd
constexpr unsigned kOpFutexWake = 52;         // IORING_OP_FUTEX_WAKE: the same
constexpr unsigned kOpFutexWaitMany = 53;     // IORING_OP_FUTEX_WAITV: none
constexpr unsigned kOpPipe = 62;              // IORING_OP_PIPE: none
constexpr unsigned kOpEpollWait = 59;         // IORING_OP_EPOLL_WAIT
constexpr unsigned kOpNothingWide = 63;       // IORING_OP_NOP128: takes two places
constexpr unsigned kOpCommandWide = 64;       // IORING_OP_URING_CMD128: the same
constexpr unsigned kMixedWidths = 1U << 19U;  // IORING_SETUP_SQE_MIXED

constinit std::atomic<bool> g_gives_connections{false};

// `fd` is what the kernel will read, write or wait for.
void WillUse(int fd, bool waits) {
  const Word::Kind kind = Registry().Get(fd).kind();
  if (kind == Word::Kind::kNone) return;
  // What is in a set is told of by this library's wait alone.
  if (kind == Word::Kind::kEpoll && waits) return StandAside();
  if (kind == Word::Kind::kConnection) g_gives_connections = true;
  NeedTcp(fd, Reason::kUring);
}

void WillUse(const int* fds, std::uint64_t count) {
  for (std::uint64_t i = 0; fds != nullptr && i < count; ++i) WillUse(fds[i], true);
}

void WillDo(const io_uring_sqe& request) {
  const auto memory = [&] { return reinterpret_cast<const void*>(request.addr); };
  switch (request.opcode) {
    // What these have there are no descriptors.
    case IORING_OP_PROVIDE_BUFFERS:
    case IORING_OP_REMOVE_BUFFERS:
    case IORING_OP_SOCKET:
    case IORING_OP_ASYNC_CANCEL:
    case kOpWaitId:
    case kOpFutexWait:
    case kOpFutexWake:
    case kOpFutexWaitMany:
    case kOpPipe:
      return;
    case IORING_OP_FILES_UPDATE:
      return WillUse(static_cast<const int*>(memory()), request.len);
    case IORING_OP_EPOLL_CTL:
      return WillUse(static_cast<int>(request.off), true);
    case IORING_OP_SENDMSG:
    case kOpSendMessageZero:
      if (memory() != nullptr) LetGo(*static_cast<const msghdr*>(memory()));
      break;
    case IORING_OP_CLOSE:
      if (request.file_index != 0) return;  // of a place in a table
      break;
    case IORING_OP_SPLICE:
    case IORING_OP_TEE:
      if ((request.splice_flags & SPLICE_F_FD_IN_FIXED) == 0) WillUse(request.splice_fd_in, false);
      break;
    default:
      break;
  }
  // Else it is a place in a table, of what was seen when it was put there.
  if ((request.flags & IOSQE_FIXED_FILE) != 0) return;
  const bool waits = request.opcode == IORING_OP_POLL_ADD || request.opcode == kOpEpollWait;
  WillUse(request.fd, waits);
  // Nothing of ours is left to be done when the kernel has closed it.
  if (request.opcode == IORING_OP_CLOSE && IsThisProcess()) const Closing closing(request.fd);
}

// What the program has filled in and the kernel has not been told of.
void WillSubmit(const io_uring* ring) {
  const int saved = errno;
  const io_uring_sq& queue = ring->sq;
  const unsigned wide = (ring->flags & IORING_SETUP_SQE128) != 0 ? 1 : 0;
  for (unsigned at = queue.sqe_head; at != queue.sqe_tail; ++at) {
    const io_uring_sqe& request = queue.sqes[(at & *queue.kring_mask) << wide];
    WillDo(request);
    const bool two = request.opcode == kOpNothingWide || request.opcode == kOpCommandWide;
    if (two && (ring->flags & kMixedWidths) != 0 && at + 1 != queue.sqe_tail) ++at;
  }
  errno = saved;
}

// Who waits with a time submits where the kernel cannot take one. Else another thread may be
// filling the queue meanwhile (io_uring_wait_cqes(3)).
void WillWait(const io_uring* ring, const __kernel_timespec* time) {
  if (time != nullptr && (ring->features & IORING_FEAT_EXT_ARG) == 0) WillSubmit(ring);
}

void WillRegister(const int* fds, unsigned count) {
  const int saved = errno;
  WillUse(fds, count);
  errno = saved;
}

void WillEnter(unsigned count, unsigned flags) {
  if (count > 0 || (flags & IORING_ENTER_SQ_WAKEUP) != 0) StandAside();
}

void WillRegisterBy(unsigned what) {
  constexpr unsigned kByIndex = 1U << 31U;  // IORING_REGISTER_USE_REGISTERED_RING
  switch (what & ~kByIndex) {
    case IORING_REGISTER_FILES:
    case IORING_REGISTER_FILES_UPDATE:
    case IORING_REGISTER_FILES2:
    case IORING_REGISTER_FILES_UPDATE2:
      return StandAside();
    default:
      return;
  }
}

// Of a library that is loaded already; null when it is not, or has no such function.
void* FindIn(const char* path, const char* name) {
  void* const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const found = dlsym(library, name);
  dlclose(library);  // given back
  return found;
}

// What the caller would have called without this library. It may be a module's own affair, loaded
// for that alone: two may have different ones, so that is not remembered.
void* Find(std::atomic<void*>& known, const char* name, const void* caller) {
  void* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = dlsym(RTLD_NEXT, name);
  if (found != nullptr) {
    known.store(found, std::memory_order_release);
    return found;
  }
  Dl_info module{};
  if (dladdr(caller, &module) != 0 && module.dli_fname != nullptr) {
    found = FindIn(module.dli_fname, name);
  }
  if (found != nullptr) return found;
  // The last thing that a function of the module's has done, so that it returns to another one: the
  // shared library, if there is any.
  const auto look = [](dl_phdr_info* info, std::size_t, void* path) {
    if (strstr(info->dlpi_name, "/liburing") == nullptr) return 0;
    *static_cast<const char**>(path) = info->dlpi_name;
    return 1;
  };
  const char* path = nullptr;
  return dl_iterate_phdr(look, &path) != 0 ? FindIn(path, name) : nullptr;
}

}  // namespace

bool GivesConnectionsToUring() { return g_gives_connections; }

void BeforeUringCall(long number, const long* a) {
  if (number == SYS_io_uring_register) return WillRegisterBy(static_cast<unsigned>(a[1]));
  WillEnter(static_cast<unsigned>(a[1]), static_cast<unsigned>(a[3]));
}

#define RDSOCK_URING(name, parameters, arguments, before)                \
  RDSOCK_EXPORT(int, name, parameters) {                                 \
    static constinit std::atomic<void*> known{nullptr};                  \
    before;                                                              \
    void* const found = Find(known, #name, __builtin_return_address(0)); \
    if (found == nullptr) return -ENOSYS;                                \
    int(*call) parameters = nullptr;                                     \
    std::memcpy(&call, &found, sizeof(call));                            \
    return call arguments;                                               \
  }

using Rings = io_uring;
using Done = io_uring_cqe*;
using Time = __kernel_timespec;

RDSOCK_URING(io_uring_submit, (Rings * ring), (ring), WillSubmit(ring))
RDSOCK_URING(io_uring_submit_and_wait, (Rings * ring, unsigned count), (ring, count),
             WillSubmit(ring))
RDSOCK_URING(io_uring_submit_and_wait_timeout,
             (Rings * ring, Done* done, unsigned count, Time* time, sigset_t* mask),
             (ring, done, count, time, mask), WillSubmit(ring))
RDSOCK_URING(io_uring_submit_and_wait_min_timeout,
             (Rings * ring, Done* done, unsigned count, Time* time, unsigned least, sigset_t* mask),
             (ring, done, count, time, least, mask), WillSubmit(ring))
RDSOCK_URING(io_uring_submit_and_wait_reg, (Rings * ring, Done* done, unsigned count, int index),
             (ring, done, count, index), WillSubmit(ring))
RDSOCK_URING(io_uring_submit_and_get_events, (Rings * ring), (ring), WillSubmit(ring))
RDSOCK_URING(io_uring_wait_cqes,
             (Rings * ring, Done* done, unsigned count, Time* time, sigset_t* mask),
             (ring, done, count, time, mask), WillWait(ring, time))
RDSOCK_URING(io_uring_wait_cqe_timeout, (Rings * ring, Done* done, Time* time), (ring, done, time),
             WillWait(ring, time))

RDSOCK_URING(io_uring_register_files, (Rings * ring, const int* fds, unsigned count),
             (ring, fds, count), WillRegister(fds, count))
RDSOCK_URING(io_uring_register_files_tags,
             (Rings * ring, const int* fds, const __u64* tags, unsigned count),
             (ring, fds, tags, count), WillRegister(fds, count))
RDSOCK_URING(io_uring_register_files_update,
             (Rings * ring, unsigned at, const int* fds, unsigned count), (ring, at, fds, count),
             WillRegister(fds, count))
RDSOCK_URING(io_uring_register_files_update_tag,
             (Rings * ring, unsigned at, const int* fds, const __u64* tags, unsigned count),
             (ring, at, fds, tags, count), WillRegister(fds, count))

// The system calls themselves, which do not say what lies in the ring. (With SQPOLL the kernel
// takes what a program that fills the queue itself has put there without any call.)
RDSOCK_URING(io_uring_enter,
             (unsigned ring, unsigned count, unsigned least, unsigned flags, sigset_t* mask),
             (ring, count, least, flags, mask), WillEnter(count, flags))
RDSOCK_URING(io_uring_enter2,
             (unsigned ring, unsigned count, unsigned least, unsigned flags, void* argument,
              std::size_t size),
             (ring, count, least, flags, argument, size), WillEnter(count, flags))
RDSOCK_URING(io_uring_register,
             (unsigned ring, unsigned what, const void* argument, unsigned count),
             (ring, what, argument, count), WillRegisterBy(what))

}  // namespace rdfs::sock
