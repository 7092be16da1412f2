// A peer that sends anything, and paths that want out.
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

// One well-formed request of every opcode.
std::vector<std::pair<Opcode, Body>> EveryRequest(Harness& server, std::uint64_t open,
                                                  std::uint64_t dir) {
  const fs::Handle root = server.root();
  const fs::Handle file = server.Walk("file");
  fs::GetAttrRequest get{};
  fs::SetAttrRequest set{};
  set.valid = fs::kSetMtimeNow;
  fs::AccessRequest access{};
  fs::SetXattrRequest set_xattr{};
  fs::GetXattrRequest get_xattr{};
  get_xattr.size = 100;
  fs::MknodRequest node{};
  node.mode = S_IFREG | 0644;
  fs::RenameRequest rename{};
  fs::OpenRequest opening{};
  opening.flags = fs::kOpenRead;
  fs::CreateRequest create{};
  create.flags = fs::kOpenWrite;
  create.mode = 0644;
  fs::TmpfileRequest tmpfile{};
  tmpfile.flags = fs::kOpenWrite;
  fs::ReclaimOpenRequest reclaim{};
  reclaim.open = 5;
  fs::ReadRequest read{};
  read.open = open;
  read.length = 100;
  fs::WriteRequest write{};
  write.open = open;
  fs::CommitRequest commit{};
  commit.open = open;
  commit.length = 10;
  fs::FlushRequest flush{};
  flush.open = open;
  fs::FsyncRequest fsync{};
  fsync.open = open;
  fs::FallocateRequest fallocate{};
  fallocate.open = open;
  fallocate.length = 100;
  fs::SeekRequest seek{};
  seek.open = open;
  seek.whence = SEEK_HOLE;
  fs::CopyFileRangeRequest copy{};
  copy.open_in = copy.open_out = open;
  copy.offset_out = 1000;
  copy.length = 10;
  fs::ReadDirRequest readdir{};
  readdir.open = dir;
  readdir.max_bytes = 4096;
  readdir.flags = fs::kReadDirPlus;
  fs::LockRequest lock{};
  lock.open = open;
  lock.end = 10;
  fs::AttachLaneRequest attach{};
  attach.staging_bytes = 1 << 20;
  fs::InterruptRequest interrupt{};
  fs::ReleaseRequest release{};
  release.open = 99;
  return {
      {Opcode::kRenew, Body()},
      {Opcode::kAttachLane, Body().Add(attach)},
      {Opcode::kInterrupt, Body().Add(interrupt)},
      {Opcode::kRecallAck, Body().Add(fs::RecallAckRequest{.number = 1})},
      {Opcode::kLookup, Body().Add(root).Name("file")},
      {Opcode::kReadlink, Body().Add(file)},
      {Opcode::kSymlink, Body().Add(root).Name("s").Name("target")},
      {Opcode::kMknod, Body().Add(node).Add(root).Name("n")},
      {Opcode::kMkdir, Body().Add(node).Add(root).Name("d")},
      {Opcode::kUnlink, Body().Add(root).Name("n")},
      {Opcode::kRmdir, Body().Add(root).Name("d")},
      {Opcode::kRename, Body().Add(rename).Add(root).Name("s").Add(root).Name("t")},
      {Opcode::kLink, Body().Add(file).Add(root).Name("l")},
      {Opcode::kGetAttr, Body().Add(get).Add(file)},
      {Opcode::kSetAttr, Body().Add(set).Add(file)},
      {Opcode::kAccess, Body().Add(access).Add(file)},
      {Opcode::kStatFs, Body().Add(root)},
      {Opcode::kSetXattr, Body().Add(set_xattr).Add(file).Name("user.x").Sized32(AsBytes("value"))},
      {Opcode::kGetXattr, Body().Add(get_xattr).Add(file).Name("user.x")},
      {Opcode::kListXattr, Body().Add(get_xattr).Add(file)},
      {Opcode::kRemoveXattr, Body().Add(file).Name("user.x")},
      {Opcode::kOpen, Body().Add(opening).Add(file)},
      {Opcode::kCreate, Body().Add(create).Add(root).Name("c")},
      {Opcode::kTmpfile, Body().Add(tmpfile).Add(root)},
      {Opcode::kReclaimOpen, Body().Add(reclaim).Add(file).Sized16({}).Sized16({})},
      {Opcode::kRead, Body().Add(read)},
      {Opcode::kWrite, Body().Add(write).Sized32(AsBytes("bytes"))},
      {Opcode::kCommit, Body().Add(commit)},
      {Opcode::kFlush, Body().Add(flush)},
      {Opcode::kFsync, Body().Add(fsync)},
      {Opcode::kFallocate, Body().Add(fallocate)},
      {Opcode::kSeek, Body().Add(seek)},
      {Opcode::kCopyFileRange, Body().Add(copy)},
      {Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(root)},
      {Opcode::kReadDir, Body().Add(readdir)},
      {Opcode::kFsyncDir, Body().Add(fsync)},
      {Opcode::kReleaseDir, Body().Add(release)},
      {Opcode::kRelease, Body().Add(release)},
      {Opcode::kGetLock, Body().Add(lock)},
      {Opcode::kSetLock, Body().Add(lock)},
      {Opcode::kReclaimLock, Body().Add(lock)},
      {Opcode::kGraceEnd, Body()},
      {Opcode::kEndSession, Body()},
  };
}

