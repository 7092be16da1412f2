// When a mount that was detached is given up, and that waiting for it costs nothing while it is
// there; and that a sleep of the machine is told.
#include "fs/fuse/command/mount_watch.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>

namespace rdfs::fs::fuse {
namespace {

using std::chrono::milliseconds;

TEST(Abandonment, OnlyDetachedAndWithoutServerForAWhile) {
  TimePoint now{std::chrono::hours(1)};
  Abandonment mount;
  EXPECT_FALSE(mount.Note(false, false, now));
  now += 10 * Abandonment::kPatience;
  EXPECT_FALSE(mount.Note(true, true, now));
  now += 10 * Abandonment::kPatience;
  EXPECT_FALSE(mount.Note(true, false, now));  // its patience begins here
  now += Abandonment::kPatience - milliseconds(1);
  EXPECT_FALSE(mount.Note(true, false, now));
  EXPECT_FALSE(mount.Note(true, true, now));  // a restarted server: all over again
  now += milliseconds(1);
  EXPECT_FALSE(mount.Note(true, false, now));
  now += Abandonment::kPatience;
  EXPECT_TRUE(mount.Note(true, false, now));
}

TEST(MountWatch, EndsWhenWoken) {
  const auto watch = MountWatch::Create();
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  std::jthread waker([&] { (*watch)->Wake(); });
  // No mount of this device is there, but its server is.
  EXPECT_FALSE((*watch)->Wait(
      "9999:9999", [] { return true; }, [] {}));
}

TEST(MountWatch, TellsThatTheMachineHasSlept) {
  std::atomic<std::chrono::nanoseconds> gap{std::chrono::hours(1)};
  Fd set(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int set_clock = set.get();
  const auto watch =
      MountWatch::Create(MachineSleep(std::move(set), [&gap] { return gap.load(); }));
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  std::promise<void> told;
  std::jthread waiter([&] {
    EXPECT_FALSE((*watch)->Wait(
        "9999:9999", [] { return true; }, [&told] { told.set_value(); }));
  });
  gap = std::chrono::hours(2);
  const std::uint64_t one = 1;
  EXPECT_EQ(write(set_clock, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_EQ(told.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  (*watch)->Wake();
}

}  // namespace
}  // namespace rdfs::fs::fuse
