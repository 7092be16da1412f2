#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <future>
#include <string>
#include <vector>

#include "tests/fs/client/wrapped_connection.h"
#include "transport/fault/connection.h"
#include "transport/fault/dice.h"
#include "transport/fault/transport.h"
#include "transport/shm/transport.h"

namespace rdfs::transport::fault {
namespace {

constexpr std::chrono::seconds kPatience{20};

// Two ends over shm, of which the client's runs under a plan.
struct Pair {
  std::shared_ptr<Domain> client_domain = Domain::Create("client");
  std::shared_ptr<Domain> server_domain = Domain::Create("server");
  std::unique_ptr<Connection> client, server;

  explicit Pair(const Plan& plan) {
    const auto plain = shm::MakeTransport();
    const auto faulty = Wrap(shm::MakeTransport(), plan);
    const auto listener = *plain->Listen({Kind::kShm, "", 0});
    auto dialling = std::async(std::launch::async, [&] {
      return faulty->Connect(listener->endpoint(), client_domain, {}, DeadlineAfter(kPatience));
    });
    while (server == nullptr) {
      pollfd entry{.fd = listener->fd(), .events = POLLIN, .revents = 0};
      poll(&entry, 1, 20'000);
      auto incoming = listener->Accept();
      if (incoming.ok() && *incoming != nullptr) server = *(*incoming)->Accept(server_domain);
    }
    client = *dialling.get();
  }
};

std::unique_ptr<MemoryRegion> LocalRegion(const std::shared_ptr<Domain>& domain) {
  auto memory = SharedMemory::Create("test", 4096, SharedMemory::Peers::kMayWrite);
  return *domain->Register(*memory, Access::kLocal);
}

Status WaitForEnd(Connection& connection) {
  std::array<Completion, 4> out;
  const Deadline deadline = DeadlineAfter(kPatience);
  while (BootClock::now() < deadline) {
    const auto count = connection.Wait(out, deadline);
    if (!count.ok()) return count.status();
  }
  return {};
}

TEST(Dice, TheSameSeedThrowsTheSame) {
  Dice a(7);
  Dice b(7);
  Dice c(8);
  int differing = 0;
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    const bool thrown = a.Throw(2'500);
    ASSERT_EQ(thrown, b.Throw(2'500));
    differing += thrown != c.Throw(2'500) ? 1 : 0;
    hits += thrown ? 1 : 0;
  }
  EXPECT_NEAR(hits, 2'500, 200);
  EXPECT_GT(differing, 1'000);
  EXPECT_FALSE(Dice(1).Throw(0));
  EXPECT_TRUE(Dice(1).Throw(10'000));
}

TEST(Fault, ThePlannedOperationBreaksTheConnectionForBothEnds) {
  Pair pair({.seed = 1, .drop_after_operations = 3});
  const int fd = pair.client->fd();
  ASSERT_TRUE(pair.client->Send(AsBytes("one")).ok());
  ASSERT_TRUE(pair.client->Send(AsBytes("two")).ok());
  ASSERT_TRUE(pair.client->Flush().ok());
  ASSERT_TRUE(*pair.client->Arm());
  EXPECT_EQ(pair.client->Send(AsBytes("three")).code(), Code::kDisconnected);
  EXPECT_EQ(pair.client->fd(), fd);
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1) << "whoever sleeps has to learn of it";
  std::array<Completion, 1> out;
  EXPECT_EQ(pair.client->Poll(out).status().code(), Code::kDisconnected);
  EXPECT_EQ(pair.client->Send(AsBytes("four")).code(), Code::kDisconnected);
  EXPECT_EQ(pair.client->Flush().code(), Code::kDisconnected);
  EXPECT_EQ(pair.client->Arm().status().code(), Code::kDisconnected);
  EXPECT_EQ(WaitForEnd(*pair.server).code(), Code::kDisconnected);
}

// Notes that it was abandoned.
class Abandonable final : public fs::client::WrappedConnection {
 public:
  Abandonable(std::unique_ptr<Connection> inner, bool& abandoned)
      : WrappedConnection(std::move(inner)), abandoned_(abandoned) {}
  void Abandon() override { abandoned_ = true; }

 private:
  bool& abandoned_;
};

TEST(Fault, TheConnectionInsideIsAbandoned) {
  Pair pair({.seed = 1});
  bool abandoned = false;
  FaultyConnection faulty(std::make_unique<Abandonable>(std::move(pair.server), abandoned), {});
  faulty.Abandon();
  EXPECT_TRUE(abandoned);
}

TEST(Fault, TheSeedAloneSaysWhichOperationBreaks) {
  const auto broke_at = [](std::uint64_t seed) {
    Pair pair({.seed = seed, .drop_connection = 200});
    int sent = 0;
    std::array<Completion, 1> out;
    while (sent < 10'000 && pair.client->Send(AsBytes("x")).ok()) {
      ++sent;
      // How often somebody polls must not matter.
      for (int i = 0; i < sent % 3; ++i) EXPECT_TRUE(pair.client->Poll(out).ok());
    }
    return sent;
  };
  const int first = broke_at(5);
  EXPECT_LT(first, 10'000);
  EXPECT_EQ(broke_at(5), first);
  EXPECT_NE(broke_at(6), first);
}

TEST(Fault, BusyIsPassingAndAsOftenAsPlanned) {
  Pair pair({.seed = 2, .busy = 5'000});
  const auto region = LocalRegion(pair.client_domain);
  int busy = 0;
  std::array<Completion, 4> out;
  for (int i = 0; i < 1'000; ++i) {
    const auto ticket = pair.client->Read({region.get(), 0, 1}, {});
    if (!ticket.ok()) {
      ASSERT_EQ(ticket.status().code(), Code::kBusy);
      ++busy;
    } else {
      ASSERT_EQ(*pair.client->Poll(out), 1U);
      ASSERT_EQ(out[0].ticket, *ticket);
    }
  }
  EXPECT_NEAR(busy, 500, 80);
}

TEST(Fault, DelaysKeepTheOrderAndLoseNothing) {
  Pair pair({.seed = 3, .delay_completion = 100, .delay_polls = 40});
  constexpr int kCount = 1'500;
  for (int i = 0; i < kCount; ++i) {
    ASSERT_TRUE(pair.server->Send(AsBytes(std::to_string(i))).ok());
  }
  ASSERT_TRUE(pair.server->Flush().ok());
  std::array<Completion, 3> out;
  int empty_polls = 0;
  int next = 0;
  while (next < kCount && empty_polls < 100'000) {
    const auto count = pair.client->Poll(out);
    ASSERT_TRUE(count.ok());
    if (*count == 0) {
      ++empty_polls;
      ASSERT_FALSE(*pair.client->Arm()) << "what is held back is something to poll for";
    }
    for (std::size_t i = 0; i < *count; ++i) {
      ASSERT_EQ(AsText(out[i].message), std::to_string(next++));
    }
  }
  EXPECT_EQ(next, kCount);
  EXPECT_GT(empty_polls, 20);
  EXPECT_TRUE(*pair.client->Arm());
}

TEST(Fault, WhatWasHeldBackStillComesBeforeTheEnd) {
  Pair pair({.seed = 4, .delay_completion = 10'000, .delay_polls = 10});
  ASSERT_TRUE(pair.server->Send(AsBytes("last words")).ok());
  pair.server.reset();
  std::array<Completion, 1> out;
  ASSERT_EQ(*pair.client->Wait(out, DeadlineAfter(kPatience)), 1U);
  EXPECT_EQ(AsText(out[0].message), "last words");
  EXPECT_EQ(WaitForEnd(*pair.client).code(), Code::kDisconnected);
}

TEST(Fault, ConnectsFailAsPlanned) {
  const auto transport = Wrap(shm::MakeTransport(), Plan{.seed = 1, .fail_connect = 10'000});
  EXPECT_EQ(transport->kind(), Kind::kShm);
  const auto listener = transport->Listen({Kind::kShm, "", 0});
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(
      transport->Connect((*listener)->endpoint(), Domain::Create("d"), {}, DeadlineAfter(kPatience))
          .status()
          .code(),
      Code::kUnavailable);
}

}  // namespace
}  // namespace rdfs::transport::fault
