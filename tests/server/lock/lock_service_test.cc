// Locks as clients ask for them, among themselves and against a process on the server.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::LockType;
using fs::Opcode;

class LockTest : public testing::Test {
 protected:
  LockTest() {
    std::ofstream(server / "file") << "0123456789";
    first_ = Open();
    second_ = Open();
  }
  std::uint64_t Open() {
    return server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
  }
  static fs::LockRequest Request(std::uint64_t open, std::uint64_t owner, LockType type,
                                 std::uint64_t start = 0, std::uint64_t end = LockTable::kEnd,
                                 std::uint32_t flags = 0) {
    fs::LockRequest request{};
    request.open = open;
    request.owner = owner;
    request.type = static_cast<std::uint32_t>(type);
    request.start = start;
    request.end = end;
    request.pid = static_cast<std::uint32_t>(1000 + owner);
    request.flags = flags;
    return request;
  }
  static fs::LockRequest Flock(std::uint64_t open, std::uint64_t owner, LockType type,
                               std::uint32_t flags = 0) {
    return Request(open, owner, type, 0, LockTable::kEnd, flags | fs::kLockFlock);
  }
  int Set(const fs::LockRequest& request) {
    return server.Ask(Opcode::kSetLock, Body().Add(request)).errno_value();
  }
  // Whether this process, as any other on the server, could lock a range now.
  bool LocalMayLock(short type, off_t start, off_t length) {
    const Fd fd(::open((server / "file").c_str(), O_RDWR));
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
    return ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0;
  }
  bool LocalMayFlock(int operation) {
    const Fd fd(::open((server / "file").c_str(), O_RDWR));
    return ::flock(fd.get(), operation | LOCK_NB) == 0;
  }

  Harness server;
  std::uint64_t first_ = 0, second_ = 0;
};

TEST_F(LockTest, RangesOfTwoOwners) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 0, 9)), 0);
  EXPECT_EQ(Set(Request(second_, 2, LockType::kRead, 5, 5)), EAGAIN);
  EXPECT_EQ(Set(Request(second_, 2, LockType::kRead, 10, 19)), 0);
  const auto found =
      server.Ask(Opcode::kGetLock, Body().Add(Request(second_, 2, LockType::kWrite, 3, 30)))
          .As<fs::LockReply>();
  EXPECT_EQ(found.type, static_cast<std::uint32_t>(LockType::kWrite));
  EXPECT_EQ(found.end, 9U);
  EXPECT_EQ(found.pid, 1001U);
  EXPECT_EQ(Set(Request(first_, 1, LockType::kUnlock, 0, 9)), 0);
  EXPECT_EQ(Set(Request(second_, 2, LockType::kWrite, 0, 9)), 0);
}

TEST_F(LockTest, ProcessesOfTheServerAreHonouredBothWays) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 0, 9)), 0);
  EXPECT_FALSE(LocalMayLock(F_RDLCK, 0, 5));
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 10, 5));
  EXPECT_EQ(Set(Request(first_, 1, LockType::kUnlock, 0, 4)), 0);
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 0, 5));

  const Fd local(::open((server / "file").c_str(), O_RDWR));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = 100;
  lock.l_len = 10;
  ASSERT_EQ(::fcntl(local.get(), F_OFD_SETLK, &lock), 0);
  EXPECT_EQ(Set(Request(first_, 1, LockType::kRead, 105, 105)), EAGAIN);
  const auto found =
      server.Ask(Opcode::kGetLock, Body().Add(Request(first_, 1, LockType::kRead, 0, 200)))
          .As<fs::LockReply>();
  EXPECT_EQ(found.start, 100U);
  EXPECT_EQ(found.end, 109U);
}

TEST_F(LockTest, NoDescriptorIsLeftOfALockThatALocalProcessRefused) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator entries("/proc/self/fd");
    return std::distance(begin(entries), end(entries));
  };
  const Fd local(::open((server / "file").c_str(), O_RDWR));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(local.get(), F_OFD_SETLK, &lock), 0);
  const auto before = descriptors();
  for (const std::uint64_t owner : {1U, 2U}) {  // the file's own descriptor, then another
    EXPECT_EQ(Set(Request(first_, owner, LockType::kWrite)), EAGAIN);
    EXPECT_EQ(Set(Request(first_, owner, LockType::kRead)), EAGAIN);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_TRUE(server.Release(first_).ok());
  EXPECT_EQ(descriptors(), before - 1);
}

