// A lane against a scripted peer: grants, staging, answers that no correct server gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "tests/fs/client/scripted_fixture.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Reply = ScriptedServer::Reply;
using Request = ScriptedServer::Request;

constexpr std::size_t kExtent = ScriptedServer::kExtentBytes;

class LaneTest : public ScriptedTest {
 protected:
  // Answers the next request of `opcode` as `change` says, once.
  void ChangeNext(Opcode opcode, std::function<void(Reply&)> change) {
    auto done = std::make_shared<bool>(false);
    server_.SetHook(
        [opcode, change = std::move(change), done](const Request& request, Reply& reply) {
          if (request.opcode != opcode || *done) return;
          *done = true;
          change(reply);
        });
  }
  static const LatencyHistogram& Took(const Counters& counters, Opcode opcode) {
    return counters.took[static_cast<std::size_t>(opcode)];
  }
};

TEST_F(LaneTest, ReadsGrantedExtentsWithoutFurtherMessages) {
  const OpenPtr open = Open();
  ExpectFile(client_->Read(open, 100, kExtent), 100);
  EXPECT_EQ(server_.Count(Opcode::kRead), 1U);
  ExpectFile(client_->Read(open, 5000, 3 * kExtent / 2), 5000);
  EXPECT_EQ(server_.Count(Opcode::kRead), 1U);
  ExpectFile(client_->Read(open, 5000, 2 * kExtent), 5000);  // the third extent is not granted
  EXPECT_EQ(server_.Count(Opcode::kRead), 2U);
  EXPECT_EQ(mount_->counters().grant_hits, 1U);
  EXPECT_EQ(mount_->counters().inline_read_bytes, 0U);
}

// A page that leads back to where it was asked for would come again and again.
TEST_F(LaneTest, ADirectoryThatLeadsNowhereIsNotRead) {
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode != Opcode::kReadDir) return;
    reply.body.resize(100);
    ByteWriter writer(reply.body);
    writer.Write(DirEntryWire{.ino = 1, .cookie = 7, .type = 4});
    writer.WriteSized16(AsBytes("."));
    reply.body.resize(writer.size());
  });
  EXPECT_EQ(client_->List(root_).status().errno_value(), EIO);
  EXPECT_EQ(server_.Count(Opcode::kReadDir), 2U);
  EXPECT_EQ(server_.Count(Opcode::kReleaseDir), 1U);
}

TEST_F(LaneTest, PrefetchesForASequentialReader) {
  const OpenPtr open = Open();
  for (std::size_t offset = 0; offset < ScriptedServer::kFileBytes; offset += kExtent) {
    ExpectFile(client_->Read(open, offset, kExtent, 4 * kExtent), offset);
  }
  const Counters counters = mount_->counters();
  EXPECT_GE(counters.grant_hits, 13U);  // of 16: nobody waited for a grant after the first
  EXPECT_EQ(counters.grant_misses, 1U);
  EXPECT_LE(server_.Count(Opcode::kRead), 9U);
  EXPECT_EQ(Took(counters, Opcode::kRead).count(), 16U) << "the reads, and not what runs ahead";
}

TEST_F(LaneTest, ReadsAreShortAtTheEndOfTheFileOnly) {
  const OpenPtr open = Open();
  constexpr std::size_t kSize = ScriptedServer::kFileBytes;
  for (const bool grants : {true, false}) {
    server_.grants = grants;
    EXPECT_EQ(client_->Read(open, kSize - 10, 100)->size(), 10U);
    EXPECT_EQ(client_->Read(open, kSize, 100)->size(), 0U);
    EXPECT_EQ(client_->Read(open, kSize + 5000, 100)->size(), 0U);
    EXPECT_EQ(client_->Read(open, 0, 0)->size(), 0U);
    EXPECT_EQ(client_->Read(open, 0, 2 * kSize)->size(), kSize);
  }
}

