// Requests that come twice happen once.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

class ReplayTest : public testing::Test {
 protected:
  Answer Deliver(Opcode opcode, const Body& body, std::uint64_t sequence) {
    EXPECT_TRUE(server.Deliver(server.lane, Harness::Message(opcode, body.bytes(), sequence)));
    return server.TakeAnswer(server.lane);
  }
  Harness server{{.record = true}};
};

TEST_F(ReplayTest, TheSecondAnswerIsTheFirst) {
  fs::MknodRequest request{};
  request.mode = 0755;
  const Body body = Body().Add(request).Add(server.root()).Name("made");
  const Answer first = Deliver(Opcode::kMkdir, body, 1);
  const Answer second = Deliver(Opcode::kMkdir, body, 1);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(second.ok());  // and not EEXIST
  EXPECT_EQ(first.body, second.body);
  EXPECT_EQ(Deliver(Opcode::kMkdir, body, 2).errno_value(), EEXIST);
  EXPECT_EQ(Deliver(Opcode::kMkdir, body, 2).errno_value(), EEXIST);
  EXPECT_EQ(server.core().counters.replayed.load(), 2U);
}

// As while one before them takes long: they come again, and their client says which answers it has.
TEST_F(ReplayTest, WhatFindsNoRoomInTheRecordIsHeldBack) {
  fs::MknodRequest request{};
  request.mode = 0755;
  const auto make = [&](std::uint64_t sequence, const Body& extensions) {
    const std::string name = std::to_string(sequence);
    const Body body = Body().Add(request).Add(server.root()).Name(name);
    auto message = Harness::Message(Opcode::kMkdir, body.bytes(), sequence);
    message.insert(message.end(), extensions.bytes().begin(), extensions.bytes().end());
    EXPECT_TRUE(server.Deliver(server.lane, message));
    return server.TakeAnswer(server.lane).error;
  };
  constexpr std::uint64_t kRecords = 64;
  for (std::uint64_t i = 1; i <= kRecords; ++i) ASSERT_EQ(make(i, {}), fs::WireError::kOk);
  EXPECT_EQ(make(kRecords + 1, {}), fs::WireError::kGrace);
  EXPECT_FALSE(std::filesystem::exists(server / std::to_string(kRecords + 1)));
  const Body answered = Body()
                            .Add(fs::ExtensionHeader{.type = fs::kExtensionAnswered, .length = 16})
                            .Add(Le64(5))
                            .Add(Le64(6));
  EXPECT_EQ(make(kRecords + 2, answered), fs::WireError::kOk);
  EXPECT_EQ(make(kRecords + 3, {}), fs::WireError::kOk);
  EXPECT_EQ(make(kRecords + 4, {}), fs::WireError::kGrace);
  EXPECT_EQ(server.session()->record()->records_in_use(), kRecords);
}

TEST_F(ReplayTest, AnAppendIsNotDoneTwice) {
  std::ofstream(server / "file") << "x";
  const std::uint64_t open = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenWrite));
  fs::WriteRequest request{};
  request.open = open;
  request.flags = fs::kWriteAppend;
  const Body body = Body().Add(request).Sized32(AsBytes("once"));
  const auto first = Deliver(Opcode::kWrite, body, 100).As<fs::WriteReply>();
  const auto second = Deliver(Opcode::kWrite, body, 100).As<fs::WriteReply>();
  EXPECT_EQ(first.offset, second.offset);
  std::ifstream file(server / "file");
  std::string content;
  std::getline(file, content);
  EXPECT_EQ(content, "xonce");
}

