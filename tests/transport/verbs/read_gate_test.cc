// READs that are to come after others wait for them; those behind a waiting one wait with it.
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

TEST(ReadGate, FreeReadsDoNotOvertakeAWaitingOne) {
  ReadGate<int> gate;
  EXPECT_EQ(gate.Enter(1, kFree), 1);
  EXPECT_FALSE(gate.Enter(2, kAfter));
  EXPECT_FALSE(gate.Enter(3, kFree));
  EXPECT_FALSE(gate.Enter(4, kAfter));
  gate.OnCompleted();
  EXPECT_EQ(gate.Next(), 2);
  EXPECT_EQ(gate.Next(), 3);  // free: beside 2
  EXPECT_FALSE(gate.Next());  // 4 comes after both
  gate.OnCompleted();
  EXPECT_FALSE(gate.Next());
  gate.OnCompleted();
  EXPECT_EQ(gate.Next(), 4);
}

}  // namespace
}  // namespace rdfs::transport::verbs