TEST_F(LaneTest, WithoutGrantsBytesComeInsideReplies) {
  server_.grants = false;
  const OpenPtr open = Open();
  ExpectFile(client_->Read(open, 1000, 200'000), 1000);
  EXPECT_EQ(server_.Count(Opcode::kRead), 4U);  // 64 KiB each
  EXPECT_EQ(mount_->counters().read_bytes, 0U);
}

TEST_F(LaneTest, AReusedExtentIsDiscardedAndAskedForAgain) {
  const OpenPtr open = Open();
  server_.generation_lie = 1;  // the word in memory is another than the granted one
  ExpectFile(client_->Read(open, 0, 1000), 0);
  const Counters counters = mount_->counters();
  EXPECT_EQ(counters.grants_discarded, 1U);
  EXPECT_EQ(counters.inline_read_bytes, 1000U);
  EXPECT_EQ(counters.connections_lost, 0U);
}

TEST_F(LaneTest, ALeaseThatIsOverIsDiscarded) {
  const OpenPtr open = Open();
  server_.lease_ms = 0;
  ExpectFile(client_->Read(open, 0, 1000), 0);
  EXPECT_EQ(mount_->counters().grants_discarded, 1U);
  ExpectFile(client_->Read(open, 0, 1000), 0);
  EXPECT_EQ(mount_->counters().grant_hits, 0U);
}

TEST_F(LaneTest, ALeaseThatHasRunOutSinceTheToldTimeIsDiscarded) {
  constexpr milliseconds kLease{30};
  const OpenPtr open = Open();
  server_.lease_ms = static_cast<std::uint32_t>(kLease.count());
  ExpectFile(client_->Read(open, 0, 1000), 0);
  const TimePoint before = BootClock::now();
  std::this_thread::sleep_for(2 * kLease);
  Lane& lane = client_->lane();
  lane.AsOf(before);
  EXPECT_EQ(lane.Now(), before);
  const std::uint64_t discarded = mount_->counters().grants_discarded;
  std::optional<Buffer> buffer = lane.buffers().Allocate(1000);
  ASSERT_TRUE(buffer);
  bool over = false;
  lane.Read({}, open, 0, buffer->Slice(0, 1000), 0, [&](const Result<ReadDone>& done) {
    EXPECT_TRUE(done.ok());
    over = true;
  });
  for (const Deadline limit = DeadlineAfter(seconds(10)); !over && BootClock::now() < limit;) {
    lane.AsOf(before);
    lane.Poll();
  }
  EXPECT_TRUE(over);
  EXPECT_GT(mount_->counters().grants_discarded, discarded);
  EXPECT_GT(lane.Now(), before + kLease) << "told for one Poll only";
}

TEST_F(LaneTest, OwnChangesAreReadAtOnceOnEveryLane) {
  std::unique_ptr<SyncClient> other = OpenClient();
  const OpenPtr open = Open();
  ASSERT_TRUE(client_->Read(open, 0, 2 * kExtent).ok());
  ASSERT_TRUE(other->Read(open, 0, 2 * kExtent).ok());
  const std::vector<std::byte> bytes(100, std::byte{0xab});
  ASSERT_TRUE(client_->Write(open, 50, bytes).ok());
  const std::size_t before = server_.Count(Opcode::kRead);
  ASSERT_TRUE(client_->Read(open, kExtent, 10).ok());  // not what was written
  EXPECT_EQ(server_.Count(Opcode::kRead), before);
  ASSERT_TRUE(client_->Read(open, 0, 10).ok());
  ASSERT_TRUE(other->Read(open, 0, 10).ok());
  EXPECT_EQ(server_.Count(Opcode::kRead), before + 2);
  SetAttributes truncate{.valid = kSetSize, .size = 0};
  (void)client_->SetAttr(file_, truncate);  // whatever it answers
  ASSERT_TRUE(client_->Read(open, kExtent, 10).ok());
  EXPECT_EQ(server_.Count(Opcode::kRead), before + 3);
}

TEST_F(LaneTest, WhatWasGrantedBeforeAnotherChangeIsNotReadOnAnyLane) {
  std::unique_ptr<SyncClient> other = OpenClient();
  const OpenPtr open = Open();
  ASSERT_TRUE(client_->Read(open, 0, 10).ok());
  ASSERT_TRUE(other->Read(open, 0, 10).ok());
  const auto now = client_->GetAttr(file_);
  ASSERT_TRUE(now.ok());
  const std::uint64_t change = now->attr.change;
  const std::size_t before = server_.Count(Opcode::kRead);
  client_->lane().SeeChange(file_, change);  // as it was opened
  ASSERT_TRUE(client_->Read(open, 0, 10).ok());
  ASSERT_TRUE(other->Read(open, 0, 10).ok());
  EXPECT_EQ(server_.Count(Opcode::kRead), before);
  for (int told = 0; told < 2; ++told) {  // the second time it is no news
    client_->lane().SeeChange(file_, change + 1);
    ASSERT_TRUE(client_->Read(open, 0, 10).ok());
    ASSERT_TRUE(other->Read(open, 0, 10).ok());
    EXPECT_EQ(server_.Count(Opcode::kRead), before + 2);
  }
  client_->lane().SeeChange(root_, change);  // nobody has it open
}

TEST_F(LaneTest, MoreWritesThanStagingSlotsTakeTurns) {
  const OpenPtr open = Open();
  constexpr int kWrites = 12;
  std::optional<Buffer> buffer = client_->lane().buffers().Allocate(kWrites * kExtent);
  ASSERT_TRUE(buffer);
  for (std::size_t i = 0; i < buffer->size(); ++i) {
    buffer->bytes()[i] = static_cast<std::byte>(i / kExtent + 1);
  }
  int ended = 0;
  bool over = false;
  for (std::size_t i = 0; i < kWrites; ++i) {
    client_->lane().Write({}, open, i * kExtent, buffer->Slice(i * kExtent, kExtent), 0,
                          [&](const Result<WriteDone>& done) {
                            EXPECT_TRUE(done.ok());
                            EXPECT_EQ(done->written, kExtent);
                            over = ++ended == kWrites;
                          });
  }
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
  const std::vector<std::byte> file = server_.file();
  EXPECT_TRUE(std::equal(file.begin(), file.begin() + kWrites * kExtent, buffer->bytes().begin()));
  EXPECT_EQ(server_.Count(Opcode::kCommit), std::size_t{kWrites});
  EXPECT_EQ(mount_->counters().written_bytes, kWrites * kExtent);
  EXPECT_EQ(Took(mount_->counters(), Opcode::kWrite).count(), std::uint64_t{kWrites});
  EXPECT_EQ(Took(mount_->counters(), Opcode::kCommit).count(), 0U) << "a part of a write";
}

TEST_F(LaneTest, CallbacksRunInsidePollOnly) {
  int ended = 0;
  const CallTicket ticket =
      client_->lane().Lookup({}, root_, "bad/name", [&](const Result<NamedFile>& got) {
        EXPECT_EQ(got.status().errno_value(), EINVAL);
        ++ended;
      });
  EXPECT_EQ(ticket, 0U);
  EXPECT_EQ(ended, 0);
  EXPECT_FALSE(client_->lane().Arm());
  client_->lane().Poll();
  EXPECT_EQ(ended, 1);
}

TEST_F(LaneTest, ErrorsArriveAsErrno) {
  for (const WireError error : {WireError::kNoSpace, WireError::kStale, WireError::kMalformed}) {
    ChangeNext(Opcode::kLookup, [error](Reply& reply) { reply.error = error; });
    const Result<NamedFile> got = client_->Lookup(root_, "file");
    EXPECT_EQ(got.status().errno_value(), ToErrno(error));
    EXPECT_EQ(got.status().code(), Code::kErrno);
  }
}

// kExtensionDirectories with `count` directories of sizes 1, 2, ..., and some bytes more.
std::vector<std::byte> TellDirectories(std::size_t count, std::size_t more = 0) {
  std::vector<std::byte> out(sizeof(ExtensionHeader) + count * sizeof(AttrWire) + more);
  ByteWriter writer(out);
  writer.Write(
      ExtensionHeader{.type = kExtensionDirectories,
                      .length = static_cast<std::uint16_t>(out.size() - sizeof(ExtensionHeader))});
  for (std::uint64_t i = 1; i <= count; ++i) {
    AttrWire attr{};
    attr.size = i;
    attr.mode = S_IFDIR | 0755;
    writer.Write(attr);
  }
  return out;
}

TEST_F(LaneTest, WhatDirectoriesAreLikeIsToldInsideTheCallbackOnly) {
  constexpr CallContext kAsks{.tell_directories = true, .trace = 4711};
  for (const std::size_t count : {0U, 1U, 2U}) {
    bool asked = false;
    server_.SetHook([&](const Request& request, Reply& reply) {
      asked = (request.header.flags & kRequestTellDirectories) != 0;
      reply.extensions = TellDirectories(count);
    });
    client::Lane& lane = client_->lane();
    bool ended = false;
    lane.Unlink(kAsks, root_, "file", [&](Status&& status) {
      EXPECT_TRUE(status.ok());
      const auto told = lane.DirectoriesTold(kAsks.trace);
      ASSERT_EQ(told.size(), count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(told[i].attr.size, i + 1);
      EXPECT_TRUE(lane.DirectoriesTold(kAsks.trace + 1).empty());
      ended = true;
    });
    while (!ended) lane.Poll();
    EXPECT_TRUE(asked);
    EXPECT_TRUE(lane.DirectoriesTold(kAsks.trace).empty());
    server_.SetHook({});
  }
  EXPECT_EQ(mount_->counters().connections_lost, 0U);
}

TEST_F(LaneTest, AServerInItsGracePeriodIsAskedAgain) {
  ChangeNext(Opcode::kMkdir, [](Reply& reply) { reply.error = WireError::kGrace; });
  EXPECT_TRUE(client_->Mkdir(root_, "dir").ok());
  EXPECT_EQ(server_.Count(Opcode::kMkdir), 2U);
}

TEST_F(LaneTest, DeadlinesEndCallsAndLateAnswersHarmNobody) {
  Mount(milliseconds(100));
  ChangeNext(Opcode::kMkdir, [](Reply& reply) { reply.send = false; });
  EXPECT_EQ(client_->Mkdir(root_, "dir").status().errno_value(), ETIMEDOUT);
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  const Counters counters = mount_->counters();
  EXPECT_EQ(counters.timeouts, 1U);
  EXPECT_EQ(counters.connections_lost, 0U);
  EXPECT_EQ(Took(counters, Opcode::kMkdir).count(), 1U);
  EXPECT_GE(Took(counters, Opcode::kMkdir).longest, milliseconds(100));
  EXPECT_EQ(Took(counters, Opcode::kLookup).count(), 1U);
  EXPECT_EQ(client_->lane().calls_in_flight(), 0U);
}

class InterruptedLock : public LaneTest, public testing::WithParamInterface<WireError> {};

// Grace: the server's word that it has not looked at it yet, and knows its number no more, crosses
// the interrupt.
INSTANTIATE_TEST_SUITE_P(Answers, InterruptedLock,
                         testing::Values(WireError::kInterrupted, WireError::kGrace));

TEST_P(InterruptedLock, EndsHoweverItIsAnswered) {
  const OpenPtr open = Open();
  server_.SetHook([lock = std::uint64_t{0}](const Request& request, Reply& reply) mutable {
    if (request.opcode == Opcode::kSetLock) lock = request.header.sequence;
    if (request.opcode != Opcode::kInterrupt) return;
    // Answers the lock; the interrupt's own answer comes never, which is the server's business.
    EXPECT_EQ(std::uint64_t{ByteReader(request.body).Read<InterruptRequest>().sequence}, lock);
    ReplyHeader header{};
    header.opcode = static_cast<std::uint16_t>(Opcode::kSetLock);
    header.error = static_cast<std::uint16_t>(GetParam());
    header.sequence = lock;
    header.epoch = 1;
    const auto bytes = std::as_bytes(std::span(&header, 1));
    reply.instead.assign(bytes.begin(), bytes.end());
  });
  bool over = false;
  Status ended;
  const CallTicket ticket = client_->lane().SetLock(
      {}, open, {.owner = 1, .end = 10, .type = LockType::kWrite}, false, true, [&](Status status) {
        ended = std::move(status);
        over = true;
      });
  EXPECT_FALSE(client_->RunUntil(over, DeadlineAfter(milliseconds(30))));
  std::jthread([&] { client_->lane().CancelFromAnyThread(ticket); });
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(10))));
  EXPECT_EQ(ended.errno_value(), EINTR);
  EXPECT_GE(Took(mount_->counters(), Opcode::kSetLock).longest, milliseconds(30));
  client_->lane().Cancel(ticket);  // names nothing any more
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
}

