// Clients that hold the key and follow no rule, beside one that does, at a real rdfsd: each loses
// its own connection at most, and the other one goes on. How fast stands in the output (ctest -V);
// RDFS_ABUSE_SECONDS=5 measures longer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "fs/client/sync_client.h"
#include "tests/fs/client/intruder.h"
#include "tests/fs/client/rdfsd.h"
#include "tests/transport/kinds.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::seconds;
using transport::Completion;
using transport::Connection;

constexpr std::string_view kFile = "file";

// Between the test and what is done beside it.
struct Cues {
  std::atomic<bool> begun{false}, stop{false};
};

// Keeps as many requests under way as the server takes, on several lanes.
void Flood(const DialFunction& dial, Cues& cues) {
  Intruder intruder(dial, "live");
  ASSERT_TRUE(intruder.ok());
  struct Lane {
    std::unique_ptr<Connection> connection;
    std::size_t in_flight = 0;
  };
  std::vector<Lane> lanes(8);
  for (Lane& lane : lanes) lane.connection = intruder.OpenLane();
  Bytes body;
  Put(body, GetAttrRequest{});
  PutSized16(body, intruder.root().bytes());
  std::array<Completion, 64> out;
  cues.begun = true;
  while (!cues.stop) {
    for (Lane& lane : lanes) {
      if (lane.connection == nullptr) continue;
      for (; lane.in_flight < 250; ++lane.in_flight) {
        ASSERT_TRUE(intruder.Send(*lane.connection, Opcode::kGetAttr, body).ok());
      }
      (void)lane.connection->Flush();
      const auto count = lane.connection->Poll(out);
      ASSERT_TRUE(count.ok()) << count.status().ToString();
      for (std::size_t i = 0; i < *count; ++i) {
        if (ByteReader(out[i].message).Read<ReplyHeader>().sequence != 0) --lane.in_flight;
      }
    }
  }
}

// What no client of ours sends: it is told so, or its lane ends, and it opens the next.
void Nonsense(const DialFunction& dial, Cues& cues) {
  std::uint64_t turn = 0;
  cues.begun = true;
  while (!cues.stop) {
    Intruder intruder(dial, "live");
    if (!intruder.ok()) continue;
    const auto lane = intruder.OpenLane();
    if (lane == nullptr) continue;
    Bytes forged =
        LookupBody(*Handle::FromBytes(AsBytes("a handle that nobody has issued")), kFile);
    const auto answer = intruder.Ask(*lane, Opcode::kLookup, forged);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(ByteReader(*answer).Read<ReplyHeader>().error,
              static_cast<std::uint16_t>(WireError::kStale));
    Bytes body;
    switch (turn++ % 4) {
      case 0:  // a slot that is not its own, and that does not exist
        Put(body, CommitRequest{.open = 1,
                                .offset = ~0ULL,
                                .flags = 0,
                                .length = 4096,
                                .staging_offset = ~0ULL - 4096});
        (void)intruder.Ask(*lane, Opcode::kCommit, body);
        break;
      case 1:  // an open file of nobody's, far behind its end
        Put(body,
            ReadRequest{
                .open = 99, .offset = ~0ULL - 1, .length = ~0U, .want_ahead = ~0U, .flags = 0});
        (void)intruder.Ask(*lane, Opcode::kRead, body);
        break;
      case 2:  // a name that leads out
        (void)intruder.Ask(*lane, Opcode::kLookup, LookupBody(intruder.root(), "../etc"));
        break;
      default:  // no request at all
        (void)lane->Send(AsBytes("GET / HTTP/1.1"));
        (void)lane->Flush();
    }
    const auto last = intruder.OpenLane();
    ASSERT_NE(last, nullptr) << "what it did on one lane is not its session's end";
    ASSERT_TRUE(intruder.Ask(*last, Opcode::kEndSession, {}).has_value());
  }
}

