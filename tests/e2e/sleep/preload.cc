// Preloaded: CLOCK_BOOTTIME is ahead by as many seconds as the file $RDFS_TEST_SLEPT has bytes, and
// a timer of CLOCK_REALTIME is the FIFO $RDFS_TEST_CLOCK_SET, if that is set: what is written there
// is a clock that somebody has set.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace {
std::atomic<int> g_fifo = -1;
}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long failed = syscall(SYS_clock_gettime, clock, now);
  if (failed != 0 || clock != CLOCK_BOOTTIME) return static_cast<int>(failed);
  const char* const file = getenv("RDFS_TEST_SLEPT");
  struct stat slept {};
  if (file != nullptr && stat(file, &slept) == 0) now->tv_sec += slept.st_size;
  return 0;
}

__attribute__((visibility("default"))) int timerfd_create(clockid_t clock, int flags) noexcept {
  const char* const fifo = getenv("RDFS_TEST_CLOCK_SET");
  if (clock != CLOCK_REALTIME || fifo == nullptr) {
    return static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
  }
  return g_fifo = open(fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

__attribute__((visibility("default"))) int timerfd_settime(int timer, int flags,
                                                           const itimerspec* then,
                                                           itimerspec* before) noexcept {
  if (timer == g_fifo) return 0;
  return static_cast<int>(syscall(SYS_timerfd_settime, timer, flags, then, before));
}

}  // extern "C"