class HostileTest : public testing::Test {
 protected:
  HostileTest() {
    std::ofstream(server / "file") << "0123456789";
    open_ = server.OpenNumber(server.Open(server.Walk("file"), fs::kOpenRead | fs::kOpenWrite));
    dir_ = server.OpenNumber(
        server.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(server.root())));
  }
  // Everything that is on its way comes to its end; the lane is thrown away.
  void Drain() {
    while (server.io().in_flight() > 0) (void)server.WaitForAnswer(server.lane, 1000);
    server.io().Poll();
    server.lane = server.NewLane(server.session());
  }
  Harness server;
  std::uint64_t open_ = 0, dir_ = 0;
};

// No file of this process grows beyond `bytes` (EFBIG) during its life. Source: setrlimit(2).
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST_F(HostileTest, EveryRequestOfTheProtocolHasAHandler) {
  std::set<Opcode> covered = {Opcode::kArena, Opcode::kRecall};
  for (const auto& [opcode, body] : EveryRequest(server, open_, dir_)) {
    covered.insert(opcode);
    if (opcode == Opcode::kCommit) continue;  // no staging on this lane
    const Answer answer = server.Ask(opcode, body);
    EXPECT_NE(answer.error, fs::WireError::kNotSupported) << fs::OpcodeName(opcode);
    EXPECT_NE(answer.error, fs::WireError::kMalformed) << fs::OpcodeName(opcode);
  }
  for (std::uint16_t i = 0; i < 100; ++i) {
    const auto opcode = static_cast<Opcode>(i);
    if (fs::IsKnown(opcode)) {
      EXPECT_TRUE(covered.contains(opcode)) << fs::OpcodeName(opcode);
    }
  }
}

TEST_F(HostileTest, TruncatedAtEveryByteNothingIsCarriedOut) {
  for (const auto& [opcode, body] : EveryRequest(server, open_, dir_)) {
    for (std::size_t size = 0; size < body.bytes().size(); ++size) {
      // The header tells the truth about a body that is too short.
      EXPECT_FALSE(
          server.Deliver(server.lane, Harness::Message(opcode, body.bytes().first(size), 1000)))
          << fs::OpcodeName(opcode) << " cut to " << size;
      Drain();
    }
    // And a header that promises more than there is.
    const auto whole = Harness::Message(opcode, body.bytes(), 1000);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(server.Deliver(server.lane, ByteSpan(whole).first(size)));
      Drain();
    }
  }
}

TEST_F(HostileTest, TrailingBytesAreAnExtensionOrMalformed) {
  const Body body = Body().Add(server.root()).Name("file");
  auto message = Harness::Message(Opcode::kLookup, body.bytes(), 1);
  const auto with = [&](std::vector<std::uint8_t> tail) {
    std::vector<std::byte> out = message;
    for (const std::uint8_t byte : tail) out.push_back(static_cast<std::byte>(byte));
    return out;
  };
  EXPECT_TRUE(server.Deliver(server.lane, with({1, 0, 2, 0, 9, 9})));  // unknown, skipped
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  EXPECT_TRUE(server.Deliver(server.lane, with({1, 0x80, 0, 0})));  // must be understood
  EXPECT_EQ(server.TakeAnswer(server.lane).error, fs::WireError::kNotSupported);
  EXPECT_FALSE(server.Deliver(server.lane, with({1, 0, 9, 0})));
  EXPECT_FALSE(server.Deliver(server.lane, with({1})));
}

