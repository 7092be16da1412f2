// Who is served when, in virtual time: clients that keep requests under way, and one that asks for
// one thing after the other.
#include "server/loop/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace rdfs::server {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A loop and its lanes: each has messages waiting, which take a while each.
class World {
 public:
  struct Lane {
    std::uint64_t session = 0;
    nanoseconds each{};
    std::size_t waiting = 0;
    std::size_t served = 0;
    bool ends = false;      // goes as soon as it is served
    nanoseconds carries{};  // what its READs take each time, beside messages
  };

  void Add(const std::string& name, std::uint64_t session, nanoseconds each, std::size_t waiting) {
    lanes_[name] = {.session = session, .each = each, .waiting = waiting};
    turns_.Add(session, name);
  }
  Lane& operator[](const std::string& name) { return lanes_.at(name); }
  bool Round() {
    return turns_.Round(
        [this](const std::string& name, std::size_t most) {
          EXPECT_LE(most, Turns<std::string>::kMostMessages);
          Lane& lane = lanes_.at(name);
          const std::size_t took = std::min(most, lane.waiting);
          lane.waiting -= took;
          lane.served += took;
          now_ += static_cast<std::int64_t>(took) * lane.each;
          order_.push_back(name);
          if (lane.ends) turns_.Remove(lane.session, name);
          now_ += lane.carries;
          return took + (lane.carries.count() > 0 ? kCarriedAtOnce : 0);
        },
        [this] {
          ++looks_;
          return now_;
        },
        [this] { return now_; });
  }
  // The longest that a lane which always has one request waits between two of them, over `rounds`.
  nanoseconds LongestWait(const std::string& name, int rounds) {
    nanoseconds longest{0}, last = now_;
    for (int i = 0; i < rounds; ++i) {
      const std::size_t before = lanes_.at(name).served;
      lanes_.at(name).waiting = 1;
      Round();
      if (lanes_.at(name).served == before) continue;
      longest = std::max(longest, now_ - last);
      last = now_;
    }
    return longest;
  }

  static constexpr std::size_t kCarriedAtOnce = 20;  // messages that it is worth

  Turns<std::string> turns_;
  nanoseconds now_{0};
  int looks_ = 0;
  std::vector<std::string> order_;

 private:
  std::map<std::string, Lane> lanes_;
};

constexpr std::size_t kFlood = 1'000'000;

TEST(Turns, LanesBringASessionNoMoreThanItsTurn) {
  World world;
  for (int i = 0; i < 8; ++i) {
    world.Add("flood" + std::to_string(i), 1, microseconds(2), kFlood);
  }
  world.Add("good", 2, microseconds(2), 0);
  world.LongestWait("good", 20);
  EXPECT_LE(world.LongestWait("good", 200), 2 * Turns<std::string>::kTurn);
  // And in their turn one lane is worth what the other one is.
  std::size_t least = kFlood, most = 0;
  for (int i = 0; i < 8; ++i) {
    const std::size_t served = world["flood" + std::to_string(i)].served;
    least = std::min(least, served);
    most = std::max(most, served);
  }
  EXPECT_GT(least, 0U);
  EXPECT_LE(most, 2 * least);
}

TEST(Turns, DearRequestsAreFewerInATurn) {
  World world;
  world.Add("writes", 1, microseconds(300), kFlood);
  world.Add("good", 2, microseconds(2), 0);
  world.LongestWait("good", 20);  // by then it is known what they take
  EXPECT_LE(world.LongestWait("good", 100), microseconds(310));
  // They get cheap: more of them fit again.
  world["writes"].each = microseconds(1);
  world.LongestWait("good", 50);
  const std::size_t before = world["writes"].served;
  world.Round();
  EXPECT_EQ(world["writes"].served - before, Turns<std::string>::kMostMessages);
}

TEST(Turns, AnyNumberOfSessionsShareEqually) {
  World world;
  for (std::uint64_t i = 0; i < 20; ++i) {
    // The first ones have more lanes.
    for (std::uint64_t j = 0; j < 20 - i; ++j) {
      world.Add(std::to_string(i) + "-" + std::to_string(j), i, microseconds(3), kFlood);
    }
  }
  for (int i = 0; i < 400; ++i) world.Round();
  std::map<std::uint64_t, std::size_t> served;
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (std::uint64_t j = 0; j < 20 - i; ++j) {
      served[i] += world[std::to_string(i) + "-" + std::to_string(j)].served;
    }
  }
  for (const auto& [session, count] : served) EXPECT_EQ(count, served[0]) << session;
}

TEST(Turns, WhoIsAloneHasAllOfItAndNoClockIsAsked) {
  World world;
  world.Add("a", 1, microseconds(300), kFlood);
  world.Add("b", 1, microseconds(300), kFlood);
  EXPECT_TRUE(world.Round());
  EXPECT_EQ(world["a"].served, Turns<std::string>::kMostMessages);
  EXPECT_EQ(world["b"].served, Turns<std::string>::kMostMessages);
  EXPECT_EQ(world.looks_, 0);
}

TEST(Turns, WhoIsAloneIsLookedBeyondWhenItsTimeIsOver) {
  World world;
  for (const char* const name : {"a", "b", "c", "d"}) world.Add(name, 1, microseconds(60), 1000);
  EXPECT_TRUE(world.Round());
  EXPECT_EQ(world.order_, (std::vector<std::string>{"a", "b"}));
  world.order_.clear();
  EXPECT_TRUE(world.Round());
  EXPECT_EQ(world.order_, (std::vector<std::string>{"c", "d"})) << "none is left out";
  EXPECT_EQ(world.looks_, 0);
}

TEST(Turns, WhatIsCarriedForAPeerIsPartOfItsTurn) {
  World world;
  for (int i = 0; i < 32; ++i) {
    const std::string name = "reads" + std::to_string(i);
    world.Add(name, 1, microseconds(1), 0);
    world[name].carries = microseconds(400);
  }
  world.Add("good", 2, microseconds(2), 0);
  world.LongestWait("good", 20);
  EXPECT_LE(world.LongestWait("good", 100), microseconds(410)) << "one lane, and not all of them";
}

TEST(Turns, NothingToServeIsNoWork) {
  World world;
  EXPECT_FALSE(world.Round());
  world.Add("a", 1, microseconds(1), 0);
  world.Add("b", 2, microseconds(1), 0);
  EXPECT_FALSE(world.Round());
  EXPECT_EQ(world.order_, (std::vector<std::string>{"a", "b"}));
}

TEST(Turns, LanesThatEndWhileTheyAreServed) {
  World world;
  for (const char* const name : {"a", "b", "c"}) {
    world.Add(name, 1, microseconds(1), 1);
    world[name].ends = true;
  }
  world.Add("d", 2, microseconds(1), 1);
  EXPECT_TRUE(world.Round());
  EXPECT_EQ(world.order_, (std::vector<std::string>{"a", "b", "c", "d"})) << "each has its look";
  EXPECT_EQ(world.turns_.TakeAll(), std::vector<std::string>{"d"});
  EXPECT_TRUE(world.turns_.empty());
  world.turns_.Remove(1, "a");  // who has gone may be told to go
  // Between rounds too; its session begins anew with the next lane.
  world.Add("e", 3, microseconds(1), 1);
  world.turns_.Remove(3, "e");
  EXPECT_TRUE(world.turns_.empty());
}

}  // namespace
}  // namespace rdfs::server
