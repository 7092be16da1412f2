// Lost connections, restarted servers: nothing is lost, nothing is done twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "fs/client/mount_impl.h"
#include "fs/client/request_table.h"
#include "tests/fs/client/scripted_fixture.h"
#include "tests/fs/client/wrapped_connection.h"
#include "transport/fault/transport.h"

namespace rdfs::fs::client {
namespace {

namespace fault = transport::fault;

using std::chrono::milliseconds;
using std::chrono::seconds;
using Reply = ScriptedServer::Reply;
using Request = ScriptedServer::Request;

// A connection that ends when it is let: its destructor waits.
class LongEnd final : public WrappedConnection {
 public:
  // Nobody calls the client under the mutex: who ends a connection may hold the client's own.
  class Shared {
   public:
    void Hold() { Set(false); }
    void Let() { Set(true); }
    void Await() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_; });
    }
    std::atomic<int> reads{0};

   private:
    void Set(bool ends) {
      const std::lock_guard lock(mutex_);
      ends_ = ends;
      changed_.notify_all();
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ends_ = true;  // under mutex_
  };
  LongEnd(std::unique_ptr<transport::Connection> inner, std::shared_ptr<Shared> shared)
      : WrappedConnection(std::move(inner)), shared_(std::move(shared)) {}
  ~LongEnd() override { shared_->Await(); }