// What a client says of its transport is shown to people, and bounded.
TEST_F(HostileTest, TheClientsWordsAboutItsTransportSteerNoTerminal) {
  const auto attach = [&](std::string_view transport, std::size_t promised) {
    server.lane = server.NewLane(server.session());
    auto message =
        Harness::Message(Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{}).bytes(), 1);
    const Body tail = Body()
                          .Add(fs::ExtensionHeader{.type = fs::kExtensionTransport,
                                                   .length = static_cast<std::uint16_t>(promised)})
                          .Raw(AsBytes(transport));
    message.insert(message.end(), tail.bytes().begin(), tail.bytes().end());
    return server.Deliver(server.lane, message);
  };
  const std::string_view words("tcp;\33[2J not shm:\na\0b", 21);
  EXPECT_TRUE(attach(words, words.size()));
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  EXPECT_EQ(server.session()->choice(), "tcp;?[2J not shm:?a?b");
  EXPECT_TRUE(attach(std::string(fs::kMaxTransportBytes, 'x'), fs::kMaxTransportBytes));
  EXPECT_TRUE(server.TakeAnswer(server.lane).ok());
  EXPECT_EQ(server.session()->choice(), std::string(fs::kMaxTransportBytes, 'x'));
  const std::size_t more = fs::kMaxTransportBytes + 1;
  EXPECT_FALSE(attach(std::string(more, 'y'), more));
  EXPECT_FALSE(attach("y", 2)) << "more than there is";
  EXPECT_EQ(server.session()->choice(), std::string(fs::kMaxTransportBytes, 'x'));
  // A client that says nothing, as older ones do.
  server.lane = server.NewLane(server.session());
  EXPECT_TRUE(server.Ask(Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{})).ok());
  EXPECT_EQ(server.session()->choice(), "");
}

TEST_F(HostileTest, UnknownOpcodesAndSessionsAreTold) {
  EXPECT_EQ(server.Ask(static_cast<Opcode>(999), Body()).error, fs::WireError::kNotSupported);
  EXPECT_EQ(server.Ask(Opcode::kArena, Body()).error, fs::WireError::kNotSupported);
  EXPECT_EQ(server.Ask(Opcode::kRecall, Body()).error, fs::WireError::kNotSupported);
  EXPECT_TRUE(server.Deliver(server.lane, Harness::Message(Opcode::kRenew, {}, 3, 4711)));
  EXPECT_EQ(server.TakeAnswer(server.lane).error, fs::WireError::kUnknownSession);
  server.session()->MarkEnded();
  EXPECT_EQ(server.Ask(Opcode::kRenew, Body()).error, fs::WireError::kUnknownSession);
}

TEST_F(HostileTest, RandomMutationsCrashNothing) {
  const FileSizeLimit limit(64 << 20);  // a mutated fallocate would fill the disk
  const auto requests = EveryRequest(server, open_, dir_);
  std::mt19937 random(20240601);
  for (unsigned seed = 0; seed < 10'000; ++seed) {
    const auto& [opcode, body] = requests[random() % requests.size()];
    auto message = Harness::Message(opcode, body.bytes(), seed + 5000);
    const unsigned changes = 1 + random() % 4;
    for (unsigned i = 0; i < changes; ++i) {
      // Mostly behind the header: a broken header is refused early.
      const std::size_t from = random() % 8 == 0 || message.size() <= 56 ? 0 : 56;
      message[from + random() % (message.size() - from)] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) message.resize(random() % (message.size() + 1));
    if (!server.Deliver(server.lane, message)) {
      server.lane = server.NewLane(server.session());
    }
    if (server.lane->in_flight() > 100) Drain();
    server.lane->sent.clear();
  }
  Drain();
  // It still serves.
  EXPECT_TRUE(server.Lookup(server.root(), "file").ok() ||
              server.Lookup(server.root(), "file").errno_value() == ENOENT);
}

