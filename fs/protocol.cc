#include "fs/protocol.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <utility>

namespace rdfs::fs {
namespace {

// The one table between errno and the wire. The first row of an error is the one used backwards.
constexpr std::array kErrors = {
    std::pair(EPERM, WireError::kPermission),
    std::pair(ENOENT, WireError::kNotFound),
    std::pair(EINTR, WireError::kInterrupted),
    std::pair(EIO, WireError::kIo),
    std::pair(ENXIO, WireError::kNoDeviceOrAddress),
    std::pair(E2BIG, WireError::kTooLong),
    std::pair(EBADF, WireError::kBadHandle),
    std::pair(EAGAIN, WireError::kAgain),
    std::pair(ENOMEM, WireError::kNoMemory),
    std::pair(EACCES, WireError::kAccess),
    std::pair(EBUSY, WireError::kBusy),
    std::pair(EEXIST, WireError::kExists),
    std::pair(EXDEV, WireError::kCrossDevice),
    std::pair(ENODEV, WireError::kNoDevice),
    std::pair(ENOTDIR, WireError::kNotDirectory),
    std::pair(EISDIR, WireError::kIsDirectory),
    std::pair(EINVAL, WireError::kInvalid),
    std::pair(EMFILE, WireError::kTooManyFiles),
    std::pair(ENFILE, WireError::kTooManyFiles),
    std::pair(ETXTBSY, WireError::kTextBusy),
    std::pair(EFBIG, WireError::kFileTooBig),
    std::pair(ENOSPC, WireError::kNoSpace),
    std::pair(ESPIPE, WireError::kIllegalSeek),
    std::pair(EROFS, WireError::kReadOnly),
    std::pair(EMLINK, WireError::kTooManyLinks),
    std::pair(ERANGE, WireError::kRange),
    std::pair(EDEADLK, WireError::kDeadlock),
    std::pair(ENAMETOOLONG, WireError::kNameTooLong),
    std::pair(ENOLCK, WireError::kNoLocks),
    std::pair(ENOSYS, WireError::kNotSupported),
    std::pair(ENOTEMPTY, WireError::kNotEmpty),
    std::pair(ELOOP, WireError::kLoop),
    std::pair(ENODATA, WireError::kNoData),
    std::pair(EREMOTE, WireError::kRemote),
    std::pair(EBADMSG, WireError::kBadMessage),
    std::pair(EOVERFLOW, WireError::kOverflow),
    std::pair(EILSEQ, WireError::kIllegalSequence),
    std::pair(EOPNOTSUPP, WireError::kOperationNotSupported),
    std::pair(ETIMEDOUT, WireError::kTimedOut),
    std::pair(EHOSTDOWN, WireError::kHostDown),
    std::pair(ESTALE, WireError::kStale),
    std::pair(EUCLEAN, WireError::kUnclean),
    std::pair(EREMOTEIO, WireError::kRemoteIo),
    std::pair(EDQUOT, WireError::kQuota),
    std::pair(ENOMEDIUM, WireError::kNoMedium),
    std::pair(ENOKEY, WireError::kNoKey),
    // What only our protocol says, as a caller of a system call would have to see it.
    std::pair(EAGAIN, WireError::kGrace),
    std::pair(EIO, WireError::kUnknownSession),
    std::pair(EIO, WireError::kWrongEpoch),
    std::pair(EIO, WireError::kMalformed),
};

constexpr std::array kOpcodeNames = {
    std::pair(Opcode::kRenew, "renew"),
    std::pair(Opcode::kAttachLane, "attach_lane"),
    std::pair(Opcode::kArena, "arena"),
    std::pair(Opcode::kInterrupt, "interrupt"),
    std::pair(Opcode::kLookup, "lookup"),
    std::pair(Opcode::kReadlink, "readlink"),
    std::pair(Opcode::kSymlink, "symlink"),
    std::pair(Opcode::kMknod, "mknod"),
    std::pair(Opcode::kMkdir, "mkdir"),
    std::pair(Opcode::kUnlink, "unlink"),
    std::pair(Opcode::kRmdir, "rmdir"),
    std::pair(Opcode::kRename, "rename"),
    std::pair(Opcode::kLink, "link"),
    std::pair(Opcode::kGetAttr, "getattr"),
    std::pair(Opcode::kSetAttr, "setattr"),
    std::pair(Opcode::kAccess, "access"),
    std::pair(Opcode::kStatFs, "statfs"),
    std::pair(Opcode::kSetXattr, "setxattr"),
    std::pair(Opcode::kGetXattr, "getxattr"),
    std::pair(Opcode::kListXattr, "listxattr"),
    std::pair(Opcode::kRemoveXattr, "removexattr"),
    std::pair(Opcode::kOpen, "open"),
    std::pair(Opcode::kCreate, "create"),
    std::pair(Opcode::kRead, "read"),
    std::pair(Opcode::kWrite, "write"),
    std::pair(Opcode::kCommit, "commit"),
    std::pair(Opcode::kFlush, "flush"),
    std::pair(Opcode::kRelease, "release"),
    std::pair(Opcode::kFsync, "fsync"),
    std::pair(Opcode::kFallocate, "fallocate"),
    std::pair(Opcode::kSeek, "seek"),
    std::pair(Opcode::kCopyFileRange, "copy_file_range"),
    std::pair(Opcode::kTmpfile, "tmpfile"),
    std::pair(Opcode::kReclaimOpen, "reclaim_open"),
    std::pair(Opcode::kOpenDir, "opendir"),
    std::pair(Opcode::kReadDir, "readdir"),
    std::pair(Opcode::kReleaseDir, "releasedir"),
    std::pair(Opcode::kFsyncDir, "fsyncdir"),
    std::pair(Opcode::kGetLock, "getlk"),
    std::pair(Opcode::kSetLock, "setlk"),
    std::pair(Opcode::kEndSession, "end_session"),
    std::pair(Opcode::kGraceEnd, "grace_end"),
    std::pair(Opcode::kRecall, "recall"),
    std::pair(Opcode::kRecallAck, "recall_ack"),
    std::pair(Opcode::kReclaimLock, "reclaim_lock"),
};

constexpr std::array kOpenFlags = {
    std::pair(O_APPEND, kOpenAppend),   std::pair(O_TRUNC, kOpenTruncate),
    std::pair(O_EXCL, kOpenExclusive),  std::pair(O_DIRECT, kOpenDirect),
    std::pair(O_NOATIME, kOpenNoAtime), std::pair(O_CREAT, kOpenCreate),
};

}  // namespace

WireError ToWire(int errno_value) {
  if (errno_value == 0) return WireError::kOk;
  for (const auto& [value, error] : kErrors) {
    if (value == errno_value) return error;
  }
  return WireError::kIo;
}

int ToErrno(WireError error) {
  if (error == WireError::kOk) return 0;
  for (const auto& [value, wire] : kErrors) {
    if (wire == error) return value;
  }
  return EIO;
}

std::string_view OpcodeName(Opcode opcode) {
  for (const auto& [value, name] : kOpcodeNames) {
    if (value == opcode) return name;
  }
  return "unknown";
}

bool IsKnown(Opcode opcode) { return OpcodeName(opcode) != "unknown"; }

bool IsMutating(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSymlink:
    case Opcode::kMknod:
    case Opcode::kMkdir:
    case Opcode::kUnlink:
    case Opcode::kRmdir:
    case Opcode::kRename:
    case Opcode::kLink:
    case Opcode::kSetAttr:
    case Opcode::kSetXattr:
    case Opcode::kRemoveXattr:
    case Opcode::kOpen:  // may truncate, and makes a number that must not leak
    case Opcode::kCreate:
    case Opcode::kTmpfile:
    case Opcode::kWrite:
    case Opcode::kCommit:
    case Opcode::kFallocate:
    case Opcode::kCopyFileRange:
    case Opcode::kSetLock:
      return true;
    default:
      return false;
  }
}

