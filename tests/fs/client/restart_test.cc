// Several clients of a real rdfsd that is killed: each gets back what it had before another one can
// take it away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <stop_token>
#include <thread>

#include "fs/client/sync_client.h"
#include "tests/fs/client/rdfsd.h"
#include "tests/fs/client/scripted_session.h"
#include "tests/fs/client/wrapped_connection.h"
#include "tests/transport/kinds.h"
#include "transport/base/fd.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A call that is held back ends at this deadline.
constexpr milliseconds kHeld{700};

// An end of a connection that is lost with the message that `lost` says so of: nobody hears that
// one.
class Deaf final : public WrappedConnection {
 public:
  Deaf(std::unique_ptr<transport::Connection> inner, std::function<bool()> lost)
      : WrappedConnection(std::move(inner)), lost_(std::move(lost)) {}

  Result<std::size_t> Poll(std::span<transport::Completion> out) override {
    Result<std::size_t> count = WrappedConnection::Poll(out);
    for (std::size_t i = 0; count.ok() && i < *count; ++i) {
      if (out[i].kind == transport::Completion::Kind::kMessage && lost_()) {
        return Status(Code::kDisconnected, "not heard");
      }
    }
    return count;
  }

 private:
  const std::function<bool()> lost_;
};

// A mount with one lane, which can be cut off from the server.
class Peer {
 public:
  Peer(const Rdfsd& server, transport::Kind kind) {
    MountOptions options;
    options.dial = [dial = server.Dialer(kind), this](
                       std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain,
                       Deadline deadline) -> Result<std::unique_ptr<transport::Session>> {
      if (cut_off) return Status(Code::kDisconnected, "cut off");
      RDFS_ASSIGN_OR_RETURN(std::shared_ptr<transport::Session> session,
                            dial(std::move(request), domain, deadline));
      const auto lane = [this, session]() -> ScriptedSession::Lane {
        RDFS_ASSIGN_OR_RETURN(auto connection, session->OpenLane(DeadlineAfter(seconds(10))));
        std::unique_ptr<transport::Connection> deaf =
            std::make_unique<Deaf>(std::move(connection), [this] { return Lost(); });
        return deaf;
      };
      const ByteSpan grant = session->grant();
      std::unique_ptr<transport::Session> deaf = std::make_unique<ScriptedSession>(
          lane, std::vector(grant.begin(), grant.end()), session->domain());
      return deaf;
    };
    options.export_name = "live";
    options.host_name = "test";
    options.uid = getuid();
    options.gid = getgid();
    options.timeout = seconds(20);
    auto mount = client::Mount::Create(std::move(options), DeadlineAfter(seconds(10)));
    EXPECT_TRUE(mount.ok()) << mount.status().ToString();
    mount_ = *std::move(mount);
    auto lane = mount_->OpenLane(DeadlineAfter(seconds(10)));
    EXPECT_TRUE(lane.ok()) << lane.status().ToString();
    fs_ = std::make_unique<SyncClient>(*std::move(lane),
                                       CallContext{.uid = getuid(), .gid = getgid(), .pid = 1});
  }
  SyncClient& operator*() { return *fs_; }
  SyncClient* operator->() { return fs_.get(); }
  [[nodiscard]] Handle root() const { return mount_->info().root.handle; }
  OpenPtr Open(std::string_view name, std::uint32_t flags = kOpenRead | kOpenWrite) {
    const auto file = fs_->Lookup(root(), name);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    const auto open = fs_->Open(file->handle, flags);
    EXPECT_TRUE(open.ok()) << open.status().ToString();
    open->open->SetHint(root(), name);
    return open->open;
  }
  // Calls give up after kHeld, or wait again as usual.
  void Hurry(bool hurry) {
    fs_->context().timeout = hurry ? std::optional<milliseconds>(kHeld) : std::nullopt;
  }

  // The n-th message from now on is not heard any more, and `then` is done.
  void LoseMessage(int n, std::function<void()> then) {
    then_ = std::move(then);
    messages_left_ = n;
  }
  [[nodiscard]] bool has_lost() const { return messages_left_ == 0; }

  std::atomic<bool> cut_off{false};

 private:
  bool Lost() {
    if (messages_left_ <= 0 || --messages_left_ > 0) return false;
    then_();
    return true;
  }

