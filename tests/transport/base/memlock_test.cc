#include "transport/base/memlock.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rdfs {
namespace {

// Who makes a user namespace has every capability there.
TEST(MemlockLimit, CountsForRootOfAUserNamespace) {
  constexpr int kNoNamespace = 2;
  constexpr rlim_t kLimit = 64 << 10;
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max < kLimit) _exit(kNoNamespace);
    limit.rlim_cur = kLimit;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(kNoNamespace);
    if (unshare(CLONE_NEWUSER) != 0) _exit(kNoNamespace);
    _exit(MemlockLimit() == kLimit ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) {
    GTEST_SKIP() << "no user namespaces here";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace rdfs
