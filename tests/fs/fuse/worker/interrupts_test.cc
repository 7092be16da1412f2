#include "fs/fuse/worker/interrupts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

namespace rdfs::fs::fuse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Action = Interrupts::Action;

constexpr pid_t kAlive = 10;
constexpr pid_t kDying = 11;
constexpr TimePoint kStart{seconds(1000)};

bool DiesByNumber(pid_t caller) { return caller == kDying; }

// Whoever is asked about is alive until this is set: a second signal comes without a message.
bool g_dies_now = false;
bool DiesLater(pid_t) { return g_dies_now; }

TEST(InterruptsTest, ASignalThatIsHandledCutsNothingShort) {
  Interrupts interrupts(DiesByNumber);
  EXPECT_EQ(interrupts.Track(2, {.ticket = 7, .caller = kAlive}).action, Action::kNone);
  EXPECT_EQ(interrupts.Interrupt(2, kStart).action, Action::kNone);
  EXPECT_TRUE(interrupts.Look(kStart + seconds(1)).empty());
  EXPECT_TRUE(interrupts.Look(kStart + seconds(60)).empty());
}

TEST(InterruptsTest, WhoWaitsForALockIsLetGoByAnySignalButNotTornFromIt) {
  Interrupts interrupts(DiesByNumber);
  (void)interrupts.Track(2, {.ticket = 7, .caller = kAlive, .may_wait = true});
  const auto first = interrupts.Interrupt(2, kStart);
  EXPECT_EQ(first.action, Action::kCancel);
  EXPECT_EQ(first.ticket, 7U);
  EXPECT_TRUE(interrupts.Look(kStart + seconds(1)).empty());
}

TEST(InterruptsTest, OfADyingCallerTheCallIsCancelledAndASecondLaterAbandoned) {
  Interrupts interrupts(DiesByNumber);
  for (const bool may_wait : {false, true}) {
    const std::uint64_t unique = may_wait ? 4 : 2;
    (void)interrupts.Track(unique, {.ticket = unique, .caller = kDying, .may_wait = may_wait});
    EXPECT_EQ(interrupts.Interrupt(unique, kStart).action, Action::kCancel);
  }
  EXPECT_EQ(interrupts.next_look(), kStart + seconds(1));
  EXPECT_TRUE(interrupts.Look(kStart + milliseconds(999)).empty());
  const auto decisions = interrupts.Look(kStart + seconds(1));
  ASSERT_EQ(decisions.size(), 2U);
  for (const auto& decision : decisions) EXPECT_EQ(decision.action, Action::kAbandon);
  // One-sided operations may have kept it: it is said again until the call is over.
  EXPECT_EQ(interrupts.Look(kStart + seconds(2)).size(), 2U);
  interrupts.Untrack(2);
  interrupts.Untrack(4);
  EXPECT_TRUE(interrupts.Look(kStart + seconds(3)).empty());
  EXPECT_EQ(interrupts.next_look(), TimePoint::max());
}

TEST(InterruptsTest, ACallerThatIsKilledAfterAHarmlessSignalIsFound) {
  g_dies_now = false;
  Interrupts interrupts(DiesLater);
  (void)interrupts.Track(2, {.ticket = 7, .caller = kAlive});
  EXPECT_EQ(interrupts.Interrupt(2, kStart).action, Action::kNone);
  EXPECT_TRUE(interrupts.Look(kStart + seconds(1)).empty());
  g_dies_now = true;
  const auto decisions = interrupts.Look(kStart + seconds(2));
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].action, Action::kCancel);
  EXPECT_EQ(interrupts.Look(kStart + seconds(3)).at(0).action, Action::kAbandon);
}

// It waited for something else before it was asked of the server.
TEST(InterruptsTest, OfOneThatWasKilledBeforeItsCallTheCallIsCancelledAtTheNextLook) {
  Interrupts interrupts(DiesByNumber);
  (void)interrupts.Interrupt(2, kStart);
  (void)interrupts.Interrupt(4, kStart);
  EXPECT_EQ(interrupts.Track(2, {.ticket = 7, .caller = kDying}).action, Action::kNone);
  EXPECT_EQ(interrupts.Track(4, {.ticket = 8, .caller = kAlive}).action, Action::kNone);
  const auto decisions = interrupts.Look(kStart + seconds(1));
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].ticket, 7U);
  EXPECT_EQ(decisions[0].action, Action::kCancel);
  EXPECT_EQ(interrupts.Look(kStart + seconds(2)).at(0).action, Action::kAbandon);
}

TEST(InterruptsTest, AnInterruptThatComesBeforeItsRequestIsKept) {
  Interrupts interrupts(DiesByNumber);
  EXPECT_EQ(interrupts.Interrupt(2, kStart).action, Action::kNone);
  EXPECT_EQ(interrupts.next_look(), TimePoint::max());
  EXPECT_EQ(interrupts.Track(2, {.ticket = 7, .caller = kAlive, .may_wait = true}).action,
            Action::kCancel);
  EXPECT_EQ(interrupts.Track(4, {.ticket = 8, .caller = kAlive, .may_wait = true}).action,
            Action::kNone);
}

TEST(InterruptsTest, ReadsWhatProcSays) {
  const auto status = [](const char* pending, const char* shared, const char* caught) {
    return std::string("Name:\tSigPnd: ffffffffffffffff\nSigQ:\t0/1\nSigPnd:\t") + pending +
           "\nShdPnd:\t" + shared + "\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" +
           "SigCgt:\t" + caught + "\n";
  };
  const char* const none = "0000000000000000";
  EXPECT_FALSE(SaysDying(status(none, none, none)));
  EXPECT_TRUE(SaysDying(status("0000000000000100", none, none)));   // SIGKILL, this thread's
  EXPECT_TRUE(SaysDying(status(none, "0000000000000100", none)));   // ... its process's
  EXPECT_TRUE(SaysDying(status(none, "0000000000004000", none)));   // SIGTERM behind another
  EXPECT_FALSE(SaysDying(status(none, "0000000000080000", none)));  // SIGTSTP
  EXPECT_FALSE(SaysDying(status("0000000000010000", none, none)));  // SIGCHLD
  EXPECT_TRUE(SaysDying(status(none, "0000000000000004", none)));   // SIGQUIT dumps core
  EXPECT_FALSE(SaysDying(status(none, "0000000000000004", "0000000000000004")));  // caught
  EXPECT_FALSE(SaysDying(""));
  EXPECT_FALSE(SaysDying("\nSigPnd:"));
}

TEST(InterruptsTest, LivingAndMissingThreadsAreNotDying) {
  EXPECT_FALSE(IsDying(getpid()));
  EXPECT_FALSE(IsDying(0));
  EXPECT_FALSE(IsDying(-1));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(IsDying(child));
}

}  // namespace
}  // namespace rdfs::fs::fuse
