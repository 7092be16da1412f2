// The counters as the log has them.
#include "fs/fuse/describe.h"

#include <gtest/gtest.h>

namespace rdfs::fs::fuse {
namespace {

TEST(DescribeCounters, HasEveryFigureOfStatusAndRoundTripsLast) {
  Snapshot snapshot;
  snapshot.words = {{"mount", "/mnt"}};
  snapshot.Count("fallbacks", "", 1);
  snapshot.Count("round_trips", "", 3, "lookup");
  snapshot.Count("round_trips", "", 4, "read");
  snapshot.Count("early_writes", "", 0);
  snapshot.Gauge("open_files", "", 5);
  EXPECT_EQ(DescribeCounters(snapshot),
            "counters: fallbacks 1 early_writes 0 open_files 5; round trips: lookup 3 read 4");
  EXPECT_EQ(DescribeCounters({}), "counters:; round trips:");
}

}  // namespace
}  // namespace rdfs::fs::fuse