TEST_F(LaneTest, AnAbandonedCallEndsThoughTheServerIsSilent) {
  ChangeNext(Opcode::kMkdir, [](Reply& reply) { reply.send = false; });
  bool over = false;
  Status ended;
  const CallTicket ticket =
      client_->lane().Mkdir({}, root_, "dir", 0755, 0, [&](Result<NamedFile>&& made) {
        ended = made.status();
        over = true;
      });
  EXPECT_FALSE(client_->RunUntil(over, DeadlineAfter(milliseconds(30))));
  client_->lane().Cancel(ticket);  // the server may still do it: not over
  EXPECT_FALSE(client_->RunUntil(over, DeadlineAfter(milliseconds(30))));
  client_->lane().Abandon(ticket);
  client_->lane().Abandon(ticket);
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(10))));
  EXPECT_EQ(ended.errno_value(), EINTR);
  EXPECT_EQ(client_->lane().calls_in_flight(), 0U);
  client_->lane().Abandon(ticket);  // names nothing any more
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
}

TEST_F(LaneTest, ALaneThatGoesEndsItsCalls) {
  const OpenPtr open = Open();
  std::unique_ptr<SyncClient> other = OpenClient();
  int ended = 0;
  other->lane().SetLock({}, open, {.end = 10, .type = LockType::kWrite}, false, true,
                        [&](const Status& status) {
                          EXPECT_EQ(status.errno_value(), EIO);
                          ++ended;
                        });
  other->lane().Lookup({}, root_, "file", [&](const Result<NamedFile>&) { ++ended; });
  other->lane().Flush();
  other.reset();
  EXPECT_EQ(ended, 2);
}

