#include "tools/sock/preload/loners.h"

#include <gtest/gtest.h>

#include <memory>

namespace rdfs::sock {
namespace {

TcpPlace At(std::uint16_t port) {
  TcpPlace place;
  place.address[15] = 1;
  place.port = port;
  return place;
}

class LonersTest : public testing::Test {
 protected:
  const std::unique_ptr<Loners> loners_ = std::make_unique<Loners>();
  const Loners::Place here_ = Loners::PlaceOf(At(80), false);
  void MeetNobody(std::uint32_t connections) {
    for (std::uint32_t i = 0; i < connections; ++i) loners_->MetNobody(here_);
  }
  // Of as many connections, how many look.
  int Lookers(std::uint32_t connections) {
    int lookers = 0;
    for (std::uint32_t i = 0; i < connections; ++i) lookers += loners_->IsWorthLooking(here_);
    return lookers;
  }
};

TEST_F(LonersTest, WhoOftenMetNobodyLooksSeldom) {
  MeetNobody(Loners::kMany - 1);
  EXPECT_EQ(Lookers(100), 100);
  MeetNobody(1);
  EXPECT_EQ(Lookers(10 * Loners::kEach), 10);
}

TEST_F(LonersTest, OneThatMeetsEndsIt) {
  MeetNobody(1000);
  EXPECT_EQ(Lookers(Loners::kEach), 1);
  loners_->Met(here_);
  EXPECT_EQ(Lookers(100), 100);
  MeetNobody(Loners::kMany - 1);
  EXPECT_EQ(Lookers(100), 100) << "counted anew";
}

TEST_F(LonersTest, OtherServersAreOthers) {
  MeetNobody(Loners::kMany);
  EXPECT_TRUE(loners_->IsWorthLooking(Loners::PlaceOf(At(81), false)));
  EXPECT_TRUE(loners_->IsWorthLooking(Loners::PlaceOf(At(80), true)));
}

}  // namespace
}  // namespace rdfs::sock