// Its session was given up, or its server's host has crashed: what was asked there has no record.
class LostRecordTest : public testing::Test {
 protected:
  LostRecordTest() {
    std::ofstream(server / "file") << "x";
    fs::AttachLaneRequest attach{};
    EXPECT_TRUE(Deliver(Opcode::kAttachLane, Body().Add(attach), kAttached, 0).ok());
  }
  Answer Deliver(Opcode opcode, const Body& body, std::uint64_t sequence, std::uint16_t flags) {
    EXPECT_TRUE(server.Deliver(
        server.lane, Harness::Message(opcode, body.bytes(), sequence, 42, {0, 0}, flags)));
    return server.TakeAnswer(server.lane);
  }
  Answer Append(std::uint64_t sequence, std::uint16_t flags) {
    if (open_ == 0) {
      open_ = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenWrite));
    }
    fs::WriteRequest request{};
    request.open = open_;
    request.flags = fs::kWriteAppend;
    return Deliver(Opcode::kWrite, Body().Add(request).Sized32(AsBytes("once")), sequence, flags);
  }
  std::string Content() {
    std::ifstream file(server / "file");
    std::string content;
    std::getline(file, content);
    return content;
  }
  static constexpr std::uint64_t kAttached = 1000;
  Harness server{{.record = true, .lost_record = true}};
  std::uint64_t open_ = 0;
};

TEST_F(LostRecordTest, WhatMayHaveBeenDoneIsNotDoneAgain) {
  EXPECT_EQ(Append(500, fs::kRequestSentBefore).errno_value(), EIO);
  EXPECT_EQ(Append(500, fs::kRequestSentBefore).errno_value(), EIO) << "as often as it comes";
  EXPECT_EQ(Content(), "x");
  EXPECT_TRUE(Append(501, 0).ok()) << "it was never sent before";
  EXPECT_TRUE(Append(kAttached + 1, fs::kRequestSentBefore).ok()) << "it was sent to us";
  EXPECT_EQ(Content(), "xonceonce");
}

TEST_F(LostRecordTest, NamesAreMadeWhereThereIsNone) {
  fs::MknodRequest request{};
  request.mode = 0755;
  const auto made = [&](std::uint64_t sequence, std::string_view name) {
    const Body body = Body().Add(request).Add(server.root()).Name(std::string(name));
    return Deliver(Opcode::kMkdir, body, sequence, fs::kRequestSentBefore).errno_value();
  };
  EXPECT_EQ(made(600, "new"), 0);
  EXPECT_EQ(made(600, "new"), 0) << "by the record that there is now";
  EXPECT_EQ(made(601, "new"), EIO) << "and not EEXIST: it may have made it";
}

TEST_F(ReplayTest, WhatAStopCutsOffIsLeftToTheNextServer) {
  IntentRing& record = *server.session()->record();
  const auto drop = [&](std::uint64_t sequence) {
    ASSERT_TRUE(record.Begin(sequence, Opcode::kFallocate, 1, {}).ok());
    Responder dropped(server.lane, Opcode::kFallocate, sequence, 7, server.core().counters);
    dropped.SetRecorded();
  };
  drop(5);
  EXPECT_EQ(record.Lookup(5, 1).verdict, IntentRing::Verdict::kDone);
  server.session()->MarkEnded();
  drop(6);
  EXPECT_EQ(record.Lookup(6, 1).verdict, IntentRing::Verdict::kInProgress);
}

TEST_F(ReplayTest, WhatIsMadeWhileTheSessionEndsIsLeftToTheNextServer) {
  // Behind the look whether it has ended.
  server.clock.hook = [&] { server.session()->MarkEnded(); };
  fs::CreateRequest create{};
  create.flags = fs::kOpenWrite | fs::kOpenExclusive;
  create.mode = 0644;
  const Body body = Body().Add(create).Add(server.root()).Name("made");
  ASSERT_TRUE(server.Deliver(server.lane, Harness::Message(Opcode::kCreate, body.bytes(), 5)));
  EXPECT_FALSE(server.WaitForAnswer(server.lane, 20)) << "its client would ask under a new number";
  EXPECT_TRUE(std::filesystem::exists(server / "made"));
  const std::uint64_t digest = IntentRing::Digest(Opcode::kCreate, body.bytes());
  const IntentRing::Found found = server.session()->record()->Lookup(5, digest);
  EXPECT_EQ(found.verdict, IntentRing::Verdict::kInProgress);
}

