// The client against a real rdfsd, over each transport (verbs in tests/rdma): every operation, and
// what a dying server does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>
#include <thread>

#include "fs/client/sync_client.h"
#include "tests/fs/client/rdfsd.h"
#include "tests/transport/kinds.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::byte> RandomBytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class Live : public testing::TestWithParam<transport::Kind> {
 protected:
  void SetUp() override { Mount(); }

  void Mount(milliseconds timeout = seconds(20), std::size_t lane_buffer_bytes = 0) {
    client_.reset();
    mount_.reset();
    MountOptions options;
    options.dial = server_.Dialer(GetParam());
    options.export_name = "live";
    options.host_name = "test";
    options.uid = getuid();
    options.gid = getgid();
    options.timeout = timeout;
    options.lane_buffer_bytes = lane_buffer_bytes;
    Result<std::unique_ptr<client::Mount>> mount =
        client::Mount::Create(std::move(options), DeadlineAfter(seconds(10)));
    ASSERT_TRUE(mount.ok()) << mount.status().ToString();
    mount_ = *std::move(mount);
    client_ = OpenClient();
    root_ = mount_->info().root.handle;
  }
  std::unique_ptr<SyncClient> OpenClient() {
    Result<std::unique_ptr<Lane>> lane = mount_->OpenLane(DeadlineAfter(seconds(10)));
    EXPECT_TRUE(lane.ok()) << lane.status().ToString();
    if (!lane.ok()) return nullptr;
    return std::make_unique<SyncClient>(*std::move(lane),
                                        CallContext{.uid = getuid(), .gid = getgid(), .pid = 1});
  }
  OpenPtr Make(std::string_view name, ByteSpan content = {}) {
    Result<Lane::Created> created =
        client_->Create(root_, name, kOpenRead | kOpenWrite | kOpenCreate);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    if (!created.ok()) return nullptr;
    if (!content.empty()) {
      const Result<WriteDone> written = client_->Write(created->open, 0, content);
      EXPECT_TRUE(written.ok()) << written.status().ToString();
      EXPECT_EQ(written->written, content.size());
    }
    return created->open;
  }
  std::vector<std::byte> FileContent(const std::string& name) const {
    std::ifstream file(server_.root() / name, std::ios::binary);
    std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
  }

  Rdfsd server_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<SyncClient> client_;
  Handle root_;
};

TEST_P(Live, Names) {
  SyncClient& fs = *client_;
  const Result<NamedFile> directory = fs.Mkdir(root_, "dir");
  ASSERT_TRUE(directory.ok()) << directory.status().ToString();
  EXPECT_TRUE(S_ISDIR(std::uint32_t{directory->attr.mode}));
  const Handle dir = directory->handle;
  EXPECT_EQ(fs.Mkdir(root_, "dir").status().errno_value(), EEXIST);
  EXPECT_EQ(fs.Lookup(root_, "none").status().errno_value(), ENOENT);
  EXPECT_EQ(fs.Lookup(root_, "dir")->handle, dir);
  EXPECT_EQ(fs.Lookup(dir, "..").status().errno_value(), EINVAL);
  EXPECT_EQ(fs.Lookup(root_, "a/b").status().errno_value(), EINVAL);
  EXPECT_EQ(fs.Lookup(root_, std::string(256, 'x')).status().errno_value(), ENAMETOOLONG);
  EXPECT_TRUE(fs.Mkdir(root_, std::string(255, 'x')).ok());

  ASSERT_TRUE(fs.Symlink(dir, "link", "../target").ok());
  EXPECT_EQ(*fs.Readlink(fs.Lookup(dir, "link")->handle), "../target");
  ASSERT_TRUE(fs.Mknod(dir, "fifo", S_IFIFO | 0600).ok());
  const Result<NamedFile> made = fs.Mknod(dir, "file", S_IFREG | 0640);
  ASSERT_TRUE(made.ok());
  const Result<NamedFile> linked = fs.Link(made->handle, dir, "again");
  ASSERT_TRUE(linked.ok());
  EXPECT_EQ(std::uint32_t{linked->attr.nlink}, 2U);
  EXPECT_EQ(linked->handle, made->handle);

  EXPECT_TRUE(fs.Rename(dir, "again", root_, "moved").ok());
  EXPECT_EQ(fs.Rename(dir, "file", root_, "moved", kRenameNoReplace).errno_value(), EEXIST);
  EXPECT_TRUE(fs.Rename(dir, "link", dir, "fifo", kRenameExchange).ok());
  EXPECT_TRUE(fs.Unlink(root_, "moved").ok());
  EXPECT_EQ(fs.Unlink(root_, "dir").errno_value(), EISDIR);
  EXPECT_EQ(fs.Rmdir(root_, "dir").errno_value(), ENOTEMPTY);
  for (const char* name : {"file", "link", "fifo"}) EXPECT_TRUE(fs.Unlink(dir, name).ok());
  EXPECT_TRUE(fs.Rmdir(root_, "dir").ok());
  EXPECT_EQ(fs.GetAttr(dir).status().errno_value(), ESTALE);
}

