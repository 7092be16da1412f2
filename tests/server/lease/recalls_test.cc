// Recalls of leases, and by which lane they reach their client.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/lease/change_targets.h"
#include "server/lease/outside_changes.h"
#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

class RecallsTest : public testing::Test {
 protected:
  void Attach(const std::shared_ptr<MemoryLane>& lane) {
    Say(lane, Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{}));
    EXPECT_TRUE(server_.TakeAnswer(lane).ok());
  }
  void Say(const std::shared_ptr<MemoryLane>& lane, Opcode opcode, const Body& body) {
    EXPECT_TRUE(server_.Deliver(lane, Harness::Message(opcode, body.bytes(), server_.NextSequence(),
                                                       lane->session()->id(), server_.caller)));
  }

  Harness server_{{.record = true}};
};

TEST_F(RecallsTest, AreSentAgainWhenTheLaneThatTheyWentByEnds) {
  const std::shared_ptr<MemoryLane> first = server_.lane;
  const std::shared_ptr<MemoryLane> last = server_.NewLane(server_.session());
  const std::shared_ptr<MemoryLane> another = server_.NewLane(server_.NewSession(43));
  for (const auto& lane : {first, last, another}) Attach(lane);
  const fs::Handle root = server_.root();
  ASSERT_TRUE(server_.Create(root, "file", fs::kOpenRead | fs::kOpenWrite | fs::kOpenCreate).ok());
  ASSERT_TRUE(server_.Lookup(root, "file").ok());

  Say(another, Opcode::kUnlink, Body().Add(root).Name("file"));
  ASSERT_TRUE(server_.WaitForAnswer(last)) << "nothing was recalled";
  EXPECT_TRUE(first->sent.empty());
  EXPECT_TRUE(another->sent.empty()) << "it did not wait";
  const auto recalls = last->sent;

  server_.core().leases.LaneClosed(last);
  ASSERT_TRUE(server_.WaitForAnswer(first)) << "nobody hears of the recall";
  EXPECT_EQ(first->sent, recalls);
}

// A client that follows no rule: it is told nothing itself, and harms nobody who is.
TEST_F(RecallsTest, WhoHasAttachedNoLaneWaitsForTheOthersAllTheSame) {
  Attach(server_.lane);
  const std::shared_ptr<MemoryLane> another = server_.NewLane(server_.NewSession(43));
  const fs::Handle root = server_.root();
  ASSERT_TRUE(server_.Create(root, "file", fs::kOpenRead | fs::kOpenWrite | fs::kOpenCreate).ok());
  ASSERT_TRUE(server_.Lookup(root, "file").ok());

  Say(another, Opcode::kUnlink, Body().Add(root).Name("file"));
  EXPECT_TRUE(server_.WaitForAnswer(server_.lane)) << "nothing was recalled";
  EXPECT_TRUE(another->sent.empty()) << "it did not wait";
}

// As when one loop ends the session while another one attaches the lane.
TEST_F(RecallsTest, ALaneThatIsAttachedAsItsSessionEndsIsForgottenWithItsEnd) {
  Attach(server_.lane);
  const std::shared_ptr<MemoryLane> another = server_.NewLane(server_.NewSession(43));
  LeaseService& leases = server_.core().leases;
  another->session()->MarkEnded();
  leases.SessionEnded(another->session()->id());
  leases.LaneOpened(another);
  leases.LaneClosed(another);
  EXPECT_TRUE(leases.IsAlone(server_.session()->id()));
}

