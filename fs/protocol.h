// The file-system protocol, version 1.0: what rdfs and rdfsd say to each other in messages.
//
// A mount is one *file-system session*: it begins with MountRequest and MountGrant, the opening
// words of a transport session (transport/session/), and survives reconnects and server restarts
// under its client id. Requests travel on lanes; each lane is a transport::Connection, and a reply
// comes back on the lane that asked. Data moves one-sided: a READ reply grants extents of the
// server's block pool, which the client then READs; written bytes are WRITten into the client's
// staging slots and committed by message. What is small, and what cannot be granted, travels inside
// messages.
//
// A request is RequestHeader, the body of its opcode, and any number of extensions; a reply is
// ReplyHeader, the body, extensions. Bodies are the structs below, each followed by its variable
// part in the order its comment gives; [16] is a Le16 length and that many bytes, [32] the same
// with Le32. body_bytes covers struct and variable part. Everything is little-endian, alignment 1.
// Opcode, error and bit numbers are never reused. A peer is hostile: every decoder bounds every
// length.
//
// The golden bytes of each struct stand in tests/fs/protocol_test.cc.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::fs {

inline constexpr std::uint16_t kProtocolMajor = 1;
inline constexpr std::uint16_t kProtocolMinor = 0;

// ---- Bounds -------------------------------------------------------------------------------------
// Nothing on the wire is larger.

inline constexpr std::size_t kMaxNameBytes = 255;          // NAME_MAX
inline constexpr std::size_t kMaxPathBytes = 4096;         // PATH_MAX: symlink targets
inline constexpr std::size_t kMaxXattrNameBytes = 255;     // XATTR_NAME_MAX
inline constexpr std::size_t kMaxXattrValueBytes = 65536;  // XATTR_SIZE_MAX, XATTR_LIST_MAX
inline constexpr std::size_t kMaxHandleBytes = 64;
inline constexpr std::size_t kMaxInlineDataBytes = 64 * 1024;  // file bytes inside one message
inline constexpr std::size_t kMaxTransferBytes = 1 << 20;      // one read or write request
inline constexpr std::size_t kMaxGrantsPerReply = 64;
inline constexpr std::size_t kMaxExtentBytes = 1 << 20;   // file bytes of one grant
inline constexpr std::size_t kMaxRequestsInFlight = 256;  // of one lane; more is a protocol error
inline constexpr std::size_t kMaxReaddirBytes = 64 * 1024;
inline constexpr std::size_t kMaxExportNameBytes = 255;

// ---- Opcodes ------------------------------------------------------------------------------------

enum class Opcode : std::uint16_t {
  // Session and lane.
  kRenew = 1,       // heartbeat: extends the session's leases; answered at once
  kAttachLane = 2,  // first request of a lane: staging slots
  kArena = 3,       // server to client, unasked: memory that grants on this lane refer to
  kInterrupt = 4,  // gives up a request that waits (a blocking lock): that one answers kInterrupted
  kInvalidateLane = 5,  // reserved
  kEndSession = 6,      // the mount is over: opens and locks go at once; nothing is asked behind it
  kGraceEnd = 86,       // in a grace period: this client has asked for all that it had

  // Names.
  kLookup = 10,
  kReadlink = 11,
  kSymlink = 12,
  kMknod = 13,
  kMkdir = 14,
  kUnlink = 15,
  kRmdir = 16,
  kRename = 17,
  kLink = 18,

  // Attributes.
  kGetAttr = 20,
  kSetAttr = 21,
  kAccess = 22,
  kStatFs = 23,
  kSetXattr = 24,
  kGetXattr = 25,
  kListXattr = 26,
  kRemoveXattr = 27,

