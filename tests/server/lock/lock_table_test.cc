// LockTable against a naive model that keeps one cell for each byte, over seeded schedules.
#include "server/lock/lock_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "transport/base/clock.h"

namespace rdfs::server {
namespace {

constexpr std::uint64_t kBytes = 24;
const InodeKey kFile{1, 2};

Lock Make(std::uint64_t owner, fs::LockType type, std::uint64_t start, std::uint64_t end,
          bool flock = false) {
  return {.owner = {.session = 1 + owner / 4, .owner = owner, .flock = flock},
          .type = type,
          .start = start,
          .end = end,
          .open = owner,
          .pid = 0};
}

std::vector<LockTable::WaiterId> Runnable(const LockTable& table) {
  std::vector<LockTable::WaiterId> ids;
  LockTable::Walk walk{.looks_left = 1 << 20};
  while (const auto id = table.NextRunnable(kFile, walk)) ids.push_back(*id);
  EXPECT_TRUE(walk.over);
  return ids;
}

// For each byte: who has it, and for writing.
class Model {
 public:
  [[nodiscard]] bool Conflicts(const Lock& wanted) const {
    for (std::uint64_t at = wanted.start; at <= wanted.end; ++at) {
      for (const auto& [owner, write] : cells_[at]) {
        if (owner != wanted.owner.owner && (write || wanted.type == fs::LockType::kWrite)) {
          return true;
        }
      }
    }
    return false;
  }
  void Apply(const Lock& wanted) {
    for (std::uint64_t at = wanted.start; at <= wanted.end; ++at) {
      cells_[at].erase(wanted.owner.owner);
      if (wanted.type != fs::LockType::kUnlock) {
        cells_[at][wanted.owner.owner] = wanted.type == fs::LockType::kWrite;
      }
    }
  }
  [[nodiscard]] std::optional<bool> At(std::uint64_t owner, std::uint64_t at) const {
    const auto it = cells_[at].find(owner);
    return it == cells_[at].end() ? std::nullopt : std::optional(it->second);
  }

 private:
  std::array<std::map<std::uint64_t, bool>, kBytes> cells_;
};

void ExpectSame(const LockTable& table, const Model& model, unsigned seed) {
  for (std::uint64_t owner = 0; owner < 6; ++owner) {
    std::array<std::optional<bool>, kBytes> seen{};
    for (const Lock& held : table.HeldBy(kFile, Make(owner, fs::LockType::kRead, 0, 0).owner)) {
      for (std::uint64_t at = held.start; at <= held.end; ++at) {
        ASSERT_FALSE(seen[at].has_value()) << "two locks of one owner overlap, seed " << seed;
        seen[at] = held.type == fs::LockType::kWrite;
      }
    }
    for (std::uint64_t at = 0; at < kBytes; ++at) {
      ASSERT_EQ(seen[at], model.At(owner, at)) << "seed " << seed << " byte " << at;
    }
  }
}

TEST(LockTable, AgreesWithAModelOfSingleBytes) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    LockTable table;
    Model model;
    for (int step = 0; step < 120; ++step) {
      const std::uint64_t a = random() % kBytes, b = random() % kBytes;
      const Lock wanted = Make(random() % 6, static_cast<fs::LockType>(random() % 3),
                               std::min(a, b), std::max(a, b));
      const bool blocked = wanted.type != fs::LockType::kUnlock && model.Conflicts(wanted);
      ASSERT_EQ(table.Conflict(kFile, wanted).has_value(), blocked) << "seed " << seed;
      if (blocked) continue;
      table.Apply(kFile, wanted);
      model.Apply(wanted);
      ExpectSame(table, model, seed);
    }
  }
}

TEST(LockTable, FlockAndRangesDoNotSeeEachOther) {
  LockTable table;
  table.Apply(kFile, Make(1, fs::LockType::kWrite, 0, LockTable::kEnd));
  EXPECT_FALSE(table.Conflict(kFile, Make(2, fs::LockType::kWrite, 0, LockTable::kEnd, true)));
  EXPECT_TRUE(table.Conflict(kFile, Make(2, fs::LockType::kRead, 5, 5)));
}

TEST(LockTable, TheEndOfTheFileIsEverywhereBehind) {
  LockTable table;
  table.Apply(kFile, Make(1, fs::LockType::kWrite, 100, LockTable::kEnd));
  EXPECT_TRUE(table.Conflict(kFile, Make(2, fs::LockType::kRead, 1ULL << 60U, 1ULL << 61U)));
  EXPECT_FALSE(table.Conflict(kFile, Make(2, fs::LockType::kRead, 0, 99)));
}