std::span<const std::size_t> NamesInBody(Opcode opcode) {
  static constexpr std::array<std::size_t, 1> kOpen{0};
  static constexpr std::array<std::size_t, 2> kOpenAndStaging{
      offsetof(CommitRequest, open), offsetof(CommitRequest, staging_offset)};
  static constexpr std::array<std::size_t, 2> kTwoOpens{offsetof(CopyFileRangeRequest, open_in),
                                                        offsetof(CopyFileRangeRequest, open_out)};
  switch (opcode) {
    case Opcode::kSetAttr:
    case Opcode::kWrite:
    case Opcode::kFallocate:
    case Opcode::kSetLock:
      return kOpen;
    case Opcode::kCommit:
      return kOpenAndStaging;
    case Opcode::kCopyFileRange:
      return kTwoOpens;
    default:
      return {};
  }
}

WireError ReadRequestExtensions(ByteReader& reader, RequestExtensions& out) {
  while (reader.ok() && reader.remaining() > 0) {
    const auto header = reader.Read<ExtensionHeader>();
    const ByteSpan body = reader.ReadBytes(header.length);
    if (!reader.ok()) return WireError::kMalformed;
    if (header.type == kExtensionTransport) {
      if (body.size() > kMaxTransportBytes) return WireError::kMalformed;
      out.transport = body;
    } else if (header.type == kExtensionAnswered) {
      const std::size_t count = body.size() / sizeof(Le64);
      if (count > kMostAnswered || body.size() % sizeof(Le64) != 0) return WireError::kMalformed;
      out.answered = body;
    } else if ((header.type & kExtensionMustUnderstand) != 0) {
      return WireError::kNotSupported;
    }
  }
  return WireError::kOk;
}

