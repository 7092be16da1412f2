// READ and WRITE: every byte, every edge, how many at once, and their order.
#include <algorithm>
#include <random>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

constexpr std::size_t kRegionBytes = 1 << 20;

struct Piece {
  std::uint64_t local, remote, length;
};

// Odd sizes, odd offsets, both ends of the regions, all of them.
const std::vector<Piece>& Pieces() {
  static const std::vector<Piece> pieces{{0, 0, 0},
                                         {kRegionBytes, kRegionBytes, 0},
                                         {0, 0, 1},
                                         {kRegionBytes - 1, 0, 1},
                                         {0, kRegionBytes - 1, 1},
                                         {3, 5, 7},
                                         {1, 4095, 4097},
                                         {4096, 8192, 4096},
                                         {77, 12'345, 65'537},
                                         {0, 1, kRegionBytes - 1},
                                         {1, 0, kRegionBytes - 1},
                                         {0, 0, kRegionBytes}};
  return pieces;
}

class OneSided : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    pair_ = Connected();
    ASSERT_TRUE(pair_.client.alive());
    readable_ = ShareFrom(pair_.server, pair_.server_domain, kRegionBytes, Access::kRemoteRead);
    writable_ = ShareFrom(pair_.server, pair_.server_domain, kRegionBytes, Access::kRemoteWrite);
    local_ = MakeRegion(pair_.client_domain, kRegionBytes, Access::kLocal);
    Announce();
  }
  void TearDown() override {
    pair_.Destroy();
    readable_ = Shared();
    writable_ = Shared();
    local_.reset();
    Conformance::TearDown();
  }
  // A descriptor works once a message that carries it has arrived.
  void Announce() {
    pair_.server.Send(AsBytes("descriptors"));
    ASSERT_TRUE(pair_.Drive([&] { return pair_.client.messages.size() == 1; }));
    pair_.client.messages.clear();
  }
  [[nodiscard]] LocalSlice Local(std::uint64_t offset, std::uint64_t length) const {
    return {local_.get(), offset, length};
  }
  [[nodiscard]] MutableByteSpan LocalBytes(std::uint64_t offset, std::uint64_t length) const {
    return local_->bytes().subspan(offset, length);
  }
  // A message there and back: what was posted before it has arrived at the server.
  void Settle() {
    pair_.client.Send(AsBytes("settle"));
    ASSERT_TRUE(pair_.Drive([&] { return !pair_.server.messages.empty(); }));
    pair_.server.messages.clear();
  }

  Pair pair_;
  Shared readable_, writable_;
  std::unique_ptr<MemoryRegion> local_;
};
RDFS_CONFORMANCE(OneSided);

TEST_P(OneSided, ReadsBringEveryByteAndTouchNoOther) {
  Fill(readable_.region->bytes(), 11);
  for (const Piece& piece : Pieces()) {
    Bytes expected = Pattern(kRegionBytes, 12);
    Fill(local_->bytes(), 12);
    std::ranges::copy(readable_.region->bytes().subspan(piece.remote, piece.length),
                      expected.begin() + static_cast<std::ptrdiff_t>(piece.local));
    const Ticket ticket =
        pair_.client.Read(Local(piece.local, piece.length), {readable_.remote, piece.remote});
    const Status status = pair_.Finish(ticket);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(Equal(local_->bytes(), expected))
        << piece.length << " bytes from " << piece.remote << " to " << piece.local;
  }
}

TEST_P(OneSided, WritesBringEveryByteAndTouchNoOther) {
  Fill(local_->bytes(), 21);
  for (const Piece& piece : Pieces()) {
    Bytes expected = Pattern(kRegionBytes, 22);
    Fill(writable_.region->bytes(), 22);
    std::ranges::copy(LocalBytes(piece.local, piece.length),
                      expected.begin() + static_cast<std::ptrdiff_t>(piece.remote));
    const Ticket ticket =
        pair_.client.Write(Local(piece.local, piece.length), {writable_.remote, piece.remote});
    const Status status = pair_.Finish(ticket);
    ASSERT_TRUE(status.ok()) << status.ToString();
    Settle();
    EXPECT_TRUE(Equal(writable_.region->bytes(), expected))
        << piece.length << " bytes from " << piece.local << " to " << piece.remote;
  }
}

