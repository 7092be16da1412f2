// The server under a client that has proved its key and then sends any requests, on real files: it
// stays within its export, holds what it holds for a session until that is over, and goes on.
//
// An input is requests: an opcode, a length, a body. What no client can guess is written as a
// placeholder that Fill replaces: a handle "@r" of two bytes, an open file of eight.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/xattr.h>

#include <filesystem>
#include <fstream>

#include "server/ops/ops.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/server_harness.h"

namespace rdfs::fuzz {
namespace {

using namespace server;
using fs::Opcode;

constexpr std::string_view kOpenFile = "OPENFILE", kOpenDir = "OPENDIR_";
constexpr std::string_view kSecret = "not in the export";

// One server for all inputs; each has a tree, a session and a lane of its own.
class Scene {
 public:
  Scene() {
    // An fallocate must not fill the disk.
    const rlimit limit{.rlim_cur = 16 << 20, .rlim_max = 16 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
    std::ofstream(harness_.base / "secret") << kSecret;
  }

  void Play(Pieces pieces) {
    Begin();
    for (int sent = 0; sent < 64 && !pieces.empty(); ++sent) {
      const auto opcode = static_cast<Opcode>(pieces.Byte());
      const Bytes body = Fill(pieces.Next());
      if (!harness_.Deliver(
              lane_, Harness::Message(opcode, body, 100U + unsigned(sent), session_->id()))) {
        lane_ = harness_.NewLane(session_);  // the client connects again
      }
      Work();
    }
    End();
  }

 private:
  void Begin() {
    harness_.ActAsItself();
    for (const auto& entry : std::filesystem::directory_iterator(harness_.dir())) {
      std::error_code ignored;
      std::filesystem::remove_all(entry.path(), ignored);
    }
    std::ofstream(harness_ / "f") << "0123456789";
    std::filesystem::create_directory(harness_ / "d");
    std::ofstream(harness_ / "d/inner") << "inner";
    std::filesystem::create_symlink("../secret", harness_ / "s");
    // The harness's own session looks things up; the input has another one.
    harness_.lane = harness_.NewLane(harness_.session());
    file_ = harness_.Walk("f");
    directory_ = harness_.Walk("d");
    link_ = harness_.Walk("s");
    session_ = harness_.NewSession(++next_session_);
    lane_ = harness_.NewLane(session_);
    std::swap(lane_, harness_.lane);
    open_file_ = harness_.OpenNumber(harness_.Open(file_, fs::kOpenRead | fs::kOpenWrite));
    open_directory_ = harness_.OpenNumber(
        harness_.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(directory_)));
    std::swap(lane_, harness_.lane);
    EndSession(harness_.session());
  }

  void End() {
    harness_.ActAsItself();
    session_->MarkEnded();
    EndSession(session_);
    Work();
    for (int i = 0; i < 1000 && harness_.io().in_flight() > 0; ++i) {
      pollfd fd{.fd = harness_.io().fd(), .events = POLLIN, .revents = 0};
      (void)poll(&fd, 1, 10);
      Work();
    }
    Require(harness_.io().in_flight() == 0, "what was begun comes to its end");
    Require(session_->open_files() == 0, "nothing stays open");
    lane_.reset();
    session_.reset();
    std::ifstream secret(harness_.base / "secret");
    Require(std::string(std::istreambuf_iterator<char>(secret), {}) == kSecret,
            "nothing outside the export is changed");
  }

  void Work() {
    harness_.io().Submit();
    harness_.io().Poll();
    harness_.io().RunDeferred();
  }

  // As the service does it.
  void EndSession(const SessionPtr& session) {
    harness_.core().locks.SessionEnded(session->id());
    harness_.core().leases.SessionEnded(session->id());
    for (const OpenPtr& open : session->RemoveAllOpens()) CloseOpen(harness_.core(), *open);
  }

