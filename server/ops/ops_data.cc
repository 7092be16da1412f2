// Content: read, write, commit, fsync. Nothing here blocks: what is not at hand goes through
// FileIo, and the answer is sent from its callback.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <vector>

#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());

// Where the reply's content is when everything fits without allocation.
constexpr std::size_t kReadParts = 48;

void AnswerRead(Responder& responder, Counters& counters, std::uint64_t version,
                const StoreReadResult& result) {
  if (result.error != 0) return responder.Errno(result.error);
  fs::ReadReply reply;
  reply.file_size = result.file_size;
  reply.change = ChangeValue(result.version, version);
  reply.grants = static_cast<std::uint16_t>(result.grants.size());
  reply.flags = std::uint16_t{0};
  const Le32 length(result.bytes_length);
  std::array<ByteSpan, kReadParts> parts;
  parts[0] = std::as_bytes(std::span<const fs::ReadReply, 1>(&reply, 1));
  parts[1] = std::as_bytes(result.grants);
  parts[2] = std::as_bytes(std::span<const Le32, 1>(&length, 1));
  if (result.bytes.size() > kReadParts - 3) return responder.Errno(EIO);
  std::copy(result.bytes.begin(), result.bytes.end(), parts.begin() + 3);
  std::uint64_t moved = result.bytes_length;
  for (const fs::GrantWire& grant : result.grants) moved += grant.length;
  counters.Of(fs::Opcode::kRead).bytes.fetch_add(moved, std::memory_order_relaxed);
  responder.Send(fs::WireError::kOk, std::span(parts).first(3 + result.bytes.size()));
}

// One write on its way into its file.
struct WriteJob {
  Worker* worker = nullptr;
  Responder responder;
  OpenPtr open;
  std::uint64_t offset = 0;
  std::uint32_t flags = 0;  // kWrite...
  bool by_root = false;
  fs::Opcode opcode{};
  ByteSpan bytes;                    // in one of the next two
  std::vector<std::byte> copy;       // of a message
  std::shared_ptr<Staging> staging;  // whose slot it is
  LeaseTable::Stamp since{};         // Call's
};
using WriteJobPtr = std::shared_ptr<WriteJob>;

void FinishWrite(WriteJob& job, std::int64_t result) {
  Core& core = job.worker->core;
  if (result < 0) return job.responder.Errno(static_cast<int>(-result));
  const auto written = static_cast<std::uint64_t>(result);
  struct statx stat {};
  const int error = StatFd(job.open->fd->get(), stat);
  std::uint64_t offset = job.offset;
  if (error == 0 && (job.flags & fs::kWriteAppend) != 0) {
    offset = stat.stx_size >= written ? stat.stx_size - written : 0;
  }
  if (written > 0) {
    ContentChanged(core, *job.open, offset, written, error == 0 ? &stat : nullptr);
  }
  if (error != 0) return job.responder.Errno(error);
  // A server that is root writes through descriptors with rights that its caller may not have.
  if (!job.by_root || (job.flags & fs::kWriteKillPriv) != 0) {
    KillPrivileges(core.proc, job.open->fd->get(), stat);
  }
  core.counters.Of(job.opcode).bytes.fetch_add(written, std::memory_order_relaxed);
  fs::WriteReply reply =
      MakeWriteReply(core, *job.open, offset, static_cast<std::uint32_t>(written), stat);
  reply.write_lease_ms = WriteLeaseOf(core, *job.open, job.since);
  job.responder.Ok(std::as_bytes(std::span<const fs::WriteReply, 1>(&reply, 1)));
}

void StartWrite(const WriteJobPtr& job) {
  const bool append = (job->flags & fs::kWriteAppend) != 0;
  const int flags = SyncFlags(*job->open) | (append ? RWF_APPEND : 0);
  job->worker->writer.Write(job->open->fd, job->open->file.device, job->bytes, job->offset, flags,
                            [job, append](std::int64_t result) {
                              FinishWrite(*job, result);
                              if (append) job->open->inode->appends.Done();
                            });
}

// Decoded: checks the rest and sets off.
Outcome BeginWrite(Call& call, WriteJobPtr job, std::uint64_t number) {
  job->open = call.session.FindOpen(number);
  if (!job->open) return Outcome::Error(call.session.WhyNotOpen(number));
  if (job->open->directory || !job->open->writable()) return Outcome::Errno(EBADF);
  constexpr std::uint32_t kKnown = fs::kWriteAppend | fs::kWriteKillPriv | fs::kWriteEarly;
  if ((job->flags & ~kKnown) != 0) return Outcome::Errno(EINVAL);
  const bool append = (job->flags & fs::kWriteAppend) != 0;
  // It would go to the end all the same.
  if (job->open->appends_only && !append) return Outcome::Errno(EPERM);
  if (append) job->offset = 0;  // the kernel decides
  if (job->offset > kMaxOffset - job->bytes.size()) return Outcome::Errno(EFBIG);
  job->worker = &call.worker;
  job->opcode = call.opcode;
  const auto caller = call.Caller();
  job->by_root = caller ? caller->uid == 0 : true;
  job->responder = std::move(call.responder);
  job->since = call.since;
  if (!append) {
    StartWrite(job);
    return Outcome::Pending();
  }
  FileIo* io = &call.worker.io;
  job->open->inode->appends.Run([job] { StartWrite(job); },
                                [job, io] { io->Post([job] { StartWrite(job); }); });
  return Outcome::Pending();
}

}  // namespace