void WriteTransportExtension(ByteWriter& writer, std::string_view transport) {
  const std::string_view cut = transport.substr(0, kMaxTransportBytes);
  writer.Write(ExtensionHeader{.type = kExtensionTransport,
                               .length = static_cast<std::uint16_t>(cut.size())});
  writer.WriteBytes(AsBytes(cut));
}

void WriteAnsweredExtension(ByteWriter& writer, std::span<const std::uint64_t> answered) {
  writer.Write(ExtensionHeader{
      .type = kExtensionAnswered,
      .length = static_cast<std::uint16_t>(answered.size() * sizeof(Le64)),
  });
  for (const std::uint64_t sequence : answered) writer.Write(Le64(sequence));
}

void WriteHandle(ByteWriter& writer, const Handle& handle) { writer.WriteSized16(handle.bytes()); }

Handle ReadHandle(ByteReader& reader) {
  const std::optional<Handle> handle = Handle::FromBytes(reader.ReadSized16(kMaxHandleBytes));
  if (!handle) {
    reader.Fail();
    return {};
  }
  return *handle;
}

void WriteEntry(ByteWriter& writer, const Entry& entry) {
  WriteHandle(writer, entry.handle);
  writer.Write(entry.attr);
  writer.Write(entry.entry_lease_ms);
}

Entry ReadEntry(ByteReader& reader) {
  Entry entry;
  entry.handle = ReadHandle(reader);
  entry.attr = reader.Read<AttrWire>();
  entry.entry_lease_ms = reader.Read<Le32>();
  return entry;
}

ByteSpan ReadName(ByteReader& reader) {
  const ByteSpan name = reader.ReadSized16(kMaxNameBytes);
  const std::string_view text = AsText(name);
  if (text.empty() || text == "." || text == ".." || text.find('/') != text.npos ||
      text.find('\0') != text.npos) {
    reader.Fail();
    return {};
  }
  return name;
}

std::uint32_t OpenFlagsToWire(int flags) {
  const int access = flags & O_ACCMODE;
  std::uint32_t wire = 0;
  if (access != O_WRONLY) wire |= kOpenRead;
  if (access != O_RDONLY) wire |= kOpenWrite;
  for (const auto& [flag, bit] : kOpenFlags) {
    if ((flags & flag) != 0) wire |= bit;
  }
  if ((flags & O_DSYNC) != 0) wire |= kOpenDataSync;
  if ((flags & O_SYNC) == O_SYNC) wire |= kOpenSync;
  return wire;
}

int OpenFlagsFromWire(std::uint32_t wire) {
  int flags = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
  if ((wire & kOpenWrite) != 0) {
    flags |= (wire & kOpenRead) != 0 ? O_RDWR : O_WRONLY;
  }
  for (const auto& [flag, bit] : kOpenFlags) {
    if ((wire & bit) != 0) flags |= flag;
  }
  if ((wire & kOpenDataSync) != 0) flags |= O_DSYNC;
  if ((wire & kOpenSync) != 0) flags |= O_SYNC;
  return flags;
}

}  // namespace rdfs::fs