TEST_P(Live, AFileWithoutANameIsLikeAnyOther) {
  SyncClient& fs = *client_;
  const Result<Lane::Created> made = fs.Tmpfile(root_, kOpenRead | kOpenWrite, 0640);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_TRUE(S_ISREG(std::uint32_t{made->file.attr.mode}));
  EXPECT_EQ(std::uint32_t{made->file.attr.mode} & 07777U, 0640U);
  EXPECT_EQ(std::uint32_t{made->file.attr.nlink}, 0U);
  EXPECT_EQ(fs.List(root_)->size(), 2U);  // "." and ".."
  const auto bytes = RandomBytes(5000, 11);
  ASSERT_TRUE(fs.Write(made->open, 0, bytes).ok());
  EXPECT_TRUE(*fs.Read(made->open, 0, bytes.size()) == bytes);
  EXPECT_TRUE(fs.Release(made->open).ok());
}

TEST_P(Live, Attributes) {
  SyncClient& fs = *client_;
  const OpenPtr open = Make("file", RandomBytes(100, 1));
  ASSERT_NE(open, nullptr);
  const Handle file = open->handle();
  SetAttributes set{.valid = kSetMode | kSetSize | kSetMtime, .mode = 0600, .size = 10};
  set.mtime = {.seconds = 1000, .nanoseconds = 7};
  const Result<Attributes> changed = fs.SetAttr(file, set);
  ASSERT_TRUE(changed.ok()) << changed.status().ToString();
  EXPECT_EQ(std::uint64_t{changed->attr.size}, 10U);
  EXPECT_EQ(std::uint32_t{changed->attr.mode} & 07777U, 0600U);
  EXPECT_EQ(std::int64_t{changed->attr.mtime.seconds}, 1000);
  EXPECT_GT(changed->expires, BootClock::now());
  EXPECT_LE(changed->expires, BootClock::now() + seconds(1));
  EXPECT_TRUE(fs.Access(file, R_OK | W_OK).ok());
  const Result<StatFs> stats = fs.StatFs(root_);
  ASSERT_TRUE(stats.ok());
  EXPECT_GT(stats->blocks, 0U);
  EXPECT_EQ(stats->name_max, 255U);

  const auto value = RandomBytes(3000, 2);
  const Status set_xattr = fs.SetXattr(file, "user.test", value);
  if (set_xattr.errno_value() != EOPNOTSUPP) {
    ASSERT_TRUE(set_xattr.ok()) << set_xattr.ToString();
    EXPECT_EQ(*fs.GetXattr(file, "user.test"), value);
    EXPECT_EQ(AsText(*fs.ListXattr(file)), std::string_view("user.test\0", 10));
    EXPECT_TRUE(fs.RemoveXattr(file, "user.test").ok());
    EXPECT_EQ(fs.GetXattr(file, "user.test").status().errno_value(), ENODATA);
  }
  // Unlinked, it answers through its open file.
  ASSERT_TRUE(fs.Unlink(root_, "file").ok());
  const Result<Attributes> open_attributes = fs.GetAttr(file, open);
  ASSERT_TRUE(open_attributes.ok()) << open_attributes.status().ToString();
  EXPECT_EQ(std::uint32_t{open_attributes->attr.nlink}, 0U);
  EXPECT_TRUE(fs.Release(open).ok());
}