void ContentChanged(Core& core, const OpenFile& open, std::uint64_t offset, std::uint64_t length,
                    const struct statx* after) {
  open.inode->Changed();
  if (after == nullptr) return core.stores.Changed(open.file, offset, length);
  const FileVersion version = FileVersion::From(*after);
  core.stores.Changed(open.file, offset, length, &version);
}

int SyncFlags(const OpenFile& open) {
  if ((open.flags & fs::kOpenSync) != 0) return RWF_SYNC;
  return (open.flags & fs::kOpenDataSync) != 0 ? RWF_DSYNC : 0;
}

fs::WriteReply MakeWriteReply(const Core& core, const OpenFile& open, std::uint64_t offset,
                              std::uint32_t written, const struct statx& stat) {
  fs::WriteReply reply;
  reply.offset = offset;
  reply.written = written;
  reply.size = stat.stx_size;
  reply.change = ChangeOf(stat, open.inode->version.load(std::memory_order_relaxed));
  reply.verifier = core.options.verifier;
  reply.write_lease_ms = 0U;
  return reply;
}

std::uint32_t WriteLeaseOf(Core& core, const OpenFile& open, LeaseTable::Stamp since) {
  constexpr std::uint32_t kKinds =
      fs::kOpenWriteLease | fs::kOpenWrite | fs::kOpenAppend | fs::kOpenSync | fs::kOpenDataSync;
  if ((open.flags & kKinds) != (fs::kOpenWriteLease | fs::kOpenWrite)) return 0;
  if (!core.free_space.HasPlenty(open.fd->get(), open.inode->key.device, core.clock.Now())) {
    return 0;
  }
  // Who has it open may READ what was granted to him, without a question.
  const auto shared = [&] {
    return !core.leases.IsAlone(open.session) &&
           core.opened_by_another(open.inode->key, open.session);
  };
  if (shared()) return 0;
  const std::uint32_t granted = core.leases.GrantWrites(open.inode->key, open.session, since);
  // Or has opened it meanwhile: a moment later, he would have asked its writer.
  return granted != 0 && shared() ? 0 : granted;
}

Outcome OpRead(Call& call) {
  const auto request = call.body.Read<fs::ReadRequest>();
  if (!call.Decoded() || request.length > fs::kMaxTransferBytes ||
      (request.flags & ~fs::kReadNoGrants) != 0) {
    return Outcome::Malformed();
  }
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  if (open->directory) return Outcome::Errno(EISDIR);
  if (!open->readable()) return Outcome::Errno(EBADF);
  if (request.offset > kMaxOffset - request.length) return Outcome::Errno(EINVAL);
  StoreRead read;
  read.file = open->file;
  read.fd = open->fd;
  read.offset = request.offset;
  read.length = request.length;
  read.want_ahead = request.want_ahead;
  read.no_grants = (request.flags & fs::kReadNoGrants) != 0 || call.session.params().no_grants;
  read.session = call.session.id();
  read.lane = call.lane->grants();
  // The version from before the read: bytes that a change overtakes never go with its number.
  const std::uint64_t version = open->inode->version.load();
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  call.session.access().store->Read(
      call.worker.io, std::move(read),
      [responder, version, counters = &call.core().counters](const StoreReadResult& result) {
        AnswerRead(*responder, *counters, version, result);
      });
  return Outcome::Pending();
}

Outcome OpWrite(Call& call) {
  const auto request = call.body.Read<fs::WriteRequest>();
  const ByteSpan bytes = call.body.ReadSized32(fs::kMaxInlineDataBytes);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!call.responder.KeepBytes(bytes.size())) {
    return call.Refuse(Refusals::What::kRequestBytes, EAGAIN);
  }
  auto job = std::make_shared<WriteJob>();
  job->offset = request.offset;
  job->flags = request.flags;
  job->copy.assign(bytes.begin(), bytes.end());
  job->bytes = job->copy;
  return BeginWrite(call, std::move(job), request.open);
}

Outcome OpCommit(Call& call) {
  const auto request = call.body.Read<fs::CommitRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  if (request.staging_offset == fs::kNothingStaged) {
    return Outcome::Error(fs::WireError::kNotStaged);
  }
  if (!call.lane->staging()) return Outcome::Malformed();
  const auto bytes = call.lane->staging()->Range(request.staging_offset, request.length);
  if (!bytes) return Outcome::Malformed();
  auto job = std::make_shared<WriteJob>();
  job->offset = request.offset;
  job->flags = request.flags;
  job->staging = call.lane->staging();
  job->bytes = *bytes;
  return BeginWrite(call, std::move(job), request.open);
}

Outcome OpFsync(Call& call) {
  const auto request = call.body.Read<fs::FsyncRequest>();
  if (!call.Decoded()) return Outcome::Malformed();
  const OpenPtr open = call.session.FindOpen(request.open);
  if (!open) return Outcome::Error(call.session.WhyNotOpen(request.open));
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  call.worker.io.Fsync(
      open->fd, request.data_only != 0,
      [responder, verifier = call.core().options.verifier](std::int64_t result) {
        if (result < 0) return responder->Errno(static_cast<int>(-result));
        fs::FsyncReply reply;
        reply.verifier = verifier;
        responder->Ok(std::as_bytes(std::span<const fs::FsyncReply, 1>(&reply, 1)));
      });
  return Outcome::Pending();
}

}  // namespace rdfs::server
