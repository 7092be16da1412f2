#include "server/record/intent_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "server/record/epoch_tag.h"
#include "tests/server/temp_dir.h"

namespace rdfs::server {
namespace {

using fs::Opcode;
using fs::WireError;
using Verdict = IntentRing::Verdict;

constexpr std::uint64_t kSession = 77;

std::vector<std::byte> Reply(std::uint64_t sequence, std::size_t size = 40) {
  return std::vector<std::byte>(size, static_cast<std::byte>(sequence));
}

class IntentRingTest : public testing::Test {
 protected:
  std::unique_ptr<IntentRing> Open(std::uint32_t records = 64, std::uint64_t session = kSession) {
    auto ring = IntentRing::Open(path_, session, records);
    EXPECT_TRUE(ring.ok()) << ring.status().ToString();
    return *std::move(ring);
  }
  // Runs `work` in a process that is then killed where it stands.
  template <typename Work>
  void InAProcessThatIsKilled(const Work& work) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      work();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  TempDir directory_;
  std::string path_ = directory_ / "ring";
};

TEST_F(IntentRingTest, OneRequestsLife) {
  const auto ring = Open();
  EXPECT_EQ(ring->Lookup(5, 1).verdict, Verdict::kNew);
  ASSERT_TRUE(ring->Begin(5, Opcode::kMkdir, 1, {}).ok());
  EXPECT_EQ(ring->Lookup(5, 1).verdict, Verdict::kInProgress);
  EXPECT_EQ(ring->Lookup(5, 2).verdict, Verdict::kMismatch);
  EXPECT_FALSE(ring->Begin(5, Opcode::kMkdir, 1, {}).ok());
  ring->Complete(5, WireError::kExists, Reply(5));
  const auto found = ring->Lookup(5, 1);
  EXPECT_EQ(found.verdict, Verdict::kDone);
  EXPECT_EQ(found.error, WireError::kExists);
  EXPECT_EQ(found.reply, Reply(5));
  ring->Complete(5, WireError::kOk, {});
  EXPECT_EQ(ring->Lookup(5, 1).error, WireError::kExists) << "an answer is given once";
  ring->Acknowledge(5);
  EXPECT_EQ(ring->Lookup(5, 1).verdict, Verdict::kAcknowledged);
  EXPECT_EQ(ring->records_in_use(), 0U);
}

TEST_F(IntentRingTest, KilledAtEveryStep) {
  const PriorState before{.first = {.exists = true, .id = {1, 2, 3}, .size = 99}, .at_ns = 5};
  InAProcessThatIsKilled([&] { Open(); });
  EXPECT_EQ(Open()->Lookup(1, 7).verdict, Verdict::kNew);

  InAProcessThatIsKilled([&] { (void)Open()->Begin(1, Opcode::kUnlink, 7, before); });
  {
    const auto ring = Open();
    const auto found = ring->Lookup(1, 7);
    EXPECT_EQ(found.verdict, Verdict::kInterrupted);
    EXPECT_EQ(found.before.first, before.first);
    EXPECT_EQ(found.before.at_ns, 5U);
    EXPECT_EQ(ring->interrupted(), std::vector<std::uint64_t>{1});
  }
  InAProcessThatIsKilled([&] { Open()->Complete(1, WireError::kOk, Reply(1)); });
  EXPECT_EQ(Open()->Lookup(1, 7).reply, Reply(1));

  InAProcessThatIsKilled([&] { Open()->Acknowledge(1); });
  EXPECT_EQ(Open()->Lookup(1, 7).verdict, Verdict::kAcknowledged);

  InAProcessThatIsKilled([&] {
    const auto ring = Open();
    (void)ring->Begin(2, Opcode::kUnlink, 7, before);
    ring->Abandon(2);
  });
  EXPECT_EQ(Open()->Lookup(2, 7).verdict, Verdict::kNew);
}

// A server that appends a line for each request, killed at any moment, over and over, with a client
// that asks again until it is answered: each line is there exactly once.
TEST_F(IntentRingTest, EachAppendHappensOnce) {
  constexpr std::uint64_t kRequests = 60'000;
  constexpr std::size_t kLine = 16;
  struct Client {
    std::atomic<std::uint64_t> answered;
  };
  void* shared =
      mmap(nullptr, sizeof(Client), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* client = new (shared) Client{};
  const std::string file = directory_ / "lines";

  const auto serve = [&] {
    const auto ring = IntentRing::Open(path_, kSession, 64);
    const Fd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!ring.ok() || !fd.valid()) _exit(10);
    const auto line_of = [](std::uint64_t sequence) {
      std::array<char, kLine> line{};
      (void)snprintf(line.data(), line.size(), "%015lu", static_cast<unsigned long>(sequence));
      return line;
    };
    const auto size_of = [&] { return static_cast<std::uint64_t>(lseek(fd.get(), 0, SEEK_END)); };
    for (std::uint64_t sequence = client->answered + 1; sequence <= kRequests; ++sequence) {
      const auto line = line_of(sequence);
      const auto found = (*ring)->Lookup(sequence, sequence);
      bool execute = found.verdict == Verdict::kNew;
      if (found.verdict == Verdict::kInterrupted) {
        std::array<char, kLine> there{};
        const bool matches =
            pread(fd.get(), there.data(), kLine, static_cast<off_t>(found.before.first.size)) ==
                static_cast<ssize_t>(kLine) &&
            there == line;
        const Resolution resolution =
            Resolve({.opcode = Opcode::kWrite,
                     .before = found.before,
                     .flags = fs::kWriteAppend,
                     .length = kLine},
                    {.first = {.exists = true, .size = size_of()}}, matches);
        if (resolution == Resolution::kAmbiguous) _exit(11);
        execute = resolution == Resolution::kRepeat;
      } else if (found.verdict == Verdict::kNew) {
        const PriorState before{.first = {.exists = true, .size = size_of()}};
        if (!(*ring)->Begin(sequence, Opcode::kWrite, sequence, before).ok()) _exit(12);
      } else if (found.verdict != Verdict::kDone) {
        _exit(13);
      }
      if (execute) {
        const auto end = static_cast<off_t>(size_of());
        if (pwrite(fd.get(), line.data(), kLine, end) != static_cast<ssize_t>(kLine)) _exit(14);
      }
      (*ring)->Complete(sequence, WireError::kOk, {});
      client->answered = sequence;
      (*ring)->Acknowledge(sequence);
    }
    _exit(0);
  };

  std::mt19937 random(4);
  int kills = 0;
  while (true) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) serve();
    // Killed some way on, wherever it then is, so that every run kills many times and ends.
    const std::uint64_t until =
        std::min<std::uint64_t>(client->answered + random() % 200, kRequests);
    int status = 0;
    siginfo_t ended{};
    while (client->answered < until && ended.si_pid == 0) {
      waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    if (client->answered < kRequests) kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
      ++kills;
      continue;
    }
    ASSERT_EQ(WEXITSTATUS(status), 0);
    break;
  }
  std::ifstream lines(file, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(lines)), {});
  ASSERT_EQ(content.size(), kRequests * kLine);
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    ASSERT_EQ(std::stoul(content.substr(i * kLine, kLine)), i + 1);
  }
  EXPECT_GT(kills, 5);
  munmap(shared, sizeof(Client));
}

