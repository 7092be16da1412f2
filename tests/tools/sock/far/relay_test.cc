// Seeded schedules of carried connections in virtual time. What must hold in each: the bytes come
// out as they went in, the end comes behind the last one, nobody waits for ever, and a reset
// happens only where somebody died or left.
#include "tools/sock/far/relay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/tools/sock/far/far_world.h"

namespace rdfs::sock::far {
namespace {

Sum RunSeeds(const Plan& plan, unsigned seeds) { return RunSeedsOf<World>(plan, seeds); }

TEST(Relay, CarriesEveryByteAndTheEnd) {
  const Sum sum = RunSeeds({}, 300);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs * 2);
  EXPECT_GT(sum.through_ring, sum.runs * 4000U);
}

TEST(Relay, CarriersMayStandStill) {
  const Sum sum = RunSeeds({.freezes = true}, 100);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs);
}

TEST(Relay, TheReceiverMayWantNoRing) {
  const Sum sum = RunSeeds({.freezes = true, .refuses = true}, 200);
  EXPECT_EQ(sum.complete, sum.runs);
  EXPECT_GT(sum.phases, sum.runs * 2);
}

TEST(Relay, WhatASenderPutBeforeItsDeathArrives) {
  const Sum sum = RunSeeds({.freezes = true, .p_dies = true}, 200);
  EXPECT_EQ(sum.complete, sum.runs);
}

TEST(Relay, AReceiverThatLeavesIsSentAgainWhatItDidNotRead) {
  const Sum sum = RunSeeds({.freezes = true, .q_leaves = true}, 300);
  EXPECT_EQ(sum.complete + sum.broken, sum.runs);
  EXPECT_GT(sum.complete, sum.runs / 2);
  EXPECT_GT(sum.resent, 1000U);
}

TEST(Relay, TheSenderOfADeadReceiverComesToAnEnd) {
  const Sum sum = RunSeeds({.q_dies = true}, 200);
  EXPECT_GT(sum.runs, sum.broken);
}

TEST(Relay, DeadCarriersAreAResetOrTcp) {
  const Sum sum = RunSeeds({.carriers_die = true}, 300);
  EXPECT_GT(sum.broken, 0U);
  EXPECT_GT(sum.complete, 0U);
}

TEST(Relay, EveryoneMayDieOrLeave) {
  (void)RunSeeds(
      {.freezes = true, .refuses = true, .q_leaves = true, .p_dies = true, .carriers_die = true},
      300);
}

// --- The schedules find what they are there for.

bool Found(Plan plan) {
  for (plan.seed = 1; plan.seed <= 400; ++plan.seed) {
    const Outcome outcome = World(plan).Run();
    if (!outcome.wrong.empty()) return true;
  }
  return false;
}

TEST(Relay, SchedulesFindBrokenRules) {
  EXPECT_TRUE(Found({.planted = Planted::kEvenAtFirst}));
  EXPECT_TRUE(Found({.planted = Planted::kRecordFirst}));
  EXPECT_TRUE(Found({.planted = Planted::kBytesLost}));
  EXPECT_TRUE(Found({.planted = Planted::kConsumedAtOnce}));
  EXPECT_TRUE(Found({.planted = Planted::kPassedFirst}));
  EXPECT_TRUE(Found({.freezes = true, .planted = Planted::kEndWithoutAsking}));
}

// --- A carrier that says what cannot be.

Status Say(std::initializer_list<Word> words) {
  Relay relay(8192);
  Effects effects;
  for (const Word& word : words) {
    effects.Clear();
    const Status status = relay.On(word, effects);
    if (!status.ok()) return status;
  }
  return {};
}

TEST(Relay, RefusesWhatCannotBe) {
  const Word phase{Type::kPhase, 100, 4096};
  EXPECT_TRUE(Say({phase, {Type::kCursor, 4096}, {Type::kShut}}).ok());
  EXPECT_FALSE(Say({{Type::kPhase, 100, 3000}}).ok());
  EXPECT_FALSE(Say({{Type::kPhase, 100, 16384}}).ok());
  EXPECT_FALSE(Say({phase, phase}).ok());
  EXPECT_FALSE(Say({phase, {Type::kShut}, phase}).ok());  // nobody has passed the first
  EXPECT_FALSE(Say({{Type::kCursor, 1}}).ok());
  EXPECT_FALSE(Say({phase, {Type::kCursor, 4097}}).ok());
  EXPECT_FALSE(Say({phase, {Type::kCursor, 8}, {Type::kCursor, 8}}).ok());
  EXPECT_TRUE(Say({phase, {Type::kBytes, 1024}, {Type::kBytes, 3072}, {Type::kShut}}).ok());
  EXPECT_FALSE(Say({{Type::kBytes, 1}}).ok());
  EXPECT_FALSE(Say({phase, {Type::kBytes, 0}}).ok());
  EXPECT_FALSE(Say({phase, {Type::kBytes, 4097}}).ok());
  EXPECT_FALSE(Say({phase, {Type::kCursor, 4096}, {Type::kBytes, 1}}).ok());
  EXPECT_FALSE(Say({phase, {Type::kShut}, {Type::kBytes, 1}}).ok());
  EXPECT_FALSE(Say({{Type::kShut}}).ok());
  EXPECT_FALSE(Say({{Type::kFlushed}}).ok());
  EXPECT_FALSE(Say({{Type::kReturned}}).ok());
  EXPECT_FALSE(Say({{Type::kConsumed, 1}}).ok());
  EXPECT_FALSE(Say({{Type::kPassed, 1}}).ok());
  EXPECT_FALSE(Say({{Type::kQuiet, 1}}).ok());
  EXPECT_FALSE(Say({{Type::kAbandoned, 1}}).ok());
  EXPECT_FALSE(Say({{Type::kAbandoned, 0}, {Type::kWish}}).ok());
  EXPECT_FALSE(Say({{Type::kGone, 2}}).ok());
  EXPECT_FALSE(Say({{Type::kGone, 0}, {Type::kWish}}).ok());
}