TEST_P(OneSided, APartOfARegionIsARemoteRegionToo) {
  Fill(readable_.region->bytes(), 31);
  RemoteRegion part = readable_.remote;
  part.address += 4096;
  part.length = 8192;
  ASSERT_TRUE(pair_.Finish(pair_.client.Read(Local(0, 100), {part, 50})).ok());
  EXPECT_TRUE(Equal(LocalBytes(0, 100), readable_.region->bytes().subspan(4096 + 50, 100)));
}

TEST_P(OneSided, AMessageBehindAWriteFindsItsBytes) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::size_t size = 1 + (i * 7919) % kRegionBytes;
    Fill(LocalBytes(0, size), i);
    const Ticket ticket = pair_.client.Write(Local(0, size), {writable_.remote, 0});
    pair_.client.Send(AsBytes("look"));
    ASSERT_TRUE(pair_.client->Flush().ok());
    bool same = false;
    ASSERT_TRUE(pair_.Drive([&] {
      if (!pair_.server.messages.empty()) {
        same = Equal(writable_.region->bytes().first(size), Pattern(size, i));
        pair_.server.messages.clear();
        return true;
      }
      return false;
    }));
    ASSERT_TRUE(same) << "round " << i << ", " << size << " bytes";
    ASSERT_TRUE(pair_.Finish(ticket).ok());
  }
}

TEST_P(OneSided, AsManyAsPromisedAreInFlightAndNoMore) {
  if (subject().injects_busy) return;  // not promised here: this subject is busy whenever it likes
  Fill(readable_.region->bytes(), 41);
  const std::uint32_t depth = pair_.client->capabilities().max_outstanding;
  std::set<Ticket> tickets;
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < depth; ++i) {
      const LocalSlice local = Local(i * 64, 64);
      const auto ticket = i % 2 == 0 ? pair_.client->Read(local, {readable_.remote, i * 64})
                                     : pair_.client->Write(local, {writable_.remote, i * 64});
      ASSERT_TRUE(ticket.ok()) << "number " << i << ": " << ticket.status().ToString();
      EXPECT_TRUE(tickets.insert(*ticket).second);
    }
    EXPECT_EQ(pair_.client->Read(Local(0, 1), {readable_.remote, 0}).status().code(), Code::kBusy);
    EXPECT_EQ(pair_.client->Write(Local(0, 1), {writable_.remote, 0}).status().code(), Code::kBusy);
    std::size_t completed = 0;
    const Deadline deadline = DeadlineAfter(kPatience);
    while (completed < depth && BootClock::now() < deadline) {
      std::array<Completion, 7> out;
      const auto count = pair_.client->Poll(out);
      ASSERT_TRUE(count.ok()) << count.status().ToString();
      for (std::size_t i = 0; i < *count; ++i) {
        EXPECT_TRUE(out[i].status.ok()) << out[i].status.ToString();
        EXPECT_EQ(tickets.erase(out[i].ticket), 1U) << "completed twice";
      }
      completed += *count;
      (void)pair_.server.Step();
    }
    ASSERT_EQ(completed, depth);
    EXPECT_TRUE(tickets.empty());
  }
}

