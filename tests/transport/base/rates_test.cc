// Rates, in virtual time.
#include "transport/base/rates.h"

#include <gtest/gtest.h>

namespace rdfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart = TimePoint(seconds(1000));

TEST(Rates, AreThoseSinceTheStartForWhoAsksFirst) {
  Rates rates(kStart);
  EXPECT_EQ(
      ToString(rates.Look(kStart + seconds(100), {.read_bytes = 250'000'000, .requests = 3500})),
      "read 2.5 MB/s, written 0 B/s, 35 requests/s, over the last 100 s");
}

TEST(Rates, AreThoseSinceTheLookBefore) {
  Rates rates(kStart);
  (void)rates.Look(kStart + seconds(100), {.read_bytes = 1'000'000'000, .requests = 1'000'000});
  EXPECT_EQ(ToString(rates.Look(
                kStart + seconds(104),
                {.read_bytes = 1'000'000'000, .written_bytes = 48'000, .requests = 1'000'002})),
            "read 0 B/s, written 12 kB/s, 0.5 requests/s, over the last 4 s");
}

// Who looks twice in a moment sees a rate over the time before, and not one over that moment.
TEST(Rates, AreNeverThoseOfAMoment) {
  Rates rates(kStart);
  (void)rates.Look(kStart + seconds(10), {.requests = 0});
  (void)rates.Look(kStart + seconds(14), {.requests = 400});
  EXPECT_EQ(ToString(rates.Look(kStart + seconds(14) + milliseconds(1), {.requests = 400})),
            "read 0 B/s, written 0 B/s, 100 requests/s, over the last 4 s");
  EXPECT_EQ(ToString(rates.Look(kStart + seconds(15), {.requests = 1000})),
            "read 0 B/s, written 0 B/s, 200 requests/s, over the last 5 s");
}

TEST(Rates, AreNumbersForPrograms) {
  Rates rates(kStart);
  const Rates::Speeds speeds =
      rates.Look(kStart + seconds(4), {.read_bytes = 6, .written_bytes = 10, .requests = 1});
  EXPECT_DOUBLE_EQ(speeds.read_bytes_per_second, 1.5);
  EXPECT_DOUBLE_EQ(speeds.written_bytes_per_second, 2.5);
  EXPECT_DOUBLE_EQ(speeds.requests_per_second, 0.25);
  EXPECT_DOUBLE_EQ(speeds.over_seconds, 4);
}

TEST(Rates, AreToldAtTheStart) {
  Rates rates(kStart);
  EXPECT_EQ(ToString(rates.Look(kStart, {.requests = 1})),
            "read 0 B/s, written 0 B/s, 1000 requests/s, over the last 0.001 s");
}

TEST(Rates, SayTheirTimeAsItIs) {
  const auto over = [](double length) {
    const std::string said = ToString(Rates::Speeds{.over_seconds = length});
    return said.substr(said.find("over the last "));
  };
  EXPECT_EQ(over(0.408), "over the last 0.41 s");
  EXPECT_EQ(over(1.52), "over the last 1.5 s");
  EXPECT_EQ(over(9.94), "over the last 9.9 s");
  EXPECT_EQ(over(9.96), "over the last 10 s");
  EXPECT_EQ(over(86400.3), "over the last 86400 s");
}

}  // namespace
}  // namespace rdfs