  Result<transport::Ticket> Read(const transport::LocalSlice& to,
                                 const transport::RemoteSlice& from,
                                 transport::Order order) override {
    ++shared_->reads;
    return WrappedConnection::Read(to, from, order);
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

// Its peer sends without pause what nobody has asked for, and never an answer.
class Chatter final : public WrappedConnection {
 public:
  using WrappedConnection::WrappedConnection;
  Result<std::size_t> Poll(std::span<transport::Completion> out) override {
    out.front() = {.kind = transport::Completion::Kind::kMessage,
                   .status = {},
                   .message = std::as_bytes(std::span(&unasked_, 1))};
    return 1;
  }

 private:
  ReplyHeader unasked_{};
};

// Of a call that has to be at the server before it is late.
constexpr milliseconds kTimeToArrive{1000};

class LossTest : public ScriptedTest {
 protected:
  template <typename Condition>
  void RunUntil(Condition condition) {
    const Deadline deadline = DeadlineAfter(seconds(20));
    bool never = false;
    while (!condition() && BootClock::now() < deadline) {
      client_->RunUntil(never, DeadlineAfter(milliseconds(1)));
    }
    ASSERT_TRUE(condition());
  }
  void RunUntilDisconnected() {
    RunUntil([this] { return !client_->lane().connected(); });
  }
  void WriteSome(const OpenPtr& open) {
    ASSERT_TRUE(client_->Write(open, 0, std::vector<std::byte>(10)).ok());
  }
  // A row of operations that uses every kind of step.
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
  // The row again and again, with one more loss each time, until there was no step left to lose.
  // `lose(step)` sets the loss up; what it returns tells afterwards whether it came to it.
  template <typename Lose>
  void AtEveryStep(Lose lose) {
    constexpr std::uint64_t kMostSteps = 200;
    std::uint64_t step = 1;
    for (; step < kMostSteps; ++step) {
      const std::shared_ptr<std::atomic<bool>> lost = lose(step);
      Mount(seconds(20));
      Work(*client_);
      ASSERT_FALSE(HasFatalFailure()) << "lost at step " << step;
      EXPECT_EQ(server_.made(), step) << "mkdirs";  // one each time
      EXPECT_EQ(server_.misdeeds(), 0U);
      if (!*lost) break;
    }
    EXPECT_GT(step, 8U);  // the row has so many requests at least
    EXPECT_LT(step, kMostSteps);
  }
};

// The client's end breaks at its n-th post: a message, a READ, a WRITE.
TEST_F(LossTest, AtEveryStepOfTheClient) {
  AtEveryStep([this](std::uint64_t step) {
    auto lost = std::make_shared<std::atomic<bool>>(false);
    server_.SetClientEnd([lost, step, lanes = 0](auto connection) mutable {
      if (lanes++ > 0) *lost = true;  // another one is needed: the first is broken
      const fault::Plan plan{.drop_after_operations = lanes == 1 ? step : 0};
      return fault::Wrap(std::move(connection), plan);
    });
    return lost;
  });
}

// The server dies with the n-th request: before it has looked at it, when it has done it and not
// said so, and when it has answered.
enum class Dies { kBefore, kUnanswered, kAnswered };
class ServerLossTest : public LossTest, public testing::WithParamInterface<Dies> {};

TEST_P(ServerLossTest, AtEveryStep) {
  AtEveryStep([this](std::uint64_t step) {
    auto lost = std::make_shared<std::atomic<bool>>(false);
    const auto lose = [lost, left = std::make_shared<std::uint64_t>(step)] {
      if (*left == 0 || --*left > 0) return false;
      *lost = true;
      return true;
    };
    if (GetParam() == Dies::kBefore) {
      server_.SetGate([lose](const Request&) { return !lose(); });
      return lost;
    }
    server_.SetHook([lose, answer = GetParam() == Dies::kAnswered](const Request&, Reply& reply) {
      if (!lose()) return;
      reply.drop = true;
      reply.send = answer;
    });
    return lost;
  });
}

INSTANTIATE_TEST_SUITE_P(Moments, ServerLossTest,
                         testing::Values(Dies::kBefore, Dies::kUnanswered, Dies::kAnswered));

TEST_F(LossTest, CallsWaitForTheServerUntilTheirDeadline) {
  Mount(milliseconds(200));
  server_.Refuse(true);
  server_.DropAll();
  RunUntilDisconnected();
  const TimePoint start = BootClock::now();
  EXPECT_EQ(client_->GetAttr(root_).status().errno_value(), ETIMEDOUT);
  EXPECT_GE(BootClock::now() - start, milliseconds(200));
  EXPECT_EQ(client_->Mkdir(root_, "dir").status().errno_value(), ETIMEDOUT);
  EXPECT_EQ(server_.made(), 0U);
  client_->context().timeout = seconds(20);
  bool over = false;
  Status got;
  client_->lane().GetAttr(client_->context(), root_, nullptr, [&](Result<Attributes>&& attributes) {
    got = attributes.status();
    over = true;
  });
  EXPECT_FALSE(client_->RunUntil(over, DeadlineAfter(milliseconds(20))));
  server_.Refuse(false);
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
  EXPECT_TRUE(got.ok()) << got.ToString();
}

TEST_F(LossTest, WhatHasNoConnectionIsInterruptedAtOnce) {
  const OpenPtr open = Open();
  std::optional<Buffer> buffer = client_->lane().buffers().Allocate(100'000);
  ASSERT_TRUE(buffer);
  server_.Refuse(true);
  server_.DropAll();
  RunUntilDisconnected();
  int ended = 0;
  const auto expect_interrupted = [&ended](const auto& result) {
    EXPECT_EQ(result.errno_value(), EINTR);
    ++ended;
  };
  Lane& lane = client_->lane();
  const std::array<CallTicket, 3> tickets{
      lane.Mkdir({}, root_, "dir", 0755, 0,
                 [&](Result<NamedFile>&& made) { expect_interrupted(made.status()); }),
      lane.Write({}, open, 0, buffer->Slice(0, 100'000), 0,
                 [&](Result<WriteDone>&& done) { expect_interrupted(done.status()); }),
      lane.Read({}, open, 0, buffer->Slice(0, 100'000), 0,
                [&](Result<ReadDone>&& done) { expect_interrupted(done.status()); })};
  lane.Poll();
  EXPECT_EQ(ended, 0);
  for (const CallTicket ticket : tickets) lane.Cancel(ticket);
  lane.Poll();
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(lane.calls_in_flight(), 0U);
  server_.Refuse(false);
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  EXPECT_EQ(server_.made(), 0U);
}

TEST_F(LossTest, AServerThatSendsWithoutPauseHoldsNobodyBeyondItsDeadline) {
  server_.SetClientEnd(
      [](auto connection) { return std::make_unique<Chatter>(std::move(connection)); });
  const TimePoint start = BootClock::now();
  const auto lane = mount_->OpenLane(DeadlineAfter(milliseconds(200)));
  EXPECT_EQ(lane.status().code(), Code::kDeadlineExceeded) << lane.status().ToString();
  EXPECT_LT(BootClock::now() - start, seconds(10));
}

// An attempt to connect may take ten seconds.
TEST_F(LossTest, WhoOpensALaneWaitsForNoAttemptToConnectBeyondItsDeadline) {
  std::atomic<bool> entered{false}, released{false};
  server_.SetClientEnd([&](auto connection) {
    entered = true;
    while (!released) std::this_thread::yield();
    return connection;
  });
  server_.DropAll();
  RunUntil([&] { return entered.load(); });
  std::jthread last_resort([&](const std::stop_token& stop) {
    const Deadline deadline = DeadlineAfter(seconds(5));
    while (!stop.stop_requested() && BootClock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    released = true;
  });
  const auto lane = mount_->OpenLane(DeadlineAfter(milliseconds(100)));
  EXPECT_FALSE(released);
  EXPECT_EQ(lane.status().code(), Code::kDeadlineExceeded) << lane.status().ToString();
  last_resort.request_stop();
  EXPECT_TRUE(client_->Lookup(root_, "file").ok());
  last_resort.join();
  server_.SetClientEnd({});
}

// Nobody else would ever have the locks otherwise, as long as this mount lives.
TEST_F(LossTest, AReleaseIsHeardWhenItsCallerWaitsNoLonger) {
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
  });
  for (const bool killed : {false, true}) {
    Mount(seconds(20));
    const OpenPtr open = Open();
    ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
    const std::size_t before = server_.Count(Opcode::kRelease);
    server_.Refuse(true);
    server_.DropAll();
    RunUntilDisconnected();
    Status released;
    bool over = false;
    CallContext late;
    late.timeout = milliseconds(200);
    const CallTicket ticket = client_->lane().Release(late, open, [&](Status&& status) {
      EXPECT_FALSE(over);
      released = status;
      over = true;
    });
    if (killed) client_->lane().Abandon(ticket);
    ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
    EXPECT_EQ(released.errno_value(), killed ? EINTR : ETIMEDOUT);
    EXPECT_EQ(server_.Count(Opcode::kRelease), before);
    server_.Refuse(false);
    RunUntil([&] { return client_->lane().calls_in_flight() == 0; });
    EXPECT_EQ(server_.Count(Opcode::kRelease), before + 1);
    EXPECT_EQ(server_.misdeeds(), 0U);
  }
}

// The file stays open, in another process, and its closer's locks must not.
TEST_F(LossTest, AFlushIsHeardWhenItsCallerWaitsNoLonger) {
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
  });
  const OpenPtr open = Open();
  ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  server_.Refuse(true);
  server_.DropAll();
  RunUntilDisconnected();
  Status flushed;
  bool over = false;
  CallContext late;
  late.timeout = milliseconds(200);
  client_->lane().FlushFile(late, open, 1, [&](Status&& status) {
    flushed = status;
    over = true;
  });
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
  EXPECT_EQ(flushed.errno_value(), ETIMEDOUT);
  EXPECT_TRUE(open->inode().locks.Of(open.get()).empty()) << "they would be asked for again";
  server_.Refuse(false);
  RunUntil([&] { return server_.Count(Opcode::kFlush) == 1; });
}

// What it opened would be open as long as this mount lives. But nothing is cut short long after its
// caller was told that it was not.
TEST_F(LossTest, WhatWasOpenedForNobodyIsReleased) {
  for (const bool cut : {false, true}) {
    Mount(seconds(20));
    const std::size_t opened = server_.Count(Opcode::kOpen);
    const std::size_t released = server_.Count(Opcode::kRelease);
    server_.SetHook([this, first = true](const Request& request, Reply& reply) mutable {
      if (request.opcode != Opcode::kOpen || !std::exchange(first, false)) return;
      reply.drop = true;
      reply.send = false;
      server_.Refuse(true);
    });
    const std::uint32_t flags = kOpenRead | kOpenWrite | (cut ? kOpenTruncate : 0);
    client_->context().timeout = kTimeToArrive;
    EXPECT_EQ(client_->Open(file_, flags).status().errno_value(), ETIMEDOUT);
    RunUntilDisconnected();  // the hook has come by
    server_.Refuse(false);
    RunUntil([&] { return client_->lane().connected() && client_->lane().calls_in_flight() == 0; });
    EXPECT_EQ(server_.Count(Opcode::kOpen), opened + (cut ? 1 : 2));
    EXPECT_EQ(server_.Count(Opcode::kRelease), released + (cut ? 0 : 1));
    EXPECT_EQ(server_.misdeeds(), 0U);
  }
}

TEST_F(LossTest, ADirectoryThatWasOpenedForNobodyIsReleased) {
  server_.SetHook([this, first = true](const Request& request, Reply& reply) mutable {
    if (request.opcode != Opcode::kOpenDir || !std::exchange(first, false)) return;
    reply.drop = true;
    reply.send = false;
    server_.Refuse(true);
  });
  client_->context().timeout = kTimeToArrive;
  EXPECT_EQ(client_->OpenDir(root_).status().errno_value(), ETIMEDOUT);
  RunUntilDisconnected();  // the hook has come by
  server_.Refuse(false);
  RunUntil([&] { return client_->lane().connected() && client_->lane().calls_in_flight() == 0; });
  EXPECT_EQ(server_.Count(Opcode::kOpenDir), 2U);
  EXPECT_EQ(server_.Count(Opcode::kReleaseDir), 1U);
}

TEST_F(LossTest, WhatWasOpenedTooLateIsReleased) {
  server_.SetHook([late = std::vector<std::byte>()](const Request& request, Reply& reply) mutable {
    if (request.opcode == Opcode::kLookup) reply.instead = late;
    if (request.opcode != Opcode::kOpen) return;
    reply.send = false;
    ReplyHeader header{};
    header.opcode = static_cast<std::uint16_t>(Opcode::kOpen);
    header.body_bytes = static_cast<std::uint32_t>(reply.body.size());
    header.sequence = request.header.sequence;
    header.epoch = 1;
    const auto bytes = std::as_bytes(std::span(&header, 1));
    late.assign(bytes.begin(), bytes.end());
    late.insert(late.end(), reply.body.begin(), reply.body.end());
  });
  client_->context().timeout = kTimeToArrive;
  EXPECT_EQ(client_->Open(file_, kOpenRead | kOpenTruncate).status().errno_value(), ETIMEDOUT);
  EXPECT_EQ(server_.Count(Opcode::kRelease), 0U);
  EXPECT_EQ(client_->Lookup(root_, "file").status().errno_value(), ETIMEDOUT);
  RunUntil([&] { return server_.Count(Opcode::kRelease) == 1; });
}

// The locks that the server was asked for, by type.
class LockLossTest : public LossTest {
 protected:
  std::vector<LockType> Asked() {
    std::vector<LockType> types;
    for (const Request& request : server_.requests()) {
      if (request.opcode != Opcode::kSetLock) continue;
      const auto lock = ByteReader(request.body).Read<LockRequest>();
      types.push_back(static_cast<LockType>(std::uint32_t{lock.type}));
    }
    return types;
  }
  // Only what is not waited for is answered; `lose`: the connection goes instead, once.
  void Answer(bool lose) {
    server_.SetHook([this, lose, first = true](const Request& request, Reply& reply) mutable {
      if (request.opcode != Opcode::kSetLock) return;
      reply.send = !std::exchange(first, false);
      if (!reply.send && lose) reply.drop = true;
      if (reply.drop) server_.Refuse(true);
    });
  }
  CallTicket Lock(const OpenPtr& open, bool wait, const CallContext& context = {}) {
    return client_->lane().SetLock(context, open, {.owner = 1, .end = 9, .type = LockType::kWrite},
                                   false, wait, [this](const Status& status) {
                                     EXPECT_FALSE(over_);
                                     status_ = status;
                                     over_ = true;
                                   });
  }
  Status status_;
  bool over_ = false;
};

constexpr auto kLocked = LockType::kWrite;
constexpr auto kUnlocked = LockType::kUnlock;

TEST_F(LockLossTest, ALockWhoseAnswerCameTooLateIsGivenBack) {
  const OpenPtr open = Open();
  Answer(true);
  CallContext context;
  context.timeout = kTimeToArrive;
  Lock(open, false, context);
  ASSERT_TRUE(client_->RunUntil(over_, DeadlineAfter(seconds(20))));
  EXPECT_EQ(status_.errno_value(), ETIMEDOUT);
  RunUntilDisconnected();  // the hook has come by
  server_.Refuse(false);
  RunUntil([&] { return client_->lane().calls_in_flight() == 0; });
  EXPECT_EQ(Asked(), (std::vector{kLocked, kLocked, kUnlocked})) << "the second is from the record";
  EXPECT_FALSE(open->inode().locks.undoing());
  EXPECT_EQ(server_.misdeeds(), 0U);
}

TEST_F(LockLossTest, ALockThatIsInterruptedAsTheConnectionBreaksIsGivenBack) {
  const OpenPtr open = Open();
  Answer(true);
  const CallTicket ticket = Lock(open, true);
  RunUntilDisconnected();
  client_->lane().Cancel(ticket);
  ASSERT_TRUE(client_->RunUntil(over_, DeadlineAfter(seconds(20))));
  EXPECT_EQ(status_.errno_value(), EINTR);
  server_.Refuse(false);
  RunUntil([&] { return client_->lane().calls_in_flight() == 0; });
  EXPECT_EQ(Asked(), (std::vector{kLocked, kUnlocked}));
  // Where the loss was not noticed yet it waits at the server.
  std::uint64_t waits = 0;
  std::vector<std::uint64_t> interrupted;
  for (const Request& request : server_.requests()) {
    if (request.opcode == Opcode::kSetLock && waits == 0) waits = request.header.sequence;
    if (request.opcode != Opcode::kInterrupt) continue;
    interrupted.push_back(ByteReader(request.body).Read<InterruptRequest>().sequence);
  }
  EXPECT_EQ(interrupted, std::vector{waits});
}

// Who has asked for it again by then may have it: that must not be taken from him.
TEST_F(LockLossTest, WhatIsAskedForSinceIsNotGivenBack) {
  const OpenPtr open = Open();
  Answer(true);
  const CallTicket ticket = Lock(open, true);
  RunUntilDisconnected();
  client_->lane().Cancel(ticket);
  ASSERT_TRUE(client_->RunUntil(over_, DeadlineAfter(seconds(20))));
  over_ = false;
  Lock(open, false);
  server_.Refuse(false);
  ASSERT_TRUE(client_->RunUntil(over_, DeadlineAfter(seconds(20))));
  EXPECT_TRUE(status_.ok());
  RunUntil([&] { return client_->lane().calls_in_flight() == 0; });
  EXPECT_EQ(Asked(), (std::vector{kLocked, kLocked}));
  EXPECT_EQ(open->inode().locks.Of(open.get()).size(), 1U);
}

class CrowdedLaneTest : public LossTest {
 protected:
  // So many calls wait for a connection that there is no room for one more.
  void Crowd() {
    server_.Refuse(true);
    server_.DropAll();
    RunUntilDisconnected();
    for (std::size_t i = 0; i < RequestTable::kMaxCalls; ++i) {
      waiting_.push_back(client_->lane().GetAttr({}, root_, nullptr, [this](Result<Attributes>&&) {
        if (room_) std::exchange(room_, {})();
      }));
    }
  }
  void Disperse() {
    for (const CallTicket ticket : std::exchange(waiting_, {})) client_->lane().Cancel(ticket);
    server_.Refuse(false);
  }
  std::vector<CallTicket> waiting_;
  std::function<void()> room_;  // is called when there is some
};

TEST_F(CrowdedLaneTest, AReleaseIsHeardWhereTooManyCallsWait) {
  const OpenPtr open = Open();
  Crowd();
  EXPECT_TRUE(client_->Release(open).ok());
  Disperse();
  RunUntil([&] { return server_.Count(Opcode::kRelease) == 1; });
}

TEST_F(CrowdedLaneTest, AFlushIsHeardWhereTooManyCallsWait) {
  const OpenPtr open = Open();
  Crowd();
  EXPECT_TRUE(client_->FlushFile(open, 7).ok());
  Disperse();
  RunUntil([&] { return server_.Count(Opcode::kFlush) == 1; });
  for (const Request& request : server_.requests()) {
    if (request.opcode != Opcode::kFlush) continue;
    EXPECT_EQ(std::uint64_t{ByteReader(request.body).Read<FlushRequest>().lock_owner}, 7U);
  }
}

TEST_F(CrowdedLaneTest, AFlushTakesNoLockThatItsOwnerHasAskedForSince) {
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
  });
  const OpenPtr open = Open();
  bool locked = false;
  room_ = [&] {
    client_->lane().SetLock({}, open, {.owner = 7, .end = 9, .type = LockType::kWrite}, false,
                            false, [&](Status&& status) { locked = status.ok(); });
  };
  Crowd();
  EXPECT_TRUE(client_->FlushFile(open, 7).ok());
  Disperse();
  RunUntil([&] { return locked && client_->lane().calls_in_flight() == 0; });
  EXPECT_EQ(server_.Count(Opcode::kFlush), 0U);
}