TEST_F(IntentRingTest, AFullRingSaysSoUntilAcknowledged) {
  const auto ring = Open(8);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(ring->Begin(i, Opcode::kLink, i, {}).ok());
    ring->Complete(i, WireError::kOk, Reply(i));
  }
  EXPECT_EQ(ring->Begin(9, Opcode::kLink, 9, {}).code(), Code::kBusy);
  ring->Acknowledge(3);
  EXPECT_TRUE(ring->Begin(9, Opcode::kLink, 9, {}).ok());
  EXPECT_EQ(ring->Lookup(4, 4).reply, Reply(4));
}

// One that takes long lies before them.
TEST_F(IntentRingTest, AnswersAreAcknowledgedOneByOne) {
  const auto ring = Open(8);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(ring->Begin(i, Opcode::kLink, i, {}).ok());
    if (i != 1) ring->Complete(i, WireError::kOk, Reply(i));
  }
  ring->AcknowledgeOne(1);  // which it cannot have
  ring->AcknowledgeOne(7);
  ring->AcknowledgeOne(4711);
  EXPECT_EQ(ring->records_in_use(), 7U);
  EXPECT_EQ(ring->Lookup(1, 1).verdict, Verdict::kInProgress);
  // A copy of it that comes late is not new.
  EXPECT_EQ(ring->Lookup(7, 7).verdict, Verdict::kAcknowledged);
  EXPECT_EQ(ring->Lookup(4711, 1).verdict, Verdict::kNew);
  for (const std::uint64_t answered : {5U, 3U, 4U, 8U}) ring->AcknowledgeOne(answered);
  for (const std::uint64_t answered : {3U, 4U, 5U, 7U, 8U}) {
    EXPECT_EQ(ring->Lookup(answered, answered).verdict, Verdict::kAcknowledged) << answered;
  }
  EXPECT_EQ(ring->Lookup(2, 2).verdict, Verdict::kDone);
  EXPECT_EQ(ring->Lookup(6, 6).verdict, Verdict::kDone);
  EXPECT_TRUE(ring->Begin(9, Opcode::kLink, 9, {}).ok());
  EXPECT_EQ(Open(8)->Lookup(6, 6).reply, Reply(6));
}