  std::atomic<int> messages_left_{-1};  // -1: no message is lost
  std::function<void()> then_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<SyncClient> fs_;
};

std::string Text(const Result<std::vector<std::byte>>& bytes) {
  return bytes.ok() ? std::string(AsText(*bytes)) : bytes.status().ToString();
}

class RestartTest : public testing::TestWithParam<transport::Kind> {
 protected:
  void Write(const Rdfsd& server, const std::string& name) {
    std::ofstream(server.root() / name) << "content";
  }
  // The first client has "file" open and is away while the second one asks for its end.
  void WhoHadItComesFirst(Rdfsd& server, const std::function<void()>& restart) {
    Write(server, "file");
    Write(server, "target");
    Peer first(server, GetParam()), second(server, GetParam());
    const OpenPtr open = first.Open("file");
    const OpenPtr replaced = first.Open("target");
    first.cut_off = true;
    restart();
    // Until nothing that the first one was told can be believed any more.
    EXPECT_TRUE(second->Lookup(second.root(), "file").ok());
    EXPECT_TRUE(second->Mkdir(second.root(), "directory").ok());
    second.Hurry(true);
    EXPECT_EQ(second->Unlink(second.root(), "file").errno_value(), ETIMEDOUT);
    EXPECT_EQ(second->Rename(second.root(), "file", second.root(), "target").errno_value(),
              ETIMEDOUT);
    EXPECT_TRUE(second->Lookup(second.root(), "file").ok()) << "other calls go on";
    second.Hurry(false);
    first.cut_off = false;
    EXPECT_EQ(Text(first->Read(open, 0, 100)), "content");
    EXPECT_TRUE(second->Rename(second.root(), "file", second.root(), "target").ok());
    EXPECT_TRUE(second->Unlink(second.root(), "target").ok());
    EXPECT_EQ(Text(first->Read(open, 0, 100)), "content");
    EXPECT_EQ(Text(first->Read(replaced, 0, 100)), "content");
  }
};

// A short lease: a change by one waits that long for what another one may believe.
TEST_P(RestartTest, WhoHadAFileOpenComesFirst) {
  Rdfsd server({"--lease", "16"});
  WhoHadItComesFirst(server, [&server] { server.KillWorker(); });
}

TEST_P(RestartTest, AlsoWhenTheWholeServerWasStartedAnew) {
  Rdfsd server({"--lease", "16"});
  WhoHadItComesFirst(server, [&server] {
    server.KillAll();
    server.Start();
  });
}

TEST_P(RestartTest, NobodyWaitsForEverForOneThatDoesNotComeBack) {
  Rdfsd server({"--lease", "4"});
  Write(server, "file");
  Peer first(server, GetParam()), second(server, GetParam());
  const OpenPtr open = first.Open("file");
  first.cut_off = true;
  server.KillWorker();
  EXPECT_TRUE(second->Unlink(second.root(), "file").ok());
}

TEST_P(RestartTest, AloneNobodyWaits) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam());
  const OpenPtr open = first.Open("file");
  server.KillWorker();
  EXPECT_EQ(Text(first->Read(open, 0, 100)), "content");
  first.Hurry(true);
  const Status unlinked = first->Unlink(first.root(), "file");
  EXPECT_TRUE(unlinked.ok()) << unlinked.ToString();
}

TEST_P(RestartTest, ALockIsNotGivenToAnotherBeforeItsHolderIsBack) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam()), second(server, GetParam());
  const OpenPtr mine = first.Open("file");
  const OpenPtr theirs = second.Open("file");
  Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
  ASSERT_TRUE(first->SetLock(mine, lock).ok());

  // The second one waits for it when the worker is killed.
  bool over = false;
  Status ended;
  second->lane().SetLock(second->context(), theirs, lock, false, true, [&](Status status) {
    ended = std::move(status);
    over = true;
  });
  EXPECT_FALSE(second->RunUntil(over, DeadlineAfter(milliseconds(50))));
  first.cut_off = true;
  server.KillWorker();
  EXPECT_FALSE(second->RunUntil(over, DeadlineAfter(kHeld)));
  first.cut_off = false;
  EXPECT_EQ(Text(first->Read(mine, 0, 100)), "content");
  EXPECT_FALSE(second->RunUntil(over, DeadlineAfter(kHeld))) << "it is locked still";
  lock.type = LockType::kUnlock;
  EXPECT_TRUE(first->SetLock(mine, lock).ok());
  EXPECT_TRUE(second->RunUntil(over, DeadlineAfter(seconds(10))));
  EXPECT_TRUE(ended.ok()) << ended.ToString();
}

