#include "fs/client/attach.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/base/log.h"

namespace rdfs::fs::client {
namespace {

constexpr std::uint32_t kLeastSlotBytes = 4096;
constexpr std::uint32_t kMostSlots = 4096;

bool IsValidStaging(const AttachLaneReply& reply) {
  const std::uint64_t slots = reply.slots;
  const std::uint64_t slot_bytes = reply.slot_bytes;
  if (reply.staging.length == 0 || slots == 0) return true;
  return slots <= kMostSlots && slot_bytes >= kLeastSlotBytes &&
         slots * slot_bytes <= reply.staging.length;
}

Status Malformed(std::string_view what) {
  return {Code::kProtocolError, fmt::format("the server sent a malformed {}", what)};
}

Status UnknownSession() {
  return {Code::kNotFound, "the server does not know this session any more"};
}

}  // namespace

bool MayPass(int errno_value) {
  constexpr std::array kPassing = {EIO, EAGAIN, ENOMEM, EMFILE, ENFILE, EBUSY, EINTR, ETIMEDOUT};
  return std::find(kPassing.begin(), kPassing.end(), errno_value) != kPassing.end();
}

bool ReadExtensions(ByteReader& reader, Extensions& out) {
  while (reader.ok() && reader.remaining() > 0) {
    const auto header = reader.Read<ExtensionHeader>();
    const ByteSpan body = reader.ReadBytes(header.length);
    if (header.type == kExtensionDirectories) {
      out.directories = body;
    } else if ((header.type & kExtensionMustUnderstand) != 0) {
      return false;
    }
  }
  return reader.ok();
}

Status Attacher::Attach(std::uint32_t lane, std::uint32_t staging_bytes,
                        std::string_view transport) {
  const AttachLaneRequest request{.lane = lane, .staging_bytes = staging_bytes};
  std::array<std::byte, sizeof(ExtensionHeader) + kMaxTransportBytes> extension;
  ByteWriter writer(extension);
  WriteTransportExtension(writer, transport);
  RDFS_ASSIGN_OR_RETURN(
      const Answer answer,
      Ask(Opcode::kAttachLane, std::as_bytes(std::span(&request, 1)), nullptr, writer.written()));
  if (answer.error == WireError::kUnknownSession) {
    return UnknownSession();
  }
  if (answer.error != WireError::kOk) {
    return Status::FromErrno(ToErrno(answer.error), "the server refuses a lane");
  }
  ByteReader reader(answer.body);
  const auto reply = reader.Read<AttachLaneReply>();
  if (!reader.ok() || !IsValidStaging(reply)) return Malformed("answer to a new lane");
  if (reply.staging.length == 0 || reply.slots == 0) return Status::Ok();
  link_.staging = reply.staging.ToRegion();
  link_.slot_bytes = reply.slot_bytes;
  link_.slots = reply.slots;
  return Status::Ok();
}

Opcode EncodeReclaim(const OpenFile& open, ByteWriter& writer) {
  // A directory holds nothing but its number: its cookies go on working on a new one.
  if (open.directory()) {
    writer.Write(OpenDirRequest{.max_bytes = 0, .flags = 0});
    WriteHandle(writer, open.handle());
    return Opcode::kOpenDir;
  }
  const OpenFile::Hint hint = open.hint();
  // What was created or cut short by the open was so once.
  constexpr std::uint32_t kOnce = kOpenCreate | kOpenExclusive | kOpenTruncate;
  writer.Write(ReclaimOpenRequest{.open = open.server_open(), .flags = open.flags() & ~kOnce});
  WriteHandle(writer, open.handle());
  writer.WriteSized16(hint.parent.bytes());
  writer.WriteSized16(AsBytes(hint.name));
  return Opcode::kReclaimOpen;
}

std::vector<Path> WaysTo(const OpenFile& open, const PathFinder& finder) {
  if (!finder) return {};
  std::vector<Path> ways = finder(open.handle());
  const OpenFile::Hint hint = open.hint();
  if (hint.name.empty()) return ways;
  for (Path& way : finder(hint.parent)) {
    way.push_back({hint.parent, hint.name, open.handle()});
    if (std::ranges::find(ways, way) == ways.end()) ways.push_back(std::move(way));
  }
  return ways;
}

Result<Attacher::Answer> Attacher::AskToReclaim(const OpenFile& open) {
  std::array<std::byte, kMaxReclaimBytes> body;
  ByteWriter writer(body);
  const Opcode opcode = EncodeReclaim(open, writer);
  return Ask(opcode, writer.written(), &open);
}

Result<WireError> Attacher::Walk(const OpenFile& open, const std::vector<PathStep>& steps) {
  for (const PathStep& step : steps) {
    std::array<std::byte, 4 + kMaxHandleBytes + kMaxNameBytes> body;
    ByteWriter writer(body);
    WriteHandle(writer, step.parent);
    writer.WriteSized16(AsBytes(step.name));
    RDFS_ASSIGN_OR_RETURN(const Answer answer, Ask(Opcode::kLookup, writer.written(), &open));
    if (answer.error != WireError::kOk) return answer.error;
    ByteReader reader(answer.body);
    const Entry entry = ReadEntry(reader);
    if (!reader.ok()) return Malformed("answer to a look-up");
    if (entry.handle != step.expected) return WireError::kStale;
  }
  return WireError::kOk;
}

Result<Attacher::Reclaimed> Attacher::Reclaim(OpenFile& open, const PathFinder& finder) {
  const auto is_gone = [](WireError error) {
    return error == WireError::kStale || error == WireError::kNotFound;
  };
  RDFS_ASSIGN_OR_RETURN(Answer answer, AskToReclaim(open));
  for (const Path& steps : WaysTo(open, finder)) {
    if (!is_gone(answer.error)) break;
    RDFS_ASSIGN_OR_RETURN(answer.error, Walk(open, steps));
    if (answer.error == WireError::kOk) {
      RDFS_ASSIGN_OR_RETURN(answer, AskToReclaim(open));
    }
  }
  if (answer.error == WireError::kOk) {
    ByteReader reader(answer.body);
    const auto reply = reader.Read<OpenReply>();
    if (!reader.ok()) return Malformed("answer to a reclaimed file");
    open.set_server_open(reply.open);
    return ReclaimLocks(open);
  }
  if (answer.error == WireError::kUnknownSession) return UnknownSession();
  if (is_gone(answer.error)) {
    open.MarkLost(ESTALE);
    return Reclaimed::kSettled;
  }
  return MayPass(ToErrno(answer.error)) ? Reclaimed::kNotNow : Reclaimed::kRefused;
}

LockRequest EncodeReclaimLock(const OpenFile& open, const HeldLocks::Held& held) {
  return {.open = open.server_open(),
          .owner = held.lock.owner,
          .start = held.lock.start,
          .end = held.lock.end,
          .type = static_cast<std::uint32_t>(held.lock.type),
          .pid = held.lock.pid,
          .flags = held.flock ? kLockFlock : 0};
}

void LoseLock(OpenFile& open) {
  LogWarn("a lock was lost while the server was away: its file answers EIO until it is closed");
  open.MarkLost(EIO);
}

// Those that the server has kept are asked for all the same: that changes nothing. Other lanes may
// be at work: see LaneImpl::ReclaimLocks.
Result<Attacher::Reclaimed> Attacher::ReclaimLocks(OpenFile& open) {
  const std::shared_ptr<void> others_wait = open.inode().locks.BeginUndo();
  for (const HeldLocks::Held& held : open.inode().locks.Of(&open)) {
    const LockRequest request = EncodeReclaimLock(open, held);
    RDFS_ASSIGN_OR_RETURN(const Answer answer,
                          Ask(Opcode::kReclaimLock, std::as_bytes(std::span(&request, 1)), &open));
    if (answer.error == WireError::kUnknownSession) return UnknownSession();
    if (answer.error == WireError::kOk) continue;
    // Nobody gets it meanwhile. The lane goes on asking.
    if (answer.error == WireError::kGrace) return Reclaimed::kWithoutLocks;
    LoseLock(open);
    break;
  }
  return Reclaimed::kSettled;
}

Status Attacher::EndGrace() { return Ask(Opcode::kGraceEnd, {}).status(); }

Status Attacher::EndSession() {
  ending_ = true;
  return Ask(Opcode::kEndSession, {}).status();
}

Result<Attacher::Answer> Attacher::Ask(Opcode opcode, ByteSpan body, const OpenFile* owner,
                                       ByteSpan extension) {
  const std::uint64_t sequence = sequences_.Take(cell_);
  RequestHeader header{};
  header.opcode = static_cast<std::uint16_t>(opcode);
  header.flags = kRequestComesBack;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.session = link_.session;
  header.sequence = sequence;
  header.acknowledged = sequences_.Acknowledged();
  if (owner != nullptr) {
    header.uid = owner->uid();
    header.gid = owner->gid();
  }
  header.deadline_ms =
      static_cast<std::uint32_t>(std::max(1, PollTimeoutMs(deadline_, BootClock::now())));
  const std::array<ByteSpan, 3> parts{std::as_bytes(std::span(&header, 1)), body, extension};
  Status sent = link_.connection->Send(parts);
  if (sent.ok()) sent = link_.connection->Flush();

  Result<Answer> result = sent;
  std::optional<Answer> answer;
  while (sent.ok() && !answer) {
    // One at a time: what comes behind the last answer is the lane's to poll.
    transport::Completion completion;
    Result<std::size_t> count = link_.connection->Wait(std::span(&completion, 1), deadline_);
    if (!count.ok()) {
      result = count.status();
      break;
    }
    // Also of a server that sends without pause, and no answer.
    if (*count == 0 || BootClock::now() >= deadline_) {
      result = Status(Code::kDeadlineExceeded, "the server does not answer a new lane");
      break;
    }
    if (completion.kind != transport::Completion::Kind::kMessage) continue;
    Result<std::optional<Answer>> taken = OnMessage(completion.message, opcode, sequence);
    if (!taken.ok()) {
      result = taken.status();
      break;
    }
    answer = *taken;
  }
  sequences_.SetOldest(cell_, SequenceCounter::kIdle);
  if (answer) return *answer;
  return result;
}

Result<std::optional<Attacher::Answer>> Attacher::OnMessage(ByteSpan message, Opcode opcode,
                                                            std::uint64_t sequence) {
  ByteReader reader(message);
  const auto header = reader.Read<ReplyHeader>();
  const ByteSpan body = reader.ReadBytes(header.body_bytes);
  Extensions none;
  if (!reader.ok() || !ReadExtensions(reader, none)) return Malformed("message");
  const auto got = static_cast<Opcode>(std::uint16_t{header.opcode});
  if (header.sequence == 0 && got == Opcode::kArena) {
    ByteReader arena(body);
    if (link_.arenas.size() >= kMaxArenas) return Malformed("number of arenas");
    link_.arenas.push_back(arena.Read<ArenaMessage>());
    if (!arena.ok()) return Malformed("arena");
    return std::optional<Answer>();
  }
  if (header.sequence == 0) {
    // Taken up when the lane is: nobody waits for it here.
    if (got != Opcode::kRecall) return std::optional<Answer>();
    if (link_.recalls.size() >= kMaxRecalls) return Malformed("number of recalls");
    link_.recalls.emplace_back(body.begin(), body.end());
    return std::optional<Answer>();
  }
  if (ending_ && header.sequence != sequence) return std::optional<Answer>();
  if (header.sequence != sequence || got != opcode) return Malformed("answer to a new lane");
  if (header.epoch != link_.epoch) {
    return Status(Code::kNotFound, "the server has restarted since the session was made");
  }
  answer_.assign(body.begin(), body.end());
  return std::optional(Answer{static_cast<WireError>(std::uint16_t{header.error}), answer_});
}

}  // namespace rdfs::fs::client
