// The whole server over real transports, spoken to by hand: grants, staging, sessions, hostile
// peers. Over shared memory and over TCP, and over verbs in tests/rdma.
#include "server/service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <fstream>
#include <future>
#include <thread>

#include "tests/fs/client/wrapped_connection.h"
#include "tests/server/temp_dir.h"
#include "tests/server/wrapped_service.h"
#include "tests/transport/kinds.h"
#include "transport/base/random.h"
#include "transport/session/acceptor.h"
#include "transport/session/session.h"

namespace rdfs::server {
namespace {

using fs::Opcode;
using transport::Completion;
using transport::Connection;
using transport::Kind;

constexpr std::chrono::seconds kPatience{10};

struct Reply {
  fs::WireError error = fs::WireError::kIo;
  std::vector<std::byte> body;
  Status connection;  // why there is none
};

// One lane of a client, one request at a time.
class Client {
 public:
  Client(std::unique_ptr<Connection> lane, std::shared_ptr<transport::Domain> domain,
         std::uint64_t session)
      : lane_(std::move(lane)), domain_(std::move(domain)), session_(session) {
    auto memory = SharedMemory::Create("client", 4 << 20, SharedMemory::Peers::kMayWrite);
    buffer_ = *domain_->Register(*memory, transport::Access::kLocal);
  }

  Reply Ask(Opcode opcode, std::span<const ByteSpan> body) {
    fs::RequestHeader header{};
    header.opcode = static_cast<std::uint16_t>(opcode);
    std::size_t size = 0;
    std::vector<ByteSpan> parts = {
        std::as_bytes(std::span<const fs::RequestHeader, 1>(&header, 1))};
    for (const ByteSpan part : body) {
      size += part.size();
      parts.push_back(part);
    }
    header.body_bytes = static_cast<std::uint32_t>(size);
    header.session = session_;
    header.sequence = ++sequence_;
    header.uid = ::geteuid();
    header.gid = ::getegid();
    Reply reply;
    reply.connection = lane_->Send(parts);
    if (reply.connection.ok()) reply.connection = lane_->Flush();
    while (reply.connection.ok()) {
      std::array<Completion, 1> completion;
      const auto count = lane_->Wait(completion, DeadlineAfter(kPatience));
      if (!count.ok() || *count == 0) {
        reply.connection =
            count.ok() ? Status(Code::kDeadlineExceeded, "no answer") : count.status();
        break;
      }
      ByteReader reader(completion[0].message);
      const auto answer = reader.Read<fs::ReplyHeader>();
      if (answer.sequence == 0) {
        const auto arena = reader.Read<fs::ArenaMessage>();
        arenas_[arena.arena] = arena.region.ToRegion();
        continue;
      }
      EXPECT_EQ(answer.sequence, header.sequence);
      reply.error = static_cast<fs::WireError>(std::uint16_t{answer.error});
      reply.body.assign(reader.rest().begin(), reader.rest().end());
      break;
    }
    return reply;
  }
  template <typename... Parts>
  Reply Ask(Opcode opcode, const Parts&... parts) {
    const std::vector<ByteSpan> body = {Bytes(parts)...};
    return Ask(opcode, std::span<const ByteSpan>(body));
  }
  // Asks for what is never read.
  Status AskOnly(Opcode opcode, ByteSpan body = {}) {
    fs::RequestHeader header{};
    header.opcode = static_cast<std::uint16_t>(opcode);
    header.body_bytes = static_cast<std::uint32_t>(body.size());
    header.session = session_;
    header.sequence = ++sequence_;
    header.uid = ::geteuid();
    header.gid = ::getegid();
    const std::array<ByteSpan, 2> parts = {
        std::as_bytes(std::span<const fs::RequestHeader, 1>(&header, 1)), body};
    return lane_->Send(parts);
  }
  // READs or WRITEs [offset, offset + length) of the buffer at `to`.
  void Move(bool read, std::uint64_t offset, std::uint64_t length, transport::RemoteSlice remote) {
    const transport::LocalSlice local{buffer_.get(), offset, length};
    const auto ticket = read ? lane_->Read(local, remote) : lane_->Write(local, remote);
    ASSERT_TRUE(ticket.ok()) << ticket.status().message();
    ASSERT_TRUE(lane_->Flush().ok());
    if (!read) return;  // a message behind it arrives after the bytes
    std::array<Completion, 1> completion;
    const auto count = lane_->Wait(completion, DeadlineAfter(kPatience));
    ASSERT_TRUE(count.ok()) << count.status().message();
    ASSERT_EQ(*count, 1U);
    ASSERT_TRUE(completion[0].status.ok()) << completion[0].status.message();
  }
  // As one that has asked before: its requests have numbers behind this one.
  void CountFrom(std::uint64_t sequence) { sequence_ = sequence; }
  MutableByteSpan buffer() { return buffer_->bytes(); }
  transport::RemoteRegion arena(std::uint32_t number) { return arenas_.at(number); }
  Connection& lane() { return *lane_; }

