// Lost connections, restarted servers: nothing is lost, nothing is done twice.
#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <thread>

#include "tests/fs/client/scripted_fixture.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Reply = ScriptedServer::Reply;
using Request = ScriptedServer::Request;

class LossTest : public ScriptedTest {
 protected:
  // A row of operations that uses every kind of step; returns how many of them failed.
  void Work(SyncClient& fs) {
    const auto opened = fs.Open(file_, kOpenRead | kOpenWrite);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const OpenPtr open = opened->open;
    ASSERT_TRUE(fs.Mkdir(root_, "dir").ok());
    std::vector<std::byte> bytes(100'000);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    const auto large = fs.Write(open, 1000, bytes);
    ASSERT_TRUE(large.ok()) << large.status().ToString();
    ASSERT_EQ(large->written, bytes.size());
    ASSERT_TRUE(fs.Write(open, 0, ByteSpan(bytes).first(500)).ok());
    ExpectFile(fs.Read(open, 500, 150'000), 500);
    const auto written = fs.Read(open, 1000, bytes.size());
    ASSERT_TRUE(written.ok());
    ASSERT_TRUE(*written == bytes);
    ASSERT_TRUE(fs.Release(open).ok());
  }
};

TEST_F(LossTest, ARestartedServerIsToldWhatIsOpen) {
  const auto opened = client_->Open(file_, kOpenRead | kOpenWrite | kOpenTruncate);
  ASSERT_TRUE(opened.ok());
  opened->open->SetHint(root_, "its name");
  ExpectFile(client_->Read(opened->open, 0, 1000), 0);
  server_.Restart(false);
  ExpectFile(client_->Read(opened->open, 70'000, 1000), 70'000);
  ASSERT_EQ(server_.Count(Opcode::kReclaimOpen), 1U);
  for (const Request& request : server_.requests()) {
    if (request.opcode != Opcode::kReclaimOpen) continue;
    ByteReader reader(request.body);
    const auto reclaim = reader.Read<ReclaimOpenRequest>();
    EXPECT_EQ(std::uint32_t{reclaim.flags}, kOpenRead | kOpenWrite);  // not truncated again
    EXPECT_EQ(ReadHandle(reader), file_);
    EXPECT_EQ(ReadHandle(reader), root_);
    EXPECT_EQ(AsText(ReadName(reader)), "its name");
  }
  EXPECT_EQ(mount_->info().epoch, 2U);
  EXPECT_TRUE(client_->Release(opened->open).ok());
}

TEST_F(LossTest, AResumedSessionReclaimsNothing) {
  const OpenPtr open = Open();
  server_.Restart(true);
  ExpectFile(client_->Read(open, 0, 1000), 0);
  EXPECT_EQ(server_.Count(Opcode::kReclaimOpen), 0U);
}

// The server answered an open, and does not know its number: it was opened in an earlier epoch.
TEST_F(LossTest, AFileOfAnEarlierEpochIsReclaimedWhenItIsUsed) {
  const OpenPtr open = Open();
  open->set_server_open(55);  // as if it had been answered from a record
  ExpectFile(client_->Read(open, 0, 1000), 0);
  EXPECT_EQ(server_.Count(Opcode::kReclaimOpen), 1U);
}

TEST_F(LossTest, AFileThatIsGoneIsStale) {
  const OpenPtr open = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kReclaimOpen) reply.error = WireError::kStale;
  });
  server_.Restart(false);
  EXPECT_EQ(client_->Read(open, 0, 1000).status().errno_value(), ESTALE);
  EXPECT_EQ(client_->Fsync(open).errno_value(), ESTALE);
  EXPECT_TRUE(client_->Release(open).ok());
}

TEST_F(LossTest, ACrashOfTheHostIsToldOnceByFsync) {
  const OpenPtr open = Open();
  const std::vector<std::byte> bytes(10);
  ASSERT_TRUE(client_->Write(open, 0, bytes).ok());
  EXPECT_TRUE(client_->Fsync(open).ok());
  ASSERT_TRUE(client_->Write(open, 0, bytes).ok());
  server_.Restart(false);  // whose verifier is another: the bytes may be gone
  EXPECT_EQ(client_->Fsync(open).errno_value(), EIO);
  EXPECT_TRUE(client_->Fsync(open).ok());
}

TEST_F(LossTest, ASessionThatTheServerForgotIsMadeAnew) {
  server_.SetHook([done = false](const Request& request, Reply& reply) mutable {
    if (request.opcode != Opcode::kMkdir || done) return;
    done = true;
    reply.error = WireError::kUnknownSession;
  });
  EXPECT_TRUE(client_->Mkdir(root_, "dir").ok());
}

// Connections drop at random under two busy lanes, the server restarts now and then.
TEST_F(LossTest, Storm) {
  std::unique_ptr<SyncClient> other = OpenClient();
  std::mt19937 random(77);
  server_.SetHook([&random](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kAttachLane || random() % 12 != 0) return;
    reply.drop = true;
    reply.send = random() % 2 == 0;
  });
  std::atomic<int> made{0};
  std::vector<std::jthread> workers;
  for (SyncClient* lane : {client_.get(), other.get()}) {
    workers.emplace_back([this, lane, &made] {
      const auto opened = lane->Open(file_, kOpenRead);
      ASSERT_TRUE(opened.ok()) << opened.status().ToString();
      for (int i = 0; i < 120; ++i) {
        const auto directory = lane->Mkdir(root_, "dir");
        ASSERT_TRUE(directory.ok()) << directory.status().ToString();
        ++made;
        const std::size_t offset = static_cast<std::size_t>(i) * 7919;
        ExpectFile(lane->Read(opened->open, offset, 30'000), offset);
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(milliseconds(40));
    server_.Restart(i % 2 == 0);
  }
  workers.clear();
  EXPECT_EQ(made, 240);
  EXPECT_EQ(server_.made(), 240U);
  EXPECT_EQ(server_.misdeeds(), 0U);
}

}  // namespace
}  // namespace rdfs::fs::client