TEST_F(LockTest, AWaiterGetsItsLockAtTheUnlock) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite)), 0);
  const std::uint64_t waiting = server.Send(
      Opcode::kSetLock,
      Body().Add(Request(second_, 2, LockType::kWrite, 0, LockTable::kEnd, fs::kLockWait)));
  EXPECT_FALSE(server.WaitForAnswer(server.lane, 20));
  EXPECT_EQ(server.core().locks.waiting(), 1U);
  const TimePoint waited = BootClock::now();
  server.lane->answered.clear();
  server.Send(Opcode::kSetLock, Body().Add(Request(first_, 1, LockType::kUnlock)));
  bool granted = false;
  for (int i = 0; i < 2; ++i) {
    const Answer answer = server.TakeAnswer(server.lane);
    EXPECT_TRUE(answer.ok());
    granted |= answer.sequence == waiting;
  }
  EXPECT_TRUE(granted);
  // What it waited for counts: one was taken before, the other after.
  ASSERT_EQ(server.lane->answered.size(), 2U);
  const auto& times = server.lane->answered;
  EXPECT_LT(std::min(times[0].second, times[1].second), waited);
  EXPECT_GE(std::max(times[0].second, times[1].second), waited);
}

TEST_F(LockTest, AWaiterForALocalProcessIsTriedAgain) {
  const Fd local(::open((server / "file").c_str(), O_RDWR));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(local.get(), F_OFD_SETLK, &lock), 0);
  server.Send(Opcode::kSetLock,
              Body().Add(Request(first_, 1, LockType::kWrite, 0, 5, fs::kLockWait)));
  server.scheduler.Advance(std::chrono::seconds(1));
  EXPECT_FALSE(server.WaitForAnswer(server.lane, 20));
  lock.l_type = F_UNLCK;
  ASSERT_EQ(::fcntl(local.get(), F_OFD_SETLK, &lock), 0);
  server.scheduler.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
}

// More than one message may cost: the rest is let in behind it, in the order they came.
TEST_F(LockTest, ManyWaitersAreLetInPieces) {
  constexpr std::uint64_t kWaiters = 600;
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite)), 0);
  std::vector<std::uint64_t> sent;
  for (std::uint64_t i = 0; i < kWaiters; ++i) {
    sent.push_back(server.Send(
        Opcode::kSetLock,
        Body().Add(Request(second_, 10 + i, LockType::kRead, 0, LockTable::kEnd, fs::kLockWait))));
  }
  const std::uint64_t unlock =
      server.Send(Opcode::kSetLock, Body().Add(Request(first_, 1, LockType::kUnlock)));
  EXPECT_GT(server.core().locks.waiting(), kWaiters / 4);
  EXPECT_LT(server.core().locks.waiting(), kWaiters);
  server.scheduler.Advance(std::chrono::nanoseconds(0));
  EXPECT_EQ(server.core().locks.waiting(), 0U);
  std::vector<std::uint64_t> granted;
  for (std::uint64_t i = 0; i <= kWaiters; ++i) {
    const Answer answer = server.TakeAnswer(server.lane);
    EXPECT_TRUE(answer.ok());
    if (answer.sequence != unlock) granted.push_back(answer.sequence);
  }
  EXPECT_EQ(granted, sent);
}

TEST_F(LockTest, InterruptGivesUp) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite)), 0);
  const std::uint64_t waiting = server.Send(
      Opcode::kSetLock, Body().Add(Request(second_, 2, LockType::kRead, 0, 0, fs::kLockWait)));
  fs::InterruptRequest interrupt{};
  interrupt.sequence = waiting;
  server.Send(Opcode::kInterrupt, Body().Add(interrupt));
  std::map<std::uint64_t, int> answers;
  for (int i = 0; i < 2; ++i) {
    const Answer answer = server.TakeAnswer(server.lane);
    answers[answer.sequence] = answer.errno_value();
  }
  EXPECT_EQ(answers[waiting], EINTR);
  EXPECT_EQ(answers[waiting + 1], 0);
  EXPECT_EQ(server.core().locks.waiting(), 0U);
}

