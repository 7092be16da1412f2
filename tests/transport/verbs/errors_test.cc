#include "transport/verbs/errors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <string_view>

#include "transport/base/memlock.h"
#include "transport/verbs/devices.h"

namespace rdfs::transport::verbs {
namespace {

bool Says(const std::string& sentence, std::string_view piece) {
  return sentence.find(piece) != std::string::npos;
}

// Root has no limit, whatever ulimit says.
TEST(MemlockRemedy, AdvisesOfALimitOnlyWhereThereIsOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = std::min<rlim_t>(before.rlim_cur, 64 << 10);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &lower), 0);
  const bool limited = MemlockLimit() != std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(Says(MemlockRemedy(), "ulimit -l"), limited);
  EXPECT_EQ(Says(MemlockRemedy(), "is not what stops us"), !limited);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST(FromListen, SaysWhosePortsAreBelow1024) {
  const Endpoint low{.kind = Kind::kVerbs, .host = "", .port = 1023};
  const Endpoint high{.kind = Kind::kVerbs, .host = "", .port = 1024};
  EXPECT_TRUE(Says(FromListen(EACCES, low).message(), "the RDMA port 1023 is root's"));
  EXPECT_TRUE(Says(FromListen(EACCES, high).message(), "/dev/infiniband"));
  EXPECT_TRUE(Says(FromListen(EADDRINUSE, low).message(), "is taken"));
  EXPECT_EQ(FromListen(EACCES, low).errno_value(), EACCES);
}

}  // namespace
}  // namespace rdfs::transport::verbs
