#include "tools/copy/report/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "tests/tools/stopped_terminal.h"
#include "transport/base/fd.h"

namespace rdfs::copy {
namespace {

TEST(Report, ExitsAsTheWorstThatHappened) {
  Report report({.name = "test"}, TimePoint{});
  EXPECT_EQ(report.ExitCode(), 0);
  report.Vanished("x");
  EXPECT_EQ(report.ExitCode(), kExitVanished);
  report.Failed("y", Status(Code::kErrno, EIO, "broken"));
  EXPECT_EQ(report.ExitCode(), kExitFailed);
}

TEST(Report, DrawsForNoTerminalThatIsStopped) {
  StoppedTerminal terminal;
  Report report({.name = "test", .progress = true}, TimePoint{});
  const auto draw = [&] {
    report.Draw({}, TimePoint(std::chrono::seconds(1)));
    report.Clear();
  };
  EXPECT_TRUE(StoppedTerminal::Ends(draw, [&] { terminal.GoOn(); }));
}

// A name is waited with until somebody reads it.
TEST(Report, DrawsNothingWhileANameWaits) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const int size = fcntl(writer.get(), F_GETPIPE_SZ);
  ASSERT_GT(size, 0);
  std::fflush(stdout);
  Fd before(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  ASSERT_GE(dup2(writer.get(), STDOUT_FILENO), 0);
  writer.Reset();
  Report report({.name = "test", .lists = true, .progress = true}, TimePoint{});
  std::thread names([&] { report.Done(std::string(2 * static_cast<std::size_t>(size), 'n')); });
  const auto read_some = [&] {
    std::array<char, 4096> bytes{};
    return read(reader.get(), bytes.data(), bytes.size());
  };
  EXPECT_GT(read_some(), 0);  // it has begun to print, and waits
  const auto draw = [&] {
    report.Draw({}, TimePoint(std::chrono::seconds(1)));
    report.Clear();
  };
  std::thread drain;
  const auto release = [&] {
    drain = std::thread([&] {
      while (read_some() > 0) {
      }
    });
  };
  const bool ended = StoppedTerminal::Ends(draw, release);
  if (ended) release();
  names.join();
  (void)dup2(before.get(), STDOUT_FILENO);  // the last writer: end of file
  drain.join();
  EXPECT_TRUE(ended);
}

TEST(Report, SaysHowFarItIs) {
  Report report({.name = "test"}, TimePoint{});
  for (int i = 0; i < 5; ++i) report.Copied();
  report.bytes() = 1 << 20;
  EXPECT_EQ(report.Line({}, 2e9, 10), "test: 5 files, 1.00 MiB  2.00 GB/s  10 files/s");
  const std::string line =
      "test: [############............]  50 %  5 of 20 files, 1.00 MiB of 2.00 MiB  1.05 MB/s  ";
  EXPECT_EQ(report.Line({20, 2 << 20}, 1 << 20, 3), line + "3 files/s  5 s left");
  EXPECT_EQ(report.Line({155, 2 << 20}, 1 << 20, 1),
            "test: [############............]  50 %  5 of 155 files, 1.00 MiB of 2.00 MiB  "
            "1.05 MB/s  1 files/s  2:30 min left");
  // A large one is under way.
  EXPECT_EQ(report.Line({20, 2 << 20}, 1 << 20, 1e-30), line + "0 files/s  1 s left");
  EXPECT_NE(report.Line({20, 2 << 20}, 1e-30, 0).find("1000:00 h left"), std::string::npos);
  EXPECT_EQ(report.Summary(TimePoint(std::chrono::seconds(2))),
            "5 files, 1.00 MiB in 2.00 s (524.29 kB/s, 2 files/s)");
  // What needs no copying is done, and not copied.
  report.Passed(14, (1 << 20) - 1024);
  EXPECT_EQ(report.Line({20, 2 << 20}, 1 << 20, 3),
            "test: [#######################.] 100 %  19 of 20 files, 2.00 MiB of 2.00 MiB  "
            "1.05 MB/s  3 files/s  0 s left");
  EXPECT_EQ(report.Summary(TimePoint(std::chrono::seconds(2))),
            "5 files, 1.00 MiB in 2.00 s (524.29 kB/s, 2 files/s)");
}

}  // namespace
}  // namespace rdfs::copy