TEST_F(ReplayTest, WhatTheEndOfTheSessionHasClosedIsNoBadNumber) {
  server.clock.hook = [&] { server.session()->MarkEnded(); };
  EXPECT_EQ(server.Ask(Opcode::kRelease, Body().Add(fs::ReleaseRequest{})).error,
            fs::WireError::kUnknownSession);
}

TEST_F(ReplayTest, WhatAnEndedSessionIsAskedAgainHasNoAnswer) {
  server.session()->MarkEnded();
  const Body body = Body().Add(server.root()).Name("a");
  EXPECT_EQ(Deliver(Opcode::kUnlink, body, 5).error, fs::WireError::kUnknownSession)
      << "under a new number it is a new one";
  const auto again =
      Harness::Message(Opcode::kUnlink, body.bytes(), 6, 42, {0, 0}, fs::kRequestSentBefore);
  ASSERT_TRUE(server.Deliver(server.lane, again));
  EXPECT_FALSE(server.WaitForAnswer(server.lane, 20)) << "it may have been done already";
}

TEST_F(ReplayTest, AnotherRequestUnderTheSameNumberEndsTheLane) {
  const Body one = Body().Add(server.root()).Name("a");
  const Body two = Body().Add(server.root()).Name("b");
  (void)Deliver(Opcode::kUnlink, one, 5);
  EXPECT_FALSE(server.Deliver(server.lane, Harness::Message(Opcode::kUnlink, two.bytes(), 5)));
}

TEST_F(ReplayTest, WhoAsksAgainWhileItIsInProgressIsAnsweredToo) {
  std::ofstream(server / "file") << "x";
  const std::uint64_t holder =
      server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  const std::uint64_t waiter =
      server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  fs::LockRequest lock{};
  lock.open = holder;
  lock.owner = 1;
  lock.type = static_cast<std::uint32_t>(fs::LockType::kWrite);
  lock.end = LockTable::kEnd;
  ASSERT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(lock)).ok());
  fs::LockRequest wait = lock;
  wait.open = waiter;
  wait.owner = 2;
  wait.flags = fs::kLockWait;
  const Body body = Body().Add(wait);
  ASSERT_TRUE(server.Deliver(server.lane, Harness::Message(Opcode::kSetLock, body.bytes(), 500)));
  // The lane is lost; the client comes back on another one and asks again.
  const auto again = server.NewLane(server.session());
  ASSERT_TRUE(server.Deliver(again, Harness::Message(Opcode::kSetLock, body.bytes(), 500)));
  EXPECT_FALSE(server.WaitForAnswer(again, 20));
  EXPECT_EQ(server.TakeAnswer(server.lane).errno_value(), EINTR) << "only one of them waits";
  EXPECT_EQ(server.core().locks.waiting(), 1U);
  lock.type = static_cast<std::uint32_t>(fs::LockType::kUnlock);
  server.Send(Opcode::kSetLock, Body().Add(lock));
  const Answer answer = server.TakeAnswer(again);
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(answer.sequence, 500U);
}

// Waiting has no record, whatever is acknowledged meanwhile, and takes no room among the requests
// in flight: the lane goes on.
TEST_F(ReplayTest, LocksThatAreWaitedForHoldNothingUp) {
  std::ofstream(server / "file") << "x";
  const std::uint64_t open =
      server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  fs::LockRequest lock{};
  lock.open = open;
  lock.type = static_cast<std::uint32_t>(fs::LockType::kWrite);
  lock.end = LockTable::kEnd;
  ASSERT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(lock)).ok());
  lock.flags = fs::kLockWait;
  const std::size_t records = server.session()->record()->records_in_use();
  for (std::size_t i = 1; i <= LockService::kMaxWaitersOfSession; ++i) {
    lock.owner = i;
    server.Send(Opcode::kSetLock, Body().Add(lock));
  }
  EXPECT_FALSE(server.WaitForAnswer(server.lane, 20));
  EXPECT_EQ(server.lane->in_flight(), 0U);
  EXPECT_EQ(server.session()->record()->records_in_use(), records);
  lock.owner = LockService::kMaxWaitersOfSession + 1;
  EXPECT_EQ(server.Ask(Opcode::kSetLock, Body().Add(lock)).errno_value(), ENOLCK);
  server.core().locks.SessionEnded(server.session()->id());
  EXPECT_EQ(server.core().locks.waiting(), 0U);
}

