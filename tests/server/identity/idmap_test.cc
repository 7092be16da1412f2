#include "server/identity/idmap.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace rdfs::server {
namespace {

TEST(IdMap, AsMeSwapsTheTwoUsersAndIsOneToOne) {
  const IdMap map = IdMap::AsMe({1000, 100}, {2000, 200}, false);
  EXPECT_EQ(map.ToClientUid(1000), 2000U);
  EXPECT_EQ(map.ToClientUid(2000), 1000U);
  EXPECT_EQ(map.ToClientUid(0), 0U);
  EXPECT_EQ(map.ToServerUid(2000), 1000U);
  EXPECT_EQ(map.ToServerGid(200), 100U);
  for (std::uint32_t id : {0U, 1000U, 2000U, 65534U}) {
    EXPECT_EQ(map.ToServerUid(map.ToClientUid(id)), id);
    EXPECT_EQ(map.ToServerGid(map.ToClientGid(id)), id);
  }
  EXPECT_FALSE(map.Caller({2000, 200}).has_value());
}

TEST(IdMap, RawIdsMapNothing) {
  const IdMap map = IdMap::AsMe({1000, 100}, {2000, 200}, true);
  EXPECT_FALSE(map.maps_values());
  EXPECT_EQ(map.ToClientUid(1000), 1000U);
}

TEST(IdMap, RootSquashTakesRootAway) {
  const IdMap map = IdMap::Daemon(IdMode::kRootSquash);
  EXPECT_EQ(map.Caller({0, 0}), kNobody);
  EXPECT_EQ(map.Caller({0, 100}), kNobody);
  EXPECT_EQ(map.Caller({1000, 100}), (Ids{1000, 100}));
  EXPECT_EQ(map.Caller({1000, 0}), (Ids{1000, kNobody.gid}));
  EXPECT_EQ(map.ToClientUid(0), 0U);
}

TEST(IdMap, RootSquashTakesRootsGroupAwayWhereverItIs) {
  const auto known = std::make_shared<const std::vector<gid_t>>(std::vector<gid_t>{100, 0, 27});
  const auto others = std::make_shared<const std::vector<gid_t>>(std::vector<gid_t>{100, 27});
  const IdMap squash = IdMap::Daemon(IdMode::kRootSquash, {99, 98});
  EXPECT_EQ(*squash.CallerGroups(known), (std::vector<gid_t>{100, 98, 27}));
  EXPECT_EQ(squash.CallerGroups(others), others);
  EXPECT_EQ(IdMap::Daemon(IdMode::kTrusted).CallerGroups(known), known);
}

TEST(IdMap, AllSquashTakesEverybody) {
  const IdMap map = IdMap::Daemon(IdMode::kAllSquash, {99, 98});
  EXPECT_EQ(map.Caller({0, 0}), (Ids{99, 98}));
  EXPECT_EQ(map.Caller({1000, 100}), (Ids{99, 98}));
}

TEST(IdMap, TrustedBelieves) {
  EXPECT_EQ(IdMap::Daemon(IdMode::kTrusted).Caller({0, 0}), (Ids{0, 0}));
}

TEST(IdMap, Names) {
  EXPECT_EQ(IdModeFromName("root_squash"), IdMode::kRootSquash);
  EXPECT_EQ(IdModeFromName("no_root_squash"), IdMode::kTrusted);
  EXPECT_FALSE(IdModeFromName("").has_value());
}

}  // namespace
}  // namespace rdfs::server
