// What processes that hold one connection know of each other, and the table of descriptors.
#include "tools/sock/preload/slot.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <set>

#include "tools/sock/preload/registry.h"

namespace rdfs::sock {
namespace {

// A process that is gone.
pid_t DeadProcess() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(Slot, KnowsItsHolders) {
  Slot slot;
  EXPECT_TRUE(slot.Join(getpid()));
  EXPECT_TRUE(slot.OnlyHolderIs(getpid()));
  EXPECT_TRUE(slot.Join(getppid()));
  EXPECT_FALSE(slot.OnlyHolderIs(getpid()));
  EXPECT_FALSE(slot.Leave(getppid()));
  EXPECT_TRUE(slot.OnlyHolderIs(getpid()));
  EXPECT_TRUE(slot.Leave(getpid()));
}

TEST(Slot, FindsOutWhoWasKilled) {
  Slot slot;
  slot.Join(getpid());
  slot.Join(DeadProcess());
  EXPECT_TRUE(slot.OnlyHolderIs(getpid()));
  EXPECT_TRUE(slot.Leave(getpid()));
}

TEST(Slot, WaitsForChildrenToJoin) {
  Slot slot;
  slot.Join(getpid());
  ++slot.forks;
  EXPECT_FALSE(slot.OnlyHolderIs(getpid()));
  EXPECT_FALSE(slot.Leave(getpid()));
}

TEST(Slot, IsNobodysWhenTheChildHasNoneOfIt) {
  Slot slot;
  slot.Join(getpid());
  ++slot.forks;
  EXPECT_FALSE(slot.DropFork()) << "its parent has it";
  EXPECT_TRUE(slot.OnlyHolderIs(getpid()));
  slot.forks += 2;
  EXPECT_FALSE(slot.Leave(getpid()));  // while it forks
  EXPECT_FALSE(slot.DropFork());
  EXPECT_TRUE(slot.DropFork());
}

TEST(Slot, IsNobodysOwnWhenThereAreTooMany) {
  Slot slot;
  for (std::size_t i = 0; i < Slot::kMostHolders; ++i) EXPECT_TRUE(slot.Join(getppid()));
  EXPECT_FALSE(slot.Join(getpid()));
  EXPECT_FALSE(slot.OnlyHolderIs(getpid()));
}

TEST(Slot, GivesThePlacesOfTheDeadAway) {
  Slot slot;
  for (std::size_t i = 0; i < Slot::kMostHolders; ++i) EXPECT_TRUE(slot.Join(DeadProcess()));
  EXPECT_TRUE(slot.Join(getpid()));
  EXPECT_TRUE(slot.OnlyHolderIs(getpid()));
  EXPECT_TRUE(slot.Leave(getpid()));
}

TEST(SlotArena, GivesEachOnce) {
  SlotArena arena;
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t index = arena.Take();
    EXPECT_TRUE(taken.insert(index).second);
    arena[index].Join(getpid());
  }
  arena.Give(*taken.begin());
  arena.Give(*taken.begin());  // as two processes may
  EXPECT_EQ(arena.Take(), *taken.begin());
  EXPECT_FALSE(taken.contains(arena.Take()));
}

// Who forks and gives up its rights can write there still.
TEST(SlotArena, GivesNoneThatThereIsNot) {
  SlotArena arena;
  ASSERT_LT(arena.Take(), SlotArena::kMost);
  for (const std::uint64_t head :
       {std::uint64_t{SlotArena::kMost} + 2, std::uint64_t{0xffffffff}}) {
    std::memcpy(static_cast<void*>(&arena[SlotArena::kMost]), &head, sizeof(head));
    EXPECT_EQ(arena.Take(), SlotArena::kMost);
  }
}

TEST(SlotArena, TakesBackWhatTheDeadHeld) {
  SlotArena arena;
  const pid_t dead = DeadProcess();
  for (std::uint32_t i = 0; i < SlotArena::kMost; ++i) arena[arena.Take()].Join(dead);
  EXPECT_LT(arena.Take(), SlotArena::kMost);
}

// Or each connection that is accepted where there are too many would cost a look at all others.
TEST(SlotArena, LooksForTheDeadOnceASecond) {
  SlotArena arena;
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  for (std::uint32_t i = 0; i < SlotArena::kMost; ++i) arena[arena.Take()].Join(child);
  const TimePoint now = BootClock::now();
  EXPECT_EQ(arena.Take(now), SlotArena::kMost);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const TimePoint again = now + SlotArena::kBetweenLooks;
  EXPECT_EQ(arena.Take(now), SlotArena::kMost);
  EXPECT_EQ(arena.Take(again - std::chrono::nanoseconds(1)), SlotArena::kMost);
  EXPECT_LT(arena.Take(again), SlotArena::kMost);
}

TEST(DescriptorTable, RemembersWords) {
  DescriptorTable table;
  EXPECT_EQ(table.Get(3), Word());
  EXPECT_EQ(table.Get(-1), Word());
  const Word word(Word::Kind::kConnection, 70'000);
  EXPECT_EQ(table.Set(3, word), Word());
  EXPECT_EQ(table.Get(3).kind(), Word::Kind::kConnection);
  EXPECT_EQ(table.Get(3).index(), 70'000U);
  EXPECT_EQ(table.end(), 4);
  EXPECT_EQ(table.Set(3, Word()), word);
  EXPECT_EQ(table.Set(DescriptorTable::kMost, word), Word());
  EXPECT_EQ(table.Get(DescriptorTable::kMost), Word());
  table.Change(4, kOwnSocket, kSharedSocket);
  EXPECT_EQ(table.Get(4), Word());
  table.Set(4, kOwnSocket);
  table.Change(4, kOwnSocket, kSharedSocket);
  EXPECT_EQ(table.Get(4), kSharedSocket);
  table.Hide(1000);
  EXPECT_TRUE(table.IsHidden(1000));
  table.Forget(1000);
  EXPECT_FALSE(table.IsHidden(1000));
}

}  // namespace
}  // namespace rdfs::sock