// Recalls may be on their way to a lane that nothing is asked on.
TEST_F(LossTest, ALaneThatNothingIsAskedOnNoticesAServerThatIsSilent) {
  server_.session_lease_ms = 600;
  Mount(seconds(20));
  const std::unique_ptr<SyncClient> beside = OpenClient();
  const auto run_until = [&beside](bool connected) {
    const Deadline deadline = DeadlineAfter(seconds(20));
    bool never = false;
    while (beside->lane().connected() != connected && BootClock::now() < deadline) {
      beside->RunUntil(never, DeadlineAfter(milliseconds(1)));
    }
    EXPECT_EQ(beside->lane().connected(), connected);
  };
  server_.SetHook(
      [](const Request& request, Reply& reply) { reply.send = request.opcode != Opcode::kRenew; });
  run_until(false);
  server_.SetHook({});
  run_until(true);
}

// A device may write into the memory of READs under way for as long as its connection exists.
TEST_F(LossTest, BuffersOfADeadConnectionAreQuarantined) {
  auto shared = std::make_shared<LongEnd::Shared>();
  server_.SetClientEnd([shared](auto connection) {
    return std::make_unique<LongEnd>(std::move(connection), shared);
  });
  Mount(seconds(20));
  const OpenPtr open = Open();
  BufferPool& pool = client_->lane().buffers();
  const std::size_t all = pool.free_bytes();
  server_.SetHook([](const Request& request, Reply& reply) {
    reply.stall = request.opcode == Opcode::kRead;  // grants, and then READs are not answered
  });
  std::optional<Buffer> buffer = pool.Allocate(16 * Buffer::kPageBytes);
  Status ended;
  bool over = false;
  const CallTicket ticket =
      client_->lane().Read({}, open, 0, buffer->Slice(0, 50'000), 0, [&](Result<ReadDone>&& done) {
        ended = done.status();
        over = true;
      });
  RunUntil([&] { return shared->reads > 0; });
  shared->Hold();
  server_.Refuse(true);
  server_.DropAll();
  RunUntilDisconnected();
  client_->lane().Cancel(ticket);
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
  EXPECT_EQ(ended.errno_value(), EINTR);
  buffer.reset();
  EXPECT_EQ(pool.free_bytes(), all - 13 * Buffer::kPageBytes);  // 50,000 bytes are in 13 pages
  shared->Let();
  RunUntil([&] { return pool.free_bytes() == all; });
}

