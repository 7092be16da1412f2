// How connections end: with everything in flight, by the peer's will, by a signal; and peers that
// are stopped while one-sided operations go on.
#include <algorithm>
#include <cstring>

#include "tests/transport/conformance/harness.h"
#include "tests/transport/conformance/peer.h"

namespace rdfs::transport::conformance {
namespace {

constexpr std::size_t kBytes = 256 * 1024;

class Ending : public Conformance {};
RDFS_CONFORMANCE(Ending);

void ExpectDisconnected(const End& end, const std::string& what) {
  EXPECT_EQ(end.over().code(), Code::kDisconnected) << what << ": " << end.over().ToString();
}

TEST_P(Ending, EitherSideMayGoWithOperationsInFlight) {
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Pair pair = Connected();
    Shared readable = ShareFrom(pair.server, pair.server_domain, kBytes, Access::kRemoteRead);
    Shared writable = ShareFrom(pair.server, pair.server_domain, kBytes, Access::kRemoteWrite);
    const auto source = MakeRegion(pair.client_domain, kBytes, Access::kLocal);
    const auto sink = MakeRegion(pair.client_domain, kBytes, Access::kLocal);
    pair.server.Send(AsBytes("descriptors"));
    ASSERT_TRUE(pair.Drive([&] { return !pair.client.messages.empty(); }));
    const std::uint32_t depth = pair.client->capabilities().max_outstanding;
    for (std::uint32_t i = 0; i < std::min(depth, 32U); ++i) {
      const auto posted = i % 2 == 0
                              ? pair.client->Read({sink.get(), 0, kBytes}, {readable.remote, 0})
                              : pair.client->Write({source.get(), 0, kBytes}, {writable.remote, 0});
      ASSERT_TRUE(posted.ok() || posted.status().code() == Code::kBusy);
      pair.client.Send(Pattern(5000, i));
      pair.server.Send(Pattern(5000, i));
    }
    ASSERT_TRUE(pair.client->Flush().ok());
    std::array<Completion, 1> one;
    for (int step = 0; step < round; ++step) {
      (void)pair.client->Poll(one);
      (void)pair.server->Poll(one);
    }
    End& first = round % 2 == 0 ? pair.client : pair.server;
    End& second = round % 2 == 0 ? pair.server : pair.client;
    first.Destroy();
    // Tickets without a completion are void: Poll may say some, then only that it is over.
    const Deadline deadline = DeadlineAfter(kPatience);
    Status over;
    while (over.ok() && BootClock::now() < deadline) {
      const auto count = second->Wait(one, deadline);
      if (!count.ok()) over = count.status();
    }
    EXPECT_EQ(over.code(), Code::kDisconnected) << over.ToString();
    second.Destroy();
  }
}

TEST_P(Ending, WhatIsOverStaysOver) {
  Pair pair = Connected();
  const auto local = MakeRegion(pair.client_domain, 4096, Access::kLocal);
  pair.server.Destroy();
  ASSERT_TRUE(DriveUntil({&pair.client}, [&] { return !pair.client.alive(); }));
  ExpectDisconnected(pair.client, "the peer was destroyed");
  Connection& client = *pair.client;
  const LocalSlice slice{local.get(), 0, 1};
  std::array<Completion, 1> out;
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(client.Send(AsBytes("anybody?")).scope(), Scope::kNone);
    EXPECT_NE(client.Read(slice, {}).status().scope(), Scope::kNone);
    EXPECT_NE(client.Write(slice, {}).status().scope(), Scope::kNone);
    EXPECT_FALSE(client.Flush().ok());
    EXPECT_EQ(client.Poll(out).status().code(), Code::kDisconnected);
    EXPECT_FALSE(client.Arm().ok());
    EXPECT_FALSE(client.Wait(out, DeadlineAfter(kPatience)).ok());
  }
  pair.Destroy();
}

TEST_P(Ending, WhoIsAbandonedHearsOfTheEndAllTheSame) {
  Pair pair = Connected();
  pair.server->Abandon();
  pair.server.Destroy();
  ASSERT_TRUE(DriveUntil({&pair.client}, [&] { return !pair.client.alive(); }));
  ExpectDisconnected(pair.client, "the peer was destroyed");
}