  Bytes Fill(ByteSpan body) {
    Bytes out;
    while (!body.empty()) {
      const std::string_view text = AsText(body);
      if (text.starts_with(kOpenFile) || text.starts_with(kOpenDir)) {
        Put(out, Le64(text.starts_with(kOpenFile) ? open_file_ : open_directory_));
        body = body.subspan(kOpenFile.size());
      } else if (text.size() >= 4 && text.substr(0, 3) == std::string_view("\2\0@", 3)) {
        const char which = text[3];
        PutSized16(out, (which == 'f'   ? file_
                         : which == 'd' ? directory_
                         : which == 's' ? link_
                                        : harness_.root())
                            .bytes());
        body = body.subspan(4);
      } else {
        out.push_back(body.front());
        body = body.subspan(1);
      }
    }
    return out;
  }

  Harness harness_{{.descriptors = 256}};
  std::uint64_t next_session_ = 1000;
  SessionPtr session_;
  std::shared_ptr<MemoryLane> lane_;
  fs::Handle file_, directory_, link_;
  std::uint64_t open_file_ = 0, open_directory_ = 0;
};

}  // namespace

void Run(ByteSpan input) {
  static Scene scene;
  scene.Play(Pieces(input));
}

namespace {

class Script {
 public:
  Script& Ask(Opcode opcode, const Body& body) {
    bytes_.push_back(static_cast<std::byte>(opcode));
    PutSized16(bytes_, body.bytes());
    return *this;
  }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

Le64 Open(std::string_view which) { return ByteReader(AsBytes(which)).Read<Le64>(); }

}  // namespace

std::vector<Bytes> Seeds() {
  const std::string_view root = "@r", file = "@f", directory = "@d", link = "@s";
  const Le64 open = Open(kOpenFile), listing = Open(kOpenDir);
  fs::MknodRequest node{};
  node.mode = S_IFREG | 0644;
  fs::RenameRequest rename{};
  fs::CreateRequest create{};
  create.flags = fs::kOpenRead | fs::kOpenWrite;
  create.mode = 0644;
  Script names;
  names.Ask(Opcode::kLookup, Body().Name(root).Name("f"))
      .Ask(Opcode::kMkdir, Body().Add(node).Name(root).Name("n"))
      .Ask(Opcode::kMknod, Body().Add(node).Name(directory).Name("m"))
      .Ask(Opcode::kSymlink, Body().Name(root).Name("t").Name("../secret"))
      .Ask(Opcode::kRename, Body().Add(rename).Name(root).Name("f").Name(directory).Name("g"))
      .Ask(Opcode::kLink, Body().Name(file).Name(root).Name("l"))
      .Ask(Opcode::kUnlink, Body().Name(root).Name("l"))
      .Ask(Opcode::kRmdir, Body().Name(root).Name("n"))
      .Ask(Opcode::kReadlink, Body().Name(link))
      .Ask(Opcode::kLookup, Body().Name(link).Name("secret"));
  fs::SetAttrRequest set{};
  set.valid = fs::kSetMode | fs::kSetSize | fs::kSetMtimeNow;
  set.mode = 0600;
  set.size = 5;
  // POSIX ACL, version 2: user::rw-, user:7:r--, group::r--, mask::r--, other::---.
  const Bytes acl = [] {
    Bytes out;
    Put(out, Le32(2));
    for (const auto& [tag, bits, id] : std::initializer_list<std::array<std::uint32_t, 3>>{
             {1, 6, ~0U}, {2, 4, 7}, {4, 4, ~0U}, {16, 4, ~0U}, {32, 0, ~0U}}) {
      Put(out, Le16(static_cast<std::uint16_t>(tag)));
      Put(out, Le16(static_cast<std::uint16_t>(bits)));
      Put(out, Le32(id));
    }
    return out;
  }();
  fs::GetXattrRequest get_xattr{};
  get_xattr.size = 1000;
  Script attributes;
  attributes.Ask(Opcode::kGetAttr, Body().Add(fs::GetAttrRequest{}).Name(file))
      .Ask(Opcode::kSetAttr, Body().Add(set).Name(file))
      .Ask(Opcode::kAccess, Body().Add(fs::AccessRequest{}).Name(file))
      .Ask(Opcode::kStatFs, Body().Name(root))
      .Ask(Opcode::kSetXattr,
           Body().Add(fs::SetXattrRequest{}).Name(file).Name("user.x").Sized32(AsBytes("value")))
      .Ask(
          Opcode::kSetXattr,
          Body().Add(fs::SetXattrRequest{}).Name(file).Name("system.posix_acl_access").Sized32(acl))
      .Ask(Opcode::kGetXattr, Body().Add(get_xattr).Name(file).Name("system.posix_acl_access"))
      .Ask(Opcode::kListXattr, Body().Add(get_xattr).Name(file))
      .Ask(Opcode::kRemoveXattr, Body().Name(file).Name("user.x"));
  fs::ReadRequest read{};
  read.open = open;
  read.length = 100;
  fs::WriteRequest write{};
  write.open = open;
  fs::FallocateRequest fallocate{};
  fallocate.open = open;
  fallocate.length = 100;
  fs::SeekRequest seek{};
  seek.open = open;
  seek.whence = 4;
  fs::CopyFileRangeRequest copy{};
  copy.open_in = copy.open_out = open;
  copy.offset_out = 1000;
  copy.length = 10;
  fs::FsyncRequest sync{};
  sync.open = open;
  fs::CommitRequest commit{};
  commit.open = open;
  commit.length = 10;
  Script content;
  content.Ask(Opcode::kRead, Body().Add(read))
      .Ask(Opcode::kWrite, Body().Add(write).Sized32(AsBytes("bytes")))
      .Ask(Opcode::kFallocate, Body().Add(fallocate))
      .Ask(Opcode::kSeek, Body().Add(seek))
      .Ask(Opcode::kCopyFileRange, Body().Add(copy))
      .Ask(Opcode::kFsync, Body().Add(sync))
      .Ask(Opcode::kCommit, Body().Add(commit));
  fs::OpenRequest opening{};
  opening.flags = fs::kOpenRead | fs::kOpenTruncate;
  fs::ReadDirRequest readdir{};
  readdir.open = listing;
  readdir.max_bytes = 4096;
  readdir.flags = fs::kReadDirPlus;
  fs::ReclaimOpenRequest reclaim{};
  reclaim.open = 5;
  fs::LockRequest lock{};
  lock.open = open;
  lock.end = 10;
  lock.type = 1;
  fs::LockRequest waiting = lock;
  waiting.owner = 2;
  waiting.flags = fs::kLockWait;
  fs::ReleaseRequest release{};
  release.open = open;
  fs::FlushRequest flush{};
  flush.open = open;
  Script opens;
  opens.Ask(Opcode::kOpen, Body().Add(opening).Name(file))
      .Ask(Opcode::kCreate, Body().Add(create).Name(root).Name("c"))
      .Ask(Opcode::kTmpfile, Body().Add(create).Name(root))
      .Ask(Opcode::kReclaimOpen, Body().Add(reclaim).Name(file).Sized16({}).Sized16({}))
      .Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Name(root))
      .Ask(Opcode::kReadDir, Body().Add(readdir))
      .Ask(Opcode::kSetLock, Body().Add(lock))
      .Ask(Opcode::kSetLock, Body().Add(waiting))
      .Ask(Opcode::kGetLock, Body().Add(lock))
      .Ask(Opcode::kInterrupt, Body().Add(fs::InterruptRequest{.sequence = 107}))
      .Ask(Opcode::kFlush, Body().Add(flush))
      .Ask(Opcode::kRelease, Body().Add(release))
      .Ask(Opcode::kRenew, Body())
      .Ask(Opcode::kRecallAck, Body().Add(fs::RecallAckRequest{.number = 1}))
      .Ask(Opcode::kGraceEnd, Body())
      .Ask(Opcode::kAttachLane, Body().Add(fs::AttachLaneRequest{}));
  return {names.bytes(), attributes.bytes(), content.bytes(), opens.bytes()};
}

}  // namespace rdfs::fuzz
