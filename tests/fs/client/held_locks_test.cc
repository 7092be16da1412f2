// Which locks a client has, against a table of bytes.
#include "fs/client/held_locks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace rdfs::fs::client {
namespace {

constexpr std::uint64_t kBytes = 40;

struct Key {
  bool flock;
  std::uint64_t owner;
  std::uint64_t byte;
  auto operator<=>(const Key&) const = default;
};
using Bytes = std::map<Key, std::pair<LockType, const OpenFile*>>;

TEST(HeldLocks, AreAsATableOfBytesSays) {
  // Never looked into.
  const std::array<const OpenFile*, 2> opens = {reinterpret_cast<const OpenFile*>(8),
                                                reinterpret_cast<const OpenFile*>(16)};
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    HeldLocks locks;
    Bytes bytes;
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t owner = random() % 3;
      const OpenFile* open = opens[random() % 2];
      if (random() % 10 == 0) {
        locks.DropOwner(owner);
        std::erase_if(bytes,
                      [&](const auto& b) { return !b.first.flock && b.first.owner == owner; });
        continue;
      }
      if (random() % 20 == 0) {
        locks.DropOpen(open);
        std::erase_if(bytes, [&](const auto& b) { return b.second.second == open; });
        continue;
      }
      const std::uint64_t start = random() % kBytes;
      const Lock lock{.owner = owner,
                      .start = start,
                      .end = start + random() % (kBytes - start),
                      .type = static_cast<LockType>(random() % 3),
                      .pid = 1};
      const bool flock = random() % 4 == 0;
      locks.Apply({open, flock, lock});
      for (std::uint64_t at = lock.start; at <= lock.end; ++at) {
        bytes.erase({flock, owner, at});
        if (lock.type != LockType::kUnlock) bytes[{flock, owner, at}] = {lock.type, open};
      }
    }
    Bytes found;
    for (const OpenFile* open : opens) {
      for (const HeldLocks::Held& held : locks.Of(open)) {
        for (std::uint64_t at = held.lock.start; at <= held.lock.end; ++at) {
          const auto [place, added] = found.try_emplace(Key{held.flock, held.lock.owner, at},
                                                        std::pair(held.lock.type, open));
          EXPECT_TRUE(added) << "seed " << seed << ": a byte twice";
        }
      }
    }
    EXPECT_TRUE(found == bytes) << "seed " << seed;
  }
}

bool Same(const Lock& lock, std::uint64_t start, std::uint64_t end, LockType type) {
  return lock.owner == 1 && lock.start == start && lock.end == end && lock.type == type;
}

TEST(HeldLocks, WhatIsUndoneLeavesWhatTheOwnerHadBefore) {
  HeldLocks locks;
  const auto lock = [](std::uint64_t owner, std::uint64_t start, std::uint64_t end, LockType type) {
    return HeldLocks::Held{
        nullptr, false, {.owner = owner, .start = start, .end = end, .type = type}};
  };
  const auto granted = lock(1, 10, 39, LockType::kWrite);
  std::vector<Lock> undo = locks.ToUndo(granted);
  ASSERT_EQ(undo.size(), 1U);
  EXPECT_TRUE(Same(undo[0], 10, 39, LockType::kUnlock));
  locks.Apply(lock(1, 0, 14, LockType::kRead));
  locks.Apply(lock(1, 20, 24, LockType::kWrite));
  locks.Apply(lock(2, 26, 27, LockType::kRead));
  locks.Apply(lock(1, 30, 50, LockType::kRead));
  undo = locks.ToUndo(granted);
  ASSERT_EQ(undo.size(), 4U);
  EXPECT_TRUE(Same(undo[0], 10, 14, LockType::kRead));
  EXPECT_TRUE(Same(undo[1], 15, 19, LockType::kUnlock));
  EXPECT_TRUE(Same(undo[2], 25, 29, LockType::kUnlock)) << "20 to 24 stay";
  EXPECT_TRUE(Same(undo[3], 30, 39, LockType::kRead));
}

TEST(HeldLocks, WhatIsBeingUnlockedIsNotAskedForAgain) {
  HeldLocks locks;
  const auto range = [](std::uint64_t start, std::uint64_t end, LockType type) {
    return HeldLocks::Held{nullptr, false, {.owner = 1, .start = start, .end = end, .type = type}};
  };
  locks.Apply(range(0, 9, LockType::kWrite));
  locks.GiveUp(range(0, 9, LockType::kRead));  // which may be refused
  ASSERT_EQ(locks.Of(nullptr).size(), 1U);
  EXPECT_TRUE(Same(locks.Of(nullptr)[0].lock, 0, 9, LockType::kWrite));
  locks.GiveUp(range(5, 9, LockType::kUnlock));
  ASSERT_EQ(locks.Of(nullptr).size(), 1U);
  EXPECT_TRUE(Same(locks.Of(nullptr)[0].lock, 0, 4, LockType::kWrite));
}

TEST(HeldLocks, OthersWaitWhileSomethingIsUndone) {
  HeldLocks locks;
  std::shared_ptr<void> one = locks.BeginUndo();
  const std::shared_ptr<void> copy = one;
  one.reset();
  EXPECT_TRUE(locks.undoing());
  std::shared_ptr<void> other = locks.BeginUndo();
  other.reset();
  EXPECT_TRUE(locks.undoing());
}

TEST(HeldLocks, NeighboursAreOne) {
  HeldLocks locks;
  const auto lock = [&](std::uint64_t start, std::uint64_t end, LockType type = LockType::kWrite) {
    locks.Apply({nullptr, false, {.owner = 1, .start = start, .end = end, .type = type}});
  };
  for (std::uint64_t i = 0; i < 10'000; ++i) lock(i * 10, i * 10 + 9);
  ASSERT_EQ(locks.Of(nullptr).size(), 1U);
  EXPECT_EQ(locks.Of(nullptr)[0].lock.end, 99'999U);
  lock(100'010, 100'019);
  EXPECT_EQ(locks.Of(nullptr).size(), 2U) << "with a gap";
  lock(100'000, 100'009);
  EXPECT_EQ(locks.Of(nullptr).size(), 1U) << "which is filled";
  lock(50, 59, LockType::kRead);
  EXPECT_EQ(locks.Of(nullptr).size(), 3U) << "of another kind";
  lock(50, 59);
  EXPECT_EQ(locks.Of(nullptr).size(), 1U);
  lock(100'020, UINT64_MAX);
  EXPECT_EQ(locks.Of(nullptr).size(), 1U) << "to the end";
}

}  // namespace
}  // namespace rdfs::fs::client
