// READs that are to come after others wait for them; free ones pass.
#include "transport/verbs/read_gate.h"

#include <gtest/gtest.h>

namespace rdfs::transport::verbs {
namespace {

constexpr bool kFree = false;
constexpr bool kAfter = true;

TEST(ReadGate, FreeReadsStartAtOnce) {
  ReadGate<int> gate;
  EXPECT_EQ(gate.Enter(1, kFree), 1);
  EXPECT_EQ(gate.Enter(2, kFree), 2);
  EXPECT_FALSE(gate.Next());
}

TEST(ReadGate, WithNothingAheadNobodyWaits) {
  ReadGate<int> gate;
  EXPECT_EQ(gate.Enter(1, kAfter), 1);
  gate.OnCompleted();
  EXPECT_EQ(gate.Enter(2, kAfter), 2);
}

TEST(ReadGate, AReadThatComesAfterWaitsForAllBeforeIt) {
  ReadGate<int> gate;
  EXPECT_EQ(gate.Enter(1, kFree), 1);
  EXPECT_EQ(gate.Enter(2, kFree), 2);
  EXPECT_FALSE(gate.Enter(3, kAfter));
  gate.OnCompleted();
  EXPECT_FALSE(gate.Next());
  gate.OnCompleted();
  EXPECT_EQ(gate.Next(), 3);
  EXPECT_FALSE(gate.Next());
}

TEST(ReadGate, FreeReadsPassAWaitingOneAndAreNotWaitedFor) {
  ReadGate<int> gate;
  EXPECT_EQ(gate.Enter(1, kFree), 1);
  EXPECT_FALSE(gate.Enter(2, kAfter));
  EXPECT_EQ(gate.Enter(3, kFree), 3);
  EXPECT_FALSE(gate.Enter(4, kAfter));
  EXPECT_FALSE(gate.Enter(5, kAfter));
  gate.OnCompleted();  // 1
  EXPECT_EQ(gate.Next(), 2);
  EXPECT_FALSE(gate.Next());  // 4 comes after 3
  gate.OnCompleted();         // 3
  EXPECT_EQ(gate.Next(), 4);
  EXPECT_EQ(gate.Next(), 5);
  EXPECT_EQ(gate.Enter(6, kAfter), 6);  // 2, 4 and 5 are under way, and none of them is free
  EXPECT_EQ(gate.Enter(7, kFree), 7);
  for (int i = 0; i < 4; ++i) gate.OnCompleted();  // 2, 4, 5, 6
  EXPECT_FALSE(gate.Enter(8, kAfter));
  gate.OnCompleted();  // 7
  EXPECT_EQ(gate.Next(), 8);
}

}  // namespace
}  // namespace rdfs::transport::verbs
