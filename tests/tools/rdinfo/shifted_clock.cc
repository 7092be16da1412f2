// Preloaded into a server whose wall clock is to be an hour ahead; every other clock is left alone.
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

extern "C" int clock_gettime(clockid_t id, timespec* out) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, id, out));
  if (result == 0 && id == CLOCK_REALTIME) out->tv_sec += 3600;
  return result;
}