// A buffer that its caller keeps is filled anew as soon as the call has ended.
TEST_F(LossTest, ACallThatIsLateEndsWhenNoDeviceTouchesTheMemoryThatItsCallerKeeps) {
  auto shared = std::make_shared<LongEnd::Shared>();
  server_.SetClientEnd([shared](auto connection) {
    return std::make_unique<LongEnd>(std::move(connection), shared);
  });
  server_.SetHook([](const Request& request, Reply& reply) {
    reply.stall = request.opcode == Opcode::kRead;  // grants, and then READs are not answered
  });
  for (const bool keeps : {false, true}) {
    Mount(seconds(20));
    const OpenPtr open = Open();
    const std::optional<Buffer> buffer = client_->lane().buffers().Allocate(50'000);
    ASSERT_TRUE(buffer);
    CallContext caller;
    caller.timeout = seconds(2);  // its READs have to be under way by then
    caller.keeps_memory = keeps;
    const int before = shared->reads;
    Status ended;
    bool over = false;
    client_->lane().Read(caller, open, 0, buffer->Slice(0, 50'000), 0,
                         [&](Result<ReadDone>&& done) {
                           ended = done.status();
                           over = true;
                         });
    RunUntil([&] { return shared->reads > before; });
    if (keeps) {
      shared->Hold();
      server_.Refuse(true);
      // The lane is given up, though the server may be heard of; its memory is still in use.
      RunUntilDisconnected();
      EXPECT_FALSE(client_->RunUntil(over, DeadlineAfter(milliseconds(100))));
      shared->Let();
      server_.Refuse(false);
    }
    ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
    EXPECT_EQ(ended.errno_value(), ETIMEDOUT);
    EXPECT_EQ(mount_->counters().timeouts, 1U);
    if (!keeps) {
      EXPECT_TRUE(client_->lane().connected());
    }
  }
}

// What the lane that a commit is sent again on can take: the same, small slots, none at all.
class ResentWriteTest : public LossTest, public testing::WithParamInterface<std::uint32_t> {
 protected:
  static constexpr std::size_t kBytes = ScriptedServer::kSlotBytes;
  // Writes, and loses the connection at the first commit.
  void WriteAndLose(bool done_before_the_loss) {
    const OpenPtr open = Open();
    auto lost = std::make_shared<std::atomic<bool>>(false);
    const auto lose = [this, lost](const Request& request) {
      if (request.opcode != Opcode::kCommit || lost->exchange(true)) return false;
      server_.slots = GetParam() == 0 ? 0 : ScriptedServer::kSlots;
      server_.slot_bytes = GetParam();
      return true;
    };
    if (done_before_the_loss) {
      server_.SetHook([lose](const Request& request, Reply& reply) {
        if (!lose(request)) return;
        reply.drop = true;
        reply.send = false;
      });
    } else {
      server_.SetGate([lose](const Request& request) { return !lose(request); });
    }
    std::vector<std::byte> bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    const auto written = client_->Write(open, 1000, bytes);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    EXPECT_EQ(written->written, kBytes);
    EXPECT_TRUE(*lost);
    const std::vector<std::byte> file = server_.file();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), file.begin() + 1000));
    EXPECT_EQ(server_.misdeeds(), 0U);
    EXPECT_EQ(mount_->counters().connections_lost, 1U);
  }
};

