#include "tools/copy/file/data.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "tests/tools/copy/temp_tree.h"
#include "transport/base/fd.h"

namespace rdfs::copy {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::string Noise(std::size_t size) {
  std::mt19937_64 random(size);
  std::string out(size, '\0');
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(random());
  return out;
}

class CopyDataTest : public testing::Test {
 protected:
  // As long as the largest span below.
  CopyDataTest() : text_(Noise(9 * kMiB)) {
    tree_.Write("from", text_);
    from_ = Here()->Open(tree_ / "from", O_RDONLY);
  }
  // Into a file of its own each time.
  Status Copy(std::uint64_t offset, std::uint64_t end) {
    to_ = Here()->Open(tree_ / "to", O_RDWR | O_CREAT | O_TRUNC, 0600);
    moved_ = 0;
    return CopyData({*from_, *to_, offset, end}, {moved_, stop_});
  }
  TempTree tree_;
  const std::string text_;
  FilePtr from_, to_;
  std::atomic<std::uint64_t> moved_{0};
  std::atomic<bool> stop_{false};
};

TEST_F(CopyDataTest, EverySpanArrivesWhereItWas) {
  const std::uint64_t begins[] = {0, 1, 4097};
  const std::uint64_t lengths[] = {
      0, 1, 65537, kMiB - 1, kMiB, kMiB + 1, 8 * kMiB - 1, 8 * kMiB, 8 * kMiB + 1};
  for (const std::uint64_t begin : begins) {
    for (const std::uint64_t length : lengths) {
      ASSERT_TRUE(Copy(begin, begin + length).ok()) << begin << " " << length;
      EXPECT_EQ(moved_, length);
      const std::string to = tree_.Read("to");
      ASSERT_EQ(to.size(), length == 0 ? 0 : begin + length);
      if (length == 0) continue;
      EXPECT_TRUE(to.compare(begin, length, text_, begin, length) == 0) << begin << " " << length;
    }
  }
}

TEST_F(CopyDataTest, SaysThatTheSourceBecameShorter) {
  for (const std::uint64_t begin : {std::uint64_t{0}, 9 * kMiB - 10}) {
    const Status status = Copy(begin, 9 * kMiB + 1);
    EXPECT_EQ(status.errno_value(), ENODATA) << status.message();
  }
}

TEST_F(CopyDataTest, StopsSoon) {
  stop_ = true;
  for (const std::uint64_t length : {std::uint64_t{1}, 2 * kMiB, 9 * kMiB}) {
    EXPECT_EQ(Copy(0, length).errno_value(), EINTR);
    EXPECT_EQ(moved_, 0U);
  }
}

TEST_F(CopyDataTest, ALimitTakesItsTime) {
  to_ = Here()->Open(tree_ / "to", O_RDWR | O_CREAT | O_TRUNC, 0600);
  Pace pace(32 * kMiB);
  const TimePoint start = BootClock::now();
  ASSERT_TRUE(CopyData({*from_, *to_, 0, 9 * kMiB}, {moved_, stop_, &pace}).ok());
  // All but the last 256 KiB, whose time is behind them.
  EXPECT_GE(BootClock::now() - start, std::chrono::milliseconds(273));
  EXPECT_TRUE(tree_.Read("to") == text_);
}

TEST_F(CopyDataTest, AFullDiskIsTheError) {
  const FilePtr full = Here()->Open("/dev/full", O_WRONLY);
  for (const std::uint64_t length : {std::uint64_t{1}, 2 * kMiB, 9 * kMiB}) {
    const Status status = CopyData({*from_, *full, 0, length}, {moved_, stop_});
    EXPECT_EQ(status.errno_value(), ENOSPC) << status.message();
  }
}

}  // namespace
}  // namespace rdfs::copy
