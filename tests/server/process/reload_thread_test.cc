#include "server/process/reload_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>

namespace rdfs::server {
namespace {

constexpr std::chrono::seconds kPatience{20};

TEST(ReloadThread, WhoAsksMeanwhileIsServedBehind) {
  std::atomic<int> begun{0};
  std::promise<void> first, go, second;
  bool hung = false;
  std::optional<ReloadThread> thread(
      std::in_place,
      [&] {
        if (++begun > 1) return second.set_value();
        first.set_value();
        go.get_future().wait();
      },
      [&] { hung = true; });
  thread->Ask();
  ASSERT_EQ(first.get_future().wait_for(kPatience), std::future_status::ready);
  for (int i = 0; i < 3; ++i) thread->Ask();
  EXPECT_EQ(begun, 1);
  go.set_value();
  EXPECT_EQ(second.get_future().wait_for(kPatience), std::future_status::ready);
  thread.reset();
  EXPECT_EQ(begun, 2) << "one for all that were asked for meanwhile";
  EXPECT_FALSE(hung);
}

TEST(ReloadThread, OneThatHangsIsLeftToItself) {
  struct World {
    std::promise<void> begun, go, done;
  };
  const auto world = std::make_shared<World>();
  bool hung = false;
  {
    ReloadThread thread(
        [world] {
          world->begun.set_value();
          world->go.get_future().wait();
          world->done.set_value();
        },
        [&] { hung = true; });
    thread.Ask();
    ASSERT_EQ(world->begun.get_future().wait_for(kPatience), std::future_status::ready);
  }
  EXPECT_TRUE(hung);
  world->go.set_value();
  EXPECT_EQ(world->done.get_future().wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace rdfs::server