TEST_P(Live, ContentOfManySizes) {
  SyncClient& fs = *client_;
  const OpenPtr open = Make("file");
  ASSERT_NE(open, nullptr);
  std::vector<std::byte> model;
  unsigned seed = 1;
  for (const std::size_t size : {1UL, 4096UL, 16384UL, 16385UL, 65537UL, 1UL << 20, 3333333UL}) {
    const auto bytes = RandomBytes(size, seed++);
    const std::uint64_t offset = model.size() / 2;
    const Result<WriteDone> written = fs.Write(open, offset, bytes);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    if (model.size() < offset + size) model.resize(offset + size);
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    EXPECT_EQ(written->file_size, model.size());
    const Result<std::vector<std::byte>> read = fs.Read(open, 0, model.size() + 100);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    ASSERT_EQ(read->size(), model.size());
    ASSERT_TRUE(*read == model) << size;
  }
  EXPECT_TRUE(FileContent("file") == model);
  EXPECT_TRUE(fs.Fsync(open).ok());
  EXPECT_TRUE(fs.FlushFile(open).ok());
  EXPECT_TRUE(fs.Release(open).ok());
  const Counters counters = mount_->counters();
  EXPECT_GT(counters.written_bytes, 3U << 20);
  EXPECT_EQ(counters.connections_lost, 0U);
}

// Reads at random places, before and after changes by ourselves: never a byte that is not there.
TEST_P(Live, RandomReadsAndWritesAgree) {
  SyncClient& fs = *client_;
  std::unique_ptr<SyncClient> other = OpenClient();  // a second lane, with a cache of its own
  constexpr std::size_t kSize = 2 << 20;
  std::vector<std::byte> model = RandomBytes(kSize, 5);
  const OpenPtr open = Make("file", model);
  ASSERT_NE(open, nullptr);
  std::mt19937 random(9);
  for (int i = 0; i < 1500; ++i) {
    SyncClient& lane = random() % 2 == 0 ? fs : *other;
    const std::size_t size = 1 + random() % (random() % 8 == 0 ? 300000 : 9000);
    const std::size_t offset = random() % (kSize - size);
    if (random() % 4 == 0) {
      const auto bytes = RandomBytes(size, static_cast<unsigned>(random()));
      ASSERT_TRUE(lane.Write(open, offset, bytes).ok());
      std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
      continue;
    }
    const auto got = lane.Read(open, offset, size);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), size);
    ASSERT_TRUE(
        std::equal(got->begin(), got->end(), model.begin() + static_cast<std::ptrdiff_t>(offset)))
        << "at " << offset << " of " << size << ", step " << i;
  }
  const Counters counters = mount_->counters();
  EXPECT_EQ(counters.connections_lost, 0U);
}

TEST_P(Live, GrantedExtentsAreReadWithoutMessages) {
  // Over tcp the server answers every READ itself: bytes travel inside replies there.
  if (GetParam() == transport::Kind::kTcp) return;
  SyncClient& fs = *client_;
  const auto content = RandomBytes(1 << 20, 3);
  const OpenPtr open = Make("file", content);
  ASSERT_TRUE(fs.Read(open, 0, 1 << 20, 1 << 20).ok());
  const std::uint64_t before = mount_->counters().round_trips[std::size_t(Opcode::kRead)];
  for (std::size_t offset = 0; offset < (1U << 20); offset += 4096) {
    const auto got = fs.Read(open, offset, 4096);
    ASSERT_TRUE(got.ok());
    ASSERT_TRUE(std::equal(got->begin(), got->end(),
                           content.begin() + static_cast<std::ptrdiff_t>(offset)));
  }
  const Counters counters = mount_->counters();
  // A lease may run out on a slow machine; one message for each of the 256 reads it must not be.
  EXPECT_LE(counters.round_trips[std::size_t(Opcode::kRead)] - before, 16U);
  EXPECT_GE(counters.grant_hits, 240U);
  EXPECT_GE(counters.read_bytes, 1U << 20);
}

