#include "server/record/prior_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "server/inode/stat_beneath.h"
#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

std::uint64_t RealtimeNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

ObjectState ToObject(const struct statx& stat) {
  ObjectState state;
  state.exists = true;
  state.id = {.device = DeviceOf(stat), .inode = stat.stx_ino, .generation = 0};
  state.type = stat.stx_mode & S_IFMT;
  state.links = stat.stx_nlink;
  state.size = stat.stx_size;
  if ((stat.stx_mask & STATX_BTIME) != 0) {
    state.birth_ns =
        static_cast<std::uint64_t>(stat.stx_btime.tv_sec) * 1'000'000'000U + stat.stx_btime.tv_nsec;
  }
  return state;
}

// Parent handle and name, as most requests that change names have them.
ObjectState ReadNamed(const Call& call, ByteReader& body, bool& known) {
  const fs::Handle handle = fs::ReadHandle(body);
  const std::string name = NameFrom(fs::ReadName(body));
  if (!body.ok()) return {};
  const InodeRef parent = call.Find(handle);
  known &= parent.ok();
  struct statx stat {};
  if (!parent.ok() || StatBeneath(call.session.inodes().exported(), parent.fd(), name, stat) != 0) {
    return {};
  }
  return ToObject(stat);
}

ObjectState OfOpen(const Call& call, std::uint64_t number, bool& known) {
  const OpenPtr open = call.session.FindOpen(number);
  known &= open != nullptr;
  struct statx stat {};
  if (!open || StatFd(open->fd->get(), stat) != 0) return {};
  return ToObject(stat);
}

ObjectState OfXattr(const Call& call, ByteReader& body, bool& known) {
  const fs::Handle handle = fs::ReadHandle(body);
  const std::string name = NameFrom(body.ReadSized16(fs::kMaxXattrNameBytes));
  if (!body.ok()) return {};
  const InodeRef ref = call.Find(handle);
  ObjectState state;
  known &= ref.ok();
  if (!ref.ok()) return state;
  const ssize_t size = ::getxattr(ProcFd::Path(ref.fd()).c_str(), name.c_str(), nullptr, 0);
  state.exists = size >= 0;
  if (size > 0) state.size = static_cast<std::uint64_t>(size);
  return state;
}

// The bytes that a write or commit carries, and its struct's common fields.
struct Append {
  std::uint64_t open = 0;
  std::uint32_t flags = 0;
  std::uint32_t length = 0;
  ByteSpan bytes;  // none with a commit of fs::kNothingStaged
};
Append ReadAppend(const Call& call) {
  ByteReader body = call.body;
  Append append;
  if (call.opcode == fs::Opcode::kWrite) {
    const auto request = body.Read<fs::WriteRequest>();
    const ByteSpan bytes = body.ReadSized32(fs::kMaxInlineDataBytes);
    append = {request.open, request.flags, static_cast<std::uint32_t>(bytes.size()), bytes};
  } else {
    const auto request = body.Read<fs::CommitRequest>();
    append = {request.open, request.flags, request.length, {}};
    if (call.lane->staging()) {
      append.bytes =
          call.lane->staging()->Range(request.staging_offset, request.length).value_or(ByteSpan());
    }
  }
  return append;
}

// It may have been killed just before the disk had it.
Outcome AnswerOnceSynced(Call& call, const OpenFile& open, const fs::WriteReply& reply) {
  auto responder = std::make_shared<Responder>(std::move(call.responder));
  call.worker.io.Fsync(open.fd, SyncFlags(open) == RWF_DSYNC, [=](std::int64_t result) {
    if (result < 0) return responder->Errno(static_cast<int>(-result));
    responder->Ok(std::as_bytes(std::span(&reply, 1)));
  });
  return Outcome::Pending();
}

}  // namespace

PriorState CapturePrior(const Call& call) {
  PriorState state;
  ByteReader body = call.body;
  switch (call.opcode) {
    case fs::Opcode::kMkdir:
    case fs::Opcode::kMknod:
      body.ReadBytes(sizeof(fs::MknodRequest));
      state.first = ReadNamed(call, body, state.known);
      break;
    case fs::Opcode::kCreate: {
      const auto request = body.Read<fs::CreateRequest>();
      // A file that is there is opened as well, unless it is ours and its mode forbids that.
      const std::uint32_t mode = request.mode & ~request.umask;
      if ((request.flags & fs::kOpenExclusive) == 0 && (mode & 0600U) == 0600U) return state;
      state.first = ReadNamed(call, body, state.known);
      break;
    }
    case fs::Opcode::kSymlink:
    case fs::Opcode::kUnlink:
    case fs::Opcode::kRmdir:
      state.first = ReadNamed(call, body, state.known);
      break;
    case fs::Opcode::kRename:
      body.ReadBytes(sizeof(fs::RenameRequest));
      state.first = ReadNamed(call, body, state.known);
      state.second = ReadNamed(call, body, state.known);
      break;
    case fs::Opcode::kLink: {
      const fs::Handle handle = fs::ReadHandle(body);
      state.first = ReadNamed(call, body, state.known);
      struct statx stat {};
      const InodeRef ref = body.ok() ? call.Find(handle) : InodeRef{};
      state.known &= ref.ok();
      if (ref.inode && StatFd(ref.fd(), stat) == 0) state.second = ToObject(stat);
      break;
    }
    case fs::Opcode::kWrite:
    case fs::Opcode::kCommit: {
      const Append append = ReadAppend(call);
      if ((append.flags & fs::kWriteAppend) == 0) return state;
      state.first = OfOpen(call, append.open, state.known);
      break;
    }
    case fs::Opcode::kFallocate:
      state.first = OfOpen(call, body.Read<fs::FallocateRequest>().open, state.known);
      break;
    case fs::Opcode::kSetXattr:
      if (body.Read<fs::SetXattrRequest>().flags != XATTR_CREATE) return state;
      state.first = OfXattr(call, body, state.known);
      break;
    case fs::Opcode::kRemoveXattr:
      state.first = OfXattr(call, body, state.known);
      break;
    default:
      return state;
  }
  state.at_ns = RealtimeNs();
  return state;
}