// Few bytes travel in the record, more by a WRITE, which has to wait while none can be posted.
TEST(Relay, FewBytesNeedNoWrite) {
  const auto look = [](std::uint64_t cursor, bool may_ship) {
    Relay relay(8192);
    Relay::View view;
    view.from = {.gate = {Gate::At(cursor)}, .opens = 1, .open_at = 5, .ring_bytes = 4096};
    Effects effects;
    EXPECT_TRUE(relay.Look(view, may_ship, effects).ok());
    using Kind = Effect::Kind;
    std::vector<Kind> kinds;
    for (const Effect& effect : effects.all()) {
      if (effect.kind == Kind::kSend || effect.kind == Kind::kShip) kinds.push_back(effect.kind);
    }
    return std::pair(kinds, relay.Waits());
  };
  using Kinds = std::vector<Effect::Kind>;
  EXPECT_EQ(look(kMostInRecord, false), std::pair(Kinds{Effect::Kind::kSend}, false));
  EXPECT_EQ(look(kMostInRecord + 1, true), std::pair(Kinds{Effect::Kind::kShip}, false));
  EXPECT_EQ(look(kMostInRecord + 1, false), std::pair(Kinds{}, true));
}

// What was read waits for something else that is to be told, unless the other end may need the
// room.
TEST(Relay, WhatWasReadIsToldWithTheAnswer) {
  const auto told = [](std::uint64_t consumed, bool answers, bool rests) {
    Relay relay(8192);
    Effects effects;
    EXPECT_TRUE(relay.On({Type::kPhase, 100, 4096}, effects).ok());
    EXPECT_TRUE(relay.On({Type::kBytes, 4096}, effects).ok());
    Relay::View view;
    view.from = {.gate = {Gate::At(0)}, .opens = 1, .open_at = 5, .ring_bytes = 4096};
    view.to = {.tcp_reads = 2};
    effects.Clear();
    EXPECT_TRUE(relay.Look(view, true, effects).ok());
    if (answers) view.from.gate = {Gate::At(64)};
    view.to.consumed = consumed;
    view.to.rests = rests;
    effects.Clear();
    EXPECT_TRUE(relay.Look(view, true, effects).ok());
    return std::ranges::count_if(effects.all(), [&](const Effect& effect) {
      return effect.word == Word{Type::kConsumed, consumed};
    });
  };
  EXPECT_EQ(told(1000, false, false), 0);
  EXPECT_EQ(told(1000, true, false), 1);
  EXPECT_EQ(told(1000, false, true), 1);
  EXPECT_EQ(told(1024, false, false), 1);
}

// A program that writes into its channel what no shim does.
TEST(Relay, RefusesAnImpossibleEnd) {
  const auto look = [](const Relay::View& view) {
    Relay relay(8192);
    Effects effects;
    return relay.Look(view, true, effects);
  };
  Relay::View view;
  EXPECT_TRUE(look(view).ok());
  view.from.opens = 2;
  EXPECT_FALSE(look(view).ok());
  view.from = {.gate = {Gate::At(0)}, .opens = 1, .open_at = 5, .ring_bytes = 4096};
  EXPECT_TRUE(look(view).ok());
  view.from.gate = {Gate::At(5000)};
  EXPECT_FALSE(look(view).ok());
  view.from = {.gate = {Gate::At(0)}, .opens = 1, .open_at = 5, .ring_bytes = 5000};
  EXPECT_FALSE(look(view).ok());
  view.from = {.gate = {Gate::At(9)}};
  view.hung_up = true;
  EXPECT_FALSE(look(view).ok());
  view.hung_up = false;
  view.from = {};
  view.to.consumed = 1;
  EXPECT_FALSE(look(view).ok());
  view.to = {.passed = 1};
  EXPECT_FALSE(look(view).ok());
}

}  // namespace
}  // namespace rdfs::sock::far