TEST_P(RestartTest, LocksOfAReadingAndOfAWritingDescriptorOutliveTheWorker) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam()), second(server, GetParam());
  const OpenPtr reader = first.Open("file", kOpenRead);
  const OpenPtr writer = first.Open("file", kOpenWrite);
  Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kRead, .pid = 11};
  ASSERT_TRUE(first->SetLock(reader, lock).ok());
  lock = {.owner = 1, .start = 20, .end = 29, .type = LockType::kWrite, .pid = 11};
  ASSERT_TRUE(first->SetLock(writer, lock).ok());
  first.cut_off = true;
  server.KillWorker();
  EXPECT_TRUE(second->GetAttr(second.root()).ok()) << "another worker is there";
  const Fd local(::open((server.root() / "file").c_str(), O_RDWR | O_CLOEXEC));
  for (const off_t start : {0, 20}) {
    struct flock wanted {};
    wanted.l_type = F_WRLCK;
    wanted.l_start = start;
    wanted.l_len = 1;
    EXPECT_EQ(::fcntl(local.get(), F_OFD_SETLK, &wanted), -1) << start;
  }
  first.cut_off = false;
}

TEST_P(RestartTest, LocksComeBackAfterTheWholeServerWasStartedAnew) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam()), second(server, GetParam());
  const OpenPtr mine = first.Open("file");
  const OpenPtr theirs = second.Open("file");
  Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
  Lock whole{.owner = 3, .start = 0, .end = INT64_MAX, .type = LockType::kRead, .pid = 11};
  ASSERT_TRUE(first->SetLock(mine, lock).ok());
  ASSERT_TRUE(first->SetLock(mine, whole, true).ok());
  first.cut_off = true;
  server.KillAll();
  server.Start();
  second.Hurry(true);
  EXPECT_EQ(second->SetLock(theirs, lock).errno_value(), ETIMEDOUT) << "held back";
  second.Hurry(false);
  first.cut_off = false;
  EXPECT_EQ(Text(first->Read(mine, 0, 100)), "content");
  EXPECT_EQ(second->SetLock(theirs, lock).errno_value(), EAGAIN) << "its holder is back";
  whole.type = LockType::kWrite;
  EXPECT_EQ(second->SetLock(theirs, whole, true).errno_value(), EAGAIN);
  lock.type = LockType::kUnlock;
  EXPECT_TRUE(first->SetLock(mine, lock).ok());
  lock.type = LockType::kWrite;
  EXPECT_TRUE(second->SetLock(theirs, lock).ok());
}

// A change of a flock's kind gives the old one up first, granted or not (flock(2)).
TEST_P(RestartTest, AFlockThatWasGivenUpIsNotAskedForAgain) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam()), second(server, GetParam());
  const OpenPtr mine = first.Open("file");
  const OpenPtr theirs = second.Open("file");
  const Lock read{.owner = 1, .start = 0, .end = INT64_MAX, .type = LockType::kRead, .pid = 11};
  Lock write = read;
  write.type = LockType::kWrite;
  ASSERT_TRUE(first->SetLock(mine, read, true).ok());
  ASSERT_TRUE(second->SetLock(theirs, read, true).ok());
  EXPECT_EQ(first->SetLock(mine, write, true).errno_value(), EAGAIN);
  server.KillWorker();
  std::jthread comes_back_too([&second](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_TRUE(second->GetAttr(second.root()).ok());
  });
  EXPECT_EQ(Text(first->Read(mine, 0, 100)), "content");
  comes_back_too.request_stop();
  comes_back_too.join();
  EXPECT_TRUE(second->SetLock(theirs, write, true).ok());
}

