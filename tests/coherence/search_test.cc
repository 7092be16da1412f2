// The search, by histories made by hand: what it must take and what it must reject.
#include "tests/coherence/search.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>

#include "tests/coherence/history.h"
#include "tests/coherence/models.h"

namespace rdfs::coherence {
namespace {

constexpr std::uint64_t kNever = Operation::kNever;

template <typename Model>
bool Linearizable(const std::vector<Timed<typename Model::Call>>& history) {
  return WhyNotLinearizable<Model>(history).empty();
}

// ---- A value

Timed<RegisterModel::Call> Write(std::uint64_t value, std::uint64_t begin, std::uint64_t end) {
  return {.call = {.write = true, .value = value}, .begin = begin, .end = end};
}
Timed<RegisterModel::Call> Read(std::uint64_t value, std::uint64_t begin, std::uint64_t end) {
  return {.call = {.write = false, .value = value}, .begin = begin, .end = end};
}

TEST(Search, ValuesMayComeBack) {
  const auto linearizable = Linearizable<RegisterModel>;
  EXPECT_TRUE(linearizable({Write(1, 1, 2), Write(2, 3, 4), Write(1, 5, 6), Read(1, 7, 8)}));
  EXPECT_FALSE(linearizable({Write(1, 1, 2), Write(2, 3, 4), Read(1, 5, 6), Write(1, 7, 8)}));
  EXPECT_FALSE(linearizable({Write(1, 1, 10), Read(1, 2, 3), Read(0, 4, 5)}));
}

TEST(Search, AWriteWithoutAnEndMayHaveHappenedOrNot) {
  const auto linearizable = Linearizable<RegisterModel>;
  EXPECT_TRUE(linearizable({Write(1, 1, kNever), Read(0, 50, 51), Read(1, 52, 53)}));
  EXPECT_FALSE(linearizable({Write(1, 1, kNever), Read(1, 50, 51), Read(0, 52, 53)}));
}

TEST(Search, AWriteThatIsNotSureHappensBeforeItsEndOrNever) {
  auto write = Write(1, 1, 10);
  write.sure = false;
  EXPECT_TRUE(Linearizable<RegisterModel>({write, Read(1, 2, 3), Read(1, 11, 12)}));
  EXPECT_TRUE(Linearizable<RegisterModel>({write, Read(0, 2, 3), Read(1, 11, 12)}));
  EXPECT_TRUE(Linearizable<RegisterModel>({write, Read(0, 2, 3), Read(0, 11, 12)}));
  EXPECT_FALSE(Linearizable<RegisterModel>({write, Read(0, 11, 12), Read(1, 13, 14)}));
}

// Random histories, right and wrong ones: the search and the quick answer of history.h say the
// same.
TEST(Search, SaysWhatTheZonesSay) {
  std::mt19937 random(1);
  int right = 0, wrong = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint64_t> times(12);
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = i + 1;
    std::shuffle(times.begin(), times.end(), random);
    std::vector<Operation> operations;
    std::vector<Timed<RegisterModel::Call>> history;
    for (std::size_t i = 0; i < times.size(); i += 2) {
      const bool write = i < 6;
      const std::uint64_t value = write ? 1 + i / 2 : random() % 4;
      const std::uint64_t begin = std::min(times[i], times[i + 1]);
      std::uint64_t end = std::max(times[i], times[i + 1]);
      if (write && random() % 8 == 0) end = kNever;
      operations.push_back({.write = write, .value = value, .begin = begin, .end = end});
      history.push_back({.call = {.write = write, .value = value}, .begin = begin, .end = end});
    }
    const bool linearizable = Linearizable<RegisterModel>(history);
    ASSERT_EQ(WhyNotLinearizable(operations).empty(), linearizable) << "round " << round;
    ++(linearizable ? right : wrong);
  }
  EXPECT_GT(right, 500);
  EXPECT_GT(wrong, 500);
}

// ---- Names

using Names = NamesModel;

Timed<Names::Call> On(Names::Call call, std::uint64_t begin, std::uint64_t end) {
  return {.call = call, .begin = begin, .end = end};
}
Names::Call Create(std::size_t name, std::uint64_t inode) {
  return {.kind = Names::Kind::kCreate, .name = name, .inode = inode};
}
Names::Call Rename(std::size_t from, std::size_t to, int error = 0) {
  return {.kind = Names::Kind::kRename, .name = from, .other = to, .error = error};
}
Names::Call Look(std::size_t name, std::uint64_t inode) { return {.name = name, .inode = inode}; }

TEST(Search, ARenameHappensToBothNamesAtOnce) {
  const auto linearizable = Linearizable<Names>;
  const auto made = On(Create(0, 7), 1, 2);
  EXPECT_TRUE(linearizable({made, On(Rename(0, 1), 3, 10), On(Look(0, 7), 4, 5),
                            On(Look(1, 7), 6, 7), On(Look(0, 0), 8, 9)}));
  EXPECT_FALSE(
      linearizable({made, On(Rename(0, 1), 3, 10), On(Look(1, 7), 4, 5), On(Look(0, 7), 6, 7)}));
  EXPECT_FALSE(
      linearizable({made, On(Rename(0, 1), 3, 10), On(Look(0, 0), 4, 5), On(Look(1, 0), 6, 7)}));
  EXPECT_FALSE(linearizable({made, On(Rename(0, 1, ENOENT), 3, 10)}));
}

TEST(Search, OneOfTwoMakesAName) {
  const auto linearizable = Linearizable<Names>;
  Names::Call there = Create(0, 0);
  there.error = EEXIST;
  EXPECT_TRUE(linearizable({On(Create(0, 7), 1, 10), On(there, 2, 9)}));
  EXPECT_FALSE(linearizable({On(Create(0, 7), 1, 10), On(Create(0, 8), 2, 9)}));
  EXPECT_FALSE(linearizable({On(there, 1, 2), On(Create(0, 7), 3, 4)}));
}

TEST(Search, TwoNamesOfOneInodeSurviveARename) {
  const auto linearizable = Linearizable<Names>;
  const Names::Call link{.kind = Names::Kind::kLink, .name = 0, .other = 1};
  const std::vector before{On(Create(0, 7), 1, 2), On(link, 3, 4), On(Rename(0, 1), 5, 6)};
  auto both = before, one = before;
  both.push_back(On(Look(0, 7), 7, 8));
  one.push_back(On(Look(0, 0), 7, 8));
  EXPECT_TRUE(linearizable(both));
  EXPECT_FALSE(linearizable(one));
}

// ---- Locks

using Locks = LocksModel;

Timed<Locks::Call> On(Locks::Call call, std::uint64_t begin, std::uint64_t end) {
  return {.call = call, .begin = begin, .end = end};
}
Locks::Call Of(std::uint64_t owner, Locks::Kind kind, bool exclusive, std::uint64_t start = 0,
               std::uint64_t end = 0) {
  return {.kind = kind, .owner = owner, .exclusive = exclusive, .start = start, .end = end};
}
Locks::Call Takes(std::uint64_t owner) { return Of(owner, Locks::Kind::kGranted, true); }
Locks::Call Shares(std::uint64_t owner) { return Of(owner, Locks::Kind::kGranted, false); }
Locks::Call Refused(std::uint64_t owner) { return Of(owner, Locks::Kind::kRefused, true); }
Locks::Call Unlocks(std::uint64_t owner) { return Of(owner, Locks::Kind::kUnlock, false); }

TEST(Search, NoTwoHaveALock) {
  const auto linearizable = Linearizable<Locks>;
  EXPECT_TRUE(linearizable({On(Shares(1), 1, 2), On(Shares(2), 3, 4)}));
  EXPECT_TRUE(linearizable({On(Takes(1), 1, 2), On(Unlocks(1), 3, 8), On(Takes(2), 4, 5)}));
  EXPECT_FALSE(linearizable({On(Takes(1), 1, 2), On(Takes(2), 3, 4)}));
  EXPECT_FALSE(linearizable({On(Shares(1), 1, 2), On(Takes(2), 3, 4)}));
  EXPECT_FALSE(linearizable({On(Takes(1), 1, 2), On(Takes(2), 3, 4), On(Unlocks(1), 5, 6)}));
}

TEST(Search, OnlyWhomSomebodyIsInTheWayOfIsRefused) {
  const auto linearizable = Linearizable<Locks>;
  EXPECT_TRUE(linearizable({On(Shares(1), 1, 4), On(Refused(2), 2, 3)}));
  EXPECT_FALSE(linearizable({On(Refused(2), 1, 2), On(Shares(1), 3, 4)}));
  EXPECT_FALSE(linearizable({On(Takes(1), 1, 2), On(Unlocks(1), 3, 4), On(Refused(2), 5, 6)}));
}

TEST(Search, RangesMeetWhereTheyOverlap) {
  const auto linearizable = Linearizable<Locks>;
  const auto granted = Locks::Kind::kGranted;
  const std::vector two{On(Of(1, granted, true, 0, 1), 1, 2), On(Of(2, granted, true, 2, 2), 3, 4)};
  auto split = two, across = two;
  split.push_back(On(Of(1, Locks::Kind::kUnlock, false, 1, 1), 5, 6));
  split.push_back(On(Of(2, granted, false, 1, 2), 7, 8));
  across.push_back(On(Of(2, granted, false, 1, 2), 7, 8));
  EXPECT_TRUE(linearizable(split));
  EXPECT_FALSE(linearizable(across));
}

TEST(Search, ADeadOwnersLockIsItsOwnUntilItsLeaseIsOver) {
  const auto linearizable = Linearizable<Locks>;
  const auto lost = Of(1, Locks::Kind::kLost, false);
  EXPECT_TRUE(linearizable({On(Takes(1), 1, 2), On(lost, 10, kNever), On(Takes(2), 3, 11)}));
  EXPECT_FALSE(linearizable({On(Takes(1), 1, 2), On(lost, 10, kNever), On(Takes(2), 3, 9)}));
  EXPECT_TRUE(linearizable({On(Takes(1), 1, 2), On(lost, 10, kNever), On(Refused(2), 20, 21)}));
}

}  // namespace
}  // namespace rdfs::coherence
