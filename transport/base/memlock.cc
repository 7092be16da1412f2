#include "transport/base/memlock.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <limits>

namespace rdfs {
namespace {

// capget(2) needs no library.
bool HasCapIpcLock() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return false;
  return (sets[CAP_IPC_LOCK / 32].effective & (1U << (CAP_IPC_LOCK % 32))) != 0;
}

// The kernel asks for the capability there: in another one root has it, and the limit counts.
bool InInitialUserNamespace() {
  constexpr ino_t kInitial = 0xEFFFFFFD;  // PROC_USER_INIT_INO
  struct stat info {};
  return stat("/proc/self/ns/user", &info) != 0 || info.st_ino == kInitial;
}

}  // namespace

std::uint64_t MemlockLimit() {
  constexpr auto kNone = std::numeric_limits<std::uint64_t>::max();
  if (HasCapIpcLock() && InInitialUserNamespace()) return kNone;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? kNone : limit.rlim_cur;
}

}  // namespace rdfs
