#include "tests/fs/client/scripted_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "tests/fs/client/scripted_session.h"
#include "transport/tcp/transport.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kArena = 7, kGenerations = 8;

template <WireStruct T>
void Put(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span<const T, 1>(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

AttrWire FileAttr(std::uint64_t change) {
  AttrWire attr{};
  attr.ino = 1;
  attr.size = ScriptedServer::kFileBytes;
  attr.mode = 0100644;
  attr.lease_ms = 1000;
  attr.change = change;
  return attr;
}

std::unique_ptr<transport::MemoryRegion> MakeRegion(
    const std::shared_ptr<transport::Domain>& domain, std::size_t size, transport::Access access) {
  const auto peers = access == transport::Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                              : SharedMemory::Peers::kMayWrite;
  auto memory = SharedMemory::Create("scripted", size, peers);
  return *domain->Register(*std::move(memory), access);
}

}  // namespace

ScriptedServer::ScriptedServer()
    : domain_(transport::Domain::Create("server")),
      arena_(MakeRegion(domain_, kFileBytes, transport::Access::kRemoteRead)),
      generations_(MakeRegion(domain_, 4096, transport::Access::kRemoteRead)) {
  for (std::size_t i = 0; i < kFileBytes; ++i) {
    arena_->bytes()[i] = static_cast<std::byte>(i * 2654435761U >> 16U);
  }
  for (std::size_t i = 0; i < kFileBytes / kExtentBytes; ++i) {
    const Le64 generation = 1;
    std::memcpy(generations_->bytes().data() + i * sizeof(Le64), &generation, sizeof(Le64));
  }
}

ScriptedServer::~ScriptedServer() {
  std::vector<std::unique_ptr<LaneState>> lanes;
  {
    const std::lock_guard lock(mutex_);
    lanes.swap(lanes_);
  }
  lanes.clear();
}

DialFunction ScriptedServer::Dialer() {
  return [this](std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain,
                Deadline) -> Result<std::unique_ptr<transport::Session>> {
    if (Refuses()) return Status(Code::kDisconnected, "refused");
    const auto mount = ByteReader(request).Read<MountRequest>();
    ++sessions_;
    if (lost_grants > 0) {
      --lost_grants;
      (void)GrantFor(mount.last_epoch);
      return Status(Code::kDisconnected, "the grant is lost");
    }
    return std::unique_ptr<transport::Session>(
        std::make_unique<ScriptedSession>([this, domain] { return NewLane(domain); },
                                          GrantFor(mount.last_epoch), domain, stream_only_));
  };
}

std::vector<std::byte> ScriptedServer::GrantFor(std::uint64_t last_epoch) {
  const std::lock_guard lock(mutex_);
  if (last_epoch == 0) {  // another client than before
    records_.clear();
    opens_.clear();
  }
  std::vector<std::byte> bytes;
  Put(bytes, MountGrant{.major = kProtocolMajor,
                        .minor = 0,
                        .session = 1000 + epoch_ + given_up_,
                        .epoch = epoch_,
                        .verifier = verifier_,
                        .lease_ms = session_lease_ms.load(),
                        .attr_lease_ms = 1000,
                        .grace_ms = 0,
                        .flags = last_epoch != 0 && resumed_ ? kGrantResumed : 0,
                        .max_transfer_bytes = kMaxTransferBytes});
  std::array<std::byte, 256> entry{};
  ByteWriter writer(entry);
  WriteEntry(
      writer,
      {.handle = *Handle::FromBytes(AsBytes("root")), .attr = FileAttr(1), .entry_lease_ms = 1000});
  bytes.insert(bytes.end(), writer.written().begin(), writer.written().end());
  resumed_ = true;  // when it comes once more
  return bytes;
}

void ScriptedServer::SetHook(Hook hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void ScriptedServer::SetGate(Gate gate) {
  const std::lock_guard lock(mutex_);
  gate_ = std::move(gate);
}

void ScriptedServer::SetClientEnd(ClientEnd end) {
  const std::lock_guard lock(mutex_);
  client_end_ = std::move(end);
}

void ScriptedServer::Restart(bool resumed) {
  const std::lock_guard lock(mutex_);
  RestartFromGate(resumed);
}

void ScriptedServer::CrashHost() {
  const std::lock_guard lock(mutex_);
  ++verifier_;
  RestartFromGate(false);
}

void ScriptedServer::RestartFromGate(bool resumed) {
  resumed_ = resumed;
  if (!resumed) {
    ++epoch_;
    opens_.clear();
  }
  DropLocked();
}

void ScriptedServer::GiveUp() {
  const std::lock_guard lock(mutex_);
  ++given_up_;
  resumed_ = false;
  opens_.clear();
  DropLocked();
}

void ScriptedServer::DropAll() {
  const std::lock_guard lock(mutex_);
  DropLocked();
}

void ScriptedServer::DropLocked() {
  for (const auto& lane : lanes_) lane->drop = true;
}

std::vector<std::byte> ScriptedServer::file() {
  const std::lock_guard lock(mutex_);
  return {arena_->bytes().begin(), arena_->bytes().end()};
}

std::vector<ScriptedServer::Request> ScriptedServer::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::size_t ScriptedServer::Count(Opcode opcode) {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      requests_.begin(), requests_.end(), [&](const Request& r) { return r.opcode == opcode; }));
}

