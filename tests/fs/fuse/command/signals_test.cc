// What a signal does in each phase, and that the thread does it.
#include "fs/fuse/command/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>

namespace rdfs::fs::fuse {
namespace {

TEST(Signals, TheTable) {
  using enum Phase;
  EXPECT_EQ(DecideOnSignal(kStarting, SIGINT), SignalAction::kStop);
  EXPECT_EQ(DecideOnSignal(kStarting, SIGUSR1), SignalAction::kNone);
  EXPECT_EQ(DecideOnSignal(kMounting, SIGTERM), SignalAction::kRemember);
  EXPECT_EQ(DecideOnSignal(kMounting, SIGUSR1), SignalAction::kNone);
  EXPECT_EQ(DecideOnSignal(kMounted, SIGHUP), SignalAction::kUnmount);
  EXPECT_EQ(DecideOnSignal(kMounted, SIGUSR1), SignalAction::kShowCounters);
  EXPECT_EQ(DecideOnSignal(kUnmounting, SIGINT), SignalAction::kEndNow);
  EXPECT_EQ(DecideOnSignal(kUnmounting, SIGUSR1), SignalAction::kShowCounters);
  EXPECT_EQ(DecideOnSignal(kEnding, SIGINT), SignalAction::kNone);
  EXPECT_EQ(DecideOnSignal(kEnding, SIGUSR1), SignalAction::kNone);
}

// In a process of its own: signals are the whole process's.
int SignalsThatComeWhileMountingAreNotLost() {
  // Whatever the tests were started by.
  for (const int signal : {SIGINT, SIGHUP}) (void)std::signal(signal, SIG_DFL);
  SignalThread::BlockSignals();
  std::promise<void> unmount;
  std::promise<void> end_now;
  std::promise<void> counters;
  Result<std::unique_ptr<SignalThread>> thread =
      SignalThread::Start({.stop = [] { _exit(9); },
                           .unmount = [&] { unmount.set_value(); },
                           .end_now = [&] { end_now.set_value(); },
                           .show_counters = [&] { counters.set_value(); }});
  if (!thread.ok()) return 2;
  constexpr std::chrono::seconds kLimit(20);
  (*thread)->Enter(Phase::kMounting);
  kill(getpid(), SIGINT);
  auto asked = unmount.get_future();
  // Whether the thread has read the signal already or reads it later, it counts.
  (*thread)->Enter(Phase::kMounted);
  if (asked.wait_for(kLimit) != std::future_status::ready) return 3;
  kill(getpid(), SIGUSR1);
  if (counters.get_future().wait_for(kLimit) != std::future_status::ready) return 4;
  kill(getpid(), SIGHUP);
  if (end_now.get_future().wait_for(kLimit) != std::future_status::ready) return 5;
  return 0;
}

TEST(Signals, NoneIsLostWhileMounting) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(_exit(SignalsThatComeWhileMountingAreNotLost()), testing::ExitedWithCode(0), "");
}

int IgnoredOnesStayIgnored() {
  (void)std::signal(SIGINT, SIG_DFL);
  (void)std::signal(SIGHUP, SIG_IGN);
  SignalThread::BlockSignals();
  std::promise<void> unmount;
  std::promise<void> counters;
  std::atomic<bool> asked{false};
  Result<std::unique_ptr<SignalThread>> thread =
      SignalThread::Start({.stop = [] { _exit(9); },
                           .unmount =
                               [&] {
                                 asked = true;
                                 unmount.set_value();
                               },
                           .end_now = [] { _exit(8); },
                           .show_counters = [&] { counters.set_value(); }});
  if (!thread.ok()) return 2;
  constexpr std::chrono::seconds kLimit(20);
  (*thread)->Enter(Phase::kMounted);
  // The lower number is read first: the other's answer comes behind what this one would do.
  kill(getpid(), SIGHUP);
  kill(getpid(), SIGUSR1);
  if (counters.get_future().wait_for(kLimit) != std::future_status::ready) return 3;
  if (asked) return 4;
  kill(getpid(), SIGINT);
  return unmount.get_future().wait_for(kLimit) == std::future_status::ready ? 0 : 5;
}

TEST(Signals, WhatIsIgnoredAtTheStartIsNotHeard) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(_exit(IgnoredOnesStayIgnored()), testing::ExitedWithCode(0), "");
}

int EndsByForce() {
  SignalThread::BlockSignals();
  Result<std::unique_ptr<SignalThread>> thread = SignalThread::Start({});
  if (!thread.ok()) return 2;
  (*thread)->EndWithin(std::chrono::milliseconds(1), 7);
  pause();
  return 3;
}

TEST(Signals, WhatDoesNotEndIsEnded) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(_exit(EndsByForce()), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace rdfs::fs::fuse
