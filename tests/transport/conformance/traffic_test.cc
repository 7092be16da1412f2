// Everything at once: transfers that cross, and random schedules whose every byte is compared.
#include <algorithm>
#include <random>
#include <thread>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

class Traffic : public Conformance {};
RDFS_CONFORMANCE(Traffic);

// One end of a connection whose two ends do the same to each other.
struct Side {
  End* end = nullptr;
  std::shared_ptr<Domain> domain;
  Shared offered;  // readable by the peer
  Shared staging;  // writable by the peer
  std::unique_ptr<MemoryRegion> local;
  RemoteRegion peer_offered, peer_staging;
};

Side MakeSide(End& end, const std::shared_ptr<Domain>& domain, std::size_t size) {
  Side side;
  side.end = &end;
  side.domain = domain;
  side.offered = ShareFrom(end, domain, size, Access::kRemoteRead);
  side.staging = ShareFrom(end, domain, size, Access::kRemoteWrite);
  side.local = MakeRegion(domain, size, Access::kLocal);
  const std::array<RemoteRegionWire, 2> wire{RemoteRegionWire::From(side.offered.remote),
                                             RemoteRegionWire::From(side.staging.remote)};
  end.Send(std::as_bytes(std::span(wire)));
  return side;
}

void LearnPeer(Side& side) {
  ByteReader reader(side.end->messages.front());
  side.peer_offered = reader.Read<RemoteRegionWire>().ToRegion();
  side.peer_staging = reader.Read<RemoteRegionWire>().ToRegion();
  EXPECT_TRUE(reader.ok());
  side.end->messages.pop_front();
}

std::array<Side, 2> MakeSides(Pair& pair, std::size_t size) {
  std::array<Side, 2> sides{MakeSide(pair.client, pair.client_domain, size),
                            MakeSide(pair.server, pair.server_domain, size)};
  EXPECT_TRUE(
      pair.Drive([&] { return !pair.client.messages.empty() && !pair.server.messages.empty(); }));
  for (Side& side : sides) LearnPeer(side);
  return sides;
}

TEST_P(Traffic, BigTransfersAndMessagesCrossWithoutWaitingForEachOther) {
  constexpr std::size_t kBytes = 32 << 20;  // far more than sockets and rings hold
  constexpr std::size_t kMessages = 100;
  Pair pair = Connected();
  {
    std::array<Side, 2> sides = MakeSides(pair, kBytes);
    std::vector<std::pair<End*, Ticket>> tickets;
    const std::uint64_t most = pair.client->capabilities().max_transfer_bytes;
    const std::size_t step = std::min<std::size_t>(kBytes / 4, most);
    for (std::size_t s = 0; s < 2; ++s) {
      Side& side = sides[s];
      Fill(side.offered.region->bytes(), s);
      Fill(side.local->bytes().first(kBytes / 2), 10 + s);
    }
    for (std::size_t at = 0; at < kBytes / 2; at += step) {
      for (Side& side : sides) {  // the first half is written, the second half is read into
        const std::size_t size = std::min(step, kBytes / 2 - at);
        tickets.emplace_back(
            side.end, side.end->Write({side.local.get(), at, size}, {side.peer_staging, at}));
        tickets.emplace_back(side.end, side.end->Read({side.local.get(), kBytes / 2 + at, size},
                                                      {side.peer_offered, at}));
        for (std::size_t i = 0; i < kMessages / 4; ++i) side.end->Send(Pattern(1000, i));
      }
    }
    ASSERT_TRUE(pair.Drive([&] {
      return std::ranges::all_of(tickets, [](const auto& t) { return t.first->Done(t.second); }) &&
             pair.client.messages.size() >= kMessages / 4 &&
             pair.server.messages.size() >= kMessages / 4;
    }));
    // A WRITE's completion frees its source; behind a message its bytes are there for certain.
    for (Side& side : sides) side.end->Send(AsBytes("written"));
    const auto told = [](const Side& side) {
      return !side.end->messages.empty() && AsText(side.end->messages.back()) == "written";
    };
    ASSERT_TRUE(pair.Drive([&] { return told(sides[0]) && told(sides[1]); }));
    for (const auto& [end, ticket] : tickets) EXPECT_TRUE(end->StatusOf(ticket).ok());
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_TRUE(Equal(sides[s].local->bytes().subspan(kBytes / 2), Pattern(kBytes / 2, 1 - s)));
      EXPECT_TRUE(Equal(sides[s].staging.region->bytes().first(kBytes / 2),
                        Pattern(kBytes / 2, 10 + (1 - s))));
    }
    pair.Destroy();
  }
}