TEST_F(LockTest, WhoWaitsThroughAFileThatIsClosedGetsNoLock) {
  ASSERT_EQ(Set(Request(first_, 1, LockType::kWrite)), 0);
  server.Send(Opcode::kSetLock,
              Body().Add(Request(second_, 2, LockType::kWrite, 0, LockTable::kEnd, fs::kLockWait)));
  ASSERT_FALSE(server.WaitForAnswer(server.lane, 50));
  EXPECT_EQ(server.Release(second_).errno_value(), 0);
  EXPECT_EQ(server.TakeAnswer(server.lane).errno_value(), EINTR) << "who waited";
  EXPECT_EQ(server.core().locks.waiting(), 0U);
  EXPECT_EQ(Set(Request(first_, 1, LockType::kUnlock)), 0);
  EXPECT_EQ(server.core().locks.held(), 0U);
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 0, 10));
}

// As when it is closed by another lane of its session, just behind the look for it.
TEST_F(LockTest, NoLockComesBackThroughAFileThatIsClosed) {
  const OpenPtr open = server.session()->FindOpen(first_);
  ASSERT_TRUE(open);
  ASSERT_TRUE(server.Release(first_).ok());
  const Lock lock{.owner = {.session = open->session, .owner = 1, .flock = false},
                  .type = LockType::kWrite,
                  .start = 0,
                  .end = LockTable::kEnd,
                  .open = open->number,
                  .pid = 1};
  EXPECT_EQ(server.core().locks.Reclaim(open, lock, true), EBADF);
  EXPECT_EQ(server.core().locks.held(), 0U);
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 0, 10));
}

TEST_F(LockTest, DeadlockIsRefused) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 0, 9)), 0);
  EXPECT_EQ(Set(Request(second_, 2, LockType::kWrite, 10, 19)), 0);
  server.Send(Opcode::kSetLock,
              Body().Add(Request(first_, 1, LockType::kWrite, 10, 10, fs::kLockWait)));
  EXPECT_EQ(Set(Request(second_, 2, LockType::kWrite, 0, 0, fs::kLockWait)), EDEADLK);
}

TEST_F(LockTest, FlushDropsTheOwnersAndReleaseTheFilesLocks) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 0, 9)), 0);
  EXPECT_EQ(Set(Request(first_, 3, LockType::kWrite, 20, 29)), 0);
  fs::FlushRequest flush{};
  flush.open = first_;
  flush.lock_owner = 1;
  EXPECT_TRUE(server.Ask(Opcode::kFlush, Body().Add(flush)).ok());
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 0, 10));
  EXPECT_FALSE(LocalMayLock(F_WRLCK, 20, 10));
  EXPECT_TRUE(server.Release(first_).ok());
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 20, 10));
  EXPECT_EQ(server.core().locks.held(), 0U);
}

// A process and its child have one descriptor, and each its own byte ranges; a flock of it is
// both's.
TEST_F(LockTest, AFlockMakesNoTwoOwnersShareADescription) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 0, 9)), 0);
  EXPECT_EQ(Set(Flock(first_, 7, LockType::kWrite)), 0);
  EXPECT_EQ(Set(Flock(first_, 7, LockType::kUnlock)), 0);
  EXPECT_EQ(Set(Request(first_, 2, LockType::kWrite, 20, 29)), 0);
  fs::FlushRequest flush{};
  flush.open = first_;
  flush.lock_owner = 2;
  EXPECT_TRUE(server.Ask(Opcode::kFlush, Body().Add(flush)).ok());
  EXPECT_FALSE(LocalMayLock(F_WRLCK, 0, 10)) << "the child's end unlocked its parent's";
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 20, 10));
}

TEST_F(LockTest, AReadersDescriptionGivesWayToAWriters) {
  // One owner, two open files: the lock taken through the reading one stays when the writing one
  // is needed.
  const std::uint64_t reader = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead));
  EXPECT_EQ(Set(Request(reader, 1, LockType::kWrite, 0, 4)), EBADF);
  EXPECT_EQ(Set(Request(reader, 1, LockType::kRead, 0, 4)), 0);
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 10, 14)), 0);
  EXPECT_FALSE(LocalMayLock(F_WRLCK, 0, 5));
  EXPECT_TRUE(LocalMayLock(F_RDLCK, 0, 5));
  EXPECT_FALSE(LocalMayLock(F_RDLCK, 10, 5));
}

