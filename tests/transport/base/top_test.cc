// The table of `top`, from answers as programs give them.
#include "transport/base/top.h"

#include <gtest/gtest.h>

#include "transport/base/snapshot.h"

namespace rdfs {
namespace {

using std::chrono::microseconds;

LatencyHistogram Times(std::uint64_t short_ones, std::uint64_t long_ones) {
  LatencyHistogram times;
  times.buckets[LatencyHistogram::BucketOf(microseconds(8))] = short_ones;
  times.buckets[LatencyHistogram::BucketOf(microseconds(4000))] = long_ones;
  times.sum = short_ones * microseconds(8) + long_ones * microseconds(4000);
  times.longest = microseconds(4000);
  return times;
}

Snapshot Mount(std::uint64_t times) {
  Snapshot out;
  out.words.emplace_back("mount", "/mnt/a \"b");
  out.info = {{"transport", "shm"}};
  out.Count("read_bytes", "", 1'500'000 * times);
  out.Count("recalls", "", 2);
  out.Count("grant_hits", "", 300 * times);
  out.Count("grant_misses", "", 100 * times);
  out.Count("round_trips", "", 10 * times, "lookup");
  out.Gauge("open_files", "", 7);
  out.Gauge("pool_cached_bytes", "", 3 << 20);
  out.Latency("getattr", Times(10 * times, 0));
  out.Latency("lookup", Times(980 * times, 20 * times));
  out.Latency("rename", Times(5, 0));
  return out;
}

TEST(TopTable, SaysWhatHappenedInTheTimeBetween) {
  const Samples before = ParseMetrics({ToPrometheus(Mount(1))});
  const Samples now = ParseMetrics({ToPrometheus(Mount(3))});
  EXPECT_EQ(TopTable(before, now, 2),
            "mount /mnt/a \"b\n"
            "  operation                 per second        mean         p99\n"
            "  lookup                          1000       88 us      3.1 ms\n"
            "  getattr                           10      8.0 us      8.0 us\n"
            "  grant hits                    75.0 %  of 400 per second\n"
            "  read bytes                  1.5 MB/s\n"
            "  open files                         7\n"
            "  pool cached bytes            3.0 MiB\n"
            "\n");
}

TEST(TopTable, EachProgramHasItsOwn) {
  Snapshot server;
  server.words.emplace_back("port", "7337");
  server.Gauge("leases", "", 12);
  const Samples now = ParseMetrics({ToPrometheus(Mount(1)), ToPrometheus(server)});
  const std::string table = TopTable(now, now, 1);
  EXPECT_EQ(table.find("operation"), std::string::npos) << table;
  EXPECT_NE(table.find("port 7337\n  leases                            12\n"), std::string::npos)
      << table;
}

TEST(TopTable, AProgramThatWasStartedAgainCountsFromNothing) {
  const Samples before = ParseMetrics({ToPrometheus(Mount(100))});
  const Samples now = ParseMetrics({ToPrometheus(Mount(1))});
  EXPECT_NE(TopTable(before, now, 1).find("  read bytes                  1.5 MB/s\n"),
            std::string::npos);
}

TEST(TopTable, WhatIsNoSampleIsLeftOut) {
  EXPECT_TRUE(ParseMetrics({"", "\n\n", "# TYPE x counter\n", "word\n"}).empty());
  const Samples odd = ParseMetrics({"rdfs_x{mount=\"/m\\", " 1\n{ 2\na{b=\"} 3\nrdfs_y{op=\"z 4"});
  EXPECT_FALSE(TopTable(odd, odd, 1).empty());
}

}  // namespace
}  // namespace rdfs