TEST_P(Ending, MessagesSentBeforeTheEndArriveFirst) {
  if (subject().listen.kind == Kind::kVerbs) {
    return;  // not promised here: a queue pair that ends drops what its peer had no buffer posted
             // for
  }
  Pair pair = Connected();
  for (std::size_t i = 0; i < 20; ++i) pair.server.Send(Pattern(100 + i, i));
  ASSERT_TRUE(pair.server->Flush().ok());
  // What the server leaves unread must not cost its own last words (a reset socket drops them).
  pair.client.Send(Pattern(50'000, 1));
  ASSERT_TRUE(pair.client->Flush().ok());
  // Flushed and taken by the wire; the peer polls only after the end.
  ASSERT_TRUE(DriveUntil({&pair.server}, [&] { return pair.server->backlog_bytes() == 0; }));
  pair.server.Destroy();
  ASSERT_TRUE(DriveUntil({&pair.client}, [&] { return !pair.client.alive(); }));
  ASSERT_EQ(pair.client.messages.size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(Equal(pair.client.messages[i], Pattern(100 + i, i)));
  }
}

// --- Peers in processes of their own.

struct Remote {
  std::unique_ptr<PeerProcess> process;
  std::shared_ptr<Domain> domain = Domain::Create("test");
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  End end;
  RemoteRegion readable, writable;
  std::unique_ptr<MemoryRegion> local;

  [[nodiscard]] LocalSlice Local(std::uint64_t length) const { return {local.get(), 0, length}; }
  Status Finish(Ticket ticket, std::chrono::nanoseconds patience = kPatience) {
    (void)DriveUntil(
        {&end}, [&] { return end.Done(ticket) || !end.alive(); }, patience);
    if (end.Done(ticket)) return end.StatusOf(ticket);
    return end.over().ok() ? Status(Code::kDeadlineExceeded, "not yet") : end.over();
  }
  // Sends a command and returns the peer's answer.
  std::string Ask(ByteSpan command) {
    end.Send(command);
    (void)DriveUntil({&end}, [&] { return !end.messages.empty() || !end.alive(); });
    if (end.messages.empty()) return "no answer: " + end.over().ToString();
    const std::string answer(AsText(end.messages.front()));
    end.messages.pop_front();
    return answer;
  }
};

// A peer that serves (it listens) or dials (this process listens), and its regions.
Remote MeetPeer(const Subject& subject, const std::string& role) {
  Remote remote;
  remote.process = std::make_unique<PeerProcess>(subject, role);
  remote.transport = subject.make();
  remote.local = MakeRegion(remote.domain, kPeerRegionBytes, Access::kLocal);
  if (role == "serve") {
    const auto endpoint = Endpoint::Parse(remote.process->control().Hear());
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
    if (!endpoint.ok()) return remote;
    auto connected = remote.transport->Connect(*endpoint, remote.domain, AsBytes("token"),
                                               DeadlineAfter(kPatience));
    EXPECT_TRUE(connected.ok()) << connected.status().ToString();
    if (connected.ok()) remote.end = End(*std::move(connected));
  } else {
    auto listener = remote.transport->Listen(subject.listen);
    EXPECT_TRUE(listener.ok()) << listener.status().ToString();
    if (!listener.ok()) return remote;
    remote.listener = *std::move(listener);
    remote.process->control().Say(remote.listener->endpoint().ToString());
    const auto incoming = AcceptNext(*remote.listener);
    if (incoming == nullptr) return remote;
    auto accepted = incoming->Accept(remote.domain);
    EXPECT_TRUE(accepted.ok()) << accepted.status().ToString();
    if (accepted.ok()) remote.end = End(*std::move(accepted));
  }
  EXPECT_TRUE(DriveUntil({&remote.end}, [&] { return !remote.end.messages.empty(); }));
  if (remote.end.messages.empty()) return remote;
  ByteReader reader(remote.end.messages.front());
  remote.readable = reader.Read<RemoteRegionWire>().ToRegion();
  remote.writable = reader.Read<RemoteRegionWire>().ToRegion();
  remote.end.messages.pop_front();
  return remote;
}

Bytes CheckCommand(std::uint64_t seed) {
  Bytes command(1 + sizeof(Le64), static_cast<std::byte>(kCheck));
  const Le64 wire(seed);
  std::memcpy(command.data() + 1, &wire, sizeof wire);
  return command;
}

// What a test does with its peer, one step at a time, so that the peer can be killed before any.
constexpr int kSteps = 6;
void TakeStep(Remote& remote, int step) {
  const std::string echo = std::string(1, kEcho) + " step " + std::to_string(step);
  switch (step) {
    case 0:
      EXPECT_EQ(remote.Ask(AsBytes(echo)), echo);
      break;
    case 1:
      EXPECT_TRUE(
          remote.Finish(remote.end.Read(remote.Local(kPeerRegionBytes), {remote.readable, 0}))
              .ok());
      EXPECT_TRUE(Equal(remote.local->bytes(), Pattern(kPeerRegionBytes, kPeerSeed)));
      break;
    case 2:
      Fill(remote.local->bytes(), 123);
      (void)remote.end.Write(remote.Local(kPeerRegionBytes), {remote.writable, 0});
      break;
    case 3:
      EXPECT_EQ(remote.Ask(CheckCommand(123)), "same");
      break;
    case 4:  // leaves transfers and messages in flight
      for (int i = 0; i < 8; ++i) {
        (void)remote.end->Read(remote.Local(kPeerRegionBytes), {remote.readable, 0});
        (void)remote.end->Send(AsBytes(echo));
      }
      EXPECT_TRUE(remote.end->Flush().ok());
      break;
    default:
      break;
  }
}

TEST_P(Ending, APeerThatIsKilledAtAnyStepIsNoticed) {
  for (const std::string role : {"serve", "dial"}) {
    for (int last = 0; last < kSteps; ++last) {
      SCOPED_TRACE(role + ", killed before step " + std::to_string(last));
      Remote remote = MeetPeer(subject(), role);
      ASSERT_TRUE(remote.end.alive());
      for (int step = 0; step < last; ++step) TakeStep(remote, step);
      remote.process->Kill();
      std::array<Completion, 4> out;
      const Deadline deadline = DeadlineAfter(kPatience);
      Status over;
      while (over.ok() && BootClock::now() < deadline) {
        const auto count = remote.end->Wait(out, deadline);
        if (!count.ok()) over = count.status();
      }
      EXPECT_EQ(over.code(), Code::kDisconnected) << over.ToString();
      remote.end.Destroy();
    }
  }
}

TEST_P(Ending, APeerThatLeavesSaysSo) {
  for (const std::string role : {"serve", "dial"}) {
    Remote remote = MeetPeer(subject(), role);
    ASSERT_TRUE(remote.end.alive());
    remote.end.Send(AsBytes(std::string(1, kQuit)));
    ASSERT_TRUE(DriveUntil({&remote.end}, [&] { return !remote.end.alive(); }));
    ExpectDisconnected(remote.end, role);
    EXPECT_EQ(remote.process->control().Hear(), "over ok");
    EXPECT_EQ(remote.process->Wait(), 0);
    remote.end.Destroy();
  }
}

TEST_P(Ending, ThePeerProcessNoticesOurEnd) {
  Remote remote = MeetPeer(subject(), "serve");
  ASSERT_TRUE(remote.end.alive());
  TakeStep(remote, 0);
  remote.end.Destroy();
  EXPECT_TRUE(remote.process->control().Hear().starts_with("over disconnected"));
  EXPECT_EQ(remote.process->Wait(), 0);
}

TEST_P(Ending, OneSidedOperationsCompleteWhileThePeerIsStopped) {
  Remote remote = MeetPeer(subject(), "serve");
  ASSERT_TRUE(remote.end.alive());
  TakeStep(remote, 0);
  const bool one_sided = !remote.end->capabilities().passive_progress;
  const auto source = MakeRegion(remote.domain, kPeerRegionBytes, Access::kLocal);
  Fill(source->bytes(), 124);
  remote.process->Stop();
  const Ticket read = remote.end.Read(remote.Local(kPeerRegionBytes), {remote.readable, 0});
  const Ticket write = remote.end.Write({source.get(), 0, kPeerRegionBytes}, {remote.writable, 0});
  if (one_sided) {
    EXPECT_TRUE(remote.Finish(read).ok());
    EXPECT_TRUE(remote.Finish(write).ok());
    EXPECT_TRUE(Equal(remote.local->bytes(), Pattern(kPeerRegionBytes, kPeerSeed)));
  } else {
    EXPECT_EQ(remote.Finish(read, std::chrono::milliseconds(100)).code(), Code::kDeadlineExceeded)
        << "a transport that says it needs the peer does not";
  }
  remote.process->Continue();
  EXPECT_TRUE(remote.Finish(read).ok());
  EXPECT_TRUE(remote.Finish(write).ok());
  EXPECT_TRUE(Equal(remote.local->bytes(), Pattern(kPeerRegionBytes, kPeerSeed)));
  EXPECT_EQ(remote.Ask(CheckCommand(124)), "same");
  remote.end.Destroy();
}

}  // namespace
}  // namespace rdfs::transport::conformance