// A schedule of messages, READs and WRITEs from both ends, drawn from a seed. Each side divides its
// memory into cells; a cell has one operation at a time, and a shadow copy says what it must hold.
class Schedule {
 public:
  static constexpr std::size_t kCells = 64;
  static constexpr std::size_t kCellBytes = 8192;

  Schedule(Pair& pair, std::uint64_t seed)
      : pair_(pair), random_(seed), sides_(MakeSides(pair, kCells * kCellBytes)) {
    for (std::size_t s = 0; s < 2; ++s) {
      Fill(sides_[s].offered.region->bytes(), seed + s);
      written_[s].resize(kCells * kCellBytes);
    }
  }

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      Post(random_() % 2);
      if (random_() % 4 == 0) (void)pair_.client.Step();
      if (random_() % 4 == 0) (void)pair_.server.Step();
      Check();
    }
    EXPECT_TRUE(pair_.Drive([&] {
      Check();
      return pending_[0].empty() && pending_[1].empty() && sent_[0] == received_[1] &&
             sent_[1] == received_[0];
    }));
    CheckStaging();
  }

 private:
  struct Pending {
    std::size_t cell, offset, length;
    bool read;
    std::uint64_t seed;
  };

  void Post(std::size_t s) {
    Side& side = sides_[s];
    const std::uint64_t dice = random_() % 10;
    if (dice < 3) {
      side.end->Send(Pattern(random_() % 3000, (s << 32U) + sent_[s]++));
      return;
    }
    const std::size_t cell = random_() % kCells;
    if (busy_[s].contains(cell)) return;
    const std::size_t offset = random_() % kCellBytes;
    const std::size_t length = random_() % (kCellBytes - offset + 1);
    const std::uint64_t place = cell * kCellBytes + offset;
    const bool read = dice < 7;
    const LocalSlice local{side.local.get(), place, length};
    const std::uint64_t seed = random_();
    Fill(side.local->bytes().subspan(place, length), seed);
    const Ticket ticket = read ? side.end->Read(local, {side.peer_offered, place})
                               : side.end->Write(local, {side.peer_staging, place});
    if (!read)
      std::ranges::copy(side.local->bytes().subspan(place, length),
                        written_[s].begin() + static_cast<std::ptrdiff_t>(place));
    busy_[s].insert(cell);
    pending_[s].emplace(ticket, Pending{cell, offset, length, read, seed});
  }

  void Check() {
    for (std::size_t s = 0; s < 2; ++s) {
      CheckMessages(s);
      for (auto it = pending_[s].begin(); it != pending_[s].end();) {
        if (!sides_[s].end->Done(it->first)) {
          ++it;
          continue;
        }
        CheckCell(s, it->first, it->second);
        busy_[s].erase(it->second.cell);
        it = pending_[s].erase(it);
      }
    }
  }

  void CheckMessages(std::size_t s) {
    auto& messages = sides_[s].end->messages;
    for (; !messages.empty(); messages.pop_front()) {
      const std::uint64_t number = received_[s]++;
      EXPECT_TRUE(
          Equal(messages.front(), Pattern(messages.front().size(), ((1 - s) << 32U) + number)));
    }
  }

  void CheckCell(std::size_t s, Ticket ticket, const Pending& pending) {
    EXPECT_TRUE(sides_[s].end->StatusOf(ticket).ok());
    const std::size_t place = pending.cell * kCellBytes + pending.offset;
    const ByteSpan local = sides_[s].local->bytes().subspan(place, pending.length);
    if (pending.read) {
      EXPECT_TRUE(
          Equal(local, sides_[1 - s].offered.region->bytes().subspan(place, pending.length)));
      return;
    }
    EXPECT_TRUE(Equal(local, Pattern(pending.length, pending.seed))) << "the source changed";
  }

  // Every WRITE, once a message that was sent behind all of them has arrived.
  void CheckStaging() {
    for (std::size_t s = 0; s < 2; ++s) {
      sides_[s].end->Send(Pattern(1, (s << 32U) + sent_[s]++));
    }
    EXPECT_TRUE(pair_.Drive([&] {
      Check();
      return sent_[0] == received_[1] && sent_[1] == received_[0];
    }));
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_TRUE(Equal(sides_[1 - s].staging.region->bytes(), written_[s]));
    }
  }

  Pair& pair_;
  std::mt19937_64 random_;
  std::array<Side, 2> sides_;
  std::array<std::map<Ticket, Pending>, 2> pending_;
  std::array<std::set<std::size_t>, 2> busy_;
  std::array<Bytes, 2> written_;  // what the peer's staging must hold
  std::array<std::uint64_t, 2> sent_{};
  std::array<std::uint64_t, 2> received_{};
};