TEST_F(LockTest, LocksOfAReadingAndOfAWritingDescriptorStay) {
  const std::uint64_t reader = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead));
  const std::uint64_t writer = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenWrite));
  EXPECT_EQ(Set(Request(writer, 1, LockType::kRead, 0, 4)), EBADF);
  EXPECT_EQ(Set(Request(reader, 1, LockType::kRead, 0, 4)), 0);
  EXPECT_EQ(Set(Request(writer, 1, LockType::kWrite, 10, 14)), 0);
  EXPECT_FALSE(LocalMayLock(F_WRLCK, 0, 5));
  EXPECT_TRUE(LocalMayLock(F_RDLCK, 0, 5));
  EXPECT_FALSE(LocalMayLock(F_RDLCK, 10, 5));
  // And the other way round, by another owner.
  EXPECT_EQ(Set(Request(writer, 2, LockType::kWrite, 20, 24)), 0);
  EXPECT_EQ(Set(Request(reader, 2, LockType::kRead, 30, 34)), 0);
  EXPECT_FALSE(LocalMayLock(F_RDLCK, 20, 5));
  EXPECT_FALSE(LocalMayLock(F_WRLCK, 30, 5));
  EXPECT_TRUE(LocalMayLock(F_RDLCK, 30, 5));
}

TEST_F(LockTest, WholeFiles) {
  EXPECT_EQ(Set(Flock(first_, 1, LockType::kRead)), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kRead)), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kWrite)), EAGAIN);
  const Fd local(::open((server / "file").c_str(), O_RDWR));
  EXPECT_NE(::flock(local.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(::flock(local.get(), LOCK_SH | LOCK_NB), 0);
  EXPECT_EQ(::flock(local.get(), LOCK_UN), 0);
  // Whole-file and range locks are apart.
  EXPECT_EQ(Set(Request(second_, 2, LockType::kWrite)), 0);
  EXPECT_TRUE(server.Release(first_).ok());
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kWrite)), 0);
  EXPECT_NE(::flock(local.get(), LOCK_SH | LOCK_NB), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kUnlock)), 0);
  EXPECT_EQ(::flock(local.get(), LOCK_EX | LOCK_NB), 0);
}

