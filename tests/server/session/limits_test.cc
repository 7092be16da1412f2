// A client that wants more than its share is told so, and nobody else pays for it.
#include "server/session/limits.h"

#include <filesystem>
#include <fstream>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() { std::ofstream(server / "file") << "0123456789"; }

  [[nodiscard]] std::uint64_t refused(Refusals::What what) {
    return server.core().refusals.count(what);
  }
  // From here on requests are another client's.
  void BecomeAnother() {
    others_.push_back(server.lane);
    server.lane = server.NewLane(server.NewSession(77));
  }
  fs::WireError Lock(std::uint64_t open, std::uint64_t start, fs::LockType type) {
    fs::LockRequest lock{};
    lock.open = open;
    lock.owner = 1;
    lock.start = lock.end = start;
    lock.type = static_cast<std::uint32_t>(type);
    return server.Ask(Opcode::kSetLock, Body().Add(lock)).error;
  }

  Harness server{{.limits = {.open_files = 3, .locks = 2, .requests = 4, .request_bytes = 10'000}}};

 private:
  std::vector<std::shared_ptr<MemoryLane>> others_;
};

TEST_F(LimitsTest, OpenFilesOfAClient) {
  const fs::Handle file = server.Walk("file");
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) last = server.OpenNumber(server.Open(file, fs::kOpenRead));
  EXPECT_EQ(server.Open(file, fs::kOpenRead).errno_value(), EMFILE);
  EXPECT_EQ(server.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(server.root()))
                .errno_value(),
            EMFILE);
  EXPECT_EQ(refused(Refusals::What::kOpenFiles), 2U);
  EXPECT_TRUE(server.Release(last).ok());
  EXPECT_TRUE(server.Open(file, fs::kOpenRead).ok());
  BecomeAnother();
  EXPECT_TRUE(server.Open(file, fs::kOpenRead).ok());
}

// Nothing is cut or made for a file that is not opened then.
TEST_F(LimitsTest, WhatIsRefusedForTooManyOpenFilesHasChangedNothing) {
  const fs::Handle file = server.Walk("file");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(server.Open(file, fs::kOpenRead).ok());
  constexpr std::uint32_t kCut = fs::kOpenWrite | fs::kOpenTruncate;
  EXPECT_EQ(server.Open(file, kCut).errno_value(), EMFILE);
  EXPECT_EQ(server.Create(server.root(), "file", kCut).errno_value(), EMFILE);
  EXPECT_EQ(server.Create(server.root(), "made", kCut).errno_value(), EMFILE);
  EXPECT_EQ(std::filesystem::file_size(server / "file"), 10U);
  EXPECT_FALSE(std::filesystem::exists(server / "made"));
}

TEST_F(LimitsTest, AnOpenThatFailsTakesNoPlace) {
  constexpr std::uint32_t kExclusive = fs::kOpenWrite | fs::kOpenExclusive;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(server.Create(server.root(), "file", kExclusive).errno_value(), EEXIST);
  }
  const fs::Handle file = server.Walk("file");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(server.Open(file, fs::kOpenRead).ok());
}

TEST_F(LimitsTest, BytesOfRequestsThatWait) {
  const std::string bytes(4000, 'x');
  const std::uint64_t open =
      server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  fs::WriteRequest request{};
  request.open = open;
  const Body write = Body().Add(request).Sized32(AsBytes(bytes));
  // Another client believes what it was told of the file, and acknowledges nothing.
  const std::shared_ptr<MemoryLane> writer = server.lane;
  BecomeAnother();
  EXPECT_TRUE(server.Ask(Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{})).ok());
  EXPECT_TRUE(server.Lookup(server.root(), "file").ok());
  const std::shared_ptr<MemoryLane> silent = std::exchange(server.lane, writer);
  EXPECT_TRUE(server.Ask(Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{})).ok());

  const std::uint64_t first = server.Send(Opcode::kWrite, write);
  const std::uint64_t second = server.Send(Opcode::kWrite, write);
  EXPECT_EQ(server.Ask(Opcode::kWrite, write).errno_value(), EAGAIN);
  EXPECT_EQ(refused(Refusals::What::kRequestBytes), 1U);
  server.core().leases.SessionEnded(silent->session()->id());
  EXPECT_EQ(server.TakeAnswer(writer).sequence, first);
  EXPECT_EQ(server.TakeAnswer(writer).sequence, second);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(server.Ask(Opcode::kWrite, write).ok());
}

TEST_F(LimitsTest, LocksThatAClientHolds) {
  const fs::Handle file = server.Walk("file");
  const std::uint64_t open = server.OpenNumber(server.Open(file, fs::kOpenRead | fs::kOpenWrite));
  EXPECT_EQ(Lock(open, 0, fs::LockType::kRead), fs::WireError::kOk);
  EXPECT_EQ(Lock(open, 10, fs::LockType::kRead), fs::WireError::kOk);
  EXPECT_EQ(Lock(open, 20, fs::LockType::kRead), fs::WireError::kNoLocks);
  EXPECT_EQ(refused(Refusals::What::kLocks), 1U);
  EXPECT_EQ(Lock(open, 0, fs::LockType::kUnlock), fs::WireError::kOk);
  EXPECT_EQ(Lock(open, 20, fs::LockType::kRead), fs::WireError::kOk);
  BecomeAnother();
  const std::uint64_t other = server.OpenNumber(server.Open(file, fs::kOpenRead));
  EXPECT_EQ(Lock(other, 30, fs::LockType::kRead), fs::WireError::kOk);
}

