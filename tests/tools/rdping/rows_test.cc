#include "tools/rdping/rows.h"

#include <gtest/gtest.h>

namespace rdfs::rdping {
namespace {

TEST(Rows, AColumnThatFailsLeavesThoseBeforeIt) {
  Report report;
  const Status status = AddRow(
      report, "tcp", "READ", {64, 1024, 4096},
      []() -> Result<LatencySummary> { return LatencySummary{.count = 7}; },
      [](std::size_t size) -> Result<double> {
        if (size > 64) return Status(Code::kDeadlineExceeded, "the server stopped answering");
        return 1.5;
      });
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].latency.count, 7U);
  ASSERT_EQ(report.rows[0].bandwidth.size(), 1U);
  EXPECT_EQ(report.rows[0].bandwidth[0].size, 64U);
}

TEST(Rows, ThereIsNoneWithoutItsRoundTrips) {
  Report report;
  const Status status = AddRow(
      report, "tcp", "READ", {64},
      []() -> Result<LatencySummary> { return Status(Code::kDisconnected, "it is gone"); },
      [](std::size_t) -> Result<double> { return 1.5; });
  EXPECT_EQ(status.code(), Code::kDisconnected);
  EXPECT_TRUE(report.rows.empty());
}

}  // namespace
}  // namespace rdfs::rdping