TEST_P(ResentWriteTest, WhatWasDoneIsNotDoneTwice) {
  WriteAndLose(true);
  EXPECT_EQ(server_.written(), 1U);
}

TEST_P(ResentWriteTest, WhatWasNotDoneIsDone) { WriteAndLose(false); }

INSTANTIATE_TEST_SUITE_P(Slots, ResentWriteTest,
                         testing::Values(ScriptedServer::kSlotBytes, 4 * ScriptedServer::kSlotBytes,
                                         4096U, 0U));

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

// The session that it made when the client came back is resumed the next time: without its files.
TEST_F(LossTest, ARestartedServerThatIsLostAgainIsStillToldWhatIsOpen) {
  const OpenPtr open = Open();
  server_.SetGate([this, lost = false](const Request& request) mutable {
    if (request.opcode != Opcode::kReclaimOpen || std::exchange(lost, true)) return true;
    server_.Refuse(true);
    return false;
  });
  server_.Restart(false);
  std::thread again([this] {  // another lane was refused, and then another session
    const Deadline deadline = DeadlineAfter(seconds(10));
    while (server_.refused() < 2 && BootClock::now() < deadline) std::this_thread::yield();
    server_.Refuse(false);
  });
  ExpectFile(client_->Read(open, 0, 1000), 0);
  again.join();
  std::vector<Opcode> asked;
  for (const Request& request : server_.requests()) {
    const bool reclaim = request.opcode == Opcode::kReclaimOpen;
    if (reclaim || (request.opcode == Opcode::kRead && !asked.empty())) {
      asked.push_back(request.opcode);
    }
  }
  EXPECT_EQ(asked, (std::vector{Opcode::kReclaimOpen, Opcode::kReclaimOpen, Opcode::kRead}));
  EXPECT_TRUE(client_->Release(open).ok());
}

// The server goes on with a session that it has made anew, of which its client has never heard.
TEST_F(LossTest, ARestartedServerWhoseGrantWasLostIsToldWhatIsOpen) {
  const OpenPtr open = Open();
  server_.lost_grants = 1;
  server_.Restart(false);
  ExpectFile(client_->Read(open, 0, 1000), 0);
  std::vector<Opcode> asked;
  for (const Request& request : server_.requests()) {
    if (request.opcode == Opcode::kReclaimOpen || request.opcode == Opcode::kRead) {
      asked.push_back(request.opcode);
    }
  }
  EXPECT_EQ(asked, (std::vector{Opcode::kReclaimOpen, Opcode::kRead}));
}

// Where the name that was seen last leads nowhere, the one by which it was opened may.
TEST_F(LossTest, AFileIsFoundByTheNameByWhichItWasOpened) {
  finder_ = [this](const Handle& handle) { return std::vector<Path>(handle == root_ ? 1 : 0); };
  for (const bool in_use : {false, true}) {
    Mount(seconds(20));
    const OpenPtr open = Open();
    open->SetHint(root_, "its name");
    server_.SetHook([led = false](const Request& request, Reply& reply) mutable {
      led |= request.opcode == Opcode::kLookup;
      if (request.opcode == Opcode::kReclaimOpen && !led) reply.error = WireError::kStale;
    });
    if (in_use) {
      open->set_server_open(55);  // as if it had been answered from a record
    } else {
      server_.Restart(false);
    }
    ExpectFile(client_->Read(open, 0, 1000), 0);
    EXPECT_EQ(open->lost_errno(), 0) << in_use;
    server_.SetHook({});
  }
}

