// When a mount that was detached is given up, and that waiting for it costs nothing while it is
// there.
#include "fs/fuse/command/mount_watch.h"

#include <gtest/gtest.h>

#include <chrono>
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
  EXPECT_FALSE((*watch)->Wait("9999:9999", [] { return true; }));
}

}  // namespace
}  // namespace rdfs::fs::fuse