// Each of these ends the connection, or fails the call, and never more: the next call works.
class HostileTest : public LaneTest {
 protected:
  void ExpectRecovery(std::uint64_t lost) {
    server_.SetHook({});
    server_.grants = true;
    EXPECT_TRUE(client_->Lookup(root_, "file").ok());
    EXPECT_EQ(mount_->counters().connections_lost, lost);
    EXPECT_EQ(server_.misdeeds(), 0U);
  }
};

TEST_F(HostileTest, AnswersToNothing) {
  ChangeNext(Opcode::kLookup, [](Reply& reply) { reply.sequence = 4711; });
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  ExpectRecovery(1);
}

TEST_F(HostileTest, AnswersGivenTwice) {
  ChangeNext(Opcode::kLookup, [](Reply& reply) { reply.times = 2; });
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  ExpectRecovery(1);
}

TEST_F(HostileTest, BytesThatAreNoMessage) {
  for (std::uint64_t round = 1; round <= 3; ++round) {
    ChangeNext(Opcode::kLookup, [round](Reply& reply) {
      reply.instead.assign(round * 11, static_cast<std::byte>(0xee));
    });
    EXPECT_TRUE(client_->Lookup(root_, "file").ok());
    EXPECT_EQ(mount_->counters().connections_lost, round);
  }
}

