// Runs of a world in virtual time, one for each seed: what each came to, and all of them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace rdfs::sock {

struct Outcome {
  std::string wrong;      // empty: all held
  bool broken = false;    // ended by a reset
  bool complete = false;  // every byte written was read
  std::size_t through_ring = 0, phases = 0, resent = 0;
};

struct Sum {
  unsigned runs = 0, complete = 0, broken = 0;
  std::size_t through_ring = 0, phases = 0, resent = 0;
};

// World(plan).Run() for the seeds 1 to `seeds`, up to the first that goes wrong.
template <typename World, typename Plan>
Sum RunSeedsOf(Plan plan, unsigned seeds) {
  Sum sum;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    plan.seed = seed;
    const Outcome outcome = World(plan).Run();
    EXPECT_EQ(outcome.wrong, "") << "seed " << seed;
    if (!outcome.wrong.empty()) break;
    ++sum.runs;
    sum.complete += outcome.complete ? 1 : 0;
    sum.broken += outcome.broken ? 1 : 0;
    sum.through_ring += outcome.through_ring;
    sum.phases += outcome.phases;
    sum.resent += outcome.resent;
  }
  testing::Test::RecordProperty("complete", static_cast<int>(sum.complete));
  testing::Test::RecordProperty("broken", static_cast<int>(sum.broken));
  testing::Test::RecordProperty("phases", static_cast<int>(sum.phases));
  return sum;
}

}  // namespace rdfs::sock