// As when another loop makes it: behind the look at what the request would change. The server asks
// for the time here and there, and at each of these moments the file appears once.
TEST_F(RecallsTest, AFileThatAppearsMeanwhileIsNotTruncatedUnasked) {
  const std::shared_ptr<MemoryLane> another = server_.NewLane(server_.NewSession(43));
  Attach(another);
  const fs::Handle root = server_.root();
  std::size_t recalled = 0;
  for (std::size_t moment = 0; moment < 10; ++moment) {
    const std::string name = "file" + std::to_string(moment);
    const std::string path = server_ / name;
    std::ofstream(path) << "content";
    const fs::Handle file = server_.Walk(name);
    // The first client believes what it was told of the file, and of nothing else.
    server_.core().leases.SessionEnded(server_.session()->id());
    server_.lane = server_.NewLane(server_.session());
    Attach(server_.lane);
    const Body getattr = Body().Add(fs::GetAttrRequest{}).Add(file);
    ASSERT_TRUE(server_.Ask(Opcode::kGetAttr, getattr).ok());

    std::filesystem::rename(path, path + ".away");
    server_.clock.hook = [&, calls = std::size_t{0}]() mutable {
      if (calls++ == moment) std::filesystem::rename(path + ".away", path);
    };
    fs::CreateRequest request{};
    request.flags = fs::kOpenWrite | fs::kOpenCreate | fs::kOpenTruncate;
    request.mode = 0644;
    Say(another, Opcode::kCreate, Body().Add(request).Add(root).Name(name));
    server_.clock.hook = nullptr;
    if (!server_.WaitForAnswer(server_.lane, 1)) {
      // It came too late, or not at all: another one was made.
      EXPECT_TRUE(server_.TakeAnswer(another).ok());
      EXPECT_TRUE(std::filesystem::exists(path + ".away") || std::filesystem::file_size(path) == 7U)
          << moment;
      continue;
    }
    ++recalled;
    server_.lane->sent.clear();
    EXPECT_TRUE(another->sent.empty()) << moment;
    EXPECT_EQ(std::filesystem::file_size(path), 7U) << moment;
    server_.core().leases.SessionEnded(server_.session()->id());
    EXPECT_TRUE(server_.TakeAnswer(another).ok()) << moment;
    EXPECT_EQ(std::filesystem::file_size(path), 0U) << moment;
  }
  EXPECT_GT(recalled, 1U);
}

class StopTest : public RecallsTest {
 protected:
  StopTest() { Attach(server_.lane); }
  // Written under a lease: what it writes its programs are told of before it is here.
  std::uint64_t OpenToWrite() {
    const Answer made =
        server_.Create(server_.root(), "file", fs::kOpenWrite | fs::kOpenCreate | kLease);
    ByteReader reader(made.body);
    const auto reply = reader.Read<fs::OpenReply>();
    EXPECT_TRUE(reader.ok());
    EXPECT_GT(reply.write_lease_ms, 0U);
    return reply.open;
  }
  bool TakeWrites(std::function<void()> ready) {
    const auto find = [&](const InodeKey& key) -> std::optional<LeaseService::Target> {
      const InodePtr inode = server_.table().Known(key);
      if (!inode) return std::nullopt;
      return MakeTarget(*inode, fs::kRecallAttributes);
    };
    return server_.core().leases.TakeWrites(find, stop_, std::move(ready));
  }

  static constexpr std::uint32_t kLease = fs::kOpenWriteLease;
  LeaseChange stop_;
};

TEST_F(StopTest, WaitsForWhatIsOnItsWay) {
  const std::uint64_t open = OpenToWrite();
  bool here = false;
  EXPECT_FALSE(TakeWrites([&] { here = true; }));
  ASSERT_TRUE(server_.WaitForAnswer(server_.lane)) << "nothing was recalled";
  const auto message = std::exchange(server_.lane->sent, {}).front();
  ByteReader reader(message);
  EXPECT_EQ(reader.Read<fs::ReplyHeader>().opcode, static_cast<std::uint16_t>(Opcode::kRecall));
  const auto recall = reader.Read<fs::RecallMessage>();
  EXPECT_EQ(fs::ReadHandle(reader), server_.Walk("file"));
  // It comes, and there is no lease to write more in this way.
  const Answer written = server_.Write(open, 0, "x", fs::kWriteEarly);
  EXPECT_EQ(written.As<fs::WriteReply>().write_lease_ms, 0U);
  EXPECT_FALSE(here);
  const Body ack = Body().Add(fs::RecallAckRequest{.number = recall.number});
  EXPECT_TRUE(server_.Ask(Opcode::kRecallAck, ack).ok());
  EXPECT_TRUE(here);
}