// More answers than the wire holds, and than the server lets wait before it looks away as well.
TEST_P(Live, WhoLooksAwayForAWhileGetsAllAnswers) {
  constexpr std::size_t kPiece = 1 << 20;
  constexpr std::size_t kPieces = 32;
  Mount(seconds(20), (kPieces + 4) * kPiece);
  const auto content = RandomBytes(kPieces * kPiece, 5);
  const OpenPtr open = Make("file", content);
  Lane& lane = client_->lane();
  std::vector<Buffer> pieces;
  std::size_t came = 0;
  for (std::size_t i = 0; i < kPieces; ++i) {
    std::optional<Buffer> buffer = lane.buffers().Allocate(kPiece);
    ASSERT_TRUE(buffer.has_value());
    lane.Read(client_->context(), open, i * kPiece, buffer->Slice(0, kPiece), 0,
              [&came](Result<ReadDone>&& done) {
                EXPECT_TRUE(done.ok() && done->length == kPiece) << done.status().ToString();
                ++came;
              });
    pieces.push_back(*std::move(buffer));
  }
  (void)lane.Arm();
  // The server fills the wire meanwhile; where it is slower, less is tried.
  std::this_thread::sleep_for(milliseconds(100));
  const Deadline deadline = DeadlineAfter(seconds(10));
  while (came < kPieces && BootClock::now() < deadline) (void)lane.Poll();
  ASSERT_EQ(came, kPieces);
  for (std::size_t i = 0; i < kPieces; ++i) {
    EXPECT_TRUE(std::ranges::equal(pieces[i].bytes().first(kPiece),
                                   ByteSpan(content).subspan(i * kPiece, kPiece)));
  }
  EXPECT_EQ(mount_->counters().connections_lost, 0U);
}

TEST_P(Live, AppendsOfTwoLanesDoNotOverlap) {
  std::unique_ptr<SyncClient> other = OpenClient();
  const OpenPtr open = Make("log");
  for (int i = 0; i < 50; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    SyncClient& fs = i % 2 == 0 ? *client_ : *other;
    const Result<WriteDone> done = fs.Write(open, 0, AsBytes(line), kWriteAppend);
    ASSERT_TRUE(done.ok());
    EXPECT_EQ(done->offset + line.size(), done->file_size);
  }
  const auto content = FileContent("log");
  EXPECT_EQ(std::count(content.begin(), content.end(), static_cast<std::byte>('\n')), 50);
}

TEST_P(Live, HolesAndRanges) {
  SyncClient& fs = *client_;
  const OpenPtr open = Make("file");
  const auto bytes = RandomBytes(4096, 4);
  ASSERT_TRUE(fs.Write(open, 1 << 20, bytes).ok());
  const Result<std::uint64_t> data = fs.Seek(open, 0, SEEK_DATA);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_LE(*data, 1U << 20);
  EXPECT_EQ(fs.Seek(open, 2 << 20, SEEK_DATA).status().errno_value(), ENXIO);
  const Result<Attributes> grown = fs.Fallocate(open, 0, 0, 3 << 20);
  ASSERT_TRUE(grown.ok()) << grown.status().ToString();
  EXPECT_EQ(std::uint64_t{grown->attr.size}, 3U << 20);
  const OpenPtr copy = Make("copy");
  const Result<WriteDone> copied = fs.CopyFileRange(open, 1 << 20, copy, 10, 4096);
  ASSERT_TRUE(copied.ok()) << copied.status().ToString();
  EXPECT_EQ(copied->written, 4096U);
  EXPECT_TRUE(*fs.Read(copy, 10, 4096) == bytes);
}

TEST_P(Live, DirectoriesAreListedWhole) {
  SyncClient& fs = *client_;
  const Handle dir = fs.Mkdir(root_, "dir")->handle;
  std::set<std::string> names{".", ".."};
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "entry-" + std::to_string(i);
    std::ofstream(server_.root() / "dir" / name) << i;
    names.insert(name);
  }
  for (const bool plus : {false, true}) {
    const auto listed = fs.List(dir, plus);
    ASSERT_TRUE(listed.ok()) << listed.status().ToString();
    std::set<std::string> seen;
    for (const SyncClient::ListedEntry& entry : *listed) {
      EXPECT_TRUE(seen.insert(entry.name).second) << entry.name;
      if (plus && entry.name.size() > 2) {
        ASSERT_TRUE(entry.file.has_value()) << entry.name;
        EXPECT_EQ(std::uint64_t{entry.file->attr.ino}, entry.ino);
      }
    }
    EXPECT_TRUE(seen == names);
  }
  const OpenPtr open = *fs.OpenDir(dir);
  EXPECT_TRUE(fs.FsyncDir(open).ok());
  EXPECT_EQ(fs.ReadDir(open, 0, false, 300)->size() > 0, true);
  EXPECT_TRUE(fs.Release(open).ok());
}