// Those between them may have no record, or wait for one.
TEST_F(IntentRingTest, WhatLiesBetweenAnswersIsNew) {
  const auto ring = Open(8);
  const auto answer = [&](std::uint64_t sequence) {
    ASSERT_TRUE(ring->Begin(sequence, Opcode::kLink, 1, {}).ok());
    ring->Complete(sequence, WireError::kOk, {});
    ring->AcknowledgeOne(sequence);
  };
  constexpr std::uint64_t kLast = 20'000;
  for (std::uint64_t i = 1; i <= kLast; i += 2) answer(i);
  for (std::uint64_t i = 2; i < kLast; i += 2) {
    ASSERT_EQ(ring->Lookup(i, 1).verdict, Verdict::kNew) << i;
  }
  EXPECT_EQ(ring->Lookup(kLast - 1, 1).verdict, Verdict::kAcknowledged);
}

TEST_F(IntentRingTest, AnInterruptedIntentIsResumedOnce) {
  ASSERT_TRUE(Open()->Begin(1, Opcode::kLink, 1, {}).ok());
  const auto ring = Open();
  EXPECT_FALSE(ring->Resume(2));
  EXPECT_TRUE(ring->Resume(1));
  EXPECT_FALSE(ring->Resume(1));
  EXPECT_EQ(ring->Lookup(1, 1).verdict, Verdict::kInProgress);
  EXPECT_EQ(Open()->Lookup(1, 1).verdict, Verdict::kInterrupted) << "and once more by the next";
  ring->Complete(1, WireError::kOk, Reply(1));
  EXPECT_EQ(ring->Lookup(1, 1).verdict, Verdict::kDone);
}

TEST_F(IntentRingTest, AnAnswerThatMeansNothingAnyMoreIsReplaced) {
  const auto ring = Open();
  ASSERT_TRUE(ring->Begin(1, Opcode::kCreate, 1, {}).ok());
  ring->Amend(1, Reply(2));
  EXPECT_EQ(ring->Lookup(1, 1).verdict, Verdict::kInProgress);
  ring->Complete(1, WireError::kOk, Reply(1));
  ring->Amend(1, Reply(2));
  EXPECT_EQ(ring->Lookup(1, 1).reply, Reply(2));
  const auto found = Open()->Lookup(1, 1);
  EXPECT_EQ(found.verdict, Verdict::kDone);
  EXPECT_EQ(found.reply, Reply(2));
  ring->Amend(3, Reply(3));
  EXPECT_EQ(ring->Lookup(3, 1).verdict, Verdict::kNew);
}

TEST_F(IntentRingTest, AnAnswerThatIsTooLongIsKnownToBeLost) {
  const auto ring = Open();
  ASSERT_TRUE(ring->Begin(1, Opcode::kCreate, 1, {}).ok());
  ring->Complete(1, WireError::kOk, Reply(1, IntentRing::kMaxReplyBytes + 1));
  EXPECT_TRUE(ring->Lookup(1, 1).reply_lost);
  ASSERT_TRUE(ring->Begin(2, Opcode::kCreate, 1, {}).ok());
  ring->Complete(2, WireError::kOk, Reply(2, IntentRing::kMaxReplyBytes));
  EXPECT_EQ(Open()->Lookup(2, 1).reply.size(), IntentRing::kMaxReplyBytes);
}