TEST_P(Traffic, RandomSchedulesDeliverEveryByte) {
  for (std::uint64_t seed = 1; seed <= 5 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair pair = Connected();
    Schedule schedule(pair, seed);
    schedule.Run(2'000);
    pair.Destroy();
  }
}

TEST_P(Traffic, ManyConnectionsOnTheirOwnThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kRounds = 200;
  constexpr std::size_t kBytes = 64 * 1024;
  Pair pair = Connected();
  Shared shared = ShareFrom(pair.server, pair.server_domain, kBytes, Access::kRemoteRead);
  Fill(shared.region->bytes(), 3);
  std::vector<End> clients(kThreads), servers(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) ConnectAgain(pair, clients[i], servers[i]);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {  // the server of connection i: one region for all of them
      const auto remote = servers[i]->Share(*shared.region);
      ASSERT_TRUE(remote.ok());
      const auto wire = RemoteRegionWire::From(*remote);
      servers[i].Send(std::as_bytes(std::span(&wire, 1)));
      (void)DriveUntil({&servers[i]}, [&] { return !servers[i].messages.empty(); });
    });
    threads.emplace_back([&, i] {
      End& end = clients[i];
      ASSERT_TRUE(DriveUntil({&end}, [&] { return !end.messages.empty(); }));
      ByteReader reader(end.messages[0]);
      const RemoteRegion remote = reader.Read<RemoteRegionWire>().ToRegion();
      const auto local = MakeRegion(pair.client_domain, kBytes, Access::kLocal);
      for (std::size_t round = 0; round < kRounds; ++round) {
        const std::size_t size = 1 + (round * 331 + i) % kBytes;
        Fill(local->bytes().first(size), 1000 + round);
        const Ticket ticket = end.Read({local.get(), 0, size}, {remote, 0});
        ASSERT_TRUE(DriveUntil({&end}, [&] { return end.Done(ticket); }));
        ASSERT_TRUE(end.StatusOf(ticket).ok());
        ASSERT_TRUE(Equal(local->bytes().first(size), shared.region->bytes().first(size)));
      }
      end.Send(AsBytes("done"));
      ASSERT_TRUE(end->Flush().ok());
      (void)DriveUntil({&end}, [&] { return end->backlog_bytes() == 0; });
      (void)end.Step();
      clients[i].messages.clear();
      // The region `local` ends here: nothing is in flight on it.
    });
  }
  threads.clear();
  clients.clear();
  servers.clear();
  pair.Destroy();
}

}  // namespace
}  // namespace rdfs::transport::conformance