// A server without the right to open files by handle knows only what it has been led to. What may
// have been done already must not be answered with ESTALE: it would be asked again as something
// new.
TEST_F(LossTest, ARestartedServerIsLedToWhatIsAskedAgain) {
  const Handle directory = *Handle::FromBytes(AsBytes("directory"));
  finder_ = [this, directory](const Handle& handle) {
    Path steps;
    if (handle == directory) steps.push_back({root_, "on the way", directory});
    return std::vector<Path>{steps};
  };
  Mount(seconds(20));
  server_.SetGate([this, lost = false](const Request& request) mutable {
    if (request.opcode != Opcode::kMkdir || lost) return true;
    lost = true;
    server_.RestartFromGate(false);
    return false;
  });
  (void)client_->Mkdir(directory, "new");
  std::vector<Opcode> asked;
  for (const Request& request : server_.requests()) {
    if (request.opcode == Opcode::kLookup || request.opcode == Opcode::kMkdir) {
      asked.push_back(request.opcode);
    }
    if (request.opcode != Opcode::kLookup) continue;
    ByteReader reader(request.body);
    EXPECT_EQ(ReadHandle(reader), root_);
    EXPECT_EQ(AsText(ReadName(reader)), "on the way");
  }
  EXPECT_EQ(asked, (std::vector<Opcode>{Opcode::kMkdir, Opcode::kLookup, Opcode::kMkdir}));
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

// However long that takes: it is no attempt of this call's.
TEST_F(LossTest, ACallWaitsWhileAnotherLaneReclaimsItsFile) {
  const OpenPtr open = Open();
  const std::uint64_t known = open->server_open();
  ASSERT_TRUE(open->BeginReclaim());
  open->set_server_open(55);
  const std::optional<Buffer> buffer = client_->lane().buffers().Allocate(1000);
  ASSERT_TRUE(buffer);
  Status ended;
  bool over = false;
  client_->lane().Read({}, open, 0, buffer->Slice(0, 1000), 0, [&](Result<ReadDone>&& done) {
    ended = done.status();
    over = true;
  });
  RunUntil([&] { return over || server_.Count(Opcode::kRead) > 8; });
  EXPECT_FALSE(over);
  open->set_server_open(known);
  open->EndReclaim();
  ASSERT_TRUE(client_->RunUntil(over, DeadlineAfter(seconds(20))));
  EXPECT_TRUE(ended.ok()) << ended.ToString();
  EXPECT_EQ(server_.Count(Opcode::kReclaimOpen), 0U);
}

// Found out when the file is used: somebody else may have its lock by now.
TEST_F(LossTest, AFileWhoseLockIsRefusedThenAnswersEIO) {
  const OpenPtr open = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
    if (request.opcode == Opcode::kReclaimLock) reply.error = WireError::kAgain;
  });
  ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  open->set_server_open(55);  // as if it had been answered from a record
  (void)client_->Read(open, 0, 1000);
  EXPECT_EQ(server_.Count(Opcode::kReclaimLock), 1U);
  EXPECT_EQ(client_->Read(open, 0, 1000).status().errno_value(), EIO);
  EXPECT_EQ(open->lost_errno(), EIO);
  EXPECT_TRUE(client_->Release(open).ok());
}

// The server waits for others before it gives locks: that is no refusal.
TEST_F(LossTest, ALockThatTheServerDoesNotGiveYetIsAskedForAgain) {
  const OpenPtr open = Open();
  server_.SetHook([times = 3](const Request& request, Reply& reply) mutable {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
    if (request.opcode == Opcode::kReclaimLock && times-- > 0) reply.error = WireError::kGrace;
  });
  ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  server_.Restart(false);
  ExpectFile(client_->Read(open, 0, 1000), 0);
  RunUntil([&] { return server_.Count(Opcode::kReclaimLock) == 4; });
  ExpectFile(client_->Read(open, 0, 1000), 0);
  EXPECT_EQ(open->lost_errno(), 0);
  EXPECT_EQ(server_.Count(Opcode::kReclaimOpen), 1U);
  EXPECT_TRUE(client_->Release(open).ok());
}

// What another lane gives up is not given up ahead of the lock that is asked for again: nobody
// would ever give that one back.
TEST_F(LossTest, WhileALockIsAskedForAgainNoLaneGivesItUp) {
  std::vector<Status> given_up;
  const std::unique_ptr<SyncClient> other = OpenClient();
  const OpenPtr open = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
    if (request.opcode == Opcode::kReclaimLock) reply.send = false;
  });
  ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  open->set_server_open(55);  // as if it had been answered from a record
  ExpectFile(client_->Read(open, 0, 1000), 0);
  RunUntil([&] { return server_.Count(Opcode::kReclaimLock) == 1; });

  const auto done = [&](Status&& status) { given_up.push_back(std::move(status)); };
  other->lane().SetLock({}, open, {.owner = 1, .end = 9, .type = LockType::kUnlock}, false, false,
                        done);
  other->lane().FlushFile({}, open, 1, done);
  EXPECT_TRUE(other->GetAttr(root_).ok());
  EXPECT_EQ(server_.Count(Opcode::kSetLock), 1U) << "it does not wait";
  EXPECT_EQ(server_.Count(Opcode::kFlush), 0U) << "it does not wait";

  server_.DropAll();
  const Deadline deadline = DeadlineAfter(seconds(20));
  while (given_up.size() < 2 && BootClock::now() < deadline) {
    bool never = false;
    for (SyncClient* client : {client_.get(), other.get()}) {
      client->RunUntil(never, DeadlineAfter(milliseconds(1)));
    }
  }
  EXPECT_EQ(given_up.size(), 2U);
  for (const Status& status : given_up) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(server_.Count(Opcode::kReclaimLock), 1U) << "given up, it is not asked for again";
  EXPECT_FALSE(open->inode().locks.undoing());
}