TEST_F(StopTest, WaitsForNobodyWhereNothingIsWritten) {
  ASSERT_TRUE(server_.Create(server_.root(), "file", fs::kOpenWrite | fs::kOpenCreate).ok());
  EXPECT_TRUE(TakeWrites([] {}));
  const Answer another =
      server_.Create(server_.root(), "another", fs::kOpenWrite | fs::kOpenCreate | kLease);
  ByteReader reader(another.body);
  EXPECT_EQ(reader.Read<fs::OpenReply>().write_lease_ms, 0U);
}

// Some file systems have such names; no client can have asked for them.
TEST_F(RecallsTest, OfANameThatIsTooLongForTheWireItsDirectoryIsRecalled) {
  Attach(server_.lane);
  const fs::Handle root = server_.root();
  const auto recalled_names = [&](std::size_t length) {
    EXPECT_TRUE(server_.Ask(Opcode::kGetAttr, Body().Add(fs::GetAttrRequest{}).Add(root)).ok());
    const OutsideWatch::Change change{
        .directory = server_.table().root().inode, .name = std::string(length, 'n'), .entry = true};
    OnChangedOutside(server_.core(), server_.table(), std::span(&change, 1));
    if (!server_.WaitForAnswer(server_.lane)) return std::string("nothing");
    ByteReader reader(server_.lane->sent.front());
    const auto header = reader.Read<fs::ReplyHeader>();
    EXPECT_EQ(header.opcode, static_cast<std::uint16_t>(Opcode::kRecall));
    EXPECT_EQ(reader.remaining(), header.body_bytes);
    const auto recall = reader.Read<fs::RecallMessage>();
    EXPECT_NE(recall.parts & fs::kRecallAttributes, 0U);
    EXPECT_EQ(fs::ReadHandle(reader), root);
    std::string name = NameFrom(reader.ReadSized16(fs::kMaxNameBytes));
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ((recall.parts & fs::kRecallName) != 0, !name.empty());
    server_.lane->sent.pop_front();
    fs::RecallAckRequest heard{};
    heard.number = recall.number;
    EXPECT_TRUE(server_.Ask(Opcode::kRecallAck, Body().Add(heard)).ok());
    return name;
  };
  EXPECT_EQ(recalled_names(255), std::string(255, 'n'));
  EXPECT_EQ(recalled_names(256), "");
  EXPECT_EQ(recalled_names(1000), "");
}

// Else recalls would be sent again, and the lane known once more, as often as a client likes.
TEST_F(RecallsTest, ALaneIsAttachedOnce) {
  Attach(server_.lane);
  const Body attach = Body().Add(fs::AttachLaneRequest{});
  EXPECT_FALSE(server_.Deliver(
      server_.lane, Harness::Message(Opcode::kAttachLane, attach.bytes(), server_.NextSequence())));
}

// Changes that wait for leases, each for one that ends before those of the changes before it.
TEST(LeaseService, TimersThatANearerOneHasReplacedGoOnForNobody) {
  ManualClock clock;
  ManualScheduler scheduler;
  constexpr std::chrono::milliseconds kShort{1000}, kLong{5000};
  LeaseService leases(clock, scheduler, {kShort, kLong}, 1);
  constexpr std::uint64_t kBeliever = 1, kChanger = 2;
  std::uint64_t inode = 0;
  int ready = 0;
  std::vector<std::unique_ptr<LeaseChange>> changes;
  const auto wait_for_one = [&](bool longer) {
    const LeaseService::Target target{.inode = {1, ++inode}, .handle = {}};
    EXPECT_GT(leases.Grant(target.inode, kBeliever, leases.stamp(), longer), 0U);
    changes.push_back(std::make_unique<LeaseChange>());
    EXPECT_FALSE(leases.Begin(kChanger, std::span(&target, 1), *changes.back(), [&] { ++ready; }));
  };
  const auto pass = [&](std::chrono::milliseconds span) {
    clock.Advance(span);
    scheduler.Advance(span);
  };
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    wait_for_one(true);
    wait_for_one(false);
    pass(2 * kShort);
  }
  EXPECT_GT(ready, kRounds);
  wait_for_one(true);
  // Those of the last lease at most, of which all but one end without another.
  EXPECT_LT(scheduler.waiting(), 10U);
  pass(2 * kLong);
  EXPECT_EQ(ready, 2 * kRounds + 1);
  EXPECT_EQ(scheduler.waiting(), 0U);
}

}  // namespace
}  // namespace rdfs::server