bool ScriptedServer::Refuses() {
  if (refuse_) ++refused_;
  return refuse_;
}

Result<std::unique_ptr<transport::Connection>> ScriptedServer::NewLane(
    const std::shared_ptr<transport::Domain>& client_domain) {
  if (Refuses()) return Status(Code::kDisconnected, "refused");
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status::FromErrno(errno, "socketpair");
  }
  namespace tcp = transport::tcp;
  RDFS_ASSIGN_OR_RETURN(auto ours, tcp::MakeConnection(tcp::MakeSocketStream(Fd(ends[0]), "client"),
                                                       domain_, "scripted"));
  RDFS_ASSIGN_OR_RETURN(
      auto theirs,
      tcp::MakeConnection(tcp::MakeSocketStream(Fd(ends[1]), "server"), client_domain, "scripted"));
  auto lane = std::make_unique<LaneState>();
  lane->connection = std::move(ours);
  LaneState& state = *lane;
  const std::lock_guard lock(mutex_);
  state.thread = std::jthread([this, &state](const std::stop_token& stop) { Serve(state, stop); });
  lanes_.push_back(std::move(lane));
  return client_end_ ? client_end_(std::move(theirs)) : std::move(theirs);
}

void ScriptedServer::Serve(LaneState& lane, const std::stop_token& stop) {
  while (!stop.stop_requested() && !lane.drop) {
    if (lane.stall) {
      std::this_thread::yield();
      continue;
    }
    transport::Completion completion;
    Result<std::size_t> count =
        lane.connection->Wait(std::span(&completion, 1), DeadlineAfter(milliseconds(5)));
    if (!count.ok()) break;
    if (*count == 0 || completion.kind != transport::Completion::Kind::kMessage) continue;
    OnMessage(lane, completion.message);
  }
  lane.connection.reset();
}

void ScriptedServer::OnMessage(LaneState& lane, ByteSpan message) {
  ByteReader reader(message);
  Request request;
  request.header = reader.Read<RequestHeader>();
  request.opcode = static_cast<Opcode>(std::uint16_t{request.header.opcode});
  const ByteSpan body = reader.ReadBytes(request.header.body_bytes);
  request.body.assign(body.begin(), body.end());
  std::unique_lock lock(mutex_);
  if (lane.drop) return;  // what a server that died had not looked at
  RequestExtensions extensions{};
  const bool whole = reader.ok() && ReadRequestExtensions(reader, extensions) == WireError::kOk;
  const bool attaches = request.header.opcode == static_cast<std::uint16_t>(Opcode::kAttachLane);
  if (!whole || attaches == extensions.transport.empty()) ++misdeeds_;
  // What it says to have an answer to must not be asked again.
  if (request.header.acknowledged >= request.header.sequence) ++misdeeds_;
  requests_.push_back(request);
  if (gate_ && !gate_(request)) {
    lane.drop = true;
    return;
  }
  Reply reply = AnswerOnce(lane, request);
  if (hook_) hook_(request, reply);
  ReplyHeader header{};
  header.opcode = request.header.opcode;
  header.error = static_cast<std::uint16_t>(reply.error);
  header.body_bytes =
      reply.error == WireError::kOk ? static_cast<std::uint32_t>(reply.body.size()) : 0;
  header.sequence = reply.sequence.value_or(request.header.sequence);
  header.epoch = reply.epoch.value_or(epoch_);
  lock.unlock();
  const std::array<ByteSpan, 3> parts{
      std::as_bytes(std::span(&header, 1)),
      reply.error == WireError::kOk ? ByteSpan(reply.body) : ByteSpan(), reply.extensions};
  if (!reply.before.empty()) (void)lane.connection->Send(ByteSpan(reply.before));
  for (int i = 0; reply.send && i < reply.times; ++i) {
    (void)(reply.instead.empty() ? lane.connection->Send(parts)
                                 : lane.connection->Send(ByteSpan(reply.instead)));
  }
  (void)lane.connection->Flush();
  if (reply.drop) lane.drop = true;
  lane.stall = reply.stall;
}