TEST_F(ReplayTest, AWaiterWhoseLaneIsLostGetsNoLock) {
  std::ofstream(server / "file") << "x";
  const std::uint64_t open =
      server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  fs::LockRequest lock{};
  lock.open = open;
  lock.owner = 1;
  lock.type = static_cast<std::uint32_t>(fs::LockType::kWrite);
  lock.end = LockTable::kEnd;
  ASSERT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(lock)).ok());
  fs::LockRequest wait = lock;
  wait.owner = 2;
  wait.flags = fs::kLockWait;
  auto lost = server.NewLane(server.session());
  ASSERT_TRUE(
      server.Deliver(lost, Harness::Message(Opcode::kSetLock, Body().Add(wait).bytes(), 500)));
  lost.reset();
  lock.type = static_cast<std::uint32_t>(fs::LockType::kUnlock);
  EXPECT_TRUE(server.Ask(Opcode::kSetLock, Body().Add(lock)).ok());
  EXPECT_EQ(server.core().locks.held(), 0U);
  EXPECT_EQ(server.core().locks.waiting(), 0U);
}

// The worker is killed between the deed and its answer, and another one finds the intent.
class CrashTest : public testing::Test {
 protected:
  explicit CrashTest(HarnessOptions options = {.record = true}) : server(std::move(options)) {}
  // What the first worker wrote down before it died.
  void LeaveIntent(std::uint64_t sequence, Opcode opcode, const Body& body,
                   const PriorState& before) {
    auto ring = IntentRing::Open(server.base / "ring77", 77, 64);
    ASSERT_TRUE(ring.ok());
    ASSERT_TRUE(
        (*ring)->Begin(sequence, opcode, IntentRing::Digest(opcode, body.bytes()), before).ok());
  }
  // And what it answered.
  void LeaveAnswer(std::uint64_t sequence, Opcode opcode, const Body& body, const Answer& answer) {
    LeaveIntent(sequence, opcode, body, {});
    auto ring = IntentRing::Open(server.base / "ring77", 77, 64);
    ASSERT_TRUE(ring.ok());
    (*ring)->Complete(sequence, fs::WireError::kOk, answer.body);
  }
  Answer AskAgain(std::uint64_t sequence, Opcode opcode, const Body& body) {
    const auto lane = server.NewLane(server.NewSession(77));
    EXPECT_TRUE(
        server.Deliver(lane, Harness::Message(opcode, body.bytes(), sequence, 77, server.caller)));
    Answer answer = server.TakeAnswer(lane);
    server.ActAsItself();
    return answer;
  }
  Harness server;
};

// The record of a server that is gone does not answer for its locks.
TEST_F(CrashTest, ALockThatWasGivenIsGivenAgain) {
  std::ofstream(server / "file") << "x";
  fs::LockRequest lock{};
  lock.owner = 1;
  lock.type = static_cast<std::uint32_t>(fs::LockType::kWrite);
  lock.end = LockTable::kEnd;
  {
    auto ring = IntentRing::Open(server.base / "ring77", 77, 64);
    ASSERT_TRUE(ring.ok());
    const std::uint64_t digest = IntentRing::Digest(Opcode::kSetLock, Body().Add(lock).bytes());
    ASSERT_TRUE((*ring)->Begin(900, Opcode::kSetLock, digest, {}).ok());
    (*ring)->Complete(900, fs::WireError::kOk, {});
  }
  server.lane = server.NewLane(server.NewSession(77));
  lock.open = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  ASSERT_TRUE(server.Deliver(
      server.lane,
      Harness::Message(Opcode::kSetLock, Body().Add(lock).bytes(), 900, 77, server.caller)));
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  EXPECT_EQ(server.core().locks.held(), 1U);
}

