#include "tools/sock/preload/signals.h"

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "tools/sock/preload/libc.h"

namespace rdfs::sock {
namespace {

// A bit for each signal whose handler was set without SA_RESTART; 64 of them there are.
constinit std::atomic<std::uint64_t> g_interrupting{0};

}  // namespace

bool SignalsInterrupt() { return g_interrupting.load(std::memory_order_relaxed) != 0; }

RDSOCK_EXPORT(int, sigaction,
              (int number, const struct sigaction* action, struct sigaction* before)) {
  const int result = libc().sigaction(number, action, before);
  if (result != 0 || action == nullptr || number < 1 || number > 64) return result;
  const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(number - 1);
  const bool handled = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
  if (handled && (action->sa_flags & SA_RESTART) == 0) {
    g_interrupting |= bit;
  } else {
    g_interrupting &= ~bit;
  }
  return result;
}

}  // namespace rdfs::sock