// A lock that is waited for stays unanswered while far more requests than the record has room for
// come and go; as many of them as a lane has requests in flight are no reason not to unlock.
TEST_P(RestartTest, ManyRequestsPassLocksThatAreWaitedFor) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam());
  const OpenPtr open = first.Open("file");
  Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
  ASSERT_TRUE(first->SetLock(open, lock).ok());
  int ended = 0;
  bool over = false;
  constexpr int kWaiters = 600;
  Lock read = lock;
  read.type = LockType::kRead;
  for (int i = 0; i < kWaiters; ++i) {
    read.owner = static_cast<std::uint64_t>(i) + 2;
    first->lane().SetLock(first->context(), open, read, false, true, [&](Status status) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      over = ++ended == kWaiters;
    });
  }
  const Handle file = open->handle();
  for (int i = 0; i < 20'000; ++i) {
    const auto set = first->SetAttr(file, {.valid = kSetMtimeNow});
    ASSERT_TRUE(set.ok()) << i << ": " << set.status().ToString();
  }
  EXPECT_EQ(ended, 0);
  lock.type = LockType::kUnlock;
  EXPECT_TRUE(first->SetLock(open, lock).ok());
  EXPECT_TRUE(first->RunUntil(over, DeadlineAfter(seconds(20)))) << ended;
}

TEST_P(RestartTest, AccessThatWasTakenAwayIsNoLoss) {
  Rdfsd server;
  Write(server, "file");
  Peer first(server, GetParam());
  const OpenPtr open = first.Open("file");
  ASSERT_TRUE(first->SetAttr(open->handle(), {.valid = kSetMode, .mode = 0}, open).ok());
  server.KillWorker();
  EXPECT_EQ(Text(first->Read(open, 0, 100)), "content");
  const std::string more = "more content";
  EXPECT_TRUE(first->Write(open, 0, AsBytes(more)).ok());
  server.KillWorker();
  EXPECT_EQ(Text(first->Read(open, 0, 100)), more) << "kept again after the first time";
}

// The server has given the file another number then, of which the client may not have heard.
TEST_P(RestartTest, KilledAgainAtAnyAnswerOnTheWayBackItLosesNothing) {
  int at = 1;
  for (; at < 50; ++at) {
    Rdfsd server({}, 0, Rdfsd::OpensByHandle::kNo);
    Write(server, "file");
    Write(server, "locked");
    Peer first(server, GetParam()), second(server, GetParam());
    const OpenPtr open = first.Open("file");
    const OpenPtr mine = first.Open("locked");
    const OpenPtr theirs = second.Open("locked");
    const Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
    ASSERT_TRUE(first->SetLock(mine, lock).ok());
    ASSERT_TRUE(first->Unlink(first.root(), "file").ok());
    first.LoseMessage(at, [&server] { server.KillWorker(); });
    server.KillWorker();
    {
      // Which is asked to say that nothing that it has written is missing.
      const std::jthread comes_back_too([&second](const std::stop_token& stop) {
        while (!stop.stop_requested()) EXPECT_TRUE(second->GetAttr(second.root()).ok());
      });
      EXPECT_EQ(Text(first->Read(open, 0, 100)), "content") << at;
      EXPECT_EQ(Text(first->Read(mine, 0, 100)), "content") << at;
    }
    EXPECT_EQ(second->SetLock(theirs, lock).errno_value(), EAGAIN) << at;
    EXPECT_TRUE(first->Release(open).ok());
    if (!first.has_lost()) break;
  }
  EXPECT_GT(at, 4) << "a lane, two files, a lock";
  EXPECT_LT(at, 50);
}

// When nobody can come back any more, the server gives up the locks that nobody has claimed.
TEST_P(RestartTest, ALockThatIsClaimedByAnEarlierNumberIsNoneOfThem) {
  constexpr seconds kLease{4};
  Rdfsd server({"--lease", std::to_string(kLease.count())});
  Write(server, "file");
  Peer first(server, GetParam());
  const OpenPtr mine = first.Open("file");
  const Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
  ASSERT_TRUE(first->SetLock(mine, lock).ok());
  first.LoseMessage(2, [&server] { server.KillWorker(); });  // which says the file's new number
  server.KillWorker();
  EXPECT_EQ(Text(first->Read(mine, 0, 100)), "content");
  EXPECT_TRUE(first.has_lost());
  Peer second(server, GetParam());
  const OpenPtr theirs = second.Open("file");
  bool never = false;
  for (int i = 0; i < 10; ++i) {  // both are heard of
    EXPECT_FALSE(first->RunUntil(never, DeadlineAfter((kLease + seconds(1)) / 10)));
    EXPECT_TRUE(second->GetAttr(second.root()).ok());
  }
  EXPECT_EQ(second->SetLock(theirs, lock).errno_value(), EAGAIN);
  EXPECT_EQ(mine->lost_errno(), 0);
}

