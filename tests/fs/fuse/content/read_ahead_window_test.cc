#include "fs/fuse/content/read_ahead_window.h"

#include <gtest/gtest.h>

#include <deque>

namespace rdfs::fs::fuse {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
constexpr std::uint32_t kTransfer = 1U << 20U;

// A wire that carries so many bytes a second and takes so long for a round trip, with a reader who
// takes what comes at once: so much of it is used over a second, from the start of a file on.
class Wire {
 public:
  Wire(double bytes_per_second, nanoseconds round_trip)
      : bytes_per_second_(bytes_per_second), round_trip_(round_trip), window(round_trip, {}) {}

  double UsedIn(nanoseconds time) {
    const TimePoint end = now_ + time;
    std::uint64_t under_way = 0;
    double carried = 0;
    while (now_ < end) {
      const std::uint32_t piece = window.PieceBytes(kTransfer);
      while (under_way + piece <= window.bytes()) {
        free_ = std::max(free_, now_ + round_trip_ / 2) + Takes(piece);
        pieces_.push_back({piece, now_, window.came(), free_ + round_trip_ / 2});
        under_way += piece;
      }
      const Piece first = pieces_.front();
      pieces_.pop_front();
      now_ = first.comes;
      under_way -= first.bytes;
      carried += first.bytes;
      window.Came(first.bytes, first.asked, first.came_then, now_);
    }
    return carried / (bytes_per_second_ * std::chrono::duration<double>(time).count());
  }

 private:
  struct Piece {
    std::uint32_t bytes;
    TimePoint asked;
    std::uint64_t came_then;
    TimePoint comes;
  };
  [[nodiscard]] nanoseconds Takes(std::uint32_t bytes) const {
    return nanoseconds(static_cast<std::int64_t>(bytes / bytes_per_second_ * 1e9));
  }
  const double bytes_per_second_;
  const nanoseconds round_trip_;
  TimePoint now_{std::chrono::hours(1)}, free_{};
  std::deque<Piece> pieces_;

 public:
  ReadAheadWindow window;
};

TEST(ReadAheadWindowTest, KeepsAWireFullWhateverItsRoundTrip) {
  for (const double rate : {1e8, 1e9, 3e9}) {
    for (const int us : {20, 100, 500, 1000, 2000}) {
      Wire wire(rate, std::chrono::microseconds(us));
      wire.UsedIn(milliseconds(200));
      EXPECT_GT(wire.UsedIn(milliseconds(500)), 0.95) << rate << " bytes/s, " << us << " us";
    }
  }
}

TEST(ReadAheadWindowTest, GrowsToTheMostWhereTheWireHoldsMore) {
  Wire wire(1e10, milliseconds(20));
  wire.UsedIn(milliseconds(500));
  EXPECT_EQ(wire.window.bytes(), ReadAheadWindow::kMost);
  EXPECT_EQ(wire.window.PieceBytes(kTransfer), kTransfer);
}

// 100 Mbit/s: what else goes over it must not wait for long.
TEST(ReadAheadWindowTest, LetsLittleWaitOnASlowWire) {
  Wire wire(12.5e6, milliseconds(1));
  wire.UsedIn(milliseconds(2000));
  EXPECT_EQ(wire.window.bytes(), ReadAheadWindow::kLeast);
  EXPECT_GT(wire.UsedIn(milliseconds(2000)), 0.95);
}

TEST(ReadAheadWindowTest, IsNoLongerThanBeforeBehindAReaderWhoPauses) {
  Wire wire(1e9, milliseconds(1));
  wire.UsedIn(milliseconds(500));
  const std::uint32_t before = wire.window.bytes();
  TimePoint now{std::chrono::hours(2)};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t came = wire.window.came();
    wire.window.Came(128U << 10U, now, came, now + milliseconds(100));
    now += milliseconds(100);
    EXPECT_LE(wire.window.bytes(), before);
  }
  EXPECT_EQ(wire.window.bytes(), ReadAheadWindow::kLeast);
}

// Of the same file, but marked when another one followed it.
TEST(ReadAheadWindowTest, WhatWasAskedForBeforeItBeganSaysNothing) {
  ReadAheadWindow window(milliseconds(1), {});
  window.Came(1U << 20U, TimePoint(milliseconds(1)), 5U << 20U, TimePoint(milliseconds(900)));
  EXPECT_EQ(window.bytes(), ReadAheadWindow::kFirst);
}

TEST(ReadAheadWindowTest, AFixedOneStaysWhatItIs) {
  ReadAheadWindow window(milliseconds(1), 3U << 20U);
  EXPECT_EQ(window.bytes(), 3U << 20U);
  window.Came(1U << 20U, TimePoint(milliseconds(1)), 0, TimePoint(milliseconds(900)));
  EXPECT_EQ(window.bytes(), 3U << 20U);
}

TEST(ReadAheadWindowTest, PiecesAreNoLargerThanARequestMayBe) {
  EXPECT_EQ(ReadAheadWindow(nanoseconds(0), 8U << 20U).PieceBytes(64U << 10U), 64U << 10U);
  EXPECT_EQ(ReadAheadWindow(nanoseconds(0), 8U << 20U).PieceBytes(kTransfer), kTransfer);
  EXPECT_EQ(ReadAheadWindow(nanoseconds(0), 64U << 10U).PieceBytes(kTransfer), 128U << 10U);
}

}  // namespace
}  // namespace rdfs::fs::fuse