InterruptedIntent DescribeIntent(const Call& call, const PriorState& before) {
  InterruptedIntent intent{.opcode = call.opcode, .before = before, .flags = 0, .length = 0};
  ByteReader body = call.body;
  switch (call.opcode) {
    case fs::Opcode::kRename:
      intent.flags = body.Read<fs::RenameRequest>().flags;
      break;
    case fs::Opcode::kCreate:
      intent.flags = body.Read<fs::CreateRequest>().flags;
      break;
    case fs::Opcode::kSetXattr:
      intent.flags = body.Read<fs::SetXattrRequest>().flags;
      break;
    case fs::Opcode::kFallocate: {
      const auto request = body.Read<fs::FallocateRequest>();
      intent.flags = request.mode;
      intent.length = request.length;
      break;
    }
    case fs::Opcode::kWrite:
    case fs::Opcode::kCommit: {
      const Append append = ReadAppend(call);
      intent.flags = append.flags;
      intent.length = append.length;
      break;
    }
    default:
      break;
  }
  return intent;
}

std::optional<bool> ContentMatches(const Call& call, const PriorState& before) {
  ByteReader body = call.body;
  if (call.opcode == fs::Opcode::kWrite || call.opcode == fs::Opcode::kCommit) {
    const Append append = ReadAppend(call);
    const OpenPtr open = call.session.FindOpen(append.open);
    if ((append.flags & fs::kWriteAppend) == 0 || !open) return std::nullopt;
    if (append.bytes.size() != append.length) return std::nullopt;
    OpenResult readable = call.core().proc.Reopen(open->fd->get(), O_RDONLY);
    if (!readable.fd.valid()) return std::nullopt;
    std::vector<std::byte> found(append.bytes.size());
    const ssize_t size = ::pread(readable.fd.get(), found.data(), found.size(),
                                 static_cast<off_t>(before.first.size));
    return size == static_cast<ssize_t>(found.size()) &&
           std::memcmp(found.data(), append.bytes.data(), found.size()) == 0;
  }
  if (call.opcode != fs::Opcode::kSetXattr) return std::nullopt;
  body.ReadBytes(sizeof(fs::SetXattrRequest));
  const fs::Handle handle = fs::ReadHandle(body);
  const std::string name = NameFrom(body.ReadSized16(fs::kMaxXattrNameBytes));
  const ByteSpan value = body.ReadSized32(fs::kMaxXattrValueBytes);
  const InodeRef ref = body.ok() ? call.Find(handle) : InodeRef{};
  if (!ref.inode) return std::nullopt;
  std::vector<std::byte> found(fs::kMaxXattrValueBytes);
  const ssize_t size =
      ::getxattr(ProcFd::Path(ref.fd()).c_str(), name.c_str(), found.data(), found.size());
  return size == static_cast<ssize_t>(value.size()) &&
         std::memcmp(found.data(), value.data(), value.size()) == 0;
}

Outcome AnswerAsDone(Call& call, const PriorState& before) {
  ByteReader body = call.body;
  switch (call.opcode) {
    case fs::Opcode::kMkdir:
    case fs::Opcode::kMknod:
      body.ReadBytes(sizeof(fs::MknodRequest));
      break;
    case fs::Opcode::kLink:
      (void)fs::ReadHandle(body);
      break;
    case fs::Opcode::kSymlink:
      break;
    case fs::Opcode::kCreate: {
      // It was ours alone: open it as a file that is there.
      return OpOpenMade(call, {});
    }
    case fs::Opcode::kWrite:
    case fs::Opcode::kCommit: {
      const Append append = ReadAppend(call);
      const OpenPtr open = call.session.FindOpen(append.open);
      struct statx stat {};
      if (!open || StatFd(open->fd->get(), stat) != 0) return Outcome::Errno(EIO);
      const fs::WriteReply reply =
          MakeWriteReply(call.core(), *open, before.first.size, append.length, stat);
      if (SyncFlags(*open) != 0) return AnswerOnceSynced(call, *open, reply);
      call.out.Write(reply);
      return Outcome::Ok();
    }
    case fs::Opcode::kFallocate: {
      const OpenPtr open = call.session.FindOpen(body.Read<fs::FallocateRequest>().open);
      struct statx stat {};
      if (!open || StatFd(open->fd->get(), stat) != 0) return Outcome::Errno(EIO);
      call.out.Write(call.Attr(*open->inode, stat));
      return Outcome::Ok();
    }
    default:
      return Outcome::Ok();
  }
  const fs::Handle parent_handle = fs::ReadHandle(body);
  const std::string name = NameFrom(fs::ReadName(body));
  if (!body.ok()) return Outcome::Malformed();
  const InodeRef parent = call.Find(parent_handle);
  return parent.ok() ? call.AnswerLookup(parent, name) : Outcome::Errno(parent.error);
}

}  // namespace rdfs::server
