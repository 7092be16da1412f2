#include "tools/sock/preload/signals.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "tools/sock/preload/libc.h"

namespace rdfs::sock {
namespace {

// A bit for each signal whose handler was set without SA_RESTART; 64 of them there are.
constinit std::atomic<std::uint64_t> g_interrupting{0};

void Note(int number, const struct sigaction& action) {
  if (number < 1 || number > 64) return;
  const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(number - 1);
  const bool handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
  if (handled && (action.sa_flags & SA_RESTART) == 0) {
    g_interrupting |= bit;
  } else {
    g_interrupting &= ~bit;
  }
}

// After a function that sets a handler with flags of its own.
template <typename Result>
Result Look(int number, Result result) {
  const int saved = errno;
  struct sigaction action {};
  if (libc().sigaction(number, nullptr, &action) == 0) Note(number, action);
  errno = saved;
  return result;
}

}  // namespace

bool SignalsInterrupt() { return g_interrupting.load(std::memory_order_relaxed) != 0; }

RDSOCK_EXPORT(int, sigaction,
              (int number, const struct sigaction* action, struct sigaction* before)) {
  const int result = libc().sigaction(number, action, before);
  if (result == 0 && action != nullptr) Note(number, *action);
  return result;
}

#define RDSOCK_SETS_HANDLER(name)                                         \
  RDSOCK_EXPORT(sighandler_t, name, (int number, sighandler_t handler)) { \
    return Look(number, libc().name(number, handler));                    \
  }
RDSOCK_SETS_HANDLER(signal)
RDSOCK_SETS_HANDLER(bsd_signal)
RDSOCK_SETS_HANDLER(ssignal)
RDSOCK_SETS_HANDLER(sysv_signal)
RDSOCK_SETS_HANDLER(__sysv_signal)
RDSOCK_SETS_HANDLER(sigset)
RDSOCK_EXPORT(int, siginterrupt, (int number, int interrupts)) {
  return Look(number, libc().siginterrupt(number, interrupts));
}

}  // namespace rdfs::sock