TEST_F(IntentRingTest, AnotherSessionsFileIsBegunAnew) {
  ASSERT_TRUE(Open()->Begin(1, Opcode::kLink, 1, {}).ok());
  EXPECT_EQ(Open(64, kSession + 1)->Lookup(1, 1).verdict, Verdict::kNew);
  EXPECT_EQ(Open(32)->Lookup(1, 1).verdict, Verdict::kNew) << "and of another size";
}

// A mount by ssh that cannot reach its server starts a second one, which goes on with the record.
TEST_F(IntentRingTest, StaysWhileAnotherServerHasIt) {
  auto first = Open();
  const auto second = Open();
  EXPECT_TRUE(first->made_anew());
  EXPECT_FALSE(second->made_anew());
  first->Remove();
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  first.reset();
  second->Remove();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

// Another server that starts looks at each ring whether it is in use.
TEST_F(IntentRingTest, IsInUseAlsoWhereSomebodyHadALookJustThen) {
  for (const bool removed : {false, true}) {
    bool counts = false;
    for (int tries = 0; tries < 5 && !counts; ++tries) {
      Open().reset();
      const TimePoint start = BootClock::now();
      auto look = std::make_unique<Fd>(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_EQ(flock(look->get(), LOCK_EX | LOCK_NB), 0);
      std::thread looks([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (removed) {
          EXPECT_EQ(unlink(path_.c_str()), 0);
        }
        look.reset();
      });
      const auto ring = Open();
      looks.join();
      // It waits for a second; a machine that was busy for as long says nothing.
      counts = BootClock::now() - start <= std::chrono::milliseconds(700);
      if (!counts) continue;
      EXPECT_EQ(ring->made_anew(), removed);
      const Fd next(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(next.valid()) << "the ring has no name: nobody finds it after a crash";
      EXPECT_NE(flock(next.get(), LOCK_EX | LOCK_NB), 0) << "anybody may remove it";
    }
    EXPECT_TRUE(counts) << "the machine was always busy";
  }
}

TEST_F(IntentRingTest, ThatItsClientWasGivenUpIsRemembered) {
  EXPECT_FALSE(Open()->given_up());
  Open()->NoteGivenUp(true);
  EXPECT_TRUE(Open()->given_up());
  Open()->NoteGivenUp(false);
  EXPECT_FALSE(Open()->given_up());
}

// Only of later servers than the first here there may be records, whatever the clock says.
TEST_F(IntentRingTest, TheFirstEpochOfADirectoryStays) {
  constexpr std::uint64_t kNow = 1'790'000'000'000'000;
  const std::string directory = directory_.path();
  const std::uint64_t first = IntentRing::FirstEpoch(directory, kNow);
  EXPECT_EQ(IntentRing::FirstEpoch(directory, kNow + 1), first);
  EXPECT_EQ(WithTagOf(first, kNow), first);
  for (const std::uint64_t clock : {kNow + 1, kNow - 3'600'000'000, kNow + 3'600'000'000}) {
    const std::uint64_t next = WithTagOf(first, clock);
    EXPECT_NE(next, first);
    EXPECT_FALSE(IsBefore(next, first));
    const TempDir anew;  // as the host has been started
    const std::uint64_t other = IntentRing::FirstEpoch(anew.path(), clock);
    EXPECT_TRUE(IsBefore(first, other));
    EXPECT_TRUE(IsBefore(next, other));
    EXPECT_TRUE(IsBefore(kNow, other)) << "of a server that made no tags";
    EXPECT_TRUE(IsBefore(0, other));
  }
  EXPECT_NE(IntentRing::FirstEpoch(directory + "/none", 7), 0U);
  EXPECT_TRUE(IntentRing::Leftovers(directory).empty());
}

TEST_F(IntentRingTest, AFirstEpochWithoutATagIsTheEarliest) {
  constexpr std::uint64_t kFirst = 1'790'000'000'000'000;
  std::ofstream(directory_.path() + "/first-epoch") << kFirst;
  EXPECT_EQ(IntentRing::FirstEpoch(directory_.path(), kFirst + 9), kFirst);
  EXPECT_EQ(WithTagOf(kFirst, kFirst + 9), kFirst + 9);
  EXPECT_TRUE(IsBefore(kFirst - 1, kFirst));
  EXPECT_FALSE(IsBefore(kFirst, kFirst));
  EXPECT_FALSE(IsBefore(kFirst + 9, kFirst));
}

// Whatever stands in the file: it opens, and no record is taken for what it is not.
TEST_F(IntentRingTest, DamagedBytesAreNoAnswers) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    unlink(path_.c_str());
    {
      const auto ring = Open(16);
      for (std::uint64_t i = 1; i <= 10; ++i) {
        ASSERT_TRUE(ring->Begin(i, Opcode::kLink, i * 3, {.at_ns = i}).ok());
        if (i % 2 == 0) ring->Complete(i, WireError::kOk, Reply(i, 100));
      }
    }
    const Fd fd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    struct stat st {};
    ASSERT_EQ(fstat(fd.get(), &st), 0);
    for (std::uint64_t damage = random() % 200; damage > 0; --damage) {
      // The header only now and then: a ring without one has no records left to damage.
      const bool in_header = seed % 16 == 0;
      const auto records = static_cast<std::uint64_t>(st.st_size) - 4096;
      const auto at = static_cast<off_t>(in_header ? random() % 64 : 4096 + random() % records);
      const auto value = static_cast<unsigned char>(random());
      ASSERT_EQ(pwrite(fd.get(), &value, 1, at), 1);
    }
    const auto ring = Open(16);
    for (std::uint64_t i = 1; i <= 10; ++i) {
      const auto found = ring->Lookup(i, i * 3);
      if (found.verdict == Verdict::kDone) {
        EXPECT_EQ(found.reply, Reply(i, 100)) << "seed " << seed;
      } else if (found.verdict == Verdict::kInterrupted) {
        EXPECT_EQ(found.before.at_ns, i) << "seed " << seed;
      } else {
        EXPECT_EQ(found.verdict, Verdict::kNew) << "seed " << seed;
      }
    }
    // And it works.
    ASSERT_TRUE(ring->Begin(100, Opcode::kLink, 1, {}).ok());
  }
}

TEST_F(IntentRingTest, RefusesALinkInItsPlace) {
  const std::string target = directory_ / "target";
  std::ofstream(target) << "precious";
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_FALSE(IntentRing::Open(path_, kSession, 8).ok());
}

TEST_F(IntentRingTest, LanesOfASessionShareIt) {
  const auto ring = Open(1024);
  std::vector<std::thread> lanes;
  for (std::uint64_t lane = 0; lane < 3; ++lane) {
    lanes.emplace_back([&, lane] {
      for (std::uint64_t i = 0; i < 300; ++i) {
        const std::uint64_t sequence = 1 + lane + 3 * i;
        EXPECT_TRUE(ring->Begin(sequence, Opcode::kLink, sequence, {}).ok());
        ring->Complete(sequence, WireError::kOk, Reply(sequence));
        EXPECT_EQ(ring->Lookup(sequence, sequence).reply, Reply(sequence));
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  ring->Acknowledge(900);
  EXPECT_EQ(ring->records_in_use(), 0U);
}

// ---- Intents that a crash left open (intent_record.h) -------------------------------------------

struct ResolveCase {
  const char* name;
  InterruptedIntent intent;
  PriorState now;
  std::optional<bool> matches;
  Resolution expected;
};

ObjectState Inode(std::uint64_t inode, std::uint64_t size = 0) {
  return {.exists = true, .id = {.device = 1, .inode = inode}, .type = S_IFREG, .size = size};
}

ObjectState BornAt(ObjectState state, std::uint64_t birth_ns) {
  state.birth_ns = birth_ns;
  return state;
}
ObjectState Born(std::uint64_t inode, std::uint32_t type, std::uint64_t at) {
  return {.exists = true, .id = {.device = 1, .inode = inode}, .type = type, .birth_ns = at};
}

class ResolveTest : public testing::TestWithParam<ResolveCase> {};

TEST_P(ResolveTest, Decides) {
  const ResolveCase& c = GetParam();
  EXPECT_EQ(Resolve(c.intent, c.now, c.matches), c.expected);
}

const ObjectState kNone{};
constexpr std::uint64_t kThen = 1'000'000'000'000;

InterruptedIntent Of(Opcode opcode, ObjectState first, ObjectState second = {},
                     std::uint32_t flags = 0, std::uint64_t length = 0) {
  return {.opcode = opcode,
          .before = {.first = first, .second = second, .at_ns = kThen},
          .flags = flags,
          .length = length};
}

// Nothing is known of before: what could be done twice and tell the difference is not done.
TEST(ResolveUnrecorded, DoesNothingTwice) {
  const auto resolve = [](Opcode opcode, bool exists, std::uint32_t flags = 0) {
    const PriorState now{.first = exists ? Inode(1, 10) : kNone};
    return ResolveUnrecorded(Of(opcode, now.first, {}, flags), now);
  };
  constexpr Resolution kRepeat = Resolution::kRepeat;
  constexpr Resolution kAmbiguous = Resolution::kAmbiguous;
  EXPECT_EQ(resolve(Opcode::kCommit, true), kRepeat);
  EXPECT_EQ(resolve(Opcode::kSetAttr, true), kRepeat);
  EXPECT_EQ(resolve(Opcode::kWrite, true, fs::kWriteAppend), kAmbiguous);
  for (const Opcode makes : {Opcode::kMkdir, Opcode::kSymlink, Opcode::kMknod, Opcode::kLink}) {
    EXPECT_EQ(resolve(makes, false), kRepeat) << fs::OpcodeName(makes);
    EXPECT_EQ(resolve(makes, true), kAmbiguous) << fs::OpcodeName(makes);
  }
  EXPECT_EQ(resolve(Opcode::kCreate, true), kRepeat);
  EXPECT_EQ(resolve(Opcode::kCreate, false, fs::kOpenExclusive), kRepeat);
  EXPECT_EQ(resolve(Opcode::kCreate, true, fs::kOpenExclusive), kAmbiguous);
  for (const Opcode removes :
       {Opcode::kUnlink, Opcode::kRmdir, Opcode::kRename, Opcode::kRemoveXattr}) {
    EXPECT_EQ(resolve(removes, true), kRepeat) << fs::OpcodeName(removes);
    EXPECT_EQ(resolve(removes, false), kAmbiguous) << fs::OpcodeName(removes);
  }
  EXPECT_EQ(resolve(Opcode::kRename, true, fs::kRenameExchange), kAmbiguous);
  EXPECT_EQ(resolve(Opcode::kFallocate, true), kRepeat);
  EXPECT_EQ(resolve(Opcode::kFallocate, true, 8), kAmbiguous) << "FALLOC_FL_COLLAPSE_RANGE";
  EXPECT_EQ(resolve(Opcode::kSetXattr, true), kRepeat);
  EXPECT_EQ(resolve(Opcode::kSetXattr, true, 1), kAmbiguous) << "XATTR_CREATE";
}

INSTANTIATE_TEST_SUITE_P(
    Intents, ResolveTest,
    testing::Values(
        ResolveCase{"absolute_write",
                    Of(Opcode::kCommit, Inode(1, 10)),
                    {Inode(1, 99)},
                    {},
                    Resolution::kRepeat},
        ResolveCase{"append_not_done",
                    Of(Opcode::kWrite, Inode(1, 10), {}, fs::kWriteAppend, 5),
                    {Inode(1, 10)},
                    {},
                    Resolution::kRepeat},
        ResolveCase{"append_done",
                    Of(Opcode::kWrite, Inode(1, 10), {}, fs::kWriteAppend, 5),
                    {Inode(1, 15)},
                    true,
                    Resolution::kDone},
        ResolveCase{"append_of_others",
                    Of(Opcode::kWrite, Inode(1, 10), {}, fs::kWriteAppend, 5),
                    {Inode(1, 15)},
                    false,
                    Resolution::kAmbiguous},
        ResolveCase{"append_partly",
                    Of(Opcode::kWrite, Inode(1, 10), {}, fs::kWriteAppend, 5),
                    {Inode(1, 12)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"mkdir_not_done", Of(Opcode::kMkdir, kNone), {kNone}, {}, Resolution::kRepeat},
        ResolveCase{"mkdir_done",
                    Of(Opcode::kMkdir, kNone),
                    {Born(5, S_IFDIR, kThen + 1)},
                    {},
                    Resolution::kDone},
        ResolveCase{"mkdir_of_others",
                    Of(Opcode::kMkdir, kNone),
                    {Born(5, S_IFREG, kThen + 1)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"mkdir_renamed_there",
                    Of(Opcode::kMkdir, kNone),
                    {Born(5, S_IFDIR, 1)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"mkdir_would_have_failed",
                    Of(Opcode::kMkdir, Inode(5)),
                    {Inode(5)},
                    {},
                    Resolution::kRepeat},
        ResolveCase{
            "create_without_excl", Of(Opcode::kCreate, kNone), {Inode(5)}, {}, Resolution::kRepeat},
        ResolveCase{"create_without_excl_of_ours",
                    Of(Opcode::kCreate, kNone),
                    {Born(5, S_IFREG, kThen)},
                    {},
                    Resolution::kDone},
        ResolveCase{"create_excl_done",
                    Of(Opcode::kCreate, kNone, {}, fs::kOpenExclusive),
                    {Born(5, S_IFREG, kThen)},
                    {},
                    Resolution::kDone},
        ResolveCase{
            "link_done", Of(Opcode::kLink, kNone, Inode(3)), {Inode(3)}, {}, Resolution::kDone},
        ResolveCase{"link_of_others",
                    Of(Opcode::kLink, kNone, Inode(3)),
                    {Inode(4)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{
            "unlink_not_done", Of(Opcode::kUnlink, Inode(3)), {Inode(3)}, {}, Resolution::kRepeat},
        ResolveCase{"unlink_done", Of(Opcode::kUnlink, Inode(3)), {kNone}, {}, Resolution::kDone},
        ResolveCase{"unlink_made_again",
                    Of(Opcode::kUnlink, Inode(3)),
                    {Inode(4)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"unlink_number_given_again",
                    Of(Opcode::kUnlink, BornAt(Inode(3), 100)),
                    {BornAt(Inode(3), 200)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"unlink_not_done_known_by_birth",
                    Of(Opcode::kUnlink, BornAt(Inode(3), 100)),
                    {BornAt(Inode(3), 100)},
                    {},
                    Resolution::kRepeat},
        ResolveCase{"rename_number_given_again",
                    Of(Opcode::kRename, BornAt(Inode(3), 100), kNone),
                    {BornAt(Inode(3), 200), kNone},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"rename_not_done",
                    Of(Opcode::kRename, Inode(3), kNone),
                    {Inode(3), kNone},
                    {},
                    Resolution::kRepeat},
        ResolveCase{"rename_done",
                    Of(Opcode::kRename, Inode(3), Inode(4)),
                    {kNone, Inode(3)},
                    {},
                    Resolution::kDone},
        ResolveCase{"rename_source_made_again",
                    Of(Opcode::kRename, Inode(3), Inode(4)),
                    {Inode(9), Inode(3)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"exchange_done",
                    Of(Opcode::kRename, Inode(3), Inode(4), fs::kRenameExchange),
                    {Inode(4), Inode(3)},
                    {},
                    Resolution::kDone},
        ResolveCase{"collapse_done",
                    Of(Opcode::kFallocate, Inode(3, 100), {}, 8, 40),
                    {Inode(3, 60)},
                    {},
                    Resolution::kDone},
        ResolveCase{"collapse_not_done",
                    Of(Opcode::kFallocate, Inode(3, 100), {}, 8, 40),
                    {Inode(3, 100)},
                    {},
                    Resolution::kRepeat},
        ResolveCase{"insert_of_others",
                    Of(Opcode::kFallocate, Inode(3, 100), {}, 32, 40),
                    {Inode(3, 160)},
                    {},
                    Resolution::kAmbiguous},
        ResolveCase{"xattr_create_done",
                    Of(Opcode::kSetXattr, kNone, {}, 1),
                    {Inode(1)},
                    true,
                    Resolution::kDone},
        ResolveCase{"xattr_create_of_others",
                    Of(Opcode::kSetXattr, kNone, {}, 1),
                    {Inode(1)},
                    false,
                    Resolution::kAmbiguous},
        ResolveCase{
            "removexattr_done", Of(Opcode::kRemoveXattr, Inode(1)), {kNone}, {}, Resolution::kDone},
        ResolveCase{
            "setattr", Of(Opcode::kSetAttr, Inode(1, 5)), {Inode(1, 0)}, {}, Resolution::kRepeat}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace rdfs::server
