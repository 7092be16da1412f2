// Sleeping and waking: deadlines, the descriptor, and what an idle end costs.
#include <poll.h>
#include <sys/resource.h>

#include <thread>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

using std::chrono::milliseconds;

bool IsReadable(int fd, milliseconds patience) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(patience.count())) > 0;
}

// Arms `end` and polls away what the wire still had to say, until the descriptor is quiet.
bool FallAsleep(End& end) {
  for (int i = 0; i < 1000; ++i) {
    const auto armed = end->Arm();
    if (!armed.ok()) return false;
    if (*armed && !IsReadable(end->fd(), milliseconds(1))) return true;
    (void)end.Step();
  }
  return false;
}

std::chrono::microseconds CpuOfThisThread() {
  rusage usage{};
  (void)getrusage(RUSAGE_THREAD, &usage);
  return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

class Waiting : public Conformance {
 protected:
  // Polls away what is there until `end` may sleep, or `done`.
  static void ArmUnless(End& end, const std::function<bool()>& done) {
    while (end.alive() && !done()) {
      const auto armed = end->Arm();
      if (armed.ok() && *armed) return;
      (void)end.Step();
    }
  }
  // Expects the descriptor of `sleeper`, which is armed, to say when it has something to do, until
  // `done`.
  static void ExpectToWake(End& sleeper, End& other, const std::function<bool()>& done) {
    const Deadline deadline = DeadlineAfter(kPatience);
    while (!done()) {
      ASSERT_LT(BootClock::now(), deadline) << "no wake-up";
      (void)other.Step();  // its part, where a transport needs it to take one
      if (!IsReadable(sleeper->fd(), milliseconds(5))) continue;
      (void)sleeper.Step();
      ArmUnless(sleeper, done);
    }
  }
  // The same for something that happens while `sleeper` is asleep.
  static void ExpectWakeUp(End& sleeper, End& other, const std::function<void()>& happening,
                           const std::function<bool()>& done) {
    ASSERT_TRUE(FallAsleep(sleeper));
    happening();
    ExpectToWake(sleeper, other, done);
  }
};
RDFS_CONFORMANCE(Waiting);

TEST_P(Waiting, EndsAtTheDeadlineAndBurnsNothing) {
  Pair pair = Connected();
  std::array<Completion, 4> out;
  for (Connection* end : {&*pair.client, &*pair.server}) {
    const TimePoint start = BootClock::now();
    const auto cpu = CpuOfThisThread();
    const auto count = end->Wait(out, start + milliseconds(300));
    ASSERT_TRUE(count.ok()) << count.status().ToString();
    EXPECT_EQ(*count, 0U);
    EXPECT_GE(BootClock::now() - start, milliseconds(300));
    EXPECT_LT(BootClock::now() - start, kPatience);
    EXPECT_LT(CpuOfThisThread() - cpu, milliseconds(100));
    const auto past = end->Wait(out, start);
    ASSERT_TRUE(past.ok());
    EXPECT_EQ(*past, 0U);
  }
}

TEST_P(Waiting, AMessageWakes) {
  Pair pair = Connected();
  for (End* sleeper : {&pair.client, &pair.server}) {
    End* other = sleeper == &pair.client ? &pair.server : &pair.client;
    for (std::size_t round = 0; round < 3; ++round) {
      ExpectWakeUp(
          *sleeper, *other,
          [&] {
            other->Send(AsBytes("wake up"));
            ASSERT_TRUE((*other)->Flush().ok());
          },
          [&] { return sleeper->messages.size() == round + 1; });
    }
  }
}

TEST_P(Waiting, WhatOnePollLeavesKeepsItsOwnerAwake) {
  constexpr std::size_t kCount = 40;
  Pair pair = Connected();
  for (std::size_t i = 0; i < kCount; ++i) pair.client.Send(Pattern(i, i));
  ASSERT_TRUE(pair.client->Flush().ok());
  for (std::size_t seen = 0; seen < kCount;) {
    (void)pair.client.Step();
    const auto armed = pair.server->Arm();
    ASSERT_TRUE(armed.ok()) << armed.status().ToString();
    // The client may still wait for room that the server has told it of.
    const Deadline deadline = DeadlineAfter(kPatience);
    while (*armed && !IsReadable(pair.server->fd(), milliseconds(5))) {
      ASSERT_LT(BootClock::now(), deadline) << "no wake-up after " << seen;
      (void)pair.client.Step();
    }
    Completion one;
    const auto count = pair.server->Poll({&one, 1});
    ASSERT_TRUE(count.ok()) << count.status().ToString();
    if (*count == 0) continue;
    EXPECT_TRUE(Equal(one.message, Pattern(seen, seen)));
    ++seen;
  }
}

TEST_P(Waiting, ACompletionWakes) {
  Pair pair = Connected();
  Shared readable = ShareFrom(pair.server, pair.server_domain, 65'536, Access::kRemoteRead);
  Shared writable = ShareFrom(pair.server, pair.server_domain, 65'536, Access::kRemoteWrite);
  const auto local = MakeRegion(pair.client_domain, 65'536, Access::kLocal);
  pair.server.Send(AsBytes("descriptors"));
  ASSERT_TRUE(pair.Drive([&] { return !pair.client.messages.empty(); }));
  const LocalSlice slice{local.get(), 0, 65'536};
  for (int round = 0; round < 6; ++round) {
    const Ticket ticket = round % 2 == 0 ? pair.client.Read(slice, {readable.remote, 0})
                                         : pair.client.Write(slice, {writable.remote, 0});
    const auto done = [&] { return pair.client.Done(ticket); };
    ArmUnless(pair.client, done);
    ExpectToWake(pair.client, pair.server, done);
    ASSERT_TRUE(done()) << round;
    EXPECT_TRUE(pair.client.StatusOf(ticket).ok());
  }
  pair.Destroy();
}

TEST_P(Waiting, ThePeersEndWakes) {
  for (const bool client_sleeps : {true, false}) {
    Pair pair = Connected();
    End& sleeper = client_sleeps ? pair.client : pair.server;
    End& other = client_sleeps ? pair.server : pair.client;
    ExpectWakeUp(
        sleeper, other, [&] { other.Destroy(); }, [&] { return !sleeper.alive(); });
    EXPECT_EQ(sleeper.over().code(), Code::kDisconnected) << sleeper.over().ToString();
  }
}

TEST_P(Waiting, RoomForWhatIsQueuedWakes) {
  Pair pair = Connected();
  const Bytes message = Pattern(kMaxMessageBytes, 1);
  constexpr std::size_t kCount = 256;
  for (std::size_t i = 0; i < kCount; ++i) pair.client.Send(message);
  std::jthread reader([&] {
    std::size_t seen = 0;
    (void)DriveUntil({&pair.server}, [&] {
      for (; !pair.server.messages.empty(); pair.server.messages.pop_front()) {
        EXPECT_TRUE(Equal(pair.server.messages.front(), message));
        ++seen;
      }
      return seen == kCount;
    });
    EXPECT_EQ(seen, kCount);
  });
  // Nothing ever comes for the client: only room on the wire can wake it.
  EXPECT_TRUE(DriveUntil({&pair.client}, [&] { return pair.client->backlog_bytes() == 0; }));
  reader.join();
}

// More than any wire takes at once.
TEST_P(Waiting, RoomForWhatIsSentAfterArmWakes) {
  constexpr std::size_t kCount = 128;
  Pair pair = Connected();
  const Bytes message = Pattern(kMaxMessageBytes, 1);
  ExpectWakeUp(
      pair.server, pair.client,
      [&] {
        for (std::size_t i = 0; i < kCount; ++i) pair.server.Send(message);
        ASSERT_TRUE(pair.server->Flush().ok());
      },
      [&] { return pair.client.messages.size() == kCount; });
}

TEST_P(Waiting, TwoThreadsThatOnlySleepPassManyMessages) {
  constexpr int kRounds = 300;
  Pair pair = Connected();
  const auto throw_ball = [](End& end) {
    end.Send(AsBytes("ball"));
    ASSERT_TRUE(end->Flush().ok());
  };
  const auto run = [&](End& end, bool begins) {
    for (int round = 0; round < kRounds; ++round) {
      if (begins) throw_ball(end);
      ASSERT_TRUE(DriveUntil({&end}, [&] { return !end.messages.empty(); })) << round;
      end.messages.pop_front();
      if (!begins) throw_ball(end);
    }
  };
  std::jthread server([&] { run(pair.server, false); });
  run(pair.client, true);
}

}  // namespace
}  // namespace rdfs::transport::conformance