TEST(LockTable, CirclesOfWaitersAreRefused) {
  LockTable table;
  const InodeKey other{1, 3};
  table.Apply(kFile, Make(1, fs::LockType::kWrite, 0, 9));
  table.Apply(other, Make(2, fs::LockType::kWrite, 0, 9));
  table.Apply(kFile, Make(3, fs::LockType::kWrite, 20, 29));
  EXPECT_TRUE(table.Enqueue(other, Make(1, fs::LockType::kRead, 0, 0), 1));
  EXPECT_TRUE(table.Enqueue(kFile, Make(2, fs::LockType::kRead, 20, 20), 2));
  // 3 would wait for 1, which waits for 2, which waits for 3.
  EXPECT_FALSE(table.Enqueue(kFile, Make(3, fs::LockType::kRead, 0, 0), 3));
  table.Dequeue(kFile, 2);
  EXPECT_TRUE(table.Enqueue(kFile, Make(3, fs::LockType::kRead, 0, 0), 3));
}

TEST(LockTable, WaitersRunWhenNothingIsInTheirWayAnyMore) {
  LockTable table;
  table.Apply(kFile, Make(1, fs::LockType::kWrite, 0, 9));
  ASSERT_TRUE(table.Enqueue(kFile, Make(2, fs::LockType::kWrite, 0, 4), 1));
  ASSERT_TRUE(table.Enqueue(kFile, Make(3, fs::LockType::kWrite, 5, 9), 2));
  EXPECT_TRUE(Runnable(table).empty());
  table.Apply(kFile, Make(1, fs::LockType::kUnlock, 5, 9));
  EXPECT_EQ(Runnable(table), std::vector<LockTable::WaiterId>{2});
  table.Apply(kFile, Make(1, fs::LockType::kUnlock, 0, 9));
  EXPECT_EQ(Runnable(table), (std::vector<LockTable::WaiterId>{1, 2}));
}

// Every second byte, as one client may.
void HoldMany(LockTable& table, std::uint64_t owner, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    table.Apply(kFile, Make(owner, fs::LockType::kWrite, 2 * i, 2 * i));
  }
}

TEST(LockTable, TheFirstLockInTheWayIsEnough) {
  LockTable table;
  HoldMany(table, 1, 2000);
  for (LockTable::WaiterId id = 1; id <= 1000; ++id) {
    ASSERT_TRUE(table.Enqueue(kFile, Make(id + 1, fs::LockType::kWrite, 0, LockTable::kEnd), id));
  }
  LockTable::Walk walk{.looks_left = 1 << 20};
  EXPECT_FALSE(table.NextRunnable(kFile, walk));
  EXPECT_TRUE(walk.over);
  EXPECT_EQ(walk.looks_left, (1U << 20U) - 1000U);
}

TEST(LockTable, AWalkStopsWhenItHasNoLooksLeft) {
  LockTable table;
  HoldMany(table, 1, 100);
  for (LockTable::WaiterId id = 1; id <= 10; ++id) {
    ASSERT_TRUE(table.Enqueue(kFile, Make(id + 1, fs::LockType::kWrite, 198, 198), id));
  }
  ASSERT_TRUE(table.Enqueue(kFile, Make(20, fs::LockType::kWrite, 1, 1), 11));
  LockTable::Walk walk;
  for (int pieces = 0; pieces < 5; ++pieces) {
    walk.looks_left = 200;
    EXPECT_FALSE(table.NextRunnable(kFile, walk));
    EXPECT_EQ(walk.looks_left, 0U);
    EXPECT_FALSE(walk.over);
  }
  walk.looks_left = 200;
  EXPECT_EQ(table.NextRunnable(kFile, walk), 11U);
}

// An owner may wait in as many threads as a client says; each wait counts once.
TEST(LockTable, AnOwnerThatWaitsOftenIsNoMoreThanItsWaits) {
  LockTable table;
  HoldMany(table, 1, 4000);
  table.Apply(kFile, Make(2, fs::LockType::kWrite, 1, 1));
  const TimePoint begin = BootClock::now();
  for (LockTable::WaiterId id = 1; id <= 4000; ++id) {
    ASSERT_TRUE(table.Enqueue(kFile, Make(2, fs::LockType::kWrite, 7998, 7998), id));
  }
  ASSERT_TRUE(table.Enqueue(kFile, Make(3, fs::LockType::kWrite, 1, 1), 4001));
  EXPECT_LT(BootClock::now() - begin, std::chrono::seconds(10));
  EXPECT_FALSE(table.Enqueue(kFile, Make(1, fs::LockType::kWrite, 1, 1), 4002)) << "the circle";
}

