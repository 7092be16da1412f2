// Which address of a server a lane is tried over, and when.
#include "transport/session/addresses.h"

#include <gtest/gtest.h>

namespace rdfs::transport::session {
namespace {

using Order = std::vector<std::size_t>;
constexpr TimePoint kNow{std::chrono::hours(1)};

TEST(Addresses, LanesGoOverOneAfterTheOther) {
  Addresses addresses({"a", "b", "c"});
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{0, 1, 2}));
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{1, 2, 0}));
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{2, 0, 1}));
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{0, 1, 2}));
  EXPECT_EQ(addresses.host(1), "b");
}

TEST(Addresses, OneThatFailedIsTheLastForAWhile) {
  Addresses addresses({"a", "b", "c"});
  addresses.Failed(1, kNow);
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{0, 2, 1}));
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{2, 0, 1}));
  EXPECT_EQ(addresses.ForNextLane(kNow + Addresses::kRest), (Order{2, 0, 1}));
  EXPECT_EQ(addresses.ForNextLane(kNow + Addresses::kRest), (Order{0, 1, 2}));
}

TEST(Addresses, WhereAllHaveFailedAllAreTried) {
  Addresses addresses({"a", "b"});
  addresses.Failed(0, kNow);
  addresses.Failed(1, kNow);
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{0, 1}));
  EXPECT_EQ(addresses.ForNextLane(kNow), (Order{1, 0}));
  EXPECT_EQ(Addresses({"a"}).ForNextLane(kNow), (Order{0}));
}

}  // namespace
}  // namespace rdfs::transport::session