// Mounts without end.
void Mounts(const DialFunction& dial, Cues& cues) {
  std::vector<std::unique_ptr<Intruder>> mounts;
  std::uint16_t refused = 0;
  cues.begun = true;
  while (!cues.stop) {
    mounts.push_back(std::make_unique<Intruder>(dial, "live", &refused));
    if (!mounts.back()->ok()) mounts.pop_back();
  }
  EXPECT_LE(mounts.size(), 4U);
  EXPECT_GT(refused, 0U);
}

// Believes everything, and lets nothing go when it is told to.
void NeverLetsGo(const DialFunction& dial, Cues& cues) {
  Intruder intruder(dial, "live");
  ASSERT_TRUE(intruder.ok());
  const auto lane = intruder.OpenLane();
  ASSERT_NE(lane, nullptr);
  Bytes attach;
  Put(attach, AttachLaneRequest{});
  ASSERT_TRUE(intruder.Ask(*lane, Opcode::kAttachLane, attach).has_value());
  cues.begun = true;
  while (!cues.stop) {
    ASSERT_TRUE(intruder.Ask(*lane, Opcode::kLookup, LookupBody(intruder.root(), kFile)));
  }
}

// Thousands of locks on a file, and threads in a queue for all of it, who are looked at whenever
// one of the locks goes.
void Locks(const DialFunction& dial, Cues& cues) {
  Intruder intruder(dial, "live");
  ASSERT_TRUE(intruder.ok());
  const auto lane = intruder.OpenLane();
  ASSERT_NE(lane, nullptr);
  const auto found = intruder.Ask(*lane, Opcode::kLookup, LookupBody(intruder.root(), kFile));
  ASSERT_TRUE(found.has_value());
  ByteReader entry(*found);
  (void)entry.Read<ReplyHeader>();
  Bytes open;
  Put(open, OpenRequest{.flags = kOpenRead | kOpenWrite});
  PutSized16(open, ReadEntry(entry).handle.bytes());
  const auto opened = intruder.Ask(*lane, Opcode::kOpen, open);
  ASSERT_TRUE(opened.has_value());
  ByteReader reader(*opened);
  ASSERT_EQ(reader.Read<ReplyHeader>().error, 0);
  const std::uint64_t number = reader.Read<OpenReply>().open;
  const auto lock = [&](std::uint64_t owner, LockType type, std::uint64_t start, std::uint64_t end,
                        std::uint32_t flags) {
    Bytes body;
    Put(body, LockRequest{.open = number,
                          .owner = owner,
                          .start = start,
                          .end = end,
                          .type = static_cast<std::uint32_t>(type),
                          .pid = 1,
                          .flags = flags});
    return body;
  };
  for (std::uint64_t i = 0; i < 4096; ++i) {
    ASSERT_TRUE(intruder.Ask(*lane, Opcode::kSetLock, lock(1, LockType::kWrite, 2 * i, 2 * i, 0)));
  }
  constexpr std::uint64_t kEnd = 0x7fffffffffffffff;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(
        intruder.Send(*lane, Opcode::kSetLock, lock(2 + i, LockType::kWrite, 0, kEnd, kLockWait))
            .ok());
  }
  cues.begun = true;
  while (!cues.stop) {
    for (const LockType type : {LockType::kUnlock, LockType::kWrite}) {
      ASSERT_TRUE(intruder.Ask(*lane, Opcode::kSetLock, lock(1, type, 0, 0, 0)));
    }
  }
}

class Abuse : public testing::TestWithParam<transport::Kind> {
 protected:
  void SetUp() override {
    std::ofstream(config_) << "[limits]\nmounts = 5\n";
    server_ =
        std::make_unique<Rdfsd>(std::vector<std::string>{"--lease", "10", "--config", config_});
    std::ofstream(server_->root() / kFile) << std::string(1 << 20, 'x');
    MountOptions options;
    options.dial = server_->Dialer(GetParam());
    options.export_name = "live";
    options.uid = getuid();
    options.gid = getgid();
    auto mount = client::Mount::Create(std::move(options), DeadlineAfter(seconds(10)));
    ASSERT_TRUE(mount.ok()) << mount.status().ToString();
    mount_ = *std::move(mount);
    auto lane = mount_->OpenLane(DeadlineAfter(seconds(10)));
    ASSERT_TRUE(lane.ok()) << lane.status().ToString();
    client_ = std::make_unique<SyncClient>(*std::move(lane),
                                           CallContext{.uid = getuid(), .gid = getgid()});
    const auto file = client_->Lookup(mount_->info().root.handle, kFile);
    ASSERT_TRUE(file.ok());
    file_ = file->handle;
  }
  void TearDown() override {
    client_.reset();
    mount_.reset();
    std::filesystem::remove(config_);
  }