TEST_F(HostileTest, TooManyRequestsInFlightEndTheLane) {
  fs::FsyncRequest fsync{};
  fsync.open = open_;
  std::uint64_t sequence = 10'000;
  bool ended = false;
  for (std::size_t i = 0; i <= fs::kMaxRequestsInFlight && !ended; ++i) {
    ended = !server.Deliver(
        server.lane, Harness::Message(Opcode::kFsync, Body().Add(fsync).bytes(), ++sequence));
  }
  EXPECT_TRUE(ended);
  server.lane = server.NewLane(server.session());
  Drain();
}

// --- out of the export

class EscapeTest : public testing::TestWithParam<bool> {
 protected:
  EscapeTest() : server({.by_handle = GetParam()}) {
    std::ofstream(server.base / "secret") << "secret";
    ::mkdir((server / "dir").c_str(), 0755);
    EXPECT_EQ(::symlink("..", (server / "up").c_str()), 0);
    EXPECT_EQ(::symlink(server.base.path().c_str(), (server / "absolute").c_str()), 0);
    EXPECT_EQ(::symlink("/proc/self/root", (server / "magic").c_str()), 0);
  }
  Harness server;
};

TEST_P(EscapeTest, NamesThatAreNoNamesEndTheLane) {
  for (const std::string name : {"..", ".", "", "a/b", "/", "../secret", "/etc/passwd"}) {
    const Body body = Body().Add(server.root()).Name(name);
    EXPECT_FALSE(server.Deliver(server.lane, Harness::Message(Opcode::kLookup, body.bytes(), 1)))
        << name;
    server.lane = server.NewLane(server.session());
  }
  const Body nul = Body().Add(server.root()).Name(std::string_view("a\0b", 3));
  EXPECT_FALSE(server.Deliver(server.lane, Harness::Message(Opcode::kLookup, nul.bytes(), 1)));
}

TEST_P(EscapeTest, NothingIsReachedThroughLinks) {
  for (const std::string link : {"up", "absolute", "magic"}) {
    const fs::Handle handle = server.Walk(link);
    ASSERT_FALSE(handle.empty());
    EXPECT_EQ(server.Lookup(handle, "secret").errno_value(), ENOTDIR) << link;
    EXPECT_EQ(server.Open(handle, fs::kOpenRead).errno_value(), ELOOP) << link;
    EXPECT_EQ(server.Create(handle, "secret", fs::kOpenRead).errno_value(), ENOTDIR) << link;
    EXPECT_EQ(
        server.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(handle)).errno_value(),
        ENOTDIR);
  }
}

TEST_P(EscapeTest, ForgedAndForeignHandlesAreStale) {
  std::mt19937 random(1);
  const fs::Handle true_handle = server.Walk("dir");
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes(true_handle.bytes().begin(), true_handle.bytes().end());
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U + random() % 255);
    EXPECT_EQ(server.Lookup(*fs::Handle::FromBytes(bytes), "x").errno_value(), ESTALE);
  }
  // A handle of the directory above, as another export of the same server would have issued it.
  const Fd above(::open(server.base.path().c_str(), O_PATH | O_DIRECTORY));
  struct statx stat {};
  ASSERT_EQ(StatFd(above.get(), stat), 0);
  const HandleCodec other(HandleSecret::Random(), "other", {});
  const fs::Handle foreign = other.Encode(NativeHandle::Of(above.get(), stat));
  EXPECT_EQ(server.Lookup(foreign, "secret").errno_value(), ESTALE);
}

TEST_P(EscapeTest, ADirectorySwappedForALinkWhileLookedUp) {
  // One thread swaps; the other looks up, and must find the directory or the link, and never what
  // lies behind the link.
  std::atomic<bool> stop{false};
  ASSERT_EQ(::mkdir((server / "swap").c_str(), 0755), 0);
  ASSERT_EQ(::symlink("..", (server / "evil").c_str()), 0);
  const std::string a = server / "swap", b = server / "evil";
  std::thread swapper([&] {
    while (!stop.load()) {
      ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
    }
  });
  for (int i = 0; i < 3000; ++i) {
    const Answer found = server.Lookup(server.root(), "swap");
    if (!found.ok()) continue;
    const Answer inner = server.Lookup(Harness::EntryIn(found).handle, "secret");
    EXPECT_FALSE(inner.ok());
  }
  stop.store(true);
  swapper.join();
}

INSTANTIATE_TEST_SUITE_P(Ways, EscapeTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "ByHandle" : "ByName"; });

}  // namespace
}  // namespace rdfs::server
