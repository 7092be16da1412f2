// When a lane is good for no more connections. What it does with those it has: carrier_test.cc.
#include "tools/sock/far/lane.h"

#include <gtest/gtest.h>

#include <utility>

namespace rdfs::sock::far {
namespace {

class Nobody final : public Lane::Host {
 public:
  Status OnWanted(Lane&, const Wanted&) override { return {}; }
  Status OnOpen(Lane&, std::uint32_t, const Open&) override { return {}; }
  Status OnOpened(Lane&, Carried&, const Opened&) override { return {}; }
  void OnRefused(Lane&, Carried&, const Refused&) override {}
  void Wake(Carried&) override {}
  void Forget(Carried&) override {}
};

TEST(Lane, IsWornWellBeforeAPeerHasNoIdsLeft) {
  constexpr std::uint32_t kLast = UINT32_MAX - 2;
  for (const bool dialled : {true, false}) {
    Nobody nobody;
    Lane::Parts parts;
    parts.dialled = dialled;
    Lane lane(std::move(parts), nobody, TimePoint());
    const std::uint32_t peers = dialled ? 2 : 1;
    EXPECT_FALSE(lane.worn());
    EXPECT_TRUE(lane.TakePeersId(peers));
    EXPECT_FALSE(lane.worn());
    EXPECT_TRUE(lane.TakePeersId((kLast - 2 * Lane::kLastIds) / 2 * 2 + peers));
    EXPECT_FALSE(lane.worn());
    // It goes on with these, and with what the peer has on its way.
    EXPECT_TRUE(lane.TakePeersId((kLast - Lane::kLastIds + 10) / 2 * 2 + peers));
    EXPECT_TRUE(lane.worn());
    EXPECT_TRUE(lane.TakePeersId((kLast - 10) / 2 * 2 + peers));
    EXPECT_TRUE(lane.worn());
  }
}

}  // namespace
}  // namespace rdfs::sock::far
