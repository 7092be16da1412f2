// What a peer did not share, nobody reaches: keys, bounds, access, domains, Unshare.
//
// Over verbs the hardware ends the connection on such an access (ibv_post_send(3)); elsewhere the
// operation completes with an error and the connection goes on. Nowhere is memory touched.
#include <algorithm>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

constexpr std::size_t kRegionBytes = 64 * 1024;
constexpr std::uint64_t kSeed = 5;

class Refusal : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    pair_ = Connected();
    ASSERT_TRUE(pair_.client.alive());
    local_ = MakeRegion(pair_.client_domain, 2 * kRegionBytes, Access::kLocal);
    readable_ = Offer(Access::kRemoteRead);
    writable_ = Offer(Access::kRemoteWrite);
  }
  void TearDown() override {
    pair_.Destroy();
    readable_ = Shared();
    writable_ = Shared();
    local_.reset();
    Conformance::TearDown();
  }
  // Shares a region of the server's that holds a pattern, and lets the descriptor arrive.
  Shared Offer(Access access) {
    Shared shared = ShareFrom(pair_.server, pair_.server_domain, kRegionBytes, access);
    Fill(shared.region->bytes(), kSeed);
    pair_.server.Send(AsBytes("descriptor"));
    EXPECT_TRUE(pair_.Drive([&] { return !pair_.client.messages.empty(); }));
    pair_.client.messages.clear();
    return shared;
  }
  [[nodiscard]] static bool EndsConnection() { return subject().listen.kind == Kind::kVerbs; }
  // Expects `ticket` of `end` to be refused, and a new connection where that ends this one.
  void ExpectRefused(Ticket ticket, const std::string& what) {
    const Status status = pair_.Finish(ticket);
    if (EndsConnection()) {
      // A WRITE may have completed: on iWARP it does when the wire has taken it.
      EXPECT_TRUE(pair_.Drive([&] { return !pair_.client.alive(); })) << what;
      EXPECT_FALSE(pair_.client.over().message().empty()) << what;
      ConnectAgain(pair_, pair_.client, pair_.server);
      readable_ = Offer(Access::kRemoteRead);
      writable_ = Offer(Access::kRemoteWrite);
      return;
    }
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_FALSE(status.message().empty()) << what;
    EXPECT_EQ(status.scope(), Scope::kRequest) << what << ": " << status.ToString();
    EXPECT_EQ(status.errno_value(), EACCES) << what << ": " << status.ToString();
    EXPECT_TRUE(pair_.client.alive() && pair_.server.alive()) << what;
  }
  [[nodiscard]] LocalSlice Local(std::uint64_t length) const { return {local_.get(), 0, length}; }
  [[nodiscard]] static bool Untouched(const MemoryRegion& region) {
    return Equal(region.bytes(), Pattern(region.size(), kSeed));
  }

  Pair pair_;
  Shared readable_, writable_;
  std::unique_ptr<MemoryRegion> local_;
};
RDFS_CONFORMANCE(Refusal);

TEST_P(Refusal, AKeyThatNobodyGaveOut) {
  RemoteRegion unknown = readable_.remote;
  unknown.key ^= 0x5a5a;
  ExpectRefused(pair_.client.Read(Local(100), {unknown, 0}), "read");
  unknown = writable_.remote;
  unknown.key ^= 0x5a5a;
  ExpectRefused(pair_.client.Write(Local(100), {unknown, 0}), "write");
  EXPECT_TRUE(Untouched(*writable_.region));
}

TEST_P(Refusal, OneByteBeyondTheEnd) {
  ExpectRefused(pair_.client.Read(Local(1), {readable_.remote, kRegionBytes}), "read of one byte");
  ExpectRefused(pair_.client.Read(Local(100), {readable_.remote, kRegionBytes - 99}), "read");
  ExpectRefused(pair_.client.Read(Local(kRegionBytes + 1), {readable_.remote, 0}), "read of all");
  const Shared victim = Offer(Access::kRemoteWrite);
  ExpectRefused(pair_.client.Write(Local(1), {victim.remote, kRegionBytes}), "write of one byte");
  EXPECT_TRUE(Untouched(*victim.region));
}

TEST_P(Refusal, AWriteThatBeginsInsideAndEndsOutsideOverStreamTransportsWritesNothing) {
  if (EndsConnection())
    return;  // not promised here: the device may have placed the packets that were inside
  ExpectRefused(pair_.client.Write(Local(100), {writable_.remote, kRegionBytes - 99}), "write");
  ExpectRefused(pair_.client.Write(Local(kRegionBytes + 1), {writable_.remote, 0}), "all");
  EXPECT_TRUE(Untouched(*writable_.region));
}

