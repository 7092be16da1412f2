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

// Keeps as many requests under way as the server takes, on several lanes.
void Flood(const DialFunction& dial, const std::atomic<bool>& stop) {
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
  while (!stop) {
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
void Nonsense(const DialFunction& dial, const std::atomic<bool>& stop) {
  std::uint64_t turn = 0;
  while (!stop) {
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
void Mounts(const DialFunction& dial, const std::atomic<bool>& stop) {
  std::vector<std::unique_ptr<Intruder>> mounts;
  std::uint16_t refused = 0;
  while (!stop) {
    mounts.push_back(std::make_unique<Intruder>(dial, "live", &refused));
    if (!mounts.back()->ok()) mounts.pop_back();
  }
  EXPECT_LE(mounts.size(), 4U);
  EXPECT_GT(refused, 0U);
}

// Believes everything, and lets nothing go when it is told to.
void NeverLetsGo(const DialFunction& dial, const std::atomic<bool>& stop) {
  Intruder intruder(dial, "live");
  ASSERT_TRUE(intruder.ok());
  const auto lane = intruder.OpenLane();
  ASSERT_NE(lane, nullptr);
  Bytes attach;
  Put(attach, AttachLaneRequest{});
  ASSERT_TRUE(intruder.Ask(*lane, Opcode::kAttachLane, attach).has_value());
  while (!stop) {
    ASSERT_TRUE(intruder.Ask(*lane, Opcode::kLookup, LookupBody(intruder.root(), kFile)));
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

  using Deed = void (*)(const DialFunction&, const std::atomic<bool>&);
  template <typename Call>
  void Beside(std::string_view what, Deed deed, Call call) {
    const double alone = PerSecond(call);
    std::atomic<bool> stop{false};
    const DialFunction dial = server_->Dialer(GetParam());
    std::thread intruder([&] { deed(dial, stop); });
    const double beside = PerSecond(call);
    stop = true;
    intruder.join();
    EXPECT_GT(beside, 0);
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
  Beside("change, no acknowledgement", NeverLetsGo, [this] { return Change(); });
}

INSTANTIATE_TEST_SUITE_P(Transports, Abuse, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::fs::client