TEST_F(CrashTest, AnUnlinkThatHappenedIsAnsweredAsDone) {
  std::ofstream(server / "gone");
  struct statx stat {};
  ASSERT_EQ(::statx(AT_FDCWD, (server / "gone").c_str(), 0, STATX_BASIC_STATS, &stat), 0);
  PriorState before;
  before.first.exists = true;
  before.first.id = {.device = DeviceOf(stat), .inode = stat.stx_ino, .generation = 0};
  const Body body = Body().Add(server.root()).Name("gone");
  LeaveIntent(9, Opcode::kUnlink, body, before);
  ::unlink((server / "gone").c_str());
  EXPECT_TRUE(AskAgain(9, Opcode::kUnlink, body).ok());
}

TEST_F(CrashTest, AnUnlinkThatDidNotHappenIsDone) {
  std::ofstream(server / "gone");
  struct statx stat {};
  ASSERT_EQ(::statx(AT_FDCWD, (server / "gone").c_str(), 0, STATX_BASIC_STATS, &stat), 0);
  PriorState before;
  before.first.exists = true;
  before.first.id = {.device = DeviceOf(stat), .inode = stat.stx_ino, .generation = 0};
  const Body body = Body().Add(server.root()).Name("gone");
  LeaveIntent(9, Opcode::kUnlink, body, before);
  EXPECT_TRUE(AskAgain(9, Opcode::kUnlink, body).ok());
  EXPECT_NE(::access((server / "gone").c_str(), F_OK), 0);
}

TEST_F(CrashTest, AnUnlinkWhoseNameIsAnotherFilesByNowIsNotDone) {
  std::ofstream(server / "name");
  PriorState before;
  before.first.exists = true;
  before.first.id = {.device = 1, .inode = 1, .generation = 0};
  const Body body = Body().Add(server.root()).Name("name");
  LeaveIntent(9, Opcode::kUnlink, body, before);
  EXPECT_EQ(AskAgain(9, Opcode::kUnlink, body).errno_value(), EIO);
  EXPECT_EQ(::access((server / "name").c_str(), F_OK), 0);
}

// A directory that the second worker does not find says nothing of what is in it.
TEST_F(CrashTest, WhatCannotBeLookedAtIsNeitherDoneNorAnsweredAsDone) {
  Harness elsewhere;
  const fs::Handle lost = elsewhere.root();
  PriorState there, absent;
  there.first.exists = true;
  there.first.id = {.device = 1, .inode = 1, .generation = 0};
  absent.at_ns = 1;
  const Body unlink = Body().Add(lost).Name("name");
  LeaveIntent(9, Opcode::kUnlink, unlink, there);
  EXPECT_EQ(AskAgain(9, Opcode::kUnlink, unlink).errno_value(), EIO);
  fs::CreateRequest request{};
  request.flags = fs::kOpenWrite | fs::kOpenExclusive;
  const Body create = Body().Add(request).Add(lost).Name("made");
  LeaveIntent(10, Opcode::kCreate, create, absent);
  EXPECT_EQ(AskAgain(10, Opcode::kCreate, create).errno_value(), EIO);
}

TEST_F(CrashTest, AMkdirThatHappenedAnswersItsEntry) {
  fs::MknodRequest request{};
  request.mode = 0755;
  const Body body = Body().Add(request).Add(server.root()).Name("made");
  PriorState before;
  before.at_ns = 1;
  LeaveIntent(9, Opcode::kMkdir, body, before);
  ASSERT_EQ(::mkdir((server / "made").c_str(), 0755), 0);
  const Answer answer = AskAgain(9, Opcode::kMkdir, body);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(S_ISDIR(Harness::EntryIn(answer).attr.mode));
}

