#include "tools/pipe/command/progress.h"

#include <gtest/gtest.h>

#include "tests/tools/stopped_terminal.h"

namespace rdfs::pipe {
namespace {

using std::chrono_literals::operator""s;

TEST(Progress, Numbers) {
  EXPECT_EQ(HumanBytes(317), "317 B");
  EXPECT_EQ(HumanBytes(1 << 20), "1.00 MiB");
  EXPECT_EQ(HumanRate(2.81e9), "2.81 GB/s");
}

TEST(Progress, ABarWhenTheSizeIsKnown) {
  Progress progress(false, "rdsend", TimePoint(1s));
  EXPECT_EQ(progress.Line(1 << 20, 1e6), "rdsend: 1.00 MiB  1.00 MB/s");
  progress.SetSize(4 << 20);
  EXPECT_EQ(progress.Line(2 << 20, 2 << 20),
            "rdsend: [############............]  50 %  2.00 MiB of 4.00 MiB  2.10 MB/s  1 s left");
  progress.SetAlready(2 << 20);
  EXPECT_EQ(progress.Line(1 << 20, 0).substr(0, 44),
            "rdsend: [##################......]  75 %  3.");
  // A file that grew while it was read.
  EXPECT_NE(progress.Line(9 << 20, 1e6).find("100 %"), std::string::npos);
}

TEST(Progress, Summary) {
  const Progress progress(false, "rdsend", TimePoint(1s));
  EXPECT_EQ(progress.Summary(1'000'000'000, TimePoint(3s)), "953.67 MiB in 2.00 s (500.00 MB/s)");
}

TEST(Progress, WaitsForNoTerminal) {
  StoppedTerminal terminal;
  Progress progress(true, "rdsend", TimePoint(1s));
  const auto draw = [&] {
    progress.Update(1 << 20, TimePoint(2s));
    progress.Clear();
  };
  EXPECT_TRUE(StoppedTerminal::Ends(draw, [&] { terminal.GoOn(); }));
}

}  // namespace
}  // namespace rdfs::pipe
