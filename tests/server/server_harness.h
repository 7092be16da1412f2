// A server without a transport: a temporary directory, a session, a lane in memory, and a client
// that builds requests by hand and waits for the answer.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fs/protocol.h"
#include "server/core.h"
#include "server/loop/lane.h"
#include "server/loop/worker.h"
#include "server/ops/dispatch.h"
#include "tests/server/temp_dir.h"
#include "transport/base/random.h"

namespace rdfs::server {

// Runs what is due when told to.
class ManualScheduler final : public Scheduler {
 public:
  void After(std::chrono::nanoseconds delay, std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    tasks_.emplace(now_ + delay, std::move(task));
  }
  void Advance(std::chrono::nanoseconds span) {
    now_ += span;
    while (true) {
      std::function<void()> task;
      {
        const std::lock_guard lock(mutex_);
        if (tasks_.empty() || tasks_.begin()->first > now_) return;
        task = std::move(tasks_.begin()->second);
        tasks_.erase(tasks_.begin());
      }
      task();
    }
  }
  [[nodiscard]] std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return tasks_.size();
  }

 private:
  std::mutex mutex_;
  std::chrono::nanoseconds now_{0};
  std::multimap<std::chrono::nanoseconds, std::function<void()>> tasks_;
};

// Something happens whenever the server asks for the time.
class HookedClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const override {
    if (hook) hook();
    return BootClock::now();
  }
  std::function<void()> hook;
};

class MemoryLane final : public Lane {
 public:
  MemoryLane(SessionPtr session, FileIo& io) : Lane(std::move(session)), io_(io) {}
  void Send(std::span<const ByteSpan> parts) override {
    std::vector<std::byte> message;
    for (const ByteSpan part : parts) message.insert(message.end(), part.begin(), part.end());
    sent.push_back(std::move(message));
  }
  void Answered(fs::Opcode opcode, TimePoint taken) override {
    answered.emplace_back(opcode, taken);
  }
  std::shared_ptr<Staging> MakeStaging(std::size_t) override { return nullptr; }
  void Post(std::function<void()> task) override { io_.Post(std::move(task)); }

  std::deque<std::vector<std::byte>> sent;
  std::vector<std::pair<fs::Opcode, TimePoint>> answered;

 private:
  FileIo& io_;
};

struct Answer {
  fs::WireError error = fs::WireError::kIo;
  std::vector<std::byte> body;
  std::uint64_t sequence = 0;
  [[nodiscard]] bool ok() const { return error == fs::WireError::kOk; }
  // As a caller of the system call would see it.
  [[nodiscard]] int errno_value() const { return fs::ToErrno(error); }
  template <typename T>
  [[nodiscard]] T As() const {
    ByteReader reader(body);
    const T value = reader.Read<T>();
    EXPECT_TRUE(reader.ok());
    return value;
  }
};

