// A client's lane under a server that answers anything: each call ends once, nothing is written but
// where it was asked for, and what callers see is what the protocol allows.
//
// An input says which calls are made, and then what the server does: answers to the oldest request,
// with an error or with a body, messages of its own, ends of one-sided operations.
#include <sys/eventfd.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "fs/client/client.h"
#include "tests/fs/client/scripted_session.h"
#include "tests/fuzz/fuzz.h"
#include "transport/session/session.h"

namespace rdfs::fuzz {
namespace {

using namespace fs;
using namespace fs::client;
using transport::Completion;

constexpr std::size_t kBufferBytes = 64 << 10;

// What the server does, shared by the connection and who feeds it.
struct Script {
  explicit Script(ByteSpan input) : pieces(input) {}
  struct Asked {
    Le16 opcode;
    Le64 sequence;
  };
  Pieces pieces;
  std::deque<Asked> asked;
  std::deque<transport::Ticket> posted;
  transport::Ticket last_ticket = 0;
  // What comes next, which may have to wait until the client has asked for something; not for ever.
  std::optional<std::uint8_t> next;
  int waited = 0;
  bool first_lane = true;
  bool correct_lane = true;  // the lane's first request is answered as it should be
};

class ScriptedConnection final : public transport::Connection {
 public:
  explicit ScriptedConnection(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  [[nodiscard]] const transport::Capabilities& capabilities() const override { return can_; }
  [[nodiscard]] std::string Describe() const override { return "scripted"; }
  Status Send(std::span<const ByteSpan> parts) override {
    const auto header = ByteReader(parts[0]).Read<RequestHeader>();
    script_->asked.push_back({header.opcode, header.sequence});
    return {};
  }
  using Connection::Send;
  [[nodiscard]] std::size_t backlog_bytes() const override { return 0; }
  Result<transport::Ticket> Read(const transport::LocalSlice& to,
                                 const transport::RemoteSlice& from, transport::Order) override {
    // As the real ones check it, and then fill it.
    Require(from.offset <= from.region.length && to.length <= from.region.length - from.offset,
            "a READ is inside the server's region");
    Require(to.offset <= to.region->size() && to.length <= to.region->size() - to.offset,
            "a READ is inside our region");
    std::ranges::fill(to.region->bytes().subspan(to.offset, to.length), std::byte{1});
    return Post();
  }
  Result<transport::Ticket> Write(const transport::LocalSlice& from,
                                  const transport::RemoteSlice& to) override {
    Require(to.offset <= to.region.length && from.length <= to.region.length - to.offset,
            "a WRITE is inside the server's region");
    Require(from.offset <= from.region->size() && from.length <= from.region->size() - from.offset,
            "a WRITE is inside our region");
    return Post();
  }
  Status Flush() override { return {}; }
  Result<std::size_t> Poll(std::span<Completion> out) override;
  Result<bool> Arm() override { return true; }
  [[nodiscard]] int fd() const override { return event_.get(); }
  Result<transport::RemoteRegion> Share(const transport::MemoryRegion&) override {
    return transport::RemoteRegion{};
  }
  void Unshare(const transport::MemoryRegion&) override {}

 private:
  Result<transport::Ticket> Post() {
    script_->posted.push_back(++script_->last_ticket);
    return script_->last_ticket;
  }
  std::size_t Say(Completion& out, std::uint64_t sequence, std::uint16_t opcode,
                  std::uint16_t error, ByteSpan body);

  const std::shared_ptr<Script> script_;
  const transport::Capabilities can_{.max_outstanding = 64, .max_transfer_bytes = 1 << 20};
  // Always readable: nobody sleeps here.
  const Fd event_{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
  Bytes message_;
};

std::size_t ScriptedConnection::Say(Completion& out, std::uint64_t sequence, std::uint16_t opcode,
                                    std::uint16_t error, ByteSpan body) {
  message_.clear();
  Put(message_, ReplyHeader{opcode, error, static_cast<std::uint32_t>(body.size()), sequence, 1});
  Put(message_, body);
  out = {.kind = Completion::Kind::kMessage, .message = message_};
  return 1;
}

Result<std::size_t> ScriptedConnection::Poll(std::span<Completion> out) {
  Script& script = *script_;
  if (script.correct_lane && !script.asked.empty()) {
    const Script::Asked asked = script.asked.front();
    script.asked.pop_front();
    script.correct_lane = false;
    Bytes reply;
    Put(reply, AttachLaneReply{{0, 256 << 10, 7}, 64 << 10, 4});
    return Say(out[0], asked.sequence, asked.opcode, 0, reply);
  }
  if (script.pieces.empty()) return Status(Code::kDisconnected, "the input is over");
  if (!script.next) script.next = script.pieces.Byte();
  const std::uint8_t what = *script.next;
  const bool early =
      (what % 8 <= 2 && script.asked.empty()) || (what % 8 == 6 && script.posted.empty());
  if (early && ++script.waited < 10) return std::size_t{0};
  script.waited = 0;
  script.next.reset();
  switch (what % 8) {
    case 0:
    case 1:
    case 2: {  // the answer to a request: mostly the oldest
      if (script.asked.empty()) return std::size_t{0};
      const std::size_t which = what / 8U % script.asked.size();
      const Script::Asked asked = script.asked[which];
      script.asked.erase(script.asked.begin() + static_cast<std::ptrdiff_t>(which));
      const bool error = what % 8 == 2;
      return Say(out[0], asked.sequence, asked.opcode,
                 error ? std::uint16_t{script.pieces.Read<Le16>()} : std::uint16_t{0},
                 error ? ByteSpan() : script.pieces.Next());
    }
    case 3:
      return Say(out[0], 0, std::uint16_t{static_cast<std::uint16_t>(Opcode::kArena)}, 0,
                 script.pieces.Next());
    case 4:
      return Say(out[0], 0, std::uint16_t{static_cast<std::uint16_t>(Opcode::kRecall)}, 0,
                 script.pieces.Next());
    case 5: {  // any message at all
      const ByteSpan piece = script.pieces.Next();
      message_.assign(piece.begin(), piece.end());
      out[0] = {.kind = Completion::Kind::kMessage, .message = message_};
      return std::size_t{1};
    }
    case 6: {
      if (script.posted.empty()) return std::size_t{0};
      out[0] = {.kind = Completion::Kind::kRead, .ticket = script.posted.front(), .message = {}};
      if (what >= 128) out[0].status = Status(Code::kErrno, EACCES, "refused");
      script.posted.pop_front();
      return std::size_t{1};
    }
    default:
      return std::size_t{0};
  }
}

Result<std::unique_ptr<transport::Connection>> NewLane(const std::shared_ptr<Script>& script) {
  if (!std::exchange(script->first_lane, false)) return Status(Code::kDisconnected, "no more");
  return std::unique_ptr<transport::Connection>(std::make_unique<ScriptedConnection>(script));
}

Bytes EntryBytes(std::string_view handle) {
  Bytes entry(256);
  ByteWriter writer(entry);
  WriteEntry(writer, {*Handle::FromBytes(AsBytes(handle)), AttrWire{}, Le32(1000)});
  entry.resize(writer.size());
  return entry;
}

Bytes CorrectGrant() {
  Bytes grant;
  Put(grant, MountGrant{.major = kProtocolMajor,
                        .minor = 0,
                        .session = 1,
                        .epoch = 1,
                        .verifier = 1,
                        .lease_ms = 30'000,
                        .attr_lease_ms = 1000,
                        .grace_ms = 0,
                        .flags = 0,
                        .max_transfer_bytes = kMaxTransferBytes});
  Put(grant, EntryBytes("root"));
  return grant;
}

void LookAt(DirPage page) {
  while (const auto entry = page.Next()) {
    Require(!entry->name.empty() && entry->name.find('/') == entry->name.npos, "a listed name");
  }
}

// Makes the calls and looks at what comes back.
class Caller {
 public:
  Caller(Lane& lane, std::uint32_t which) : lane_(lane), which_(which) {}
  void Begin();
  [[nodiscard]] bool all_ended() const { return issued_ == ended_; }
  [[nodiscard]] const std::optional<Buffer>& buffer() const { return buffer_; }
  void DropBuffer() { buffer_.reset(); }
  static constexpr std::size_t kReadAt = 4096, kReadBytes = 8192;

 private:
  bool Wanted(unsigned call) {
    const bool wanted = (which_ >> (call % 32U) & 1U) != 0;
    issued_ += wanted ? 1U : 0U;
    return wanted;
  }
  // Counts its runs, and looks at a result.
  template <typename Check>
  auto Then(Check check) {
    return [this, check](const auto& result) {
      ++ended_;
      if (result.ok()) check(*result);
    };
  }
  DoneCallback Done() {
    return [this](const Status&) { ++ended_; };
  }
  void WithFile(const OpenPtr& open);
  void WithDirectory(const OpenPtr& open);

  Lane& lane_;
  const std::uint32_t which_;
  std::size_t issued_ = 0, ended_ = 0;
  std::optional<Buffer> buffer_;
  const Handle file_ = *Handle::FromBytes(AsBytes("file"));
};

void Caller::Begin() {
  const auto any = [](const auto&) {};
  const auto text = [](std::string_view target) {
    Require(target.size() <= kMaxPathBytes, "a target is bounded");
    Require(target.find('\0') == target.npos, "a target has no NUL");
  };
  const auto xattr = [](const XattrReply& reply) {
    Require(reply.value.size() <= 100, "no more of an attribute than was asked for");
  };
  if (Wanted(0)) lane_.Lookup({}, file_, "name", Then(any));
  if (Wanted(1)) lane_.Readlink({}, file_, Then(text));
  if (Wanted(2)) lane_.GetAttr({}, file_, {}, Then(any));
  if (Wanted(3)) lane_.StatFs({}, file_, Then(any));
  if (Wanted(4)) lane_.GetXattr({}, file_, "user.x", 100, Then(xattr));
  if (Wanted(5)) lane_.ListXattr({}, file_, 100, Then(xattr));
  if (Wanted(6)) lane_.Mkdir({}, file_, "name", 0755, 0, Then(any));
  if (Wanted(7)) lane_.Unlink({}, file_, "name", Done());
  if (Wanted(8)) {
    lane_.Create({}, file_, "name", kOpenRead | kOpenWrite, 0644, 0,
                 Then([](const Lane::Created& created) {
                   Require(created.open != nullptr, "an open file");
                 }));
  }
  if (Wanted(9)) {
    lane_.OpenDir({}, file_, 4096, Then([this](const OpenedDirectory& opened) {
                    LookAt(opened.first_page);
                    WithDirectory(opened.open);
                  }));
  }
  if (Wanted(10)) {
    lane_.Open({}, file_, kOpenRead | kOpenWrite,
               Then([this](const Lane::Opened& opened) { WithFile(opened.open); }));
  }
}

void Caller::WithDirectory(const OpenPtr& open) {
  if (!Wanted(11)) return;
  lane_.ReadDir({}, open, 0, 4096, true, Then([](const DirPage& page) { LookAt(page); }));
}

void Caller::WithFile(const OpenPtr& open) {
  const auto any = [](const auto&) {};
  if (!buffer_) buffer_ = lane_.buffers().Allocate(kBufferBytes);
  Require(buffer_.has_value(), "a buffer");
  if (Wanted(12)) {
    lane_.Read({}, open, 100, buffer_->Slice(kReadAt, kReadBytes), 1 << 20,
               Then([](const ReadDone& done) {
                 Require(done.length <= kReadBytes, "no more than was asked for");
               }));
  }
  const auto written = [](const WriteDone& done) {
    Require(done.written <= 32 * 1024, "no more than was given");
  };
  if (Wanted(13)) lane_.Write({}, open, 0, buffer_->Slice(32 << 10, 100), 0, Then(written));
  if (Wanted(14)) lane_.Write({}, open, 0, buffer_->Slice(32 << 10, 32 << 10), 0, Then(written));
  if (Wanted(15)) lane_.Fsync({}, open, false, Done());
  if (Wanted(16)) lane_.Seek({}, open, 0, 3, Then(any));
  if (Wanted(17)) lane_.CopyFileRange({}, open, 0, open, 0, 100, 0, Then(any));
  if (Wanted(18)) lane_.GetLock({}, open, Lock{}, false, Then(any));
  if (Wanted(19)) lane_.Release({}, open, Done());
}

std::unique_ptr<Mount> MakeMount(const std::shared_ptr<Script>& script, Bytes grant) {
  MountOptions options;
  options.export_name = "fuzz";
  options.lane_buffer_bytes = 256 << 10;
  options.dial = [script, grant = std::move(grant), first = true](
                     const std::vector<std::byte>&, std::shared_ptr<transport::Domain> domain,
                     Deadline) mutable -> Result<std::unique_ptr<transport::Session>> {
    if (!std::exchange(first, false)) return Status(Code::kDisconnected, "no more");
    return std::unique_ptr<transport::Session>(std::make_unique<ScriptedSession>(
        [script] { return NewLane(script); }, std::move(grant), std::move(domain)));
  };
  auto mount = Mount::Create(std::move(options), DeadlineAfter(std::chrono::seconds(10)));
  return mount.ok() ? *std::move(mount) : nullptr;
}

bool IsZero(ByteSpan bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void Run(ByteSpan input) {
  auto script = std::make_shared<Script>(input);
  const std::uint8_t how = script->pieces.Byte();
  const std::uint32_t which = script->pieces.Read<Le32>();
  script->correct_lane = (how & 1U) == 0;
  Bytes grant = CorrectGrant();
  if ((how & 2U) != 0) {
    const ByteSpan piece = script->pieces.Next();
    grant.assign(piece.begin(), piece.end());
  }
  const std::unique_ptr<Mount> mount = MakeMount(script, std::move(grant));
  if (mount == nullptr) return;
  auto lane = mount->OpenLane(DeadlineAfter(std::chrono::seconds(10)));
  if (!lane.ok()) return;
  Caller caller(**lane, which);
  caller.Begin();
  // A reply is a byte at least; what goes on without any is bounded by time, not by this.
  for (int turns = 0; turns < 300 && (*lane)->connected() && !caller.all_ended(); ++turns) {
    (*lane)->Poll();
  }
  if (caller.buffer()) {
    const ByteSpan bytes = caller.buffer()->bytes();
    Require(IsZero(bytes.first(Caller::kReadAt)) &&
                IsZero(bytes.subspan(Caller::kReadAt + Caller::kReadBytes)),
            "bytes come where they were asked for");
  }
  caller.DropBuffer();
  lane->reset();  // ends what is left
  Require(caller.all_ended(), "each call ends once");
}

namespace {

// A correct server's answers, in the order in which the calls ask.
class Answers {
 public:
  explicit Answers(std::uint32_t which, std::uint8_t how = 0) {
    bytes_.push_back(std::byte{how});
    Put(bytes_, Le32(which));
  }
  Answers& Reply(const Bytes& body) { return Say(0, body); }
  Answers& Unasked(std::uint8_t what, const Bytes& body) { return Say(what, body); }
  Answers& OperationsDone(int count) {
    bytes_.insert(bytes_.end(), static_cast<std::size_t>(count), std::byte{6});
    return *this;
  }
  Answers& Error(fs::WireError error) {
    bytes_.push_back(std::byte{2});
    Put(bytes_, Le16(static_cast<std::uint16_t>(error)));
    return *this;
  }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }

 private:
  Answers& Say(std::uint8_t what, const Bytes& body) {
    bytes_.push_back(std::byte{what});
    PutSized16(bytes_, body);
    return *this;
  }
  Bytes bytes_;
};

template <WireStruct... T>
Bytes Join(const T&... parts) {
  Bytes out;
  (Put(out, parts), ...);
  return out;
}
Bytes Join(Bytes first, const Bytes& second) {
  Put(first, ByteSpan(second));
  return first;
}
Bytes Sized16(std::string_view text) {
  Bytes out;
  PutSized16(out, AsBytes(text));
  return out;
}
Bytes Sized32(std::size_t size) {
  Bytes out;
  Put(out, Le32(static_cast<std::uint32_t>(size)));
  out.resize(out.size() + size);
  return out;
}

}  // namespace

std::vector<Bytes> Seeds() {
  const Bytes entry = EntryBytes("file");
  const AttrWire attr{.size = 1 << 20, .mode = 0100644, .lease_ms = 1000, .change = 1};
  const Bytes opened = Join(OpenReply{7, attr, 1000});
  Bytes page = Join(DirEntryWire{1, 2, 8});
  page = Join(Join(std::move(page), Sized16("name")), Join(Le16(1)));
  page = Join(std::move(page), entry);
  const auto plain = Answers(0xff)
                         .Reply(entry)
                         .Reply(Sized16("target"))
                         .Reply(Join(attr))
                         .Reply(Join(StatFsReply{}))
                         .Reply(Join(Join(GetXattrReply{10}), Sized32(10)))
                         .Reply(Join(Join(GetXattrReply{10}), Sized32(10)))
                         .Reply(entry)
                         .Error(WireError::kNotFound);
  const auto names =
      Answers(0xf00).Reply(Join(opened, entry)).Reply(Join(opened, page)).Reply(opened).Reply(page);
  GrantWire grant{};
  grant.length = 1 << 20;
  grant.arena = 1;
  grant.generation_arena = 1;
  grant.generation_offset = 1 << 20;
  grant.lease_ms = 5000;
  grant.generation = 0x0101'0101'0101'0101;
  const auto content =
      Answers(0x1400)
          .Unasked(3, Join(ArenaMessage{1, {0, 2 << 20, 5}}))
          .Reply(opened)
          .Reply(Join(Join(ReadReply{1 << 20, 1, 1, 0}), Join(Join(grant), Sized32(0))))
          .OperationsDone(2);
  const auto inside = Answers(0xfa400)
                          .Reply(opened)
                          .Reply(Join(WriteReply{0, 100, 100, 2, 1, 1000}))
                          .OperationsDone(1)
                          .Reply(Join(WriteReply{0, 32 << 10, 32 << 10, 2, 1, 1000}))
                          .Reply(Join(FsyncReply{1}))
                          .Reply(Join(SeekReply{5}))
                          .Reply(Join(WriteReply{0, 100, 100, 2, 1, 1000}))
                          .Reply(Join(LockReply{}))
                          .Reply({});
  Bytes recall = Join(RecallMessage{1, kRecallName | kRecallContent});
  recall = Join(Join(std::move(recall), Sized16("file")), Sized16("name"));
  const auto unasked = Answers(3).Unasked(4, recall).Reply(entry).Unasked(5, entry);
  auto grants = Answers(1, 3);
  grants.Unasked(0, Join(AttachLaneReply{{0, 65536, 7}, 65536, 1})).Reply(entry);
  Bytes mounts = grants.bytes();
  Bytes correct;
  PutSized16(correct, CorrectGrant());
  mounts.insert(mounts.begin() + 5, correct.begin(), correct.end());
  return {plain.bytes(), names.bytes(), content.bytes(), inside.bytes(), unasked.bytes(), mounts};
}

}  // namespace rdfs::fuzz
