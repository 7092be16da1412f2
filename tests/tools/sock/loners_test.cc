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
// As the client sees it.
TcpPlaces Connection(std::uint32_t client) {
  return {At(static_cast<std::uint16_t>(32'768 + client)), At(80)};
}

class LonersTest : public testing::Test {
 protected:
  const std::unique_ptr<Loners> loners_ = std::make_unique<Loners>();
  const Loners::Place here_ = Loners::PlaceOf(At(80), false);
  void MeetNobody(std::uint32_t connections) {
    for (std::uint32_t i = 0; i < connections; ++i) loners_->MetNobody(here_);
  }
  // Of as many connections, how many look.
  std::uint32_t Lookers(std::uint32_t connections, std::uint32_t step = 1) {
    std::uint32_t lookers = 0;
    for (std::uint32_t i = 0; i < connections; ++i) {
      lookers += loners_->IsWorthLooking(here_, Connection(i * step)) ? 1U : 0U;
    }
    return lookers;
  }
};

TEST_F(LonersTest, WhoOftenMetNobodyLooksSeldom) {
  MeetNobody(Loners::kMany - 1);
  EXPECT_EQ(Lookers(100), 100U);
  MeetNobody(1);
  // A system gives its clients each port, or each second one.
  for (const std::uint32_t step : {1U, 2U}) {
    const std::uint32_t lookers = Lookers(100 * Loners::kEach, step);
    EXPECT_GT(lookers, 70U) << step;
    EXPECT_LT(lookers, 130U) << step;
  }
}

TEST_F(LonersTest, BothEndsLookOnTheSame) {
  const std::unique_ptr<Loners> theirs = std::make_unique<Loners>();
  const Loners::Place there = Loners::PlaceOf(At(80), true);
  MeetNobody(Loners::kMany);
  for (std::uint32_t i = 0; i < Loners::kMany; ++i) theirs->MetNobody(there);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const TcpPlaces connection = Connection(i);
    EXPECT_EQ(loners_->IsWorthLooking(here_, connection),
              theirs->IsWorthLooking(there, connection.Reversed()))
        << i;
  }
}

TEST_F(LonersTest, OneThatMeetsEndsIt) {
  MeetNobody(1000);
  EXPECT_LT(Lookers(100), 100U);
  loners_->Met(here_);
  EXPECT_EQ(Lookers(100), 100U);
  MeetNobody(Loners::kMany - 1);
  EXPECT_EQ(Lookers(100), 100U) << "counted anew";
}

TEST_F(LonersTest, ItIsKnownWhereTheLastOneWas) {
  MeetNobody(Loners::kMany);
  EXPECT_FALSE(loners_->WasElsewhere(here_));
  loners_->MetNobody(here_, true);
  EXPECT_TRUE(loners_->WasElsewhere(here_));
  MeetNobody(1);
  EXPECT_FALSE(loners_->WasElsewhere(here_));
}

TEST_F(LonersTest, OtherServersAreOthers) {
  MeetNobody(Loners::kMany);
  for (std::uint32_t i = 0; i < 100; ++i) {
    const TcpPlaces connection = Connection(i);
    EXPECT_TRUE(loners_->IsWorthLooking(Loners::PlaceOf(At(81), false), connection));
    EXPECT_TRUE(loners_->IsWorthLooking(Loners::PlaceOf(At(80), true), connection));
  }
}

}  // namespace
}  // namespace rdfs::sock