TEST_F(CrashTest, ACreateThatHappenedIsOpened) {
  fs::CreateRequest request{};
  request.flags = fs::kOpenWrite | fs::kOpenExclusive;
  request.mode = 0644;
  const Body body = Body().Add(request).Add(server.root()).Name("made");
  PriorState before;
  before.at_ns = 1;
  LeaveIntent(9, Opcode::kCreate, body, before);
  std::ofstream(server / "made");
  EXPECT_TRUE(AskAgain(9, Opcode::kCreate, body).ok());
}

TEST_F(CrashTest, ACreateThatWasAnsweredIsOpenedOnceMore) {
  fs::CreateRequest request{};
  request.flags = fs::kOpenWrite;
  request.mode = 0644;
  const Body body = Body().Add(request).Add(server.root()).Name("made");
  LeaveAnswer(9, Opcode::kCreate, body, server.Create(server.root(), "made", request.flags));
  server.lane = server.NewLane(server.NewSession(77));
  const auto ask = [&] {
    EXPECT_TRUE(server.Deliver(
        server.lane, Harness::Message(Opcode::kCreate, body.bytes(), 9, 77, server.caller)));
    return server.TakeAnswer(server.lane);
  };
  const Answer first = ask();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(server.OpenNumber(ask()), server.OpenNumber(first)) << "this answer was lost, too";
  EXPECT_EQ(server.lane->session()->open_files(), 1U);
}

TEST_F(CrashTest, ACreateWhoseNameIsAnotherFilesByNowIsNotOpened) {
  fs::CreateRequest request{};
  request.flags = fs::kOpenWrite;
  request.mode = 0644;
  const Body body = Body().Add(request).Add(server.root()).Name("made");
  LeaveAnswer(9, Opcode::kCreate, body, server.Create(server.root(), "made", request.flags));
  std::ofstream(server / "other") << "another's";
  std::filesystem::rename(server / "other", server / "made");
  EXPECT_EQ(AskAgain(9, Opcode::kCreate, body).errno_value(), ESTALE);
}

// A server that is root and acts as its callers.
class CrashAsRootTest : public CrashTest {
 protected:
  CrashAsRootTest()
      : CrashTest(
            {.ids = IdMap::Daemon(IdMode::kRootSquash), .can_switch_ids = true, .record = true}) {}
};

// As git makes its objects. Nobody else gets at a file by that way.
TEST_F(CrashAsRootTest, ACreateThatHappenedIsOpenedThoughItsModeForbidsThat) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ::chmod(server.base.path().c_str(), 0755);
  ::chmod(server.dir().c_str(), 0777);
  const std::string made = server / "made";
  const int fd = ::open(made.c_str(), O_CREAT | O_WRONLY, 0444);
  ASSERT_EQ(::fchown(fd, 1234, 1234), 0);
  ::close(fd);
  PriorState before;
  before.at_ns = 1;
  std::uint64_t sequence = 9;
  for (const std::uint32_t exclusive : {0U, fs::kOpenExclusive}) {
    fs::CreateRequest request{};
    request.flags = fs::kOpenRead | fs::kOpenWrite | fs::kOpenCreate | exclusive;
    request.mode = 0444;
    const Body body = Body().Add(request).Add(server.root()).Name("made");
    LeaveIntent(sequence, Opcode::kCreate, body, before);
    LeaveIntent(sequence + 1, Opcode::kCreate, body, before);
    server.caller = {1235, 1235};
    EXPECT_EQ(AskAgain(sequence + 1, Opcode::kCreate, body).errno_value(), EACCES);
    server.caller = {1234, 1234};
    EXPECT_EQ(AskAgain(sequence, Opcode::kCreate, body).errno_value(), 0) << exclusive;
    sequence += 2;
    struct stat stat {};
    ASSERT_EQ(::stat(made.c_str(), &stat), 0);
    EXPECT_EQ(stat.st_mode & 07777U, 0444U);
  }
}

}  // namespace
}  // namespace rdfs::server