// As the kernel has it on a local file: a change of kind gives the old lock up first (flock(2)).
TEST_F(LockTest, WhoIsRefusedAnotherKindOfFlockHasNone) {
  EXPECT_EQ(Set(Flock(first_, 1, LockType::kRead)), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kRead)), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kWrite)), EAGAIN);
  EXPECT_EQ(Set(Flock(first_, 1, LockType::kWrite)), 0);
  EXPECT_EQ(Set(Flock(first_, 1, LockType::kUnlock)), 0);
  EXPECT_TRUE(LocalMayFlock(LOCK_EX));

  // A process of the server's in the way.
  const Fd local(::open((server / "file").c_str(), O_RDWR));
  ASSERT_EQ(::flock(local.get(), LOCK_SH), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kRead)), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kWrite)), EAGAIN);
  EXPECT_EQ(server.core().locks.held(), 0U);
  EXPECT_EQ(::flock(local.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(LockTest, WhoWaitsForAnotherKindOfFlockHasNone) {
  EXPECT_EQ(Set(Flock(first_, 1, LockType::kRead)), 0);
  EXPECT_EQ(Set(Flock(second_, 2, LockType::kRead)), 0);
  const std::uint64_t waiting =
      server.Send(Opcode::kSetLock, Body().Add(Flock(second_, 2, LockType::kWrite, fs::kLockWait)));
  EXPECT_FALSE(server.WaitForAnswer(server.lane, 20));
  fs::InterruptRequest interrupt{};
  interrupt.sequence = waiting;
  server.Send(Opcode::kInterrupt, Body().Add(interrupt));
  for (int answers = 0; answers < 2; ++answers) (void)server.TakeAnswer(server.lane);
  EXPECT_EQ(server.core().locks.waiting(), 0U);
  EXPECT_TRUE(server.Release(second_).ok());
  EXPECT_EQ(Set(Flock(first_, 1, LockType::kWrite)), 0);
}

TEST_F(LockTest, TheEndOfASessionLetsOthersIn) {
  EXPECT_EQ(Set(Request(first_, 1, LockType::kWrite, 0, 9)), 0);
  EXPECT_EQ(Set(Request(second_, 2, LockType::kWrite, 20, 29)), 0);
  EXPECT_EQ(Set(Flock(second_, 3, LockType::kWrite)), 0);
  server.session()->MarkEnded();
  server.core().locks.SessionEnded(server.session()->id());
  const auto opens = server.session()->RemoveAllOpens();
  ASSERT_EQ(opens.size(), 2U);
  server.core().locks.ReleasedAll(server.session()->id(), opens);
  EXPECT_TRUE(LocalMayLock(F_WRLCK, 0, 0));
  EXPECT_TRUE(LocalMayFlock(LOCK_EX));
  EXPECT_EQ(server.core().locks.held(), 0U);
}

TEST_F(LockTest, MalformedRequestsAreRefused) {
  fs::LockRequest bad = Request(first_, 1, LockType::kRead, 5, 4);
  EXPECT_FALSE(server.Deliver(server.lane,
                              Harness::Message(Opcode::kSetLock, Body().Add(bad).bytes(), 900)));
  bad = Request(first_, 1, LockType::kRead);
  bad.type = 3;
  EXPECT_FALSE(server.Deliver(server.lane,
                              Harness::Message(Opcode::kSetLock, Body().Add(bad).bytes(), 901)));
}

// The user database may take long, or hang.
class UnknownUserTest : public testing::Test {
 protected:
  UnknownUserTest() {
    std::ofstream(server / "file") << "x";
    struct statx stat {};
    const InodeRef file = server.table().Lookup(server.table().root(), "file", stat);
    Fd fd(::open((server / "file").c_str(), O_RDWR | O_CLOEXEC));
    lock.open = server.session()
                    ->AddOpen(server.session()->TakePlace(), file.inode, std::move(fd),
                              fs::kOpenRead | fs::kOpenWrite, 4321)
                    ->number;
    lock.owner = 1;
    lock.type = static_cast<std::uint32_t>(LockType::kWrite);
    lock.end = LockTable::kEnd;
    server.caller = {4321, 4321};
  }
  // What is answered before anything else happens.
  std::optional<int> AskNow(Opcode opcode, const Body& body) {
    server.Send(opcode, body);
    if (server.lane->sent.empty()) return std::nullopt;
    return server.TakeAnswer(server.lane).errno_value();
  }
  Harness server{{.ids = IdMap::Daemon(IdMode::kRootSquash), .can_switch_ids = true}};
  fs::LockRequest lock{};
};

TEST_F(UnknownUserTest, NoLockWaitsUntilItsCallersGroupsAreKnown) {
  EXPECT_EQ(AskNow(Opcode::kSetLock, Body().Add(lock)), 0);
  EXPECT_EQ(AskNow(Opcode::kGetLock, Body().Add(lock)), 0);
  EXPECT_EQ(AskNow(Opcode::kReclaimLock, Body().Add(lock)), 0);
  EXPECT_EQ(server.core().locks.held(), 1U);
  fs::FlushRequest flush{};
  flush.open = lock.open;
  flush.lock_owner = lock.owner;
  EXPECT_EQ(AskNow(Opcode::kFlush, Body().Add(flush)), 0);
  EXPECT_EQ(server.core().locks.held(), 0U);
}

TEST_F(UnknownUserTest, WhoWaitsForALockIsInterrupted) {
  ASSERT_EQ(AskNow(Opcode::kSetLock, Body().Add(lock)), 0);
  lock.owner = 2;
  lock.flags = fs::kLockWait;
  fs::InterruptRequest interrupt{};
  interrupt.sequence = server.Send(Opcode::kSetLock, Body().Add(lock));
  EXPECT_EQ(server.lane->in_flight(), 0U);
  EXPECT_EQ(server.core().locks.waiting(), 1U);
  server.Send(Opcode::kInterrupt, Body().Add(interrupt));
  const Answer first = server.TakeAnswer(server.lane), second = server.TakeAnswer(server.lane);
  const Answer& given_up = first.sequence == interrupt.sequence ? first : second;
  EXPECT_EQ(given_up.errno_value(), EINTR);
  EXPECT_EQ(server.core().locks.waiting(), 0U);
}

}  // namespace
}  // namespace rdfs::server