  // What the good client gets done in a while, one call after the other, each of which must
  // succeed.
  template <typename Call>
  double PerSecond(Call call) {
    const char* const longer = std::getenv("RDFS_ABUSE_SECONDS");
    const auto span = longer != nullptr ? std::chrono::milliseconds(1000 * std::atoi(longer))
                                        : std::chrono::milliseconds(300);
    const TimePoint begin = BootClock::now();
    double calls = 0;
    while (BootClock::now() - begin < span) {
      const Status status = call();
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (!status.ok()) return 0;
      ++calls;
    }
    return calls / std::chrono::duration<double>(BootClock::now() - begin).count();
  }
  Status Ask() { return client_->GetAttr(file_).status(); }
  Status Read() {
    const auto opened = client_->Open(file_, kOpenRead);
    RDFS_RETURN_IF_ERROR(opened.status());
    RDFS_RETURN_IF_ERROR(client_->Read(opened->open, 0, 1 << 20).status());
    return client_->Release(opened->open);
  }
  Status Change() {
    SetAttributes set{.valid = kSetMtimeNow};
    return client_->SetAttr(file_, set).status();
  }

  using Deed = void (*)(const DialFunction&, Cues&);
  // What is left of what the good client gets done is a matter of its turns. Where two processors
  // have other work as well, or a deed takes turns of their scheduler, it is less; a server that is
  // held up answers a few calls a second.
  static constexpr double kLeast = 1.0 / 50;
  template <typename Call>
  void Beside(std::string_view what, Deed deed, Call call, double least = kLeast) {
    const double alone = PerSecond(call);
    Cues cues;
    const DialFunction dial = server_->Dialer(GetParam());
    std::thread intruder([&] {
      deed(dial, cues);
      cues.begun = true;
    });
    while (!cues.begun) std::this_thread::yield();
    double beside = PerSecond(call);
    for (int i = 0; i < 2 && beside <= alone * least; ++i) beside = PerSecond(call);
    cues.stop = true;
    intruder.join();
    EXPECT_GT(beside, alone * least);
    std::cout << transport::Name(GetParam()) << ", " << what << ": " << alone << "/s alone, "
              << beside << "/s beside" << std::endl;
    EXPECT_TRUE(call().ok());
  }

  const std::string config_ = [] {
    std::string pattern = std::filesystem::temp_directory_path() / "rdfs-abuse-XXXXXX";
    close(mkstemp(pattern.data()));
    return pattern;
  }();
  std::unique_ptr<Rdfsd> server_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<SyncClient> client_;
  Handle file_;
};

TEST_P(Abuse, AFloodOfRequests) {
  Beside("getattr, a flood", Flood, [this] { return Ask(); });
  Beside("open, read 1 MiB, close, a flood", Flood, [this] { return Read(); });
}

TEST_P(Abuse, NonsenseAndNewConnections) {
  Beside("getattr, nonsense", Nonsense, [this] { return Ask(); });
}

TEST_P(Abuse, MountsWithoutEnd) {
  Beside("getattr, mounts", Mounts, [this] { return Ask(); });
}

// Each change waits for it until its lease is over: the test is that it goes on then.
TEST_P(Abuse, RecallsThatAreNeverAcknowledged) {
  Beside(
      "change, no acknowledgement", NeverLetsGo, [this] { return Change(); }, 0);
}

TEST_P(Abuse, LocksAndAQueueForThem) {
  Beside("getattr, locks", Locks, [this] { return Ask(); });
}

INSTANTIATE_TEST_SUITE_P(Transports, Abuse, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::fs::client