TEST_F(HostileTest, BodiesOfAnotherLength) {
  std::uint64_t lost = 0;
  for (const int change : {-1, 1}) {
    ChangeNext(Opcode::kLookup, [change](Reply& reply) {
      reply.body.resize(reply.body.size() + static_cast<std::size_t>(change));
    });
    const Result<NamedFile> got = client_->Lookup(root_, "file");
    EXPECT_EQ(got.status().errno_value(), EIO);
    EXPECT_EQ(got.status().code(), Code::kProtocolError);
    ExpectRecovery(++lost);
  }
}

TEST_F(HostileTest, DirectoriesThatNobodyAskedFor) {
  std::uint64_t lost = 0;
  const auto expect_hostile = [&](bool asks, std::size_t count, std::size_t more) {
    client_->context().tell_directories = asks;
    ChangeNext(Opcode::kMkdir,
               [&](Reply& reply) { reply.extensions = TellDirectories(count, more); });
    EXPECT_EQ(client_->Mkdir(root_, "dir").status().code(), Code::kProtocolError);
    ExpectRecovery(++lost);
  };
  expect_hostile(false, 1, 0);
  expect_hostile(true, 3, 0);
  expect_hostile(true, 1, 1);
}

TEST_F(HostileTest, GrantsThatNobodyMayGive) {
  const OpenPtr open = Open();
  using Change = void (*)(GrantWire&);
  constexpr std::array<Change, 9> kChanges = {
      [](GrantWire& grant) { grant.arena = 99; },
      [](GrantWire& grant) { grant.generation_arena = 99; },
      [](GrantWire& grant) { grant.arena_offset = ScriptedServer::kFileBytes - 1; },
      [](GrantWire& grant) { grant.arena_offset = UINT64_MAX - 10; },
      [](GrantWire& grant) { grant.generation_offset = UINT64_MAX - 3; },
      [](GrantWire& grant) { grant.length = 0; },
      [](GrantWire& grant) { grant.length = UINT32_MAX; },
      [](GrantWire& grant) { grant.file_offset = UINT64_MAX - 5; },
      [](GrantWire& grant) { grant.generation = 0; }};
  std::uint64_t lost = 0;
  for (const Change change : kChanges) {
    ChangeNext(Opcode::kRead, [change](Reply& reply) {
      GrantWire grant;
      std::memcpy(&grant, reply.body.data() + sizeof(ReadReply), sizeof(grant));
      change(grant);
      std::memcpy(reply.body.data() + sizeof(ReadReply), &grant, sizeof(grant));
    });
    EXPECT_EQ(client_->Read(open, 0, 100).status().errno_value(), EIO) << lost;
    ExpectRecovery(++lost);
  }
}