// A request's body.
class Body {
 public:
  template <WireStruct T>
  Body& Add(const T& value) {
    return Raw(std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
  Body& Add(const fs::Handle& handle) { return Sized16(handle.bytes()); }
  Body& Name(std::string_view name) { return Sized16(AsBytes(name)); }
  Body& Sized16(ByteSpan bytes) {
    Add(Le16(static_cast<std::uint16_t>(bytes.size())));
    return Raw(bytes);
  }
  Body& Sized32(ByteSpan bytes) {
    Add(Le32(static_cast<std::uint32_t>(bytes.size())));
    return Raw(bytes);
  }
  Body& Raw(ByteSpan bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  [[nodiscard]] ByteSpan bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct HarnessOptions {
  IdMap ids = IdMap::AsMe({::geteuid(), ::getegid()}, {::geteuid(), ::getegid()}, true);
  bool read_only = false;
  bool by_handle = true;
  bool can_switch_ids = false;
  bool record = false;
  bool may_reclaim = true;
  bool lost_record = false;
  ClientLimits limits{};
  std::size_t descriptors = 1024;
};

class Harness {
 public:
  explicit Harness(HarnessOptions options = {}) : options_(std::move(options)) {
    ::mkdir((base / "export").c_str(), 0755);
    keeper_ = DescriptorKeeper::None();
    io_ = *FileIo::Create();
    CoreOptions core;
    core.epoch = 7;
    core.verifier = 99;
    core.can_switch_ids = options_.can_switch_ids;
    core.limits = options_.limits;
    core_ = std::make_unique<Core>(clock, *ProcFd::Open(), *keeper_, scheduler, 64 << 20, core);
    exported_ = *Export::Create({.name = "x", .directory = dir()});
    table_ = *InodeTable::Create(
        exported_, HandleSecret::Random(), core_->proc,
        {.descriptors = options_.descriptors, .entries = 65536, .by_handle = options_.by_handle});
    access_.inodes = table_.get();
    access_.domain = transport::Domain::Create("test");
    StoreOptions store;
    store.pool.pool_bytes = 16 << 20;
    store.pool.arena_bytes = 4 << 20;
    access_.store = std::make_shared<ExtentStore>(access_.domain, store, clock);
    core_->stores.Add(access_.store);
    worker_ = std::make_unique<Worker>(*core_, *io_);
    dispatcher_ = std::make_unique<Dispatcher>(*worker_);
    lane = NewLane(NewSession());
  }
  ~Harness() {
    (void)worker_->identity.Become(std::nullopt);
    if (session_->record() != nullptr) session_->record()->Remove();
    // The store outlives every FileIo that reads were started with (extent_store.h).
    lane.reset();
    session_.reset();
    dispatcher_.reset();
    worker_.reset();
    io_.reset();
  }

  // The thread is left in the name of the last caller; this makes it the test's own again.
  void ActAsItself() { (void)worker_->identity.Become(std::nullopt); }

  SessionPtr NewSession(std::uint64_t id = 42) {
    FsSessionParams params;
    params.id = id;
    params.access = &access_;
    params.ids = options_.ids;
    params.read_only = options_.read_only;
    params.may_reclaim = options_.may_reclaim;
    params.lost_record = options_.lost_record;
    params.limits = options_.limits;
    std::unique_ptr<IntentRing> ring;
    if (options_.record) ring = *IntentRing::Open(base / ("ring" + std::to_string(id)), id, 64);
    auto session = std::make_shared<FsSession>(params, std::move(ring));
    if (!session_) session_ = session;
    return session;
  }
  std::shared_ptr<MemoryLane> NewLane(SessionPtr session) {
    return std::make_shared<MemoryLane>(std::move(session), *io_);
  }

  // Sends one message as it is; false when the dispatcher ends the lane.
  bool Deliver(const std::shared_ptr<MemoryLane>& to, ByteSpan message) {
    return dispatcher_->Handle(to, message);
  }
  static std::vector<std::byte> Message(fs::Opcode opcode, ByteSpan body, std::uint64_t sequence,
                                        std::uint64_t session = 42, Ids caller = {0, 0},
                                        std::uint16_t flags = 0) {
    fs::RequestHeader header{};
    header.flags = flags;
    header.opcode = static_cast<std::uint16_t>(opcode);
    header.body_bytes = static_cast<std::uint32_t>(body.size());
    header.session = session;
    header.sequence = sequence;
    header.uid = caller.uid;
    header.gid = caller.gid;
    std::vector<std::byte> message(sizeof(header) + body.size());
    std::memcpy(message.data(), &header, sizeof(header));
    if (!body.empty()) std::memcpy(message.data() + sizeof(header), body.data(), body.size());
    return message;
  }
  std::uint64_t NextSequence() { return ++sequence_; }
  std::uint64_t Send(fs::Opcode opcode, const Body& body) {
    const std::uint64_t sequence = NextSequence();
    EXPECT_TRUE(
        Deliver(lane, Message(opcode, body.bytes(), sequence, lane->session()->id(), caller)));
    return sequence;
  }
  // Whether an answer is there, after giving file I/O up to `patience`.
  bool WaitForAnswer(const std::shared_ptr<MemoryLane>& from, int patience_ms = 5000) {
    const TimePoint deadline = BootClock::now() + std::chrono::milliseconds(patience_ms);
    while (from->sent.empty()) {
      io_->Submit();
      io_->Poll();
      io_->RunDeferred();
      if (!from->sent.empty() || BootClock::now() >= deadline) break;
      pollfd wait{io_->fd(), POLLIN, 0};
      ::poll(&wait, 1, PollTimeoutMs(deadline, BootClock::now()));
    }
    return !from->sent.empty();
  }
  Answer TakeAnswer(const std::shared_ptr<MemoryLane>& from) {
    Answer answer;
    if (!WaitForAnswer(from)) {
      ADD_FAILURE() << "no answer";
      return answer;
    }
    ByteReader reader(from->sent.front());
    const auto header = reader.Read<fs::ReplyHeader>();
    answer.error = static_cast<fs::WireError>(std::uint16_t{header.error});
    answer.sequence = header.sequence;
    EXPECT_EQ(reader.remaining(), header.body_bytes);
    answer.body.assign(reader.rest().begin(), reader.rest().end());
    from->sent.pop_front();
    return answer;
  }
  Answer Ask(fs::Opcode opcode, const Body& body) {
    Send(opcode, body);
    return TakeAnswer(lane);
  }

  // The everyday requests.
  Answer Lookup(const fs::Handle& parent, std::string_view name) {
    return Ask(fs::Opcode::kLookup, Body().Add(parent).Name(name));
  }
  static fs::Entry EntryIn(const Answer& answer, std::size_t skip = 0) {
    ByteReader reader(answer.body);
    reader.ReadBytes(skip);
    const fs::Entry entry = fs::ReadEntry(reader);
    EXPECT_TRUE(reader.ok());
    return entry;
  }
  // Looks a path of several names up from the root; an empty handle when it is not there.
  fs::Handle Walk(std::string_view path) {
    fs::Handle at = root();
    while (!path.empty()) {
      const std::string_view name = path.substr(0, path.find('/'));
      path.remove_prefix(std::min(path.size(), name.size() + 1));
      const Answer answer = Lookup(at, name);
      if (!answer.ok()) return {};
      at = EntryIn(answer).handle;
    }
    return at;
  }
  Answer Create(const fs::Handle& parent, std::string_view name, std::uint32_t flags,
                std::uint32_t mode = 0644, std::uint32_t umask = 0) {
    fs::CreateRequest request{};
    request.flags = flags;
    request.mode = mode;
    request.umask = umask;
    return Ask(fs::Opcode::kCreate, Body().Add(request).Add(parent).Name(name));
  }
  Answer Open(const fs::Handle& handle, std::uint32_t flags) {
    fs::OpenRequest request{};
    request.flags = flags;
    return Ask(fs::Opcode::kOpen, Body().Add(request).Add(handle));
  }
  Answer Write(std::uint64_t open, std::uint64_t offset, std::string_view bytes,
               std::uint32_t flags = 0) {
    fs::WriteRequest request{};
    request.open = open;
    request.offset = offset;
    request.flags = flags;
    return Ask(fs::Opcode::kWrite, Body().Add(request).Sized32(AsBytes(bytes)));
  }
  // The content that a read without grants brings.
  std::pair<int, std::string> Read(std::uint64_t open, std::uint64_t offset, std::uint32_t length) {
    fs::ReadRequest request{};
    request.open = open;
    request.offset = offset;
    request.length = length;
    request.flags = fs::kReadNoGrants;
    const Answer answer = Ask(fs::Opcode::kRead, Body().Add(request));
    if (!answer.ok()) return {answer.errno_value(), {}};
    ByteReader reader(answer.body);
    const auto reply = reader.Read<fs::ReadReply>();
    EXPECT_EQ(reply.grants, 0);
    return {0, std::string(AsText(reader.ReadSized32(fs::kMaxTransferBytes)))};
  }
  Answer Release(std::uint64_t open) {
    fs::ReleaseRequest request{};
    request.open = open;
    return Ask(fs::Opcode::kRelease, Body().Add(request));
  }
  std::uint64_t OpenNumber(const Answer& answer) { return answer.As<fs::OpenReply>().open; }

  [[nodiscard]] fs::Handle root() const { return table_->root().inode->handle; }
  [[nodiscard]] std::string dir() const { return base / "export"; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return dir() + "/" + name; }
  Core& core() { return *core_; }
  InodeTable& table() { return *table_; }
  FileIo& io() { return *io_; }
  const SessionPtr& session() { return session_; }

  TempDir base;
  ManualScheduler scheduler;
  HookedClock clock;
  std::shared_ptr<MemoryLane> lane;
  Ids caller{::geteuid(), ::getegid()};

 private:
  HarnessOptions options_;
  std::unique_ptr<DescriptorKeeper> keeper_;
  std::unique_ptr<FileIo> io_;
  std::unique_ptr<Core> core_;
  std::shared_ptr<const Export> exported_;
  std::unique_ptr<InodeTable> table_;
  AccessClass access_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Dispatcher> dispatcher_;
  SessionPtr session_;
  std::uint64_t sequence_ = 0;
};

}  // namespace rdfs::server