TEST_P(OneSided, AReadAfterEarlierReadsSeesNoOlderBytes) {
  // What the block pool rests on: data, then its generation. The server changes the generation
  // first and the data after it, so data that is newer than its generation would show.
  std::mt19937_64 random(51);
  const MutableByteSpan memory = readable_.region->bytes();
  for (std::uint64_t version = 1; version <= 200; ++version) {
    const std::size_t size = 64 + random() % 100'000;
    const Ticket data = pair_.client.Read(Local(64, size), {readable_.remote, 64});
    const Ticket generation =
        pair_.client.Read(Local(0, 8), {readable_.remote, 0}, Order::kAfterEarlierReads);
    ASSERT_TRUE(pair_.client->Flush().ok());
    if (version % 2 == 0) (void)pair_.server.Step();
    const Le64 number(version);
    std::ranges::copy(std::as_bytes(std::span(&number, 1)), memory.begin());
    std::ranges::fill(memory.subspan(64, size), static_cast<std::byte>(version));
    ASSERT_TRUE(pair_.Finish(data).ok());
    ASSERT_TRUE(pair_.Finish(generation).ok());
    ByteReader reader(LocalBytes(0, 8));
    const std::uint64_t seen = reader.Read<Le64>();
    if (seen == version) continue;  // data of either version is told apart by its generation
    EXPECT_EQ(seen, version - 1);
    const MutableByteSpan bytes = LocalBytes(64, size);
    EXPECT_TRUE(std::ranges::none_of(
        bytes, [&](std::byte b) { return b == static_cast<std::byte>(version); }))
        << "bytes of version " << version << " beside generation " << seen;
  }
}

TEST_P(OneSided, SlicesThatCannotBeAreRefusedHere) {
  const auto other_domain = Domain::Create("other");
  const auto foreign = MakeRegion(other_domain, 4096, Access::kLocal);
  const RemoteSlice from{readable_.remote, 0};
  const RemoteSlice to{writable_.remote, 0};
  for (const LocalSlice& slice :
       {LocalSlice{nullptr, 0, 1}, LocalSlice{foreign.get(), 0, 1}, Local(kRegionBytes, 1),
        Local(0, kRegionBytes + 1), Local(~std::uint64_t{0}, 2), Local(1, ~std::uint64_t{0})}) {
    const auto refusal = [](const std::function<Result<Ticket>()>& post) {
      Code code = Code::kBusy;
      while (code == Code::kBusy) code = post().status().code();  // an injected one passes
      return code;
    };
    EXPECT_EQ(refusal([&] { return pair_.client->Read(slice, from); }), Code::kInvalidArgument);
    EXPECT_EQ(refusal([&] { return pair_.client->Write(slice, to); }), Code::kInvalidArgument);
  }
  EXPECT_EQ(pair_.client->Share(*foreign).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pair_.client->Share(*local_).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(pair_.Finish(pair_.client.Read(Local(0, 1), from)).ok());
}

TEST_P(OneSided, SharingAgainReturnsTheSameDescriptor) {
  const auto again = pair_.server->Share(*readable_.region);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->key, readable_.remote.key);
  EXPECT_EQ(again->address, readable_.remote.address);
  EXPECT_EQ(again->length, readable_.region->size());
}

TEST_P(OneSided, BothEndsShareAndBothReadAndWrite) {
  const Shared mine = ShareFrom(pair_.client, pair_.client_domain, 65'536, Access::kRemoteRead);
  const auto theirs = MakeRegion(pair_.server_domain, 65'536, Access::kLocal);
  Fill(mine.region->bytes(), 61);
  Fill(readable_.region->bytes(), 62);
  pair_.client.Send(AsBytes("descriptors"));
  ASSERT_TRUE(pair_.Drive([&] { return !pair_.server.messages.empty(); }));
  const Ticket there = pair_.client.Read(Local(0, 65'536), {readable_.remote, 0});
  const Ticket back = pair_.server.Read({theirs.get(), 0, 65'536}, {mine.remote, 0});
  ASSERT_TRUE(pair_.Drive([&] { return pair_.client.Done(there) && pair_.server.Done(back); }));
  EXPECT_TRUE(Equal(LocalBytes(0, 65'536), Pattern(65'536, 62)));
  EXPECT_TRUE(Equal(theirs->bytes(), Pattern(65'536, 61)));
  pair_.client.Destroy();  // `mine` and `theirs` end before the fixture's connections do
  pair_.server.Destroy();
}

}  // namespace
}  // namespace rdfs::transport::conformance
