// The checker itself: what it must take and what it must reject.
#include "tests/coherence/history.h"

#include <gtest/gtest.h>

namespace rdfs::coherence {
namespace {

constexpr std::uint64_t kNever = Operation::kNever;

Operation Write(std::uint64_t value, std::uint64_t begin, std::uint64_t end) {
  return {.write = true, .value = value, .begin = begin, .end = end};
}
Operation Read(std::uint64_t value, std::uint64_t begin, std::uint64_t end) {
  return {.write = false, .value = value, .begin = begin, .end = end};
}
bool Linearizable(const std::vector<Operation>& history) {
  return WhyNotLinearizable(history).empty();
}

TEST(History, TakesWhatIsInOrder) {
  EXPECT_TRUE(Linearizable({}));
  EXPECT_TRUE(Linearizable({Read(0, 1, 2), Write(1, 3, 4), Read(1, 5, 6)}));
  EXPECT_TRUE(Linearizable({Write(1, 1, 2), Write(2, 3, 4), Read(2, 5, 6)}));
}

TEST(History, TakesEitherOrderOfWhatOverlaps) {
  EXPECT_TRUE(Linearizable({Write(1, 1, 10), Read(0, 2, 3), Read(1, 4, 5)}));
  EXPECT_TRUE(Linearizable({Write(1, 1, 10), Write(2, 2, 9), Read(1, 11, 12)}));
  EXPECT_TRUE(Linearizable({Write(1, 1, 10), Write(2, 2, 9), Read(2, 11, 12)}));
}

TEST(History, RejectsTheOldValueBehindTheNewOne) {
  EXPECT_FALSE(Linearizable({Write(1, 1, 2), Read(0, 3, 4)}));
  EXPECT_FALSE(Linearizable({Write(1, 1, 2), Write(2, 3, 4), Read(1, 5, 6)}));
}

TEST(History, RejectsTheOldValueBehindOneThatSomebodySawAlready) {
  // The write has not ended, but another reader has seen it.
  EXPECT_FALSE(Linearizable({Write(1, 1, 10), Read(1, 2, 3), Read(0, 4, 5)}));
  EXPECT_FALSE(Linearizable({Write(1, 1, 2), Write(2, 3, 20), Read(2, 4, 5), Read(1, 6, 7)}));
}

TEST(History, RejectsWhatCameFromNowhere) {
  EXPECT_FALSE(Linearizable({Read(7, 1, 2)}));
  EXPECT_FALSE(Linearizable({Read(1, 1, 2), Write(1, 3, 4)}));
}

TEST(History, AWriteWithoutAnEndMayHaveHappenedOrNot) {
  EXPECT_TRUE(Linearizable({Write(1, 1, kNever), Read(0, 50, 51)}));
  EXPECT_TRUE(Linearizable({Write(1, 1, kNever), Read(0, 50, 51), Read(1, 52, 53)}));
  EXPECT_FALSE(Linearizable({Write(1, 1, kNever), Read(1, 50, 51), Read(0, 52, 53)}));
}

}  // namespace
}  // namespace rdfs::coherence