std::vector<std::byte> ScriptedServer::Arguments(const Request& request) {
  std::vector<std::byte> arguments = request.body;
  for (const std::size_t at : NamesInBody(request.opcode)) {
    std::fill_n(arguments.begin() + static_cast<std::ptrdiff_t>(at), sizeof(Le64), std::byte{0});
  }
  return arguments;
}

ScriptedServer::Reply ScriptedServer::AnswerOnce(LaneState& lane, const Request& request) {
  if (given_up_ > 0 && request.header.session != 1000 + epoch_ + given_up_) {
    return {.error = WireError::kUnknownSession};
  }
  const auto record = records_.find(request.header.sequence);
  if (record != records_.end()) {
    // A sequence comes again only as it was, and says so.
    if ((request.header.flags & kRequestSentBefore) == 0) ++misdeeds_;
    if (record->second.arguments != Arguments(request)) ++misdeeds_;
    return record->second.reply;
  }
  Reply reply = Answer(lane, request);
  if (IsMutating(request.opcode)) {
    records_[request.header.sequence] = {.arguments = Arguments(request), .reply = reply};
  }
  return reply;
}

ScriptedServer::Reply ScriptedServer::Answer(LaneState& lane, const Request& request) {
  Reply reply;
  const auto open_number = ByteReader(request.body).Read<Le64>();
  switch (request.opcode) {
    case Opcode::kAttachLane:
      return Attach(lane);
    case Opcode::kLookup: {
      reply.body.resize(256);
      ByteWriter writer(reply.body);
      WriteEntry(writer, {.handle = *Handle::FromBytes(AsBytes("file")),
                          .attr = FileAttr(change_),
                          .entry_lease_ms = 1000});
      reply.body.resize(writer.size());
      return reply;
    }
    case Opcode::kMkdir: {
      ++made_;
      Request as_lookup = request;
      as_lookup.opcode = Opcode::kLookup;
      return Answer(lane, as_lookup);
    }
    case Opcode::kOpen:
    case Opcode::kOpenDir:
    case Opcode::kReclaimOpen:
      opens_.insert(++next_open_);
      Put(reply.body,
          OpenReply{.open = next_open_, .attr = FileAttr(change_), .write_lease_ms = 0});
      return reply;
    case Opcode::kRead:
      return opens_.contains(open_number) ? Read(request) : Reply{.error = WireError::kWrongEpoch};
    case Opcode::kWrite:
    case Opcode::kCommit:
      return opens_.contains(open_number) ? Write(lane, request)
                                          : Reply{.error = WireError::kWrongEpoch};
    case Opcode::kRelease:
      if (opens_.erase(open_number) == 0) reply.error = WireError::kBadHandle;
      return reply;
    case Opcode::kGetAttr:
      Put(reply.body, FileAttr(change_));
      return reply;
    case Opcode::kFsync:
      Put(reply.body, FsyncReply{.verifier = verifier_});
      return reply;
    case Opcode::kCopyFileRange:
      Put(reply.body, WriteReply{.offset = 0,
                                 .written = 1,
                                 .size = kFileBytes,
                                 .change = ++change_,
                                 .verifier = verifier_,
                                 .write_lease_ms = 0});
      return reply;
    case Opcode::kSetLock:
      reply.send = false;  // waits
      return reply;
    default:
      return reply;
  }
}