TEST_F(HostileTest, MoreBytesThanAskedFor) {
  server_.grants = false;
  const OpenPtr open = Open();
  ChangeNext(Opcode::kRead, [](Reply& reply) {
    const Le32 length = 200;
    std::memcpy(reply.body.data() + sizeof(ReadReply), &length, sizeof(length));
    reply.body.resize(sizeof(ReadReply) + sizeof(length) + 200);
  });
  EXPECT_EQ(client_->Read(open, 0, 100).status().errno_value(), EIO);
  ExpectRecovery(1);
}

TEST_F(HostileTest, NothingForEver) {
  const OpenPtr open = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode != Opcode::kRead) return;
    reply.body.clear();
    reply.body.resize(sizeof(ReadReply) + sizeof(Le32));
    const Le64 size = 1000;
    std::memcpy(reply.body.data(), &size, sizeof(size));
  });
  EXPECT_EQ(client_->Read(open, 0, 100).status().errno_value(), EIO);
  ExpectRecovery(1);
}

TEST_F(HostileTest, MoreWrittenThanSent) {
  const OpenPtr open = Open();
  ChangeNext(Opcode::kWrite, [](Reply& reply) {
    const Le32 written = 4711;
    std::memcpy(reply.body.data() + offsetof(WriteReply, written), &written, sizeof(written));
  });
  const std::vector<std::byte> bytes(10);
  EXPECT_EQ(client_->Write(open, 0, bytes).status().errno_value(), EIO);
  ExpectRecovery(1);
}

