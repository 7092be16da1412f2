#include "server/identity.h"

#include <gtest/gtest.h>

#include "transport/base/clock.h"

namespace rdfs::server {
namespace {

using std::chrono::seconds;

TEST(Groups, AreAskedForOnceAMinuteAndKeptWhereNobodyAnswers) {
  ManualClock clock;
  int asked = 0;
  std::optional<std::vector<gid_t>> answer = {{1, 2}};
  GroupCache groups(clock, [&](Ids) {
    ++asked;
    return answer;
  });
  const Ids ids{.uid = 7, .gid = 1};
  EXPECT_EQ(*groups.Of(ids), (std::vector<gid_t>{1, 2}));
  clock.Advance(seconds(59));
  EXPECT_EQ(*groups.Of(ids), (std::vector<gid_t>{1, 2}));
  EXPECT_EQ(asked, 1);
  clock.Advance(seconds(2));
  answer = std::nullopt;
  EXPECT_EQ(*groups.Of(ids), (std::vector<gid_t>{1, 2}));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(*groups.Of({.uid = 8, .gid = 3}), (std::vector<gid_t>{3}));
  clock.Advance(seconds(61));
  answer = {{1, 5}};
  EXPECT_EQ(*groups.Of(ids), (std::vector<gid_t>{1, 5}));
}

TEST(Groups, OfManyUsersAreBoundedAndLeaveOthersAlone) {
  ManualClock clock;
  std::size_t asked = 0;
  GroupCache groups(clock, [&](Ids ids) {
    ++asked;
    return std::optional(std::vector<gid_t>{ids.gid});
  });
  for (std::uint32_t uid = 0; uid < 5000; ++uid) (void)groups.Of({.uid = uid, .gid = 1});
  asked = 0;
  for (std::uint32_t uid = 0; uid < 5000; ++uid) (void)groups.Of({.uid = uid, .gid = 1});
  EXPECT_LT(asked, 3000U) << "most are still known";
}

}  // namespace
}  // namespace rdfs::server