 private:
  template <typename T>
  static ByteSpan Bytes(const T& part) {
    if constexpr (std::is_convertible_v<T, ByteSpan>) {
      return part;
    } else {
      return std::as_bytes(std::span<const T, 1>(&part, 1));
    }
  }
  std::unique_ptr<Connection> lane_;
  std::shared_ptr<transport::Domain> domain_;
  std::uint64_t session_;
  std::unique_ptr<transport::MemoryRegion> buffer_;
  std::map<std::uint32_t, transport::RemoteRegion> arenas_;
  std::uint64_t sequence_ = 0;
};

std::vector<std::byte> Sized(ByteSpan bytes) {
  std::vector<std::byte> out(2 + bytes.size());
  ByteWriter writer(out);
  writer.WriteSized16(bytes);
  return out;
}

class ServiceTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { Start(std::chrono::milliseconds(40'000)); }
  void TearDown() override { Stop(); }

  void Start(std::chrono::milliseconds lease) {
    std::ofstream(dir_ / "file") << "0123456789";
    keeper_ = DescriptorKeeper::None();
    ServiceOptions options;
    ExportSpec spec;
    spec.name = "x";
    spec.directory = dir_.path();
    spec.id_mode = IdMode::kAsMe;
    spec.id_mode_given = true;
    options.exports.push_back(spec);
    options.secret = HandleSecret::Random();
    options.pool_bytes = 32 << 20;
    options.session_lease = lease;
    if (records_) options.record_directory = records_->path();
    options.limits = limits_;
    options.loops = loops_;
    auto service = Service::Create(std::move(options), *keeper_);
    ASSERT_TRUE(service.ok()) << service.status().message();
    service_ = *std::move(service);
    transport::AcceptorOptions acceptor;
    acceptor.addresses = {transport::TestAddress()};
    acceptor.port = 0;
    acceptor.keys.push_back({"k", key_});
    acceptor.offer = transport::TestKinds();
    acceptor.peers_share = false;
    auto made = transport::Acceptor::Create(acceptor, host());
    ASSERT_TRUE(made.ok()) << made.status().message();
    acceptor_ = *std::move(made);
    thread_ = std::thread([this] { EXPECT_TRUE(acceptor_->Run().ok()); });
  }
  void Stop() {
    if (!acceptor_) return;
    acceptor_->Stop();
    thread_.join();
    acceptor_.reset();
    service_.reset();
  }

  Result<std::unique_ptr<transport::Session>> Dial(const std::string& name = "x") {
    fs::MountRequest mount{};
    mount.major = fs::kProtocolMajor;
    mount.client_id = client_id_;
    mount.last_epoch = last_epoch_;
    mount.uid = ::geteuid();
    mount.gid = ::getegid();
    transport::DialOptions options;
    options.host = transport::TestAddress();
    options.port = acceptor_->port();
    options.key = key_;
    options.service = fs::kServiceName;
    const auto bytes = std::as_bytes(std::span<const fs::MountRequest, 1>(&mount, 1));
    options.request.assign(bytes.begin(), bytes.end());
    for (const std::string& text : {name, std::string("test")}) {
      const auto sized = Sized(AsBytes(text));
      options.request.insert(options.request.end(), sized.begin(), sized.end());
    }
    options.deadline = DeadlineAfter(kPatience);
    domain_ = transport::Domain::Create("client");
    return transport::Session::Dial(std::move(options), domain_);
  }
  // Mounts; grant_ and root_ are filled.
  std::unique_ptr<Client> Connect() {
    auto dialled = Dial();
    EXPECT_TRUE(dialled.ok()) << dialled.status().message();
    if (!dialled.ok()) return nullptr;
    session_ = *std::move(dialled);
    ByteReader reader(session_->grant());
    grant_ = reader.Read<fs::MountGrant>();
    root_ = fs::ReadEntry(reader);
    EXPECT_TRUE(reader.ok());
    return OpenLane();
  }
  std::unique_ptr<Client> OpenLane() {
    auto lane = session_->OpenLaneOver(GetParam(), DeadlineAfter(kPatience));
    EXPECT_TRUE(lane.ok()) << lane.status().message();
    if (!lane.ok()) return nullptr;
    return std::make_unique<Client>(*std::move(lane), domain_, grant_.session);
  }
  fs::Entry LookUpFile(Client& client) {
    const Reply found =
        client.Ask(Opcode::kLookup, Sized(root_.handle.bytes()), Sized(AsBytes("file")));
    ByteReader reader(found.body);
    return fs::ReadEntry(reader);
  }
  std::uint64_t OpenFile(Client& client, std::uint32_t flags) {
    const fs::Entry entry = LookUpFile(client);
    fs::OpenRequest request{};
    request.flags = flags;
    const Reply opened = client.Ask(Opcode::kOpen, request, Sized(entry.handle.bytes()));
    EXPECT_EQ(opened.error, fs::WireError::kOk);
    ByteReader reply(opened.body);
    return reply.Read<fs::OpenReply>().open;
  }

  // Who is given the lanes.
  virtual transport::SessionHost& host() { return *service_; }

  TempDir dir_;
  ClientLimits limits_;  // of servers to come
  unsigned loops_ = 0;   // the same
  std::optional<TempDir> records_;
  std::uint64_t last_epoch_ = 0;  // that the client has heard of
  const transport::Key key_ = transport::Key::Random();
  std::array<std::byte, 16> client_id_ = [] {
    std::array<std::byte, 16> id{};
    FillRandom(id);
    return id;
  }();
  std::unique_ptr<DescriptorKeeper> keeper_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::thread thread_;
  std::shared_ptr<transport::Domain> domain_;
  std::unique_ptr<transport::Session> session_;
  fs::MountGrant grant_{};
  fs::Entry root_;
};

TEST_P(ServiceTest, MountsAndAnswers) {
  const auto client = Connect();
  ASSERT_TRUE(client);
  EXPECT_EQ(root_.attr.mode & S_IFMT, static_cast<unsigned>(S_IFDIR));
  EXPECT_EQ(grant_.flags & fs::kGrantResumed, 0U);
  EXPECT_EQ(client->Ask(Opcode::kRenew).error, fs::WireError::kOk);
  const Reply found =
      client->Ask(Opcode::kLookup, Sized(root_.handle.bytes()), Sized(AsBytes("file")));
  ByteReader reader(found.body);
  EXPECT_EQ(fs::ReadEntry(reader).attr.size, 10U);
}

TEST_P(ServiceTest, WhatIsUnderWayWhenItStopsIsAnswered) {
  constexpr std::uint64_t kLength = 12 << 20;  // some milliseconds
  ASSERT_EQ(::truncate((dir_ / "file").c_str(), kLength), 0);
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(Connect());
  ASSERT_TRUE(clients[0]);
  const std::uint64_t open = OpenFile(*clients[0], fs::kOpenRead | fs::kOpenWrite);
  while (clients.size() < 4) {
    clients.push_back(OpenLane());
    ASSERT_TRUE(clients.back());
  }
  std::vector<std::future<Reply>> replies;
  for (std::uint64_t i = 0; i < clients.size(); ++i) {
    fs::CopyFileRangeRequest request{};
    request.open_in = request.open_out = open;
    request.length = kLength;
    request.offset_out = kLength * (i + 1);
    replies.push_back(std::async(std::launch::async, [client = clients[i].get(), request] {
      return client->Ask(Opcode::kCopyFileRange, request);
    }));
  }
  const Deadline until = DeadlineAfter(kPatience);
  const auto& taken = service_->core().counters.Of(Opcode::kCopyFileRange).requests;
  while (taken.load() < clients.size() && BootClock::now() < until) std::this_thread::yield();
  Stop();
  for (auto& waiting : replies) {
    const Reply reply = waiting.get();
    EXPECT_EQ(reply.error, fs::WireError::kOk) << reply.connection.message();
  }
}

TEST_P(ServiceTest, ReadsThroughGrants) {
  std::string content(3 << 20, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 4096);
  std::ofstream(dir_ / "file", std::ios::binary) << content;
  const auto client = Connect();
  ASSERT_TRUE(client);
  const std::uint64_t open = OpenFile(*client, fs::kOpenRead);
  fs::ReadRequest request{};
  request.open = open;
  request.offset = 1 << 20;
  request.length = 1 << 20;
  const Reply reply = client->Ask(Opcode::kRead, request);
  ASSERT_EQ(reply.error, fs::WireError::kOk);
  ByteReader reader(reply.body);
  const auto read = reader.Read<fs::ReadReply>();
  EXPECT_EQ(read.file_size, content.size());
  std::uint64_t at = request.offset;
  for (unsigned i = 0; i < read.grants; ++i) {
    const auto grant = reader.Read<fs::GrantWire>();
    EXPECT_EQ(grant.file_offset, at);
    client->Move(true, 0, grant.length, {client->arena(grant.arena), grant.arena_offset});
    EXPECT_EQ(AsText(client->buffer().first(grant.length)),
              std::string_view(content).substr(at, grant.length));
    client->Move(true, 0, 8, {client->arena(grant.generation_arena), grant.generation_offset});
    Le64 generation;
    std::memcpy(static_cast<void*>(&generation), client->buffer().data(), 8);
    EXPECT_EQ(generation, std::uint64_t{grant.generation});
    at += grant.length;
  }
  const ByteSpan inline_bytes = reader.ReadSized32(fs::kMaxTransferBytes);
  EXPECT_EQ(AsText(inline_bytes), std::string_view(content).substr(at, inline_bytes.size()));
  EXPECT_GT(at + inline_bytes.size(), request.offset);
}

TEST_P(ServiceTest, WritesThroughStaging) {
  const auto client = Connect();
  ASSERT_TRUE(client);
  const std::uint64_t open = OpenFile(*client, fs::kOpenWrite);
  fs::AttachLaneRequest attach{};
  attach.staging_bytes = 4 << 20;
  const Reply attached = client->Ask(Opcode::kAttachLane, attach);
  ASSERT_EQ(attached.error, fs::WireError::kOk);
  ByteReader reader(attached.body);
  const auto staging = reader.Read<fs::AttachLaneReply>();
  ASSERT_GT(staging.slots, 0U);
  const std::string content(500'000, 'w');
  std::memcpy(client->buffer().data(), content.data(), content.size());
  const std::uint64_t slot = (staging.slots - 1) * std::uint64_t{staging.slot_bytes};
  client->Move(false, 0, content.size(), {staging.staging.ToRegion(), slot});
  fs::CommitRequest commit{};
  commit.open = open;
  commit.offset = 5;
  commit.length = static_cast<std::uint32_t>(content.size());
  commit.staging_offset = slot;
  const Reply written = client->Ask(Opcode::kCommit, commit);
  ASSERT_EQ(written.error, fs::WireError::kOk);
  ByteReader reply(written.body);
  EXPECT_EQ(reply.Read<fs::WriteReply>().size, content.size() + 5);
  std::ifstream file(dir_ / "file", std::ios::binary);
  std::string found((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(found, "01234" + content);
}

TEST_P(ServiceTest, ASessionIsResumedWithItsOpenFiles) {
  auto client = Connect();
  ASSERT_TRUE(client);
  const std::uint64_t open = OpenFile(*client, fs::kOpenRead | fs::kOpenWrite);
  const std::uint64_t session = grant_.session;
  client.reset();
  session_.reset();
  client = Connect();
  ASSERT_TRUE(client);
  EXPECT_EQ(grant_.session, session);
  EXPECT_NE(grant_.flags & fs::kGrantResumed, 0U);
  fs::ReadRequest request{};
  request.open = open;
  request.length = 10;
  request.flags = fs::kReadNoGrants;
  const Reply reply = client->Ask(Opcode::kRead, request);
  EXPECT_EQ(reply.error, fs::WireError::kOk);
}

TEST_P(ServiceTest, ADirectoryThatWasRemovedIsMountedNoMoreButByWhoHasIt) {
  const auto exports_are = [this](const std::string& directory) {
    ExportSpec spec;
    spec.name = "made-anew";
    spec.directory = directory;
    return service_->Reload({spec});
  };
  const TempDir base;
  const std::string path = base / "export";
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  ASSERT_TRUE(exports_are(path).ok());
  auto mounted = Dial("made-anew");
  ASSERT_TRUE(mounted.ok()) << mounted.status().message();
  const auto flags_and_root = [](transport::Session& session) {
    ByteReader reader(session.grant());
    const auto grant = reader.Read<fs::MountGrant>();
    return std::pair(std::uint32_t{grant.flags}, fs::ReadEntry(reader).handle);
  };
  const auto first = flags_and_root(**mounted);
  mounted->reset();  // as one whose connection is lost

  ASSERT_EQ(::rmdir(path.c_str()), 0);
  const auto who_has_it = client_id_;
  FillRandom(client_id_);
  const auto refused = Dial("made-anew");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("was removed"), std::string::npos)
      << refused.status().message();
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  EXPECT_NE(exports_are(path).message().find("was made anew"), std::string::npos);

  client_id_ = who_has_it;
  const auto again = Dial("made-anew");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_NE(flags_and_root(**again).first & fs::kGrantResumed, 0U);
  EXPECT_EQ(flags_and_root(**again).second, first.second);
}

TEST_P(ServiceTest, MountsOfAnotherIdMappingShareNoMemoryAsRoot) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can act as others";
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  std::this_thread::sleep_for(2 * FileVersion::kRacyWindow);  // else the pool does not trust it
  const auto reload = [this](IdMode mode) {
    ExportSpec spec;
    spec.name = "x";
    spec.directory = dir_.path();
    spec.id_mode = mode;
    spec.id_mode_given = true;
    ASSERT_TRUE(service_->Reload({spec}).ok());
  };
  // What a mount's pool has not had yet of the file that it reads.
  const auto misses_of_a_mount = [this] {
    const auto misses = [this] {
      const std::vector<Figure> figures = service_->Describe().figures;
      return std::ranges::find(figures, "pool_misses", &Figure::name)->value;
    };
    const auto client = Connect();
    EXPECT_TRUE(client);
    const std::uint64_t before = misses();
    fs::ReadRequest request{};
    request.open = OpenFile(*client, fs::kOpenRead);
    request.length = 10;
    EXPECT_EQ(client->Ask(Opcode::kRead, request).error, fs::WireError::kOk);
    return misses() - before;
  };
  reload(IdMode::kTrusted);
  EXPECT_GT(misses_of_a_mount(), 0U);
  const auto of_a_trusted = client_id_;
  FillRandom(client_id_);
  EXPECT_EQ(misses_of_a_mount(), 0U);
  reload(IdMode::kAllSquash);
  FillRandom(client_id_);
  EXPECT_GT(misses_of_a_mount(), 0U);
  EXPECT_EQ(grant_.flags & fs::kGrantResumed, 0U);
  // Who was there before goes on as he was.
  client_id_ = of_a_trusted;
  EXPECT_EQ(misses_of_a_mount(), 0U);
  EXPECT_NE(grant_.flags & fs::kGrantResumed, 0U);
}

TEST_P(ServiceTest, ASessionThatIsNotHeardOfEnds) {
  Stop();
  loops_ = 1;  // one takes its timers in order: on several, the lane may be cut first
  Start(std::chrono::milliseconds(2000));
  auto client = Connect();
  ASSERT_TRUE(client);
  (void)OpenFile(*client, fs::kOpenRead);
  // The server ends the lane when the lease is over.
  std::array<Completion, 1> completion;
  const auto count = client->lane().Wait(completion, DeadlineAfter(kPatience));
  EXPECT_FALSE(count.ok());
  EXPECT_EQ(service_->sessions(), 0U);
  EXPECT_EQ(service_->core().counters.sessions_expired.load(), 1U);
}

// Of a client that had locks when it was last heard of.
class GivenUpServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    records_.emplace();
    Start(std::chrono::milliseconds(40'000));
  }
  void Restart(std::chrono::milliseconds lease = std::chrono::milliseconds(40'000)) {
    Stop();
    Start(lease);
  }
  fs::WireError AskForALock(Client& client) {
    fs::LockRequest lock{};
    lock.open = OpenFile(client, fs::kOpenRead | fs::kOpenWrite);
    lock.owner = 1;
    lock.end = 9;
    lock.type = static_cast<std::uint32_t>(fs::LockType::kWrite);
    return client.Ask(Opcode::kReclaimLock, lock).error;
  }
  // Connects, looks and goes, as one that has lost its connections.
  template <typename Look>
  void Come(Look look) {
    const auto client = Connect();
    ASSERT_TRUE(client);
    client->CountFrom(1000 * ++times_);
    look(*client);
    session_.reset();
  }

 private:
  std::uint64_t times_ = 0;
};

TEST_P(GivenUpServiceTest, HasNoLocksToAskForUntilItKnowsThatItWas) {
  Restart(std::chrono::milliseconds(2000));
  Come([&](Client& client) { (void)OpenFile(client, fs::kOpenRead); });
  last_epoch_ = grant_.epoch;
  const Deadline deadline = DeadlineAfter(kPatience);
  while (service_->sessions() > 0 && BootClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 2; ++i) {  // the first answer may never have come
    Come([&](Client& client) { (void)OpenFile(client, fs::kOpenRead); });
    EXPECT_EQ(grant_.flags & fs::kGrantResumed, 0U);
    EXPECT_NE(grant_.flags & fs::kGrantGivenUp, 0U);
  }
  Restart();
  Come([&](Client& client) {
    EXPECT_EQ(AskForALock(client), fs::ToWire(ENOLCK));
    EXPECT_NE(grant_.flags & fs::kGrantGivenUp, 0U);
    EXPECT_EQ(client.Ask(Opcode::kAttachLane, fs::AttachLaneRequest{}).error, fs::WireError::kOk);
  });
  Restart();
  Come([&](Client& client) {
    EXPECT_EQ(grant_.flags & fs::kGrantGivenUp, 0U);
    EXPECT_EQ(AskForALock(client), fs::WireError::kOk);
  });
}

// Nor is it given up when the server's host was started anew, though its clock is behind since.
TEST_P(GivenUpServiceTest, ButNotBeforeItsServersHostWasStarted) {
  Come([&](Client& client) { (void)OpenFile(client, fs::kOpenRead); });
  last_epoch_ = grant_.epoch + 3'600'000'000U;
  Stop();
  records_.emplace();
  Start(std::chrono::milliseconds(40'000));
  Come([&](Client& client) {
    EXPECT_EQ(grant_.flags & fs::kGrantGivenUp, 0U);
    EXPECT_EQ(AskForALock(client), fs::WireError::kOk);
  });
}

TEST_P(ServiceTest, EndsWhileAChangeWaitsForAnotherClient) {
  const auto silent = Connect();
  ASSERT_TRUE(silent);
  (void)silent->Ask(Opcode::kAttachLane, fs::AttachLaneRequest{});
  const fs::Entry file = LookUpFile(*silent);
  ASSERT_GT(file.attr.lease_ms, 0U);
  const auto its_session = std::move(session_);
  FillRandom(client_id_);
  const auto client = Connect();
  ASSERT_TRUE(client);
  (void)client->Ask(Opcode::kAttachLane, fs::AttachLaneRequest{});
  fs::SetAttrRequest request{};
  request.valid = fs::kSetMode;
  request.mode = 0600U;
  std::thread asking([&] {
    const Reply reply = client->Ask(Opcode::kSetAttr, request, Sized(file.handle.bytes()));
    EXPECT_FALSE(reply.connection.ok());
  });
  const Deadline deadline = DeadlineAfter(kPatience);
  while (service_->core().leases.stats().recalls == 0 && BootClock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(service_->core().leases.stats().recalls, 1U);
  Stop();
  asking.join();
}

TEST_P(ServiceTest, AMalformedRequestEndsThatLaneOnly) {
  const auto client = Connect();
  ASSERT_TRUE(client);
  const auto other = OpenLane();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
  const Reply malformed = client->Ask(Opcode::kLookup, Sized(AsBytes("xx")));
  EXPECT_TRUE(!malformed.connection.ok() || malformed.error == fs::WireError::kMalformed);
  EXPECT_FALSE(client->Ask(Opcode::kRenew).connection.ok());
  EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
}

// How many connections of a server have waited for their peers at their end, and how many not.
struct Goodbyes {
  std::atomic<unsigned> waited{0}, spared{0};
};

// A connection whose peer does not take the goodbye.
class LongGoodbye final : public fs::client::WrappedConnection {
 public:
  LongGoodbye(std::unique_ptr<Connection> inner, Goodbyes& goodbyes)
      : WrappedConnection(std::move(inner)), goodbyes_(goodbyes) {}
  ~LongGoodbye() override {
    if (!abandoned_) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ++(abandoned_ ? goodbyes_.spared : goodbyes_.waited);
  }
  void Abandon() override {
    abandoned_ = true;
    WrappedConnection::Abandon();
  }

 private:
  Goodbyes& goodbyes_;
  bool abandoned_ = false;
};

class LongGoodbyes final : public WrappedService {
 public:
  explicit LongGoodbyes(Service& service) : WrappedService(service) {}
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<Connection> lane) override {
    WrappedService::OnLane(session_id, context,
                           std::make_unique<LongGoodbye>(std::move(lane), goodbyes));
  }
  Goodbyes goodbyes;
};

class GoodbyeServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    loops_ = 1;
    ServiceTest::SetUp();
  }
  void TearDown() override { Stop(); }
  transport::SessionHost& host() override {
    host_ = std::make_unique<LongGoodbyes>(*service_);
    return *host_;
  }
  static constexpr unsigned kLanes = 8;
  // So many of one session, each of which has been heard.
  void ConnectLanes(std::vector<std::unique_ptr<Client>>& lanes) {
    lanes.push_back(Connect());
    while (lanes.size() < kLanes) lanes.push_back(OpenLane());
    for (const auto& lane : lanes) {
      ASSERT_TRUE(lane);
      EXPECT_EQ(lane->Ask(Opcode::kRenew).error, fs::WireError::kOk);
    }
  }
  // Of the server that was started last, once so many of its lanes have ended.
  const Goodbyes& GoodbyesOf(unsigned lanes) {
    const Goodbyes& goodbyes = host_->goodbyes;
    const Deadline deadline = DeadlineAfter(kPatience);
    while (goodbyes.waited + goodbyes.spared < lanes && BootClock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(goodbyes.waited + goodbyes.spared, lanes);
    return goodbyes;
  }

  std::unique_ptr<LongGoodbyes> host_;
};

TEST_P(GoodbyeServiceTest, WhoseLeaseHasRunOutIsNotWaitedFor) {
  Stop();
  Start(std::chrono::milliseconds(2000));
  const auto client = Connect();
  ASSERT_TRUE(client);
  EXPECT_EQ(GoodbyesOf(1).waited, 0U);
}

TEST_P(GoodbyeServiceTest, WhoFollowsNoRuleIsNotWaitedFor) {
  const auto client = Connect();
  ASSERT_TRUE(client);
  (void)client->Ask(Opcode::kLookup, Sized(AsBytes("xx")));
  EXPECT_EQ(GoodbyesOf(1).waited, 0U);
}

TEST_P(GoodbyeServiceTest, WhoEndsItsSessionIsWaitedFor) {
  const auto client = Connect();
  ASSERT_TRUE(client);
  EXPECT_EQ(client->Ask(Opcode::kEndSession).error, fs::WireError::kOk);
  EXPECT_EQ(GoodbyesOf(1).waited, 1U);
}

TEST_P(GoodbyeServiceTest, TheLanesOfASessionThatEndsAreWaitedForTogether) {
  std::vector<std::unique_ptr<Client>> lanes;
  ASSERT_NO_FATAL_FAILURE(ConnectLanes(lanes));
  EXPECT_EQ(lanes[0]->Ask(Opcode::kEndSession).error, fs::WireError::kOk);
  const Goodbyes& goodbyes = GoodbyesOf(kLanes);
  EXPECT_GE(goodbyes.waited, 1U);
  EXPECT_LE(goodbyes.waited, 2U);
}

TEST_P(GoodbyeServiceTest, ALaneOfWhichNothingIsHeardEndsAloneAndIsNotWaitedFor) {
  constexpr std::chrono::milliseconds kLease{1000};
  Stop();
  Start(kLease);
  const auto silent = Connect();
  const auto other = OpenLane();
  ASSERT_TRUE(silent && other);
  EXPECT_EQ(silent->Ask(Opcode::kRenew).error, fs::WireError::kOk);
  const TimePoint heard = BootClock::now();
  Status end;
  while (end.ok() && BootClock::now() < heard + kPatience) {
    EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
    std::array<Completion, 1> completion;
    end = silent->lane().Wait(completion, DeadlineAfter(kLease / 20)).status();
  }
  EXPECT_FALSE(end.ok());
  EXPECT_GT(BootClock::now() - heard, kLease);
  EXPECT_EQ(GoodbyesOf(1).waited, 0U);
  EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
  EXPECT_EQ(service_->sessions(), 1U);
}

TEST_P(GoodbyeServiceTest, AServerThatStopsSaysGoodbyeForAFewTenthsOfASecond) {
  std::vector<std::unique_ptr<Client>> lanes;
  ASSERT_NO_FATAL_FAILURE(ConnectLanes(lanes));
  Stop();
  const Goodbyes& goodbyes = GoodbyesOf(kLanes);
  EXPECT_GE(goodbyes.waited, 1U);
  EXPECT_LE(goodbyes.waited, 2U);
}

class LimitedServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    limits_ = {.mounts = 2, .lanes = 2, .pinned_bytes = 1 << 20};
    ServiceTest::SetUp();
  }
  [[nodiscard]] std::uint64_t refused(Refusals::What what) const {
    return service_->core().refusals.count(what);
  }
};

TEST_P(LimitedServiceTest, MountsFromOneAddress) {
  const auto first = Dial();
  const ClientId id = client_id_;
  FillRandom(client_id_);
  const auto second = Dial();
  ASSERT_TRUE(first.ok() && second.ok());
  FillRandom(client_id_);
  const auto third = Dial();
  ASSERT_FALSE(third.ok());
  EXPECT_NE(third.status().message().find("no more mounts"), std::string::npos)
      << third.status().message();
  EXPECT_EQ(refused(Refusals::What::kMounts), 1U);
  client_id_ = id;
  EXPECT_TRUE(Dial().ok()) << "who comes back has its mount already";
}

TEST_P(ServiceTest, ALaneThatDoesNotReadDelaysNoOtherOfItsLoop) {
  Stop();
  loops_ = 1;
  Start(std::chrono::milliseconds(40'000));
  auto deaf = Connect();
  const auto other = OpenLane();
  ASSERT_TRUE(deaf && other);
  // What a tenth of the answers take at most: most come later where others work on this machine,
  // too.
  const auto soon = [&other] {
    constexpr std::size_t kTimes = 200;
    std::vector<std::chrono::nanoseconds> waits;
    for (std::size_t i = 0; i < kTimes; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the loop goes to sleep
      const TimePoint asked = BootClock::now();
      EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
      waits.push_back(BootClock::now() - asked);
    }
    std::ranges::sort(waits);
    return waits[kTimes / 10];
  };
  const auto alone = soon();
  // Answers enough for the wire, and for all that the server lets wait.
  const std::size_t answers = (Connection::kBacklogLimit + (24U << 20U)) / sizeof(fs::ReplyHeader);
  for (std::size_t i = 0; i < answers; ++i) ASSERT_TRUE(deaf->AskOnly(Opcode::kRenew).ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(deaf->lane().Flush().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const auto beside = soon();
  deaf.reset();
  // What else goes on here may have begun meanwhile.
  EXPECT_LT(beside, std::max(alone, soon()) + std::chrono::microseconds(500));
}

TEST_P(LimitedServiceTest, AnswersThatAMountDoesNotRead) {
  if (GetParam() == Kind::kVerbs) return;  // there each lane has a bound of its own
  constexpr std::size_t kLanes = 24;
  constexpr std::size_t kReads = 200;
  Stop();
  loops_ = 1;
  limits_ = {.lanes = kLanes, .unread_bytes = 4 << 20};
  Start(std::chrono::milliseconds(40'000));
  ASSERT_EQ(::truncate((dir_ / "file").c_str(), fs::kMaxInlineDataBytes), 0);
  std::vector<std::unique_ptr<Client>> deaf;
  deaf.push_back(Connect());
  ASSERT_TRUE(deaf[0]);
  fs::ReadRequest read{};
  read.open = OpenFile(*deaf[0], fs::kOpenRead);
  read.length = fs::kMaxInlineDataBytes;
  read.flags = fs::kReadNoGrants;
  EXPECT_EQ(deaf[0]->Ask(Opcode::kRead, read).error, fs::WireError::kOk);
  while (deaf.size() < kLanes) {
    deaf.push_back(OpenLane());
    ASSERT_TRUE(deaf.back());
  }
  const auto mount = std::move(session_);
  FillRandom(client_id_);
  const auto other = Connect();
  ASSERT_TRUE(other);

  const auto unread = service_->core().unread;
  std::size_t most = 0;
  for (const auto& lane : deaf) {
    for (std::size_t i = 0; i < kReads; ++i) {
      ASSERT_TRUE(
          lane->AskOnly(Opcode::kRead, std::as_bytes(std::span<const fs::ReadRequest, 1>(&read, 1)))
              .ok());
    }
    ASSERT_TRUE(lane->lane().Flush().ok());
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
      most = std::max(most, unread->bytes());
    }
  }
  const Deadline until = DeadlineAfter(kPatience);
  while (unread->bytes() <= limits_.unread_bytes && BootClock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(other->Ask(Opcode::kRenew).error, fs::WireError::kOk);
    most = std::max(most, unread->bytes());
  }
  EXPECT_GT(most, limits_.unread_bytes);
  // One turn's answers more, and two more on each lane.
  EXPECT_LT(most, limits_.unread_bytes + (Turns<int>::kMostMessages + 2 * kLanes) * (70U << 10U));
  Stop();
  EXPECT_EQ(unread->bytes(), 0U);
}

TEST_P(ServiceTest, AMountThatConnectsAgainAndAgainLosesItsOldestConnections) {
  constexpr std::size_t kDialled = 20;
  constexpr std::size_t kKept = 8;
  std::vector<std::unique_ptr<transport::Session>> sessions;
  for (std::size_t i = 0; i < kDialled; ++i) {
    auto dialled = Dial();
    ASSERT_TRUE(dialled.ok()) << "who comes back is never refused: " << dialled.status().message();
    sessions.push_back(*std::move(dialled));
  }
  for (std::size_t i = 0; i < kDialled; ++i) {
    const auto lane = sessions[i]->OpenLaneOver(GetParam(), DeadlineAfter(kPatience));
    EXPECT_EQ(lane.ok(), i >= kDialled - kKept) << i;
  }
  EXPECT_EQ(service_->sessions(), 1U);
}

TEST_P(LimitedServiceTest, LanesOfAMount) {
  const auto first = Connect();
  const auto second = OpenLane();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(second->Ask(Opcode::kRenew).error, fs::WireError::kOk);
  // It is ended as soon as it is there, or before its connecting is done.
  auto third = session_->OpenLaneOver(GetParam(), DeadlineAfter(kPatience));
  if (third.ok()) {
    Client client(*std::move(third), domain_, grant_.session);
    EXPECT_FALSE(client.Ask(Opcode::kRenew).connection.ok());
  } else {
    EXPECT_EQ(third.status().code(), Code::kDisconnected) << third.status().message();
  }
  EXPECT_EQ(refused(Refusals::What::kLanes), 1U);
  EXPECT_EQ(first->Ask(Opcode::kRenew).error, fs::WireError::kOk);
}

TEST_P(LimitedServiceTest, MemoryForWritesOfAMount) {
  const auto first = Connect();
  const auto second = OpenLane();
  ASSERT_TRUE(first && second);
  const auto bytes_for = [](Client& client) {
    fs::AttachLaneRequest attach{};
    attach.staging_bytes = 4 << 20;
    const Reply reply = client.Ask(Opcode::kAttachLane, attach);
    EXPECT_EQ(reply.error, fs::WireError::kOk);
    const auto staging = ByteReader(reply.body).Read<fs::AttachLaneReply>();
    return std::uint64_t{staging.slots} * staging.slot_bytes;
  };
  EXPECT_EQ(bytes_for(*first), 1U << 20U);
  EXPECT_EQ(bytes_for(*second), 0U);
  EXPECT_EQ(refused(Refusals::What::kPinned), 2U);
  const std::uint64_t open = OpenFile(*second, fs::kOpenWrite);
  fs::WriteRequest write{};
  write.open = open;
  std::vector<std::byte> inside(sizeof(Le32) + 1);
  ByteWriter(inside).Write(Le32(1));
  EXPECT_EQ(second->Ask(Opcode::kWrite, write, ByteSpan(inside)).error, fs::WireError::kOk);
}

TEST_P(LimitedServiceTest, WrongKeysAreCounted) {
  transport::DialOptions options;
  options.host = transport::TestAddress();
  options.port = acceptor_->port();
  options.key = transport::Key("not the key");
  options.service = fs::kServiceName;
  options.deadline = DeadlineAfter(kPatience);
  EXPECT_FALSE(
      transport::Session::Dial(std::move(options), transport::Domain::Create("client")).ok());
  EXPECT_EQ(refused(Refusals::What::kWrongKeys), 1U);
  EXPECT_TRUE(Dial().ok());
}

TEST_P(ServiceTest, WrongExportsAndServicesAreToldWhy) {
  const auto wrong = Dial("nothing");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("no export \"nothing\""), std::string::npos)
      << wrong.status().message();
}

// Of a session of `exported`, that was heard of so long ago.
void LeaveRecord(const std::string& path, std::uint64_t session, std::uint64_t exported,
                 std::chrono::seconds ago) {
  ASSERT_TRUE(IntentRing::Open(path, session, 4, exported).ok());
  constexpr off_t kSeenAt = 64;  // in its header
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const Le64 seen(static_cast<std::uint64_t>(::time(nullptr) - ago.count()));
  ASSERT_EQ(::pwrite(file.get(), &seen, sizeof(seen), kSeenAt), ssize_t{sizeof(seen)});
}

// Its directory of records is that of all servers of one user.
TEST_P(GivenUpServiceTest, WhatAnotherServerLeftIsItsOwn) {
  Stop();
  const std::string fresh = *records_ / "1.ring", days = *records_ / "2.ring",
                    abandoned = *records_ / "3.ring";
  constexpr std::uint64_t kAnothers = 12345;
  LeaveRecord(fresh, 1, kAnothers, std::chrono::seconds(0));
  LeaveRecord(days, 2, kAnothers, std::chrono::hours(48));
  LeaveRecord(abandoned, 3, kAnothers, std::chrono::hours(24 * 30));
  ASSERT_EQ(IntentRing::Leftovers(records_->path()).size(), 3U);
  for (const IntentRing::Leftover& left : IntentRing::Leftovers(records_->path())) {
    EXPECT_EQ(left.age > std::chrono::hours(1), left.path != fresh) << left.path;
  }
  Start(std::chrono::milliseconds(40'000));
  EXPECT_TRUE(::access(fresh.c_str(), F_OK) == 0);
  EXPECT_TRUE(::access(days.c_str(), F_OK) == 0);
  EXPECT_FALSE(::access(abandoned.c_str(), F_OK) == 0);
}

// A worker that is started again serves what there is.
TEST(ServiceExports, OneThatHasGoneDoesNotTakeTheOthersWithIt) {
  const TempDir dir;
  const auto keeper = DescriptorKeeper::None();
  const auto create = [&](bool some_will_do, const std::vector<std::string>& names) {
    ServiceOptions options;
    for (const std::string& name : names) {
      ExportSpec spec;
      spec.name = name;
      spec.directory = name == "here" ? dir.path() : dir / name;
      options.exports.push_back(spec);
    }
    options.some_will_do = some_will_do;
    options.secret = HandleSecret::Random();
    options.pool_bytes = 32 << 20;
    return Service::Create(std::move(options), *keeper);
  };
  EXPECT_EQ(create(false, {"gone", "here"}).status().code(), Code::kNotFound);
  EXPECT_EQ(create(true, {"gone"}).status().code(), Code::kNotFound);
  const auto service = create(true, {"gone", "here"});
  ASSERT_TRUE(service.ok()) << service.status().message();
  std::vector<std::string> offered;
  for (const auto& [name, text] : (*service)->Describe().lines) {
    if (name == "export") offered.push_back(text);
  }
  EXPECT_EQ(offered, std::vector<std::string>{"here"});
}

// A refusal goes to the log.
TEST_P(ServiceTest, NamesOfExportsAndServicesCannotForgeALine) {
  EXPECT_NE(NoSuchExport("a\n<3>b\x1b[2J").find("\"a?<3>b?[2J\""), std::string::npos);
  transport::SessionRequest request;
  request.service = "a\n<3>b";
  const auto refused = service_->Admit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("\"a?<3>b\""), std::string::npos)
      << refused.status().message();
}

TEST_P(ServiceTest, AnIdleServerUsesNoProcessorTime) {
  const auto client = Connect();
  ASSERT_TRUE(client);
  EXPECT_EQ(client->Ask(Opcode::kRenew).error, fs::WireError::kOk);
  ::usleep(50'000);  // what the last request has started comes to rest
  const auto used_so_far = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  // The machine may be busy and charge its interrupts to us: what the server does itself, it does
  // in every second.
  long least = LONG_MAX;
  for (int i = 0; i < 3; ++i) {
    const long before = used_so_far();
    ::usleep(1'000'000);
    least = std::min(least, used_so_far() - before);
  }
  // A sixtieth of 10 ms, and what looking itself costs.
  EXPECT_LT(least, 1500);
}

INSTANTIATE_TEST_SUITE_P(Transports, ServiceTest, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);
INSTANTIATE_TEST_SUITE_P(Transports, GivenUpServiceTest, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);
INSTANTIATE_TEST_SUITE_P(Transports, GoodbyeServiceTest, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);
INSTANTIATE_TEST_SUITE_P(Transports, LimitedServiceTest, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::server