TEST_P(Live, LocksWaitAreInterruptedAndGranted) {
  SyncClient& fs = *client_;
  std::unique_ptr<SyncClient> other = OpenClient();
  const OpenPtr open = Make("file");
  const OpenPtr again = other->Open(open->handle(), kOpenRead | kOpenWrite)->open;
  const Lock mine{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 11};
  Lock theirs = mine;
  theirs.owner = 2;
  ASSERT_TRUE(fs.SetLock(open, mine).ok());
  EXPECT_EQ(other->SetLock(again, theirs).errno_value(), EAGAIN);
  const Result<Lock> blocker = other->GetLock(again, theirs);
  ASSERT_TRUE(blocker.ok());
  EXPECT_EQ(blocker->type, LockType::kWrite);

  bool over = false;
  Status ended;
  const auto wait = [&] {
    over = false;
    return other->lane().SetLock(other->context(), again, theirs, false, true, [&](Status status) {
      ended = std::move(status);
      over = true;
    });
  };
  const CallTicket ticket = wait();
  EXPECT_FALSE(other->RunUntil(over, DeadlineAfter(milliseconds(50))));
  other->lane().Cancel(ticket);
  ASSERT_TRUE(other->RunUntil(over, DeadlineAfter(seconds(10))));
  EXPECT_EQ(ended.errno_value(), EINTR);

  wait();
  EXPECT_FALSE(other->RunUntil(over, DeadlineAfter(milliseconds(50))));
  Lock unlock = mine;
  unlock.type = LockType::kUnlock;
  ASSERT_TRUE(fs.SetLock(open, unlock).ok());
  ASSERT_TRUE(other->RunUntil(over, DeadlineAfter(seconds(10))));
  EXPECT_TRUE(ended.ok()) << ended.ToString();
}

TEST_P(Live, AKilledServerIsNotNoticed) {
  SyncClient& fs = *client_;
  std::unique_ptr<SyncClient> other = OpenClient();
  auto lane_beside = mount_->OpenLaneBeside(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane_beside.ok()) << lane_beside.status().ToString();
  SyncClient beside(*std::move(lane_beside), client_->context());
  const auto content = RandomBytes(300000, 8);
  const OpenPtr open = Make("file", content);
  const OpenPtr unlinked = Make("unlinked", content);
  ASSERT_TRUE(fs.Unlink(root_, "unlinked").ok());
  for (int round = 0; round < 3; ++round) {
    server_.KillWorker();
    const std::string name = "made-" + std::to_string(round);
    const Result<NamedFile> made = fs.Mkdir(root_, name);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    for (SyncClient* lane : {&fs, other.get(), &beside}) {
      const auto got = lane->Read(open, 0, content.size());
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_TRUE(*got == content);
    }
    const auto kept = fs.Read(unlinked, 0, content.size());
    ASSERT_TRUE(kept.ok()) << kept.status().ToString();
    EXPECT_TRUE(*kept == content);
    ASSERT_TRUE(fs.Write(open, 0, ByteSpan(content).first(100)).ok());
  }
  EXPECT_GE(mount_->counters().reconnects, 3U);
  EXPECT_TRUE(fs.Release(open).ok());
}