  // Open files.
  kOpen = 30,
  kCreate = 31,
  kRead = 32,
  kWrite = 33,   // bytes inside the message
  kCommit = 34,  // bytes in a staging slot
  kFlush = 35,
  kRelease = 36,
  kFsync = 37,
  kFallocate = 38,
  kSeek = 39,  // SEEK_HOLE, SEEK_DATA
  kCopyFileRange = 40,
  kTmpfile = 41,
  kReclaimOpen = 42,  // an open file of an earlier epoch, or of a lost session

  // Directories.
  kOpenDir = 50,
  kReadDir = 51,
  kReleaseDir = 52,
  kFsyncDir = 53,

  // Locks.
  kGetLock = 60,
  kSetLock = 61,
  kReclaimLock = 87,  // one that this client had in an earlier epoch; as kSetLock, does not wait

  // Coherence between clients.
  kRecall = 80,     // server to client, unasked
  kRecallAck = 81,  // nothing of what was recalled is believed any more
  // Reserved: sent by no version 1.0 peer.
  kLeaseRequest = 82,
  kLeaseReturn = 83,
  kReclaimLease = 84,
  kGraceBegin = 85,
};
std::string_view OpcodeName(Opcode opcode);
bool IsKnown(Opcode opcode);
// Whether the request changes something at the server, so that it must happen exactly once.
bool IsMutating(Opcode opcode);
// Where in a mutating request's body the Le64s stand that are names of its lane or epoch and no
// part of what is asked: numbers of open files, the place in staging. Sent again, it carries those
// of then; a record compares what is left.
std::span<const std::size_t> NamesInBody(Opcode opcode);

// ---- Errors -------------------------------------------------------------------------------------
// Our own numbers, because errno values differ between architectures.

enum class WireError : std::uint16_t {
  kOk = 0,
  kPermission = 1,
  kNotFound = 2,
  kInterrupted = 4,
  kIo = 5,
  kNoDeviceOrAddress = 6,
  kTooLong = 7 /* E2BIG */,
  kBadHandle = 9,
  kAgain = 11,
  kNoMemory = 12,
  kAccess = 13,
  kBusy = 16,
  kExists = 17,
  kCrossDevice = 18,
  kNoDevice = 19,
  kNotDirectory = 20,
  kIsDirectory = 21,
  kInvalid = 22,
  kTooManyFiles = 24,
  kTextBusy = 26,
  kFileTooBig = 27,
  kNoSpace = 28,
  kIllegalSeek = 29,
  kReadOnly = 30,
  kTooManyLinks = 31,
  kRange = 34,
  kDeadlock = 35,
  kNameTooLong = 36,
  kNoLocks = 37,
  kNotSupported = 38 /* ENOSYS */,
  kNotEmpty = 39,
  kLoop = 40,
  kNoData = 61,
  kRemote = 66 /* EREMOTE */,  // a mount of rdfs below an export
  kBadMessage = 74,            // a checksum of the file system's that is wrong
  kOverflow = 75,
  kIllegalSequence = 84,  // a name that is no text to the file system
  kOperationNotSupported = 95 /* EOPNOTSUPP */,
  kTimedOut = 110,
  kHostDown = 112,
  kStale = 116,
  kUnclean = 117,  // the file system is damaged
  kRemoteIo = 121,
  kQuota = 122,
  kNoMedium = 123,
  kNoKey = 126,
  // Not an errno of the server's file system.
  kGrace = 1000,           // not yet (after a restart: the grace period): ask again
  kUnknownSession = 1001,  // the server does not know this session any more: mount request again
  kWrongEpoch = 1002,      // an open file of an earlier epoch: reclaim it
  kMalformed = 1003,
  kNotStaged = 1004,  // to a commit of kNothingStaged: not done, and never will be under its number
};
WireError ToWire(int errno_value);
int ToErrno(WireError error);

// ---- Headers and extensions ---------------------------------------------------------------------