TEST(LockTable, ClosingAFileUnlocksWhatWasTakenThroughIt) {
  LockTable table;
  const auto through = [](Lock lock, std::uint64_t open) {
    lock.open = open;
    return lock;
  };
  for (const std::uint64_t start : {0U, 2U, 4U, 8U}) {
    table.Apply(kFile, through(Make(1, fs::LockType::kWrite, start, start), 7));
  }
  table.Apply(kFile, through(Make(1, fs::LockType::kWrite, 6, 6), 8));
  table.Apply(kFile, through(Make(2, fs::LockType::kWrite, 20, 20), 7));
  table.Apply(kFile, through(Make(3, fs::LockType::kWrite, 21, 21), 8));
  const auto dropped = table.DropThrough(kFile, 1, 7);
  ASSERT_EQ(dropped.size(), 2U);
  ASSERT_EQ(dropped[0].ranges.size(), 2U) << "around the lock that stays";
  EXPECT_EQ(dropped[0].ranges[0].start, 0U);
  EXPECT_EQ(dropped[0].ranges[0].end, 4U);
  EXPECT_EQ(dropped[0].ranges[1].start, 8U);
  ASSERT_EQ(dropped[0].left.size(), 1U);
  EXPECT_EQ(dropped[0].left[0].start, 6U);
  EXPECT_TRUE(dropped[1].left.empty());
  EXPECT_EQ(table.held_count(), 2U);
  EXPECT_EQ(table.HeldOf(1), 2U);
  table.Apply(kFile, Make(4, fs::LockType::kWrite, 30, 30));
  EXPECT_EQ(table.DropOf(kFile, 1).size(), 2U) << "owners 1 and 3";
  EXPECT_EQ(table.HeldOf(1), 0U);
  EXPECT_EQ(table.HeldOf(2), 1U) << "another session's stays";
}

TEST(LockTable, RemembersNothingWhenAllIsGone) {
  LockTable table;
  table.Apply(kFile, Make(1, fs::LockType::kWrite, 0, 9));
  ASSERT_TRUE(table.Enqueue(kFile, Make(2, fs::LockType::kWrite, 0, 4), 1));
  table.Dequeue(kFile, 1);
  table.Apply(kFile, Make(1, fs::LockType::kUnlock, 0, LockTable::kEnd));
  EXPECT_TRUE(table.Idle(kFile));
  EXPECT_EQ(table.held_count(), 0U);
}

// Thousands of schedules of owners that lock, wait, give up and unlock: nobody waits for ever, no
// two hold what conflicts.
TEST(LockTable, SchedulesOfWaitersKeepTheInvariants) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    LockTable table;
    std::map<LockTable::WaiterId, Lock> waiting;
    std::set<std::uint64_t> blocked_owners;
    LockTable::WaiterId next = 0;
    for (int step = 0; step < 150; ++step) {
      const std::uint64_t owner = random() % 5, a = random() % kBytes, b = random() % kBytes;
      if (blocked_owners.contains(owner)) {
        if (random() % 4 != 0) continue;
        for (const auto& [id, lock] : waiting) {  // interrupted
          if (lock.owner.owner != owner) continue;
          table.Dequeue(kFile, id);
          waiting.erase(id);
          break;
        }
        blocked_owners.erase(owner);
        continue;
      }
      const Lock wanted =
          Make(owner, static_cast<fs::LockType>(random() % 3), std::min(a, b), std::max(a, b));
      if (wanted.type == fs::LockType::kUnlock || !table.Conflict(kFile, wanted)) {
        table.Apply(kFile, wanted);
      } else if (table.Enqueue(kFile, wanted, ++next)) {
        waiting[next] = wanted;
        blocked_owners.insert(owner);
      }
      for (bool progress = true; progress;) {
        progress = false;
        for (const auto id : Runnable(table)) {
          const Lock granted = waiting.at(id);
          if (table.Conflict(kFile, granted)) continue;  // the one before it took the range
          table.Apply(kFile, granted);
          table.Dequeue(kFile, id);
          waiting.erase(id);
          blocked_owners.erase(granted.owner.owner);
          progress = true;
        }
      }
      for (const auto& [id, lock] : waiting) {
        ASSERT_TRUE(table.Conflict(kFile, lock)) << "waits for nothing, seed " << seed;
      }
      // Somebody can always go on: else all wait for each other.
      ASSERT_LT(blocked_owners.size(), 5U) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace rdfs::server