// Many operations under way on both lanes while the server is killed again and again: each mkdir
// happened exactly once, each byte is where it belongs. Without root's handles a new worker does
// not know the files of the last, and the mount has to look them up again (e2e.faults_server).
TEST_P(Live, KilledInTheMiddleOfManyOperationsAsRoot) {
  std::unique_ptr<SyncClient> other = OpenClient();
  constexpr int kFiles = 24;
  constexpr std::size_t kSize = 100000;
  std::atomic<int> steps{0};
  std::jthread killer([&] {
    // A worker that dies more often in a minute is given up by its supervisor.
    for (const int at : {20, 70, 120, 170}) {
      for (int now = steps; now < at; now = steps) steps.wait(now);
      server_.KillWorker();
    }
  });
  std::vector<std::jthread> workers;
  for (int worker = 0; worker < 2; ++worker) {
    workers.emplace_back([&, worker] {
      SyncClient& fs = worker == 0 ? *client_ : *other;
      const auto step = [&] {
        ++steps;
        steps.notify_one();
      };
      for (int i = 0; i < kFiles; ++i) {
        const std::string name = std::to_string(worker) + "-" + std::to_string(i);
        const Result<NamedFile> directory = fs.Mkdir(root_, "dir-" + name);
        EXPECT_TRUE(directory.ok()) << name << ": " << directory.status().ToString();
        step();
        if (!directory.ok()) continue;
        const Result<Lane::Created> created =
            fs.Create(directory->handle, "file", kOpenRead | kOpenWrite | kOpenCreate);
        EXPECT_TRUE(created.ok()) << name << ": " << created.status().ToString();
        step();
        if (!created.ok()) continue;
        const auto content = RandomBytes(kSize, static_cast<unsigned>(i));
        const Result<WriteDone> written = fs.Write(created->open, 0, content);
        EXPECT_TRUE(written.ok()) << name << ": " << written.status().ToString();
        step();
        const auto got = fs.Read(created->open, 0, kSize + 1);
        EXPECT_TRUE(got.ok()) << name << ": " << got.status().ToString();
        step();
        EXPECT_TRUE(got.ok() && *got == content) << name;
        EXPECT_TRUE(fs.Release(created->open).ok()) << name;
        step();
      }
    });
  }
  workers.clear();
  steps = kFiles * 2 * 5;  // so that the killer ends even if steps were left out
  steps.notify_one();
  killer.join();
  for (int worker = 0; worker < 2; ++worker) {
    for (int i = 0; i < kFiles; ++i) {
      const std::string name = "dir-" + std::to_string(worker) + "-" + std::to_string(i);
      EXPECT_TRUE(FileContent(name + "/file") == RandomBytes(kSize, static_cast<unsigned>(i)));
    }
  }
}

TEST_P(Live, WithoutAServerCallsEndAtTheirDeadline) {
  Mount(milliseconds(1500));
  SyncClient& fs = *client_;
  const OpenPtr open = Make("file", RandomBytes(100, 1));
  server_.KillAll();
  const TimePoint start = BootClock::now();
  EXPECT_EQ(fs.Lookup(root_, "file").status().errno_value(), ETIMEDOUT);
  EXPECT_EQ(fs.Mkdir(root_, "dir").status().errno_value(), ETIMEDOUT);
  EXPECT_LT(BootClock::now() - start, seconds(6));
  EXPECT_FALSE(mount_->health().ok());
  server_.Start();
  // New calls succeed without mounting again, and what was open works.
  fs.context().timeout = seconds(20);
  EXPECT_TRUE(fs.Mkdir(root_, "dir").ok());
  const auto got = fs.Read(open, 0, 200);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->size(), 100U);
}

TEST_P(Live, AStoppedServerEndsCallsAtTheirDeadline) {
  Mount(milliseconds(700));
  SyncClient& fs = *client_;
  server_.Stop();
  const TimePoint start = BootClock::now();
  EXPECT_EQ(fs.GetAttr(root_).status().errno_value(), ETIMEDOUT);
  EXPECT_LT(BootClock::now() - start, seconds(5));
  server_.Continue();
  fs.context().timeout = seconds(20);
  EXPECT_TRUE(fs.GetAttr(root_).ok());
  EXPECT_EQ(mount_->counters().connections_lost, 0U);  // its late answer harms nobody
}

TEST_P(Live, UnknownExportsAreTold) {
  MountOptions options;
  options.dial = server_.Dialer(GetParam());
  options.export_name = "none";
  const auto mount = client::Mount::Create(std::move(options), DeadlineAfter(seconds(10)));
  ASSERT_FALSE(mount.ok());
  EXPECT_NE(mount.status().message().find("none"), std::string::npos) << mount.status().message();
}

INSTANTIATE_TEST_SUITE_P(Transports, Live, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::fs::client