struct RequestHeader {
  Le16 opcode;
  Le16 flags;
  Le32 body_bytes;
  Le64 session;        // MountGrant::session
  Le64 sequence;       // of the session, from 1; the same again when a request is sent again
  Le64 acknowledged;   // every reply up to here has arrived: their records may go (see also
                       // kExtensionAnswered)
  Le32 deadline_ms;    // the client waits this long from now on; 0: for ever (a blocking lock)
  Le64 trace;          // for logs on both sides
  Le32 uid, gid, pid;  // of the calling process, as the client sees them
};
static_assert(sizeof(RequestHeader) == 56);
// kRequestSentBefore: may have been carried out already. kRequestTellDirectories: the answer to
// what changes names is to say what their directories are like then. kRequestComesBack: of a client
// on its way back: it waits for nobody, and believes nothing of the answer but that the server
// knows the file.
inline constexpr std::uint16_t kRequestSentBefore = 1, kRequestTellDirectories = 2,
                               kRequestComesBack = 4;

struct ReplyHeader {
  Le16 opcode;
  Le16 error;  // WireError; the body is empty unless kOk
  Le32 body_bytes;
  Le64 sequence;
  Le64 epoch;  // of the server's incarnation
};
static_assert(sizeof(ReplyHeader) == 24);

// An unasked message of the server's (kArena) is a ReplyHeader with sequence 0.

struct ExtensionHeader {
  Le16 type;    // an unknown type with kExtensionMustUnderstand set is refused, without it skipped
  Le16 length;  // of what follows
};
inline constexpr std::uint16_t kExtensionMustUnderstand = 0x8000;
// In a reply: an AttrWire of each directory whose names the request has changed, in its order (a
// rename has two), and of one that it has removed, last: whoever has that still open cannot ask.
// Asked for with kRequestTellDirectories, and not always there.
inline constexpr std::uint16_t kExtensionDirectories = 1;
inline constexpr std::size_t kMostDirectoriesTold = 2;
// In a kAttachLane request: the transport that the client's session uses and why no better one, a
// sentence for whoever asks the server, which acts on nothing of it.
inline constexpr std::uint16_t kExtensionTransport = 2;
inline constexpr std::size_t kMaxTransportBytes = 1024;  // of that sentence
// In any request: numbers of others, beyond `acknowledged`, whose replies have arrived as well, a
// Le64 each: their records may go, too. Else one request that takes long would fill the server's
// record with those that came behind it.
inline constexpr std::uint16_t kExtensionAnswered = 3;
inline constexpr std::size_t kMostAnswered = 16;  // of one request
// What stands behind the body of a request.
struct RequestExtensions {
  ByteSpan transport;  // kExtensionTransport; empty: it is not there
  ByteSpan answered;   // kExtensionAnswered: of a whole number of them
};
// Reads up to the message's end; kOk, kMalformed, or kNotSupported for what has to be understood.
WireError ReadRequestExtensions(ByteReader& reader, RequestExtensions& out);
// Cut, where it is longer than the wire takes.
void WriteTransportExtension(ByteWriter& writer, std::string_view transport);
inline constexpr std::size_t kMaxAnsweredExtensionBytes =
    sizeof(ExtensionHeader) + kMostAnswered * sizeof(Le64);
// `answered`: at most kMostAnswered.
void WriteAnsweredExtension(ByteWriter& writer, std::span<const std::uint64_t> answered);

// ---- Values -------------------------------------------------------------------------------------