ScriptedServer::Reply ScriptedServer::Attach(LaneState& lane) {
  lane.slot_bytes = slot_bytes;
  if (slots > 0) {
    lane.staging = MakeRegion(domain_, slots * lane.slot_bytes, transport::Access::kRemoteWrite);
  }
  const auto tell = [&](std::uint32_t number, const transport::MemoryRegion& region) {
    const ArenaMessage arena{
        .arena = number,
        .region = transport::RemoteRegionWire::From(*lane.connection->Share(region))};
    ReplyHeader header{};
    header.opcode = static_cast<std::uint16_t>(Opcode::kArena);
    header.body_bytes = sizeof(arena);
    header.epoch = epoch_;
    const std::array<ByteSpan, 2> parts{std::as_bytes(std::span(&header, 1)),
                                        std::as_bytes(std::span(&arena, 1))};
    (void)lane.connection->Send(parts);
  };
  tell(kArena, *arena_);
  Reply reply;
  AttachLaneReply attached{};
  if (lane.staging != nullptr) {
    attached.staging = transport::RemoteRegionWire::From(*lane.connection->Share(*lane.staging));
    attached.slot_bytes = lane.slot_bytes;
    attached.slots = slots.load();
  }
  Put(reply.body, attached);
  tell(kGenerations, *generations_);
  return reply;
}

ScriptedServer::Reply ScriptedServer::Read(const Request& request) {
  const auto read = ByteReader(request.body).Read<ReadRequest>();
  const std::uint64_t end = std::min<std::uint64_t>(read.offset + read.length, kFileBytes);
  Reply reply;
  std::vector<GrantWire> granted;
  if (grants && (read.flags & kReadNoGrants) == 0) {
    const std::uint64_t limit = std::min<std::uint64_t>(end + read.want_ahead, kFileBytes);
    for (std::uint64_t extent = read.offset / kExtentBytes; extent * kExtentBytes < limit;
         ++extent) {
      GrantWire grant{};
      grant.file_offset = grant.arena_offset = extent * kExtentBytes;
      grant.length = kExtentBytes;
      grant.arena = kArena;
      grant.generation_arena = kGenerations;
      grant.lease_ms = lease_ms;
      grant.generation_offset = extent * sizeof(Le64);
      grant.generation =
          ByteReader(generations_->bytes().subspan(extent * sizeof(Le64))).Read<Le64>() +
          generation_lie;
      granted.push_back(grant);
    }
  }
  Put(reply.body, ReadReply{.file_size = kFileBytes,
                            .change = change_,
                            .grants = static_cast<std::uint16_t>(granted.size()),
                            .flags = 0});
  for (const GrantWire& grant : granted) Put(reply.body, grant);
  std::uint64_t length = 0;
  if (granted.empty() && read.offset < end) {
    length = std::min<std::uint64_t>(end - read.offset, kMaxInlineDataBytes);
  }
  Put(reply.body, Le32(static_cast<std::uint32_t>(length)));
  const auto bytes =
      arena_->bytes().subspan(std::min<std::size_t>(read.offset, kFileBytes), length);
  reply.body.insert(reply.body.end(), bytes.begin(), bytes.end());
  return reply;
}

ScriptedServer::Reply ScriptedServer::Write(LaneState& lane, const Request& request) {
  ByteReader reader(request.body);
  std::uint64_t offset = 0;
  ByteSpan bytes;
  if (request.opcode == Opcode::kWrite) {
    offset = reader.Read<WriteRequest>().offset;
    bytes = reader.ReadSized32(kMaxInlineDataBytes);
  } else {
    const auto commit = reader.Read<CommitRequest>();
    offset = commit.offset;
    if (commit.staging_offset == kNothingStaged) return {.error = WireError::kNotStaged};
    if (lane.staging == nullptr || commit.length > lane.slot_bytes ||
        commit.staging_offset > lane.staging->size() - commit.length) {
      ++misdeeds_;
      return {.error = WireError::kMalformed};
    }
    bytes = lane.staging->bytes().subspan(commit.staging_offset, commit.length);
  }
  if (!reader.ok() || offset + bytes.size() > kFileBytes) return {.error = WireError::kInvalid};
  std::copy(bytes.begin(), bytes.end(),
            arena_->bytes().begin() + static_cast<std::ptrdiff_t>(offset));
  ++change_;
  ++written_;
  Reply reply;
  Put(reply.body, WriteReply{.offset = offset,
                             .written = static_cast<std::uint32_t>(bytes.size()),
                             .size = kFileBytes,
                             .change = change_,
                             .verifier = verifier_,
                             .write_lease_ms = 0});
  return reply;
}

}  // namespace rdfs::fs::client