// Behind the server's back a file is moved and its directory closed to everybody.
TEST_P(RestartTest, WhatStaysOpenIsKeptWhateverHappensToItsName) {
  Rdfsd server;
  std::filesystem::create_directory(server.root() / "directory");
  Write(server, "directory/file");
  Peer first(server, GetParam());
  const auto directory = first->Lookup(first.root(), "directory");
  ASSERT_TRUE(directory.ok());
  const std::size_t before = server.SupervisorDescriptors();
  const auto file = first->Lookup(directory->handle, "file");
  const OpenPtr open = first->Open(file->handle, kOpenRead)->open;
  const TimePoint patience = BootClock::now() + seconds(20);
  while (server.SupervisorDescriptors() == before && BootClock::now() < patience) {
    ASSERT_TRUE(first->GetAttr(first.root()).ok());
  }
  std::filesystem::rename(server.root() / "directory/file", server.root() / "directory/moved");
  std::filesystem::permissions(server.root() / "directory", std::filesystem::perms::none);
  server.KillWorker();
  EXPECT_EQ(Text(first->Read(open, 0, 100)), "content");
  std::filesystem::permissions(server.root() / "directory", std::filesystem::perms::owner_all);
  EXPECT_TRUE(first->Release(open).ok());
  while (server.SupervisorDescriptors() > before && BootClock::now() < patience) {
    ASSERT_TRUE(first->GetAttr(first.root()).ok());
  }
  EXPECT_EQ(server.SupervisorDescriptors(), before) << "nothing is kept that is closed";
}

TEST_P(RestartTest, AnUnmountEndsTheSessionAtOnce) {
  Rdfsd server;
  Write(server, "file");
  Peer second(server, GetParam());
  const OpenPtr theirs = second.Open("file");
  Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
  {
    Peer first(server, GetParam());
    ASSERT_TRUE(first->SetLock(first.Open("file"), lock).ok());
    EXPECT_EQ(second->SetLock(theirs, lock).errno_value(), EAGAIN);
  }
  second.Hurry(true);
  EXPECT_TRUE(second->SetLock(theirs, lock, false, true).ok());
}

// Far more files than descriptors: all are found, and there is room to open one.
TEST_P(RestartTest, ManyFilesNeedFewDescriptors) {
  constexpr std::size_t kDescriptors = 600;
  Rdfsd server({}, kDescriptors);
  constexpr int kFiles = 20'000;
  for (int i = 0; i < kFiles; ++i) {
    std::ofstream(server.root() / ("file-" + std::to_string(i))) << i;
  }
  Peer first(server, GetParam());
  std::size_t most = 0;
  for (int i = 0; i < kFiles; ++i) {
    const auto file = first->Lookup(first.root(), "file-" + std::to_string(i));
    ASSERT_TRUE(file.ok()) << i << ": " << file.status().ToString();
    if (i % 1000 == 0) most = std::max(most, server.WorkerDescriptors());
  }
  EXPECT_LT(most, kDescriptors / 2);
  // One that opens all that it can leaves something for the next.
  std::vector<OpenPtr> opens;
  Status refused;
  for (int i = 0; i < kFiles && refused.ok(); ++i) {
    const auto file = first->Lookup(first.root(), "file-" + std::to_string(i));
    ASSERT_TRUE(file.ok()) << i << ": " << file.status().ToString();
    auto open = first->Open(file->handle, kOpenRead);
    refused = open.status();
    if (open.ok()) opens.push_back(open->open);
  }
  EXPECT_EQ(refused.errno_value(), EMFILE);
  EXPECT_GT(opens.size(), 50U);
  Peer second(server, GetParam());
  const OpenPtr open = second.Open("file-7");
  EXPECT_EQ(Text(second->Read(open, 0, 100)), "7");
  for (const OpenPtr& mine : opens) EXPECT_TRUE(first->Release(mine).ok());
}

INSTANTIATE_TEST_SUITE_P(Transports, RestartTest, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::fs::client