// Each hole in a lock makes one more of it.
TEST_F(LimitsTest, LocksThatAClientSplits) {
  const std::uint64_t open =
      server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  const auto set = [&](std::uint64_t start, std::uint64_t end, fs::LockType type) {
    fs::LockRequest lock{};
    lock.open = open;
    lock.owner = 1;
    lock.start = start;
    lock.end = end;
    lock.type = static_cast<std::uint32_t>(type);
    return server.Ask(Opcode::kSetLock, Body().Add(lock)).error;
  };
  ASSERT_EQ(set(0, 100, fs::LockType::kWrite), fs::WireError::kOk);
  EXPECT_EQ(set(10, 10, fs::LockType::kUnlock), fs::WireError::kOk);
  EXPECT_EQ(set(20, 20, fs::LockType::kUnlock), fs::WireError::kNoLocks);
  EXPECT_EQ(server.core().locks.held(), 2U);
  EXPECT_EQ(set(95, 200, fs::LockType::kUnlock), fs::WireError::kOk) << "makes none";
  EXPECT_EQ(set(0, 9, fs::LockType::kUnlock), fs::WireError::kOk);
  EXPECT_EQ(set(20, 20, fs::LockType::kUnlock), fs::WireError::kOk);
}

TEST_F(LimitsTest, RequestsThatAClientHasUnderWay) {
  const fs::Handle file = server.Walk("file");
  fs::FsyncRequest sync{};
  sync.open = server.OpenNumber(server.Open(file, fs::kOpenRead | fs::kOpenWrite));
  // Over two lanes: what counts is the client.
  const auto first = server.lane;
  const auto second = server.NewLane(first->session());
  for (const auto& lane : {first, second, first, second}) {
    server.lane = lane;
    server.Send(Opcode::kFsync, Body().Add(sync));
    EXPECT_TRUE(lane->sent.empty());
  }
  server.Send(Opcode::kFsync, Body().Add(sync));
  ASSERT_EQ(second->sent.size(), 1U);
  EXPECT_EQ(server.TakeAnswer(second).errno_value(), EAGAIN);
  EXPECT_EQ(refused(Refusals::What::kRequests), 1U);
  BecomeAnother();
  EXPECT_TRUE(server.Lookup(server.root(), "file").ok());
  for (const auto& lane : {first, second, first, second}) EXPECT_TRUE(server.TakeAnswer(lane).ok());
  server.lane = first;
  EXPECT_TRUE(server.Ask(Opcode::kFsync, Body().Add(sync)).ok());
}

TEST_F(LimitsTest, RequestsOfALaneThatIsLostAreNotCountedForEver) {
  const fs::Handle file = server.Walk("file");
  fs::FsyncRequest sync{};
  sync.open = server.OpenNumber(server.Open(file, fs::kOpenRead | fs::kOpenWrite));
  const SessionPtr session = server.lane->session();
  for (int i = 0; i < 4; ++i) server.Send(Opcode::kFsync, Body().Add(sync));
  EXPECT_TRUE(session->HasTooManyRequests());
  server.lane = server.NewLane(session);
  EXPECT_FALSE(session->HasTooManyRequests());
  EXPECT_TRUE(server.Ask(Opcode::kFsync, Body().Add(sync)).ok());
  while (server.io().in_flight() > 0) (void)server.WaitForAnswer(server.lane, 100);
  EXPECT_FALSE(session->HasTooManyRequests());
}

TEST(UnreadAnswers, WhoHasLittlePaysForNobodyElse) {
  const auto whole = std::make_shared<UnreadAnswers>(1000);
  UnreadAnswers greedy(640, whole), another(640, whole), modest(640, whole);
  modest.Change(0, 20);
  greedy.Change(0, 640);
  EXPECT_FALSE(greedy.TooMany());
  greedy.Change(640, 641);
  EXPECT_TRUE(greedy.TooMany());
  greedy.Change(641, 500);
  EXPECT_FALSE(greedy.TooMany());
  another.Change(0, 500);
  EXPECT_EQ(whole->bytes(), 1020U);
  EXPECT_TRUE(greedy.TooMany());
  EXPECT_TRUE(another.TooMany());
  EXPECT_FALSE(modest.TooMany());
  another.Change(500, 0);
  EXPECT_FALSE(greedy.TooMany());
}

TEST_F(LimitsTest, RefusalsAreCountedByWhatWasRefused) {
  server.core().refusals.Note(Refusals::What::kMounts, "somebody");
  Snapshot snapshot;
  server.core().refusals.AddTo(snapshot);
  const std::string text = ToText(snapshot);
  EXPECT_NE(text.find("refused mounts"), std::string::npos) << text;
  EXPECT_EQ(text.find("refused locks"), std::string::npos) << "nothing was";
}

}  // namespace
}  // namespace rdfs::server