TEST_F(LaneTest, WhatAClosedLaneDidStaysCounted) {
  ASSERT_TRUE(client_->GetAttr(root_).ok());
  const auto asked = [this] {
    return mount_->counters().round_trips[static_cast<std::size_t>(Opcode::kGetAttr)];
  };
  std::unique_ptr<SyncClient> other = OpenClient();
  ASSERT_TRUE(other->GetAttr(root_).ok());
  EXPECT_EQ(asked(), 2U);
  other.reset();
  EXPECT_EQ(asked(), 2U);
}

// Who asks for one more has lanes already: they must not suffer from that.
TEST_F(LaneTest, ALaneBesideIsOpenedOnTheLegInUseOrNotAtAll) {
  const auto open_beside = [this] {
    return mount_->OpenLaneBeside(DeadlineAfter(std::chrono::seconds(5))).status();
  };
  EXPECT_TRUE(open_beside().ok());
  server_.KeepToStream();
  Mount(std::chrono::seconds(20));
  EXPECT_EQ(open_beside().code(), Code::kUnavailable);
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  EXPECT_EQ(mount_->counters().reconnects, 0U);
}

TEST_F(LaneTest, ALaneMoreThanTheStreamCarriesIsRefusedAsOneThatCanBeDoneWithout) {
  server_.KeepToStream();
  Mount(std::chrono::seconds(20));
  const int sessions = server_.sessions();
  const Status more = mount_->OpenLane(DeadlineAfter(std::chrono::seconds(10))).status();
  EXPECT_EQ(more.code(), Code::kResourceExhausted);
  EXPECT_EQ(more.message(), "the session carries one lane only");
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  EXPECT_EQ(server_.sessions(), sessions);
}

TEST_F(LaneTest, LanesDoNotTakeTheOnlyStreamFromEachOther) {
  const std::unique_ptr<SyncClient> other = OpenClient();
  server_.KeepToStream();
  server_.Restart(false);
  const auto connected = [&] { return client_->lane().connected() + other->lane().connected(); };
  const auto run_until = [&](auto&& done, std::chrono::milliseconds limit) {
    const Deadline deadline = DeadlineAfter(limit);
    while (!done() && BootClock::now() < deadline) {
      (void)client_->lane().Poll();
      (void)other->lane().Poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  run_until([&] { return connected() == 0; }, std::chrono::seconds(5));
  run_until([&] { return connected() == 1; }, std::chrono::seconds(5));
  EXPECT_EQ(connected(), 1);
  run_until([] { return false; }, std::chrono::seconds(1));
  EXPECT_EQ(connected(), 1);
  EXPECT_EQ(server_.sessions(), 2);
  EXPECT_TRUE(mount_->health().ok());
  SyncClient& alive = client_->lane().connected() ? *client_ : *other;
  EXPECT_TRUE(alive.Lookup(root_, "file").ok());
  // Its lane gone, it has the stream of the next session.
  server_.Restart(false);
  run_until([&] { return connected() == 0; }, std::chrono::seconds(5));
  run_until([&] { return connected() == 1; }, std::chrono::seconds(5));
  EXPECT_EQ(connected(), 1);
}

}  // namespace
}  // namespace rdfs::fs::client