// An inode for life, opaque to the client: survives rename, reconnect and server restart.
class Handle {
 public:
  Handle() = default;
  static std::optional<Handle> FromBytes(ByteSpan bytes) {
    if (bytes.empty() || bytes.size() > kMaxHandleBytes) return std::nullopt;
    Handle handle;
    handle.size_ = static_cast<std::uint8_t>(bytes.size());
    std::memcpy(handle.bytes_.data(), bytes.data(), bytes.size());
    return handle;
  }
  [[nodiscard]] ByteSpan bytes() const { return {bytes_.data(), size_}; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  friend bool operator==(const Handle&, const Handle&) = default;

 private:
  std::array<std::byte, kMaxHandleBytes> bytes_{};  // zero behind size_
  std::uint8_t size_ = 0;
};
struct HandleHash {
  std::size_t operator()(const Handle& handle) const noexcept {
    return std::hash<std::string_view>()(AsText(handle.bytes()));
  }
};

struct TimeWire {
  LeI64 seconds;
  Le32 nanoseconds;
};

// statx(2)'s fields. ids are the server's; the session's id mapping has been applied.
struct AttrWire {
  Le64 ino;
  Le64 size;
  Le64 blocks;  // of 512 bytes
  TimeWire atime, mtime, ctime, btime;
  Le32 mode, nlink, uid, gid;
  Le32 rdev_major, rdev_minor;
  Le32 block_size;
  Le32 lease_ms;  // may be cached for this long, from before the request was sent
  Le64 change;    // differs whenever content or attributes may have changed
};
static_assert(sizeof(AttrWire) == 112);

// What names a file in a reply: AttrWire, handle [16].
// (EntryWire is written with WriteEntry and read with ReadEntry.)
struct Entry {
  Handle handle;
  AttrWire attr;
  Le32 entry_lease_ms;  // the name's own lease
};

void WriteHandle(ByteWriter& writer, const Handle& handle);
Handle ReadHandle(ByteReader& reader);  // fails the reader when empty or too long
void WriteEntry(ByteWriter& writer, const Entry& entry);
Entry ReadEntry(ByteReader& reader);
// A name of a directory entry: 1 to 255 bytes, no '/' and no NUL, not "." or "..".
ByteSpan ReadName(ByteReader& reader);

// Flags that open(2), rename(2) and others take have their own bits on the wire.
inline constexpr std::uint32_t kOpenRead = 1, kOpenWrite = 2, kOpenAppend = 4, kOpenTruncate = 8,
                               kOpenExclusive = 16, kOpenDirect = 32, kOpenSync = 64,
                               kOpenDataSync = 128, kOpenNoAtime = 256, kOpenCreate = 512,
                               kOpenWriteLease = 1024;  // asks for one: WriteLeaseMs
std::uint32_t OpenFlagsToWire(int flags);
int OpenFlagsFromWire(std::uint32_t flags);  // with O_CLOEXEC | O_NOFOLLOW | O_NOCTTY
inline constexpr std::uint32_t kRenameNoReplace = 1, kRenameExchange = 2, kRenameWhiteout = 4;

// ---- The opening words (transport session's service "fs") ---------------------------------------

inline constexpr std::string_view kServiceName = "fs";

// + export name [16], client's host name [16] (for logs and locks)
struct MountRequest {
  Le16 major, minor;
  std::array<std::byte, 16> client_id;  // random, secret: who knows it resumes the session
  Le64 last_epoch;                      // of the server, 0 at first
  Le32 uid, gid;                        // who mounts
  Le32 flags;
};
// kMountDropsNames: can let go of all names at once, whatever waits for what.
inline constexpr std::uint32_t kMountReadOnly = 1, kMountNoGrants = 2, kMountRawIds = 4,
                               kMountDropsNames = 8;

// + root Entry
struct MountGrant {
  Le16 major, minor;
  Le64 session;
  Le64 epoch;
  Le64 verifier;  // as in WriteReply
  Le32 lease_ms;  // the session ends this long after its last request
  Le32 attr_lease_ms;
  Le32 grace_ms;  // left of the grace period; 0: none
  Le32 flags;
  Le32 max_transfer_bytes;
};
// kGrantResumed: opens and locks of this client are still there. kGrantRootIsRoot: its root is
// refused nothing for permissions. kGrantGivenUp: its locks are gone, and others may have had them;
// in each grant until it has attached a lane, by which it has heard.
inline constexpr std::uint32_t kGrantResumed = 1, kGrantReadOnly = 2, kGrantCanMknodDevices = 4,
                               kGrantCanChown = 8, kGrantRootIsRoot = 16, kGrantGivenUp = 32;

// ---- Session and lane ---------------------------------------------------------------------------

// kRenew, kEndSession, kGraceEnd: no body. Reply: no body.

struct AttachLaneRequest {
  Le32 lane;           // counted by the client
  Le32 staging_bytes;  // wished for
};
struct AttachLaneReply {
  transport::RemoteRegionWire staging;  // the client WRITEs here; length 0: none, write by message
  Le32 slot_bytes;                      // slot i is [i * slot_bytes, (i + 1) * slot_bytes)
  Le32 slots;
};

// kArena, unasked: grants of this lane may name `arena` from now on. Again with length 0: gone.
struct ArenaMessage {
  Le32 arena;
  transport::RemoteRegionWire region;
};

struct InterruptRequest {
  Le64 sequence;  // of the request to give up
};

// kRecall, unasked: somebody else is about to change this. + handle, name [16]: with kRecallName
// the name in that directory, empty for all of them; else empty. Sent again on a new lane until it
// is acknowledged, in any order with the answers on other lanes: what was asked for before it came
// is not to be believed.
struct RecallMessage {
  Le64 number;
  Le32 parts;
};
inline constexpr std::uint32_t kRecallAttributes = 1,  // of the inode; xattrs too
    kRecallName = 2,  // what the name stands for, or that it is free
    kRecallContent = 4;
struct RecallAckRequest {  // kRecallAck. Reply: no body.
  Le64 number;             // of the recall, or one of these
};
// Of what a server of an earlier epoch told nothing is believed any more, and what was written
// under its leases (WriteLeaseMs) is here; or the latter only.
inline constexpr std::uint64_t kRecallEarlier = 0, kRecallEarlierWrites = 1;

// ---- Names --------------------------------------------------------------------------------------
// Replies that make or find a file carry an Entry.

// kLookup: parent handle, name [16]. Reply: Entry. kNotFound may be cached for the parent's attr
// lease. kReadlink: handle. Reply: target [16]. kSymlink: parent handle, name [16], target [16].
// Reply: Entry.
struct MknodRequest {  // + parent handle, name [16]. Reply: Entry. For kMkdir too.
  Le32 mode;           // file type and permissions, the umask not applied
  Le32 umask;
  Le32 rdev_major, rdev_minor;
};
// kUnlink, kRmdir: parent handle, name [16]. Reply: no body.
struct RenameRequest {  // + old parent handle, name [16], new parent handle, name [16]. No reply
                        // body.
  Le32 flags;
};
// kLink: handle, new parent handle, name [16]. Reply: Entry.

// ---- Attributes ---------------------------------------------------------------------------------

struct GetAttrRequest {  // + handle. Reply: AttrWire.
  Le64 open;             // 0, or an open file, whose attributes can be had though it is unlinked
};

inline constexpr std::uint32_t kSetMode = 1, kSetUid = 2, kSetGid = 4, kSetSize = 8, kSetAtime = 16,
                               kSetMtime = 32, kSetAtimeNow = 64, kSetMtimeNow = 128,
                               kSetKillPriv = 256;  // drop setuid and setgid as a write would
struct SetAttrRequest {                             // + handle. Reply: AttrWire.
  Le64 open;
  Le32 valid;  // the bits above
  Le32 mode, uid, gid;
  Le64 size;
  TimeWire atime, mtime;
};

struct AccessRequest {  // + handle. Reply: no body.
  Le32 mask;            // R_OK 4, W_OK 2, X_OK 1, or 0
};

// kStatFs: handle. Reply:
struct StatFsReply {
  Le64 blocks, blocks_free, blocks_available, files, files_free;
  Le32 block_size, fragment_size, name_max;
};

struct SetXattrRequest {  // + handle, name [16], value [32]. Reply: no body.
  Le32 flags;             // XATTR_CREATE 1, XATTR_REPLACE 2
};
struct GetXattrRequest {  // kGetXattr: + handle, name [16]; kListXattr: + handle.
  Le32 size;              // 0: only how much; else at most this, kRange when it does not fit
};
struct GetXattrReply {  // + value [32], empty when size was 0
  Le32 size;
};
// kRemoveXattr: handle, name [16]. Reply: no body.

// ---- Open files ---------------------------------------------------------------------------------
// `open` numbers are chosen by the server and belong to the session.

struct OpenRequest {  // + handle
  Le32 flags;         // kOpen...
};
// For so long the client may answer writes to the file before they are here, each sent at once:
// whoever else asks about the file waits until it has acknowledged a recall of the file's
// attributes, which it does once all of them are. 0: it may not.
using WriteLeaseMs = Le32;
struct OpenReply {
  Le64 open;
  AttrWire attr;
  WriteLeaseMs write_lease_ms;
};
struct CreateRequest {  // + parent handle, name [16]. Reply: OpenReply, Entry.
  Le32 flags;
  Le32 mode;
  Le32 umask;
};
struct TmpfileRequest {  // + parent handle. Reply: OpenReply, Entry.
  Le32 flags;
  Le32 mode;
  Le32 umask;
};
// An open file that the client still uses and that this server's epoch does not know: found by the
// supervisor's duplicate, else by handle. Reply: OpenReply with the number to use from now on.
struct ReclaimOpenRequest {  // + handle, then parent handle and name [16], or a Le16 0 twice
  Le64 open;                 // its number so far
  Le32 flags;
};

struct ReadRequest {
  Le64 open;
  Le64 offset;
  Le32 length;      // the bytes asked for, at most kMaxTransferBytes
  Le32 want_ahead;  // and grants for this many bytes behind them, if they cost nothing to wait for
  Le32 flags;
};
inline constexpr std::uint32_t kReadNoGrants = 1;  // send the bytes inside the reply

// + `grants` GrantWire, then the file's bytes [32] from `offset` on, where no grant covers it.
// Grants cover [offset, offset + length) from its start without a gap as far as they go, and what
// lies ahead. A read is short only at the end of the file.
struct ReadReply {
  Le64 file_size;
  Le64 change;
  Le16 grants;
  Le16 flags;
};

// The right to READ [arena_offset, arena_offset + length) while the lease lasts. The bytes count
// only if the generation word, READ after them on the same lane, still is `generation`.
struct GrantWire {
  Le64 file_offset;
  Le32 length;  // bytes of the file; those up to the extent's end behind it are zero
  Le32 arena;
  Le64 arena_offset;
  Le32 generation_arena;
  Le32 lease_ms;
  Le64 generation_offset;  // of the Le64 generation word
  Le64 generation;         // never 0
};
static_assert(sizeof(GrantWire) == 48);

// kWriteAppend: at the end, wherever that is; offset is where the client expects it. kWriteEarly:
// its program was told that it is done, under a lease (WriteLeaseMs).
inline constexpr std::uint32_t kWriteAppend = 1, kWriteKillPriv = 2, kWriteEarly = 4;
struct WriteRequest {  // kWrite: + bytes [32]
  Le64 open;
  Le64 offset;
  Le32 flags;
};
struct CommitRequest {  // kCommit
  Le64 open;
  Le64 offset;
  Le32 flags;
  Le32 length;
  Le64 staging_offset;  // in the lane's staging region; the range is the server's until the reply
};
// A commit that is sent again on a lane whose slots cannot take its bytes only asks what became of
// it: the record answers, or kNotStaged.
inline constexpr std::uint64_t kNothingStaged = 0xffff'ffff'ffff'ffff;
struct WriteReply {
  Le64 offset;  // where the bytes went (append: the server's choice)
  Le32 written;
  Le64 size;  // of the file, after
  Le64 change;
  Le64 verifier;  // another than at the write: the bytes may be lost
  WriteLeaseMs write_lease_ms;
};

// kFlush: drops the owner's locks. Reply: no body.
struct FlushRequest {
  Le64 open;
  Le64 lock_owner;
};
struct ReleaseRequest {  // kRelease, kReleaseDir
  Le64 open;
};
struct FsyncRequest {  // kFsync, kFsyncDir. Reply: FsyncReply.
  Le64 open;
  Le32 data_only;
};
struct FsyncReply {
  Le64 verifier;
};
struct FallocateRequest {  // Reply: AttrWire.
  Le64 open;
  Le32 mode;  // as fallocate(2): KEEP_SIZE 1, PUNCH_HOLE 2, COLLAPSE 8, ZERO 16, INSERT 32, UNSHARE
              // 64
  Le64 offset, length;
};
struct SeekRequest {
  Le64 open;
  Le64 offset;
  Le32 whence;  // SEEK_DATA 3, SEEK_HOLE 4
};
struct SeekReply {
  Le64 offset;
};
struct CopyFileRangeRequest {
  Le64 open_in, offset_in, open_out, offset_out, length;
  Le32 flags;
};
// Reply: WriteReply; `written` may be short.

// ---- Directories --------------------------------------------------------------------------------

// The first page saves a listing a round trip. Reply: OpenReply, then what kReadDir from the start
// would answer to `max_bytes` and `flags`; or nothing, which says nothing about the directory.
struct OpenDirRequest {  // + handle
  Le32 max_bytes;        // of the page: at most kMaxReaddirBytes; 0 for none
  Le32 flags;            // kReadDir...
};
struct ReadDirRequest {
  Le64 open;
  Le64 cookie;     // 0, or one that an entry carried: goes on behind it, also after changes
  Le32 max_bytes;  // at most kMaxReaddirBytes
  Le32 flags;
};
inline constexpr std::uint32_t kReadDirPlus = 1;
inline constexpr std::uint32_t kReadDirTellEnd = 2;  // the page may end in a kDirectoryEnd
inline constexpr std::uint32_t kDirectoryEnd = 0xffffffff;
// Reply: any number of DirEntryWire, name [16], and with kReadDirPlus a Le16 1 and an Entry, or a
// Le16 0 where it could not be had (also for "." and ".."). No entry: the end. It is told sooner,
// where asked for, by a last DirEntryWire of type kDirectoryEnd with nothing behind it.
struct DirEntryWire {
  Le64 ino;
  Le64 cookie;  // of the position behind this entry
  Le32 type;    // DT_...
};

// ---- Locks --------------------------------------------------------------------------------------
// flock(2) and fcntl(2) locks are apart, as on one host. Only whole-file ranges for flock.

enum class LockType : std::uint32_t { kRead = 0, kWrite = 1, kUnlock = 2 };
struct LockRequest {  // kGetLock, kSetLock, kReclaimLock
  Le64 open;
  Le64 owner;       // the kernel's lock owner, as FUSE tells it
  Le64 start, end;  // inclusive; end 2^63-1: to the end of the file, wherever that is
  Le32 type;
  Le32 pid;
  Le32 flags;
};
// kLockWait: answered when the lock is there, however late, or when it is interrupted. Asking again
// for a lock that one has changes nothing, so such a request has no record, takes none of
// kMaxRequestsInFlight, and `acknowledged` may pass it.
inline constexpr std::uint32_t kLockWait = 1, kLockFlock = 2;
struct LockReply {  // of kGetLock: the first lock in the way, or kUnlock
  Le64 start, end;
  Le32 type, pid;
};

// ---- A server that ssh started ------------------------------------------------------------------
// What `rdfsd --stdio` is told (transport/ssh/bootstrap.h): its line's text is the directory, and a
// relative one counts from where the server was started (the user's home). The server exports that
// directory under the name kBootstrapExport.

inline constexpr std::string_view kBootstrapMagic = "RDFS1";
inline constexpr std::string_view kBootstrapExport = "ssh";

}  // namespace rdfs::fs