// It may come to nothing, and the locks that it had asked for would be nobody's.
TEST_F(LossTest, ALaneBesideTheOthersMakesNoFileKnown) {
  const OpenPtr open = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
    if (request.opcode == Opcode::kReclaimLock) reply.error = WireError::kGrace;
  });
  ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  open->set_incarnation(0);  // as when a lane was lost that had not been given its locks yet
  const std::uint64_t known = open->server_open();
  ASSERT_TRUE(mount_->OpenLaneBeside(DeadlineAfter(seconds(20))).ok());
  EXPECT_EQ(server_.Count(Opcode::kReclaimOpen), 0U);
  EXPECT_EQ(open->server_open(), known);
}

// What has been neither given nor refused is asked for again.
TEST_F(LossTest, ALockThatIsAskedForAsTheConnectionBreaksIsAskedForAgain) {
  const OpenPtr open = Open();
  server_.SetHook([first = true](const Request& request, Reply& reply) mutable {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
    if (request.opcode != Opcode::kReclaimLock || !std::exchange(first, false)) return;
    reply.drop = true;
    reply.send = false;
  });
  ASSERT_TRUE(client_->SetLock(open, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  open->set_server_open(55);  // as if it had been answered from a record
  ExpectFile(client_->Read(open, 0, 1000), 0);
  RunUntil([&] { return server_.Count(Opcode::kReclaimLock) == 2; });
  EXPECT_EQ(open->lost_errno(), 0);
}

// A client that was silent for too long: somebody else may have had the lock, and given it back.
TEST_F(LossTest, ALockEndsWithTheSessionThatHadIt) {
  const OpenPtr locked = Open();
  const OpenPtr other = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kSetLock) reply.send = true;
  });
  ASSERT_TRUE(client_->SetLock(locked, {.owner = 1, .end = 9, .type = LockType::kWrite}).ok());
  server_.GiveUp();
  ExpectFile(client_->Read(other, 0, 1000), 0);
  EXPECT_EQ(client_->Read(locked, 0, 1000).status().errno_value(), EIO);
  EXPECT_EQ(server_.Count(Opcode::kReclaimLock), 0U);
  EXPECT_TRUE(client_->Release(locked).ok());
  EXPECT_TRUE(client_->Release(other).ok());
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

// A server that cannot at the moment has not lost the file.
TEST_F(LossTest, AFileThatCannotBeOpenedAtTheMomentIsAskedForAgain) {
  for (const WireError error : {WireError::kIo, WireError::kAgain, WireError::kTooManyFiles}) {
    const OpenPtr open = Open();
    server_.SetHook([error, times = 3](const Request& request, Reply& reply) mutable {
      if (request.opcode == Opcode::kReclaimOpen && times-- > 0) reply.error = error;
    });
    server_.Restart(false);
    ExpectFile(client_->Read(open, 0, 1000), 0);
    EXPECT_EQ(open->lost_errno(), 0);
  }
}

// One file for which that goes on and on holds nothing else up, and each call on it ends at its
// deadline; when the server can again, it goes on.
TEST_F(LossTest, AFileThatCannotBeOpenedForLongHoldsNothingUp) {
  Mount(seconds(6));
  const OpenPtr open = Open();
  std::atomic<bool> broken{true};
  server_.SetHook([&broken](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kReclaimOpen && broken) reply.error = WireError::kIo;
  });
  server_.Restart(false);
  EXPECT_TRUE(client_->Mkdir(root_, "dir").ok());
  client_->context().timeout = milliseconds(500);
  EXPECT_EQ(client_->Read(open, 0, 1000).status().errno_value(), ETIMEDOUT);
  EXPECT_EQ(open->lost_errno(), 0);
  client_->context().timeout.reset();
  broken = false;
  ExpectFile(client_->Read(open, 0, 1000), 0);
  server_.SetHook({});
}

TEST_F(LossTest, AFileThatMayNotBeOpenedSaysSoAndIsNotLost) {
  const OpenPtr open = Open();
  std::atomic<bool> forbidden{true};
  server_.SetHook([&forbidden](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kReclaimOpen && forbidden) reply.error = WireError::kAccess;
  });
  server_.Restart(false);
  EXPECT_EQ(client_->Read(open, 0, 1000).status().errno_value(), EACCES);
  forbidden = false;
  ExpectFile(client_->Read(open, 0, 1000), 0);
  server_.SetHook({});
}

TEST_F(LossTest, AReclaimThatFindsNoSessionDialsAnew) {
  const OpenPtr open = Open();
  server_.SetHook([times = 1](const Request& request, Reply& reply) mutable {
    if (request.opcode == Opcode::kReclaimOpen && times-- > 0) {
      reply.error = WireError::kUnknownSession;
    }
  });
  server_.Restart(false);
  ExpectFile(client_->Read(open, 0, 1000), 0);
  EXPECT_EQ(server_.Count(Opcode::kReclaimOpen), 2U);
}

TEST_F(LossTest, ACrashOfTheHostIsToldOnceByFsync) {
  const OpenPtr open = Open();
  WriteSome(open);
  EXPECT_TRUE(client_->Fsync(open).ok());
  WriteSome(open);
  server_.CrashHost();
  EXPECT_EQ(client_->Fsync(open).errno_value(), EIO);
  EXPECT_TRUE(client_->Fsync(open).ok());
}

TEST_F(LossTest, ARestartWithoutACrashOfTheHostLosesNoWrite) {
  const OpenPtr open = Open();
  WriteSome(open);
  server_.Restart(false);
  WriteSome(open);
  EXPECT_TRUE(client_->Fsync(open).ok());
  EXPECT_TRUE(client_->FlushFile(open).ok());
}

TEST_F(LossTest, AWriteThatACrashLostIsToldByFsyncOfEachDescriptor) {
  const OpenPtr writer = Open(), other = Open();
  WriteSome(writer);
  server_.CrashHost();
  for (const OpenPtr& open : {other, writer}) {
    EXPECT_EQ(client_->Fsync(open).errno_value(), EIO);
    EXPECT_TRUE(client_->Fsync(open).ok());
  }
}