TEST_P(Refusal, OffsetsThatOverflow) {
  ExpectRefused(pair_.client.Read(Local(16), {readable_.remote, ~std::uint64_t{0} - 7}), "read");
  RemoteRegion high = readable_.remote;
  high.address = ~std::uint64_t{0} - 8;
  ExpectRefused(pair_.client.Read(Local(16), {high, 16}), "read behind the end of the addresses");
  high = writable_.remote;
  high.address = ~std::uint64_t{0} - 8;
  ExpectRefused(pair_.client.Write(Local(16), {high, 16}), "write");
}

TEST_P(Refusal, TheWrongAccess) {
  const Shared read_only = Offer(Access::kRemoteRead);
  ExpectRefused(pair_.client.Write(Local(100), {read_only.remote, 0}), "write to what is readable");
  EXPECT_TRUE(Untouched(*read_only.region));
  if (!subject().refuses_reads_by_access) return;
  Fill(local_->bytes(), 99);
  ExpectRefused(pair_.client.Read(Local(100), {writable_.remote, 0}), "read of what is writable");
  EXPECT_TRUE(Equal(local_->bytes(), Pattern(local_->size(), 99)));
}

TEST_P(Refusal, ARegionOfAnotherDomain) {
  const auto other_domain = Domain::Create("other");
  auto other_region = MakeRegion(other_domain, kRegionBytes, Access::kRemoteWrite);
  Fill(other_region->bytes(), kSeed);
  // Shared with a client of the other domain, and so with nobody else.
  const auto server_domain = std::exchange(pair_.server_domain, other_domain);
  End client, server;
  ConnectAgain(pair_, client, server);
  pair_.server_domain = server_domain;
  const auto remote = server->Share(*other_region);
  ASSERT_TRUE(remote.ok()) << remote.status().ToString();
  EXPECT_EQ(pair_.server->Share(*other_region).status().code(), Code::kInvalidArgument);
  ExpectRefused(pair_.client.Write(Local(100), {*remote, 0}), "write");
  EXPECT_TRUE(Untouched(*other_region));
  client.Destroy();
  server.Destroy();
}

TEST_P(Refusal, WhatIsNoLongerShared) {
  ASSERT_TRUE(pair_.Finish(pair_.client.Read(Local(100), {readable_.remote, 0})).ok());
  if (!EndsConnection()) {
    const Shared other = Offer(Access::kRemoteRead);
    pair_.server->Unshare(*other.region);
    pair_.server->Unshare(*other.region);  // once more does no harm
    ExpectRefused(pair_.client.Read(Local(100), {other.remote, 0}), "read after Unshare");
  }
  // Not read before: over shm a mapping that the peer has lasts while it keeps it.
  Shared ending = Offer(Access::kRemoteRead);
  ending.region.reset();
  ExpectRefused(pair_.client.Read(Local(100), {ending.remote, 0}), "read of an ended region");
  ASSERT_TRUE(pair_.Finish(pair_.client.Write(Local(100), {writable_.remote, 0})).ok());
}

TEST_P(Refusal, AmongManyThatAreFine) {
  if (EndsConnection()) return;  // not promised here: a refusal ends the connection here
  Fill(local_->bytes(), 7);
  RemoteRegion unknown = writable_.remote;
  unknown.key ^= 1;
  std::vector<std::pair<Ticket, bool>> expected;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const bool fine = i % 3 != 0;
    const LocalSlice slice{local_.get(), i * 128, 128};
    const bool read = i % 2 == 0;
    const RemoteRegion& region = fine ? (read ? readable_.remote : writable_.remote) : unknown;
    const RemoteSlice remote{region, i * 128};
    expected.emplace_back(
        read ? pair_.client.Read(slice, remote) : pair_.client.Write(slice, remote), fine);
  }
  ASSERT_TRUE(pair_.Drive([&] { return pair_.client.done_count() == expected.size(); }));
  for (const auto& [ticket, fine] : expected) {
    EXPECT_EQ(pair_.client.StatusOf(ticket).ok(), fine);
  }
  for (std::uint64_t i = 0; i < 300; ++i) {  // each write, and only those
    const bool written = i % 3 != 0 && i % 2 == 1;
    const ByteSpan piece = writable_.region->bytes().subspan(i * 128, 128);
    const Bytes pattern = written ? Pattern(kRegionBytes * 2, 7) : Pattern(kRegionBytes, kSeed);
    EXPECT_TRUE(Equal(piece, ByteSpan(pattern).subspan(i * 128, 128))) << i;
  }
}

}  // namespace
}  // namespace rdfs::transport::conformance