TEST_F(LossTest, AWriteThatACrashLostBehindItsCloseIsToldToWhoOpensTheFileNext) {
  OpenPtr open = Open();
  WriteSome(open);
  ASSERT_TRUE(client_->Release(std::exchange(open, nullptr)).ok());
  server_.CrashHost();
  EXPECT_EQ(client_->Fsync(Open()).errno_value(), EIO);
  EXPECT_TRUE(client_->Fsync(Open()).ok());
}

TEST_F(LossTest, AFileThatNobodyWroteIsNotLost) {
  OpenPtr open = Open();
  WriteSome(open);
  const auto other = client_->Open(*Handle::FromBytes(AsBytes("other")), kOpenRead | kOpenWrite);
  ASSERT_TRUE(other.ok());
  server_.CrashHost();
  EXPECT_TRUE(client_->Fsync(other->open).ok());
}

TEST_F(LossTest, AWriteThatACrashLostIsToldByEachCloseOfItsWriter) {
  const OpenPtr writer = Open(), other = Open();
  WriteSome(writer);
  EXPECT_TRUE(client_->FlushFile(writer).ok());
  server_.CrashHost();
  EXPECT_EQ(client_->FlushFile(writer).errno_value(), EIO);
  EXPECT_EQ(client_->FlushFile(writer).errno_value(), EIO);  // of a descriptor made by dup(2)
  EXPECT_TRUE(client_->FlushFile(other).ok());
  EXPECT_EQ(client_->Fsync(writer).errno_value(), EIO);
  EXPECT_TRUE(client_->FlushFile(writer).ok());
}

TEST_F(LossTest, AWriteThatIsAnsweredWhileAnFsyncIsUnderWayIsNotSynced) {
  std::unique_ptr<SyncClient> other = OpenClient();
  const OpenPtr open = Open();
  WriteSome(open);
  const Status synced = client_->AwaitDone([&](DoneCallback done) {
    client_->lane().Fsync({}, open, false, std::move(done));
    client_->lane().Flush();
    ASSERT_TRUE(other->Write(open, 0, std::vector<std::byte>(10)).ok());
  });
  EXPECT_TRUE(synced.ok());
  server_.CrashHost();
  EXPECT_EQ(client_->Fsync(open).errno_value(), EIO);
}

TEST_F(LossTest, AWriteThatIsDurableWhenItIsAnsweredIsNotLost) {
  for (const std::uint32_t durable : {kOpenSync, kOpenDataSync}) {
    const auto opened = client_->Open(file_, kOpenWrite | durable);
    ASSERT_TRUE(opened.ok());
    WriteSome(opened->open);
    server_.CrashHost();
    WriteSome(opened->open);
    EXPECT_TRUE(client_->Fsync(opened->open).ok());
    EXPECT_TRUE(client_->FlushFile(opened->open).ok());
  }
}

TEST_F(LossTest, ACopyThatACrashLostIsTold) {
  for (const std::uint32_t durable : {0U, kOpenDataSync}) {
    const OpenPtr from = Open();
    const auto to = client_->Open(file_, kOpenWrite | durable);
    ASSERT_TRUE(to.ok());
    ASSERT_TRUE(client_->CopyFileRange(from, 0, to->open, 0, 1).ok());
    server_.CrashHost();
    EXPECT_EQ(client_->Fsync(to->open).errno_value(), EIO);
  }
}

TEST_F(LossTest, AMalformedAnswerToACopyLosesNothing) {
  const OpenPtr open = Open();
  WriteSome(open);
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kCopyFileRange) reply.body.resize(3);
  });
  EXPECT_EQ(client_->CopyFileRange(open, 0, open, 0, 1).status().errno_value(), EIO);
  server_.SetHook({});
  EXPECT_TRUE(client_->Fsync(open).ok());
}

TEST_F(LossTest, AnEarlyWriteThatFailedIsToldByCloseAndByFsyncOfEachDescriptor) {
  const OpenPtr writer = Open(), other = Open();
  server_.SetHook([](const Request& request, Reply& reply) {
    if (request.opcode == Opcode::kWrite) reply.error = WireError::kFileTooBig;
  });
  for (const std::uint32_t flags : {0U, kWriteEarly}) {
    EXPECT_FALSE(client_->Write(writer, 0, std::vector<std::byte>(10), flags).ok());
    EXPECT_EQ(client_->FlushFile(writer).errno_value(), flags == 0 ? 0 : EFBIG);
  }
  EXPECT_TRUE(client_->FlushFile(other).ok());
  for (const OpenPtr& open : {other, writer}) {
    EXPECT_EQ(client_->Fsync(open).errno_value(), EFBIG);
    EXPECT_TRUE(client_->Fsync(open).ok());
  }
  EXPECT_TRUE(client_->FlushFile(writer).ok());
  EXPECT_TRUE(client_->Fsync(Open()).ok());
}

TEST_F(LossTest, OfTheFilesThatNobodySyncedTheLastAreRemembered) {
  auto& mount = dynamic_cast<MountImpl&>(*mount_);
  std::vector<std::weak_ptr<InodeState>> written;
  for (std::size_t i = 0; i <= MountImpl::kMostUnsynced; ++i) {
    const auto inode = std::make_shared<InodeState>(file_);
    mount.KeepUnsynced(inode);
    mount.KeepUnsynced(inode);
    written.push_back(inode);
  }
  EXPECT_TRUE(written.front().expired());
  EXPECT_FALSE(written[1].expired());
  EXPECT_FALSE(written.back().expired());
  mount.KeepUnsynced(written.back().lock());
  EXPECT_FALSE(written[1].expired());
}

// Each would take the other one for what goes on.
TEST_F(LossTest, OfLanesThatGoAtATimeOneIsTheLast) {
  const std::unique_ptr<SyncClient> other = OpenClient();
  auto& mount = dynamic_cast<MountImpl&>(*mount_);
  EXPECT_FALSE(mount.Leave(0));
  EXPECT_TRUE(mount.Leave(1));
  client_.reset();
  EXPECT_EQ(server_.Count(Opcode::kEndSession), 1U);
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
  server_.SetHook([random = std::mt19937(77)](const Request& request, Reply& reply) mutable {
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
