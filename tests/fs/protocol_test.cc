// Golden bytes of every struct of the protocol, and what hostile bytes decode to.
//
// The fields of each struct are filled with 1, 2, 3 ... in their order, so that the bytes show
// where each one lies. A change here is a change of the wire: it needs another version.
#include "fs/protocol.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/hex.h"

namespace rdfs::fs {
namespace {

// `golden`: hexadecimal, a space behind each field.
template <WireStruct T>
void ExpectGolden(const T& value, std::string golden) {
  std::erase(golden, ' ');
  const auto bytes = std::as_bytes(std::span<const T, 1>(&value, 1));
  EXPECT_EQ(ToHex(bytes), golden);
  ByteReader reader(bytes);
  const T again = reader.Read<T>();
  EXPECT_EQ(ToHex(std::as_bytes(std::span<const T, 1>(&again, 1))), golden);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
  ByteReader truncated(bytes.first(sizeof(T) - 1));
  (void)truncated.Read<T>();
  EXPECT_FALSE(truncated.ok());
}

TimeWire Time(std::int64_t seconds, std::uint32_t nanoseconds) {
  return {.seconds = seconds, .nanoseconds = nanoseconds};
}

std::array<std::byte, 16> ClientId() {
  std::array<std::byte, 16> id{};
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0x40 + i);
  return id;
}

AttrWire Attr() {
  return {.ino = 1,
          .size = 2,
          .blocks = 3,
          .atime = Time(4, 5),
          .mtime = Time(6, 7),
          .ctime = Time(8, 9),
          .btime = Time(10, 11),
          .mode = 12,
          .nlink = 13,
          .uid = 14,
          .gid = 15,
          .rdev_major = 16,
          .rdev_minor = 17,
          .block_size = 18,
          .lease_ms = 19,
          .change = 20};
}

TEST(Golden, Headers) {
  ExpectGolden(RequestHeader{.opcode = 1,
                             .flags = 2,
                             .body_bytes = 3,
                             .session = 4,
                             .sequence = 5,
                             .acknowledged = 6,
                             .deadline_ms = 7,
                             .trace = 8,
                             .uid = 9,
                             .gid = 10,
                             .pid = 11},
               "0100 0200 03000000 0400000000000000 0500000000000000 0600000000000000 07000000 "
               "0800000000000000 09000000 0a000000 0b000000 ");
  ExpectGolden(ReplyHeader{.opcode = 1, .error = 2, .body_bytes = 3, .sequence = 4, .epoch = 5},
               "0100 0200 03000000 0400000000000000 0500000000000000 ");
  ExpectGolden(ExtensionHeader{.type = 1, .length = 2}, "0100 0200 ");
}

TEST(Golden, TransportExtension) {
  std::array<std::byte, 2000> bytes{};
  ByteWriter writer(bytes);
  WriteTransportExtension(writer, "shm");
  EXPECT_EQ(AsText(writer.written()), std::string_view("\2\0\3\0shm", 7));
  ByteReader reader(writer.written());
  RequestExtensions read{};
  EXPECT_EQ(ReadRequestExtensions(reader, read), WireError::kOk);
  EXPECT_EQ(AsText(read.transport), "shm");

  ByteWriter long_one(bytes);
  WriteTransportExtension(long_one, std::string(5000, 'x'));
  EXPECT_EQ(long_one.written().size(), sizeof(ExtensionHeader) + kMaxTransportBytes);
}

TEST(Golden, AnsweredExtension) {
  std::array<std::byte, kMaxAnsweredExtensionBytes> bytes{};
  ByteWriter writer(bytes);
  WriteAnsweredExtension(writer, std::array<std::uint64_t, 2>{5, 0x0102});
  EXPECT_EQ(AsText(writer.written()),
            std::string_view("\3\0\x10\0\5\0\0\0\0\0\0\0\2\1\0\0\0\0\0\0", 20));
  const auto read = [](ByteSpan wire, std::size_t bytes_of_numbers) {
    std::vector<std::byte> extension(wire.begin(), wire.end());
    extension.resize(sizeof(ExtensionHeader) + bytes_of_numbers);
    extension[2] = std::byte(bytes_of_numbers & 0xff);
    RequestExtensions out{};
    ByteReader reader(extension);
    const WireError error = ReadRequestExtensions(reader, out);
    EXPECT_EQ(out.answered.size(), error == WireError::kOk ? bytes_of_numbers : 0U);
    return error;
  };
  EXPECT_EQ(read(writer.written(), 16), WireError::kOk);
  EXPECT_EQ(read(writer.written(), 8 * kMostAnswered), WireError::kOk);
  EXPECT_EQ(read(writer.written(), 8 * kMostAnswered + 8), WireError::kMalformed);
  EXPECT_EQ(read(writer.written(), 12), WireError::kMalformed);
}

TEST(Golden, Values) {
  ExpectGolden(TimeWire{.seconds = 1, .nanoseconds = 2}, "0100000000000000 02000000 ");
  ExpectGolden(
      Attr(),
      "0100000000000000 0200000000000000 0300000000000000 0400000000000000 05000000 "
      "0600000000000000 07000000 0800000000000000 09000000 0a00000000000000 0b000000 0c000000 "
      "0d000000 0e000000 0f000000 10000000 11000000 12000000 13000000 1400000000000000 ");
}

TEST(Golden, OpeningWords) {
  ExpectGolden(
      MountRequest{.major = 1,
                   .minor = 2,
                   .client_id = ClientId(),
                   .last_epoch = 3,
                   .uid = 4,
                   .gid = 5,
                   .flags = 6},
      "0100 0200 404142434445464748494a4b4c4d4e4f 0300000000000000 04000000 05000000 06000000 ");
  ExpectGolden(
      MountGrant{.major = 1,
                 .minor = 2,
                 .session = 3,
                 .epoch = 4,
                 .verifier = 5,
                 .lease_ms = 6,
                 .attr_lease_ms = 7,
                 .grace_ms = 8,
                 .flags = 9,
                 .max_transfer_bytes = 10},
      "0100 0200 0300000000000000 0400000000000000 0500000000000000 06000000 07000000 08000000 "
      "09000000 0a000000 ");
}

TEST(Golden, Lane) {
  ExpectGolden(AttachLaneRequest{.lane = 1, .staging_bytes = 2}, "01000000 02000000 ");
  ExpectGolden(AttachLaneReply{.staging = {1, 2, 3}, .slot_bytes = 4, .slots = 5},
               "0100000000000000 0200000000000000 0300000000000000 04000000 05000000 ");
  ExpectGolden(ArenaMessage{.arena = 1, .region = {2, 3, 4}},
               "01000000 0200000000000000 0300000000000000 0400000000000000 ");
  ExpectGolden(InterruptRequest{.sequence = 1}, "0100000000000000 ");
  ExpectGolden(RecallMessage{.number = 1, .parts = 2}, "0100000000000000 02000000 ");
  ExpectGolden(RecallAckRequest{.number = 1}, "0100000000000000 ");
}

TEST(Golden, Names) {
  ExpectGolden(MknodRequest{.mode = 1, .umask = 2, .rdev_major = 3, .rdev_minor = 4},
               "01000000 02000000 03000000 04000000 ");
  ExpectGolden(RenameRequest{.flags = 1}, "01000000 ");
}

TEST(Golden, Attributes) {
  ExpectGolden(GetAttrRequest{.open = 1}, "0100000000000000 ");
  ExpectGolden(
      SetAttrRequest{.open = 1,
                     .valid = 2,
                     .mode = 3,
                     .uid = 4,
                     .gid = 5,
                     .size = 6,
                     .atime = Time(7, 8),
                     .mtime = Time(9, 10)},
      "0100000000000000 02000000 03000000 04000000 05000000 0600000000000000 0700000000000000 "
      "08000000 0900000000000000 0a000000 ");
  ExpectGolden(AccessRequest{.mask = 1}, "01000000 ");
  ExpectGolden(
      StatFsReply{.blocks = 1,
                  .blocks_free = 2,
                  .blocks_available = 3,
                  .files = 4,
                  .files_free = 5,
                  .block_size = 6,
                  .fragment_size = 7,
                  .name_max = 8},
      "0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 "
      "06000000 07000000 08000000 ");
  ExpectGolden(SetXattrRequest{.flags = 1}, "01000000 ");
  ExpectGolden(GetXattrRequest{.size = 1}, "01000000 ");
  ExpectGolden(GetXattrReply{.size = 1}, "01000000 ");
}

TEST(Golden, OpenFiles) {
  ExpectGolden(OpenRequest{.flags = 1}, "01000000 ");
  ExpectGolden(
      OpenReply{.open = 1, .attr = Attr(), .write_lease_ms = 2},
      "0100000000000000 0100000000000000 0200000000000000 0300000000000000 0400000000000000 "
      "05000000 0600000000000000 07000000 0800000000000000 09000000 0a00000000000000 0b000000 "
      "0c000000 0d000000 0e000000 0f000000 10000000 11000000 12000000 13000000 1400000000000000 "
      "02000000 ");
  ExpectGolden(CreateRequest{.flags = 1, .mode = 2, .umask = 3}, "01000000 02000000 03000000 ");
  ExpectGolden(TmpfileRequest{.flags = 1, .mode = 2, .umask = 3}, "01000000 02000000 03000000 ");
  ExpectGolden(ReclaimOpenRequest{.open = 1, .flags = 2}, "0100000000000000 02000000 ");
  ExpectGolden(ReadRequest{.open = 1, .offset = 2, .length = 3, .want_ahead = 4, .flags = 5},
               "0100000000000000 0200000000000000 03000000 04000000 05000000 ");
  ExpectGolden(ReadReply{.file_size = 1, .change = 2, .grants = 3, .flags = 4},
               "0100000000000000 0200000000000000 0300 0400 ");
  ExpectGolden(
      GrantWire{.file_offset = 1,
                .length = 2,
                .arena = 3,
                .arena_offset = 4,
                .generation_arena = 5,
                .lease_ms = 6,
                .generation_offset = 7,
                .generation = 8},
      "0100000000000000 02000000 03000000 0400000000000000 05000000 06000000 0700000000000000 "
      "0800000000000000 ");
  ExpectGolden(WriteRequest{.open = 1, .offset = 2, .flags = 3},
               "0100000000000000 0200000000000000 03000000 ");
  ExpectGolden(CommitRequest{.open = 1, .offset = 2, .flags = 3, .length = 4, .staging_offset = 5},
               "0100000000000000 0200000000000000 03000000 04000000 0500000000000000 ");
  ExpectGolden(
      WriteReply{
          .offset = 1, .written = 2, .size = 3, .change = 4, .verifier = 5, .write_lease_ms = 6},
      "0100000000000000 02000000 0300000000000000 0400000000000000 0500000000000000 "
      "06000000 ");
  ExpectGolden(FlushRequest{.open = 1, .lock_owner = 2}, "0100000000000000 0200000000000000 ");
  ExpectGolden(ReleaseRequest{.open = 1}, "0100000000000000 ");
  ExpectGolden(FsyncRequest{.open = 1, .data_only = 2}, "0100000000000000 02000000 ");
  ExpectGolden(FsyncReply{.verifier = 1}, "0100000000000000 ");
  ExpectGolden(FallocateRequest{.open = 1, .mode = 2, .offset = 3, .length = 4},
               "0100000000000000 02000000 0300000000000000 0400000000000000 ");
  ExpectGolden(SeekRequest{.open = 1, .offset = 2, .whence = 3},
               "0100000000000000 0200000000000000 03000000 ");
  ExpectGolden(SeekReply{.offset = 1}, "0100000000000000 ");
  ExpectGolden(
      CopyFileRangeRequest{
          .open_in = 1, .offset_in = 2, .open_out = 3, .offset_out = 4, .length = 5, .flags = 6},
      "0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 "
      "06000000 ");
}

TEST(Golden, Directories) {
  ExpectGolden(OpenDirRequest{.max_bytes = 1, .flags = 2}, "01000000 02000000 ");
  ExpectGolden(ReadDirRequest{.open = 1, .cookie = 2, .max_bytes = 3, .flags = 4},
               "0100000000000000 0200000000000000 03000000 04000000 ");
  ExpectGolden(DirEntryWire{.ino = 1, .cookie = 2, .type = 3},
               "0100000000000000 0200000000000000 03000000 ");
}

TEST(Golden, Locks) {
  ExpectGolden(
      LockRequest{.open = 1, .owner = 2, .start = 3, .end = 4, .type = 5, .pid = 6, .flags = 7},
      "0100000000000000 0200000000000000 0300000000000000 0400000000000000 05000000 06000000 "
      "07000000 ");
  ExpectGolden(LockReply{.start = 1, .end = 2, .type = 3, .pid = 4},
               "0100000000000000 0200000000000000 03000000 04000000 ");
}

Handle MakeHandle(std::string_view bytes) { return *Handle::FromBytes(AsBytes(bytes)); }

TEST(Golden, EntryWithItsHandle) {
  std::array<std::byte, 256> buffer{};
  ByteWriter writer(buffer);
  WriteEntry(writer, {.handle = MakeHandle("ab"), .attr = Attr(), .entry_lease_ms = 9});
  ASSERT_TRUE(writer.ok());
  const std::string hex = ToHex(writer.written());
  EXPECT_EQ(hex.substr(0, 8), "02006162");
  EXPECT_EQ(hex.substr(hex.size() - 8), "09000000");
  EXPECT_EQ(writer.size(), 2 + 2 + sizeof(AttrWire) + 4);
}

TEST(Golden, NegativeTimes) { ExpectGolden(Time(-1, 999'999'999), "ffffffffffffffff ffc99a3b"); }

TEST(Golden, OpcodesKeepTheirNumbers) {
  constexpr std::array kNumbers = {
      std::pair(Opcode::kRenew, 1),        std::pair(Opcode::kAttachLane, 2),
      std::pair(Opcode::kArena, 3),        std::pair(Opcode::kInterrupt, 4),
      std::pair(Opcode::kLookup, 10),      std::pair(Opcode::kReadlink, 11),
      std::pair(Opcode::kSymlink, 12),     std::pair(Opcode::kMknod, 13),
      std::pair(Opcode::kMkdir, 14),       std::pair(Opcode::kUnlink, 15),
      std::pair(Opcode::kRmdir, 16),       std::pair(Opcode::kRename, 17),
      std::pair(Opcode::kLink, 18),        std::pair(Opcode::kGetAttr, 20),
      std::pair(Opcode::kSetAttr, 21),     std::pair(Opcode::kAccess, 22),
      std::pair(Opcode::kStatFs, 23),      std::pair(Opcode::kSetXattr, 24),
      std::pair(Opcode::kGetXattr, 25),    std::pair(Opcode::kListXattr, 26),
      std::pair(Opcode::kRemoveXattr, 27), std::pair(Opcode::kOpen, 30),
      std::pair(Opcode::kCreate, 31),      std::pair(Opcode::kRead, 32),
      std::pair(Opcode::kWrite, 33),       std::pair(Opcode::kCommit, 34),
      std::pair(Opcode::kFlush, 35),       std::pair(Opcode::kRelease, 36),
      std::pair(Opcode::kFsync, 37),       std::pair(Opcode::kFallocate, 38),
      std::pair(Opcode::kSeek, 39),        std::pair(Opcode::kCopyFileRange, 40),
      std::pair(Opcode::kTmpfile, 41),     std::pair(Opcode::kReclaimOpen, 42),
      std::pair(Opcode::kOpenDir, 50),     std::pair(Opcode::kReadDir, 51),
      std::pair(Opcode::kReleaseDir, 52),  std::pair(Opcode::kFsyncDir, 53),
      std::pair(Opcode::kGetLock, 60),     std::pair(Opcode::kSetLock, 61),
      std::pair(Opcode::kEndSession, 6),   std::pair(Opcode::kGraceEnd, 86),
      std::pair(Opcode::kReclaimLock, 87), std::pair(Opcode::kRecall, 80),
      std::pair(Opcode::kRecallAck, 81)};
  for (const auto& [opcode, number] : kNumbers) {
    EXPECT_EQ(static_cast<int>(opcode), number);
    EXPECT_TRUE(IsKnown(opcode)) << number;
  }
  // Reserved, and so refused by version 1.0.
  for (int number = 82; number <= 85; ++number) EXPECT_FALSE(IsKnown(Opcode(number))) << number;
  EXPECT_FALSE(IsKnown(Opcode(0)));
  EXPECT_FALSE(IsKnown(Opcode(0xffff)));
}

TEST(Golden, ErrorsGoThereAndBack) {
  for (const int error :
       {EPERM,      ENOENT,       EINTR,     EIO,       ENXIO,     EBADF,   EAGAIN,  ENOMEM,
        EACCES,     EBUSY,        EEXIST,    EXDEV,     ENODEV,    ENOTDIR, EISDIR,  EINVAL,
        EMFILE,     ETXTBSY,      EFBIG,     ENOSPC,    ESPIPE,    EROFS,   EMLINK,  ERANGE,
        EDEADLK,    ENAMETOOLONG, ENOLCK,    ENOSYS,    ENOTEMPTY, ELOOP,   ENODATA, EOVERFLOW,
        EOPNOTSUPP, ESTALE,       EDQUOT,    ETIMEDOUT, E2BIG,     EBADMSG, EILSEQ,  EHOSTDOWN,
        EUCLEAN,    EREMOTEIO,    ENOMEDIUM, ENOKEY}) {
    EXPECT_EQ(ToErrno(ToWire(error)), error);
  }
  EXPECT_EQ(ToWire(0), WireError::kOk);
  EXPECT_EQ(ToErrno(WireError::kOk), 0);
  for (const auto& [error, number] :
       {std::pair(E2BIG, 7), std::pair(EBADMSG, 74), std::pair(EILSEQ, 84),
        std::pair(EHOSTDOWN, 112), std::pair(EUCLEAN, 117), std::pair(EREMOTEIO, 121),
        std::pair(ENOMEDIUM, 123), std::pair(ENOKEY, 126)}) {
    EXPECT_EQ(static_cast<int>(ToWire(error)), number);
  }
  // What neither side knows is an error all the same.
  EXPECT_EQ(ToWire(ECANCELED), WireError::kIo);
  EXPECT_EQ(ToErrno(static_cast<WireError>(4711)), EIO);
}

TEST(Golden, OpenFlagsGoThereAndBack) {
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND, O_WRONLY | O_TRUNC,
                          O_RDWR | O_CREAT | O_EXCL, O_RDONLY | O_DIRECT, O_RDWR | O_SYNC,
                          O_RDWR | O_DSYNC, O_RDONLY | O_NOATIME}) {
    EXPECT_EQ(OpenFlagsFromWire(OpenFlagsToWire(flags)), flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
  }
}

TEST(Hostile, HandlesOfNoLengthOrTooLong) {
  EXPECT_FALSE(Handle::FromBytes({}).has_value());
  const std::vector<std::byte> large(kMaxHandleBytes + 1);
  EXPECT_FALSE(Handle::FromBytes(large).has_value());
  for (const std::size_t size : {std::size_t{0}, kMaxHandleBytes + 1, std::size_t{0xffff}}) {
    std::vector<std::byte> bytes(2 + size);
    const Le16 length = static_cast<std::uint16_t>(size);
    std::memcpy(bytes.data(), &length, sizeof(length));
    ByteReader reader(bytes);
    EXPECT_TRUE(ReadHandle(reader).empty());
    EXPECT_FALSE(reader.ok());
  }
}

TEST(Hostile, NamesThatAreNone) {
  using std::string_view_literals::operator""sv;
  const std::string longest(kMaxNameBytes, 'x');
  const std::string too_long(kMaxNameBytes + 1, 'x');
  for (const std::string_view name :
       {""sv, "."sv, ".."sv, "a/b"sv, "/"sv, "a\0b"sv, std::string_view(too_long)}) {
    std::array<std::byte, 512> buffer{};
    ByteWriter writer(buffer);
    writer.WriteSized16(AsBytes(name));
    ByteReader reader(writer.written());
    EXPECT_TRUE(ReadName(reader).empty());
    EXPECT_FALSE(reader.ok()) << name;
  }
  for (const std::string_view name : {"a"sv, "..."sv, "\xff\xfe"sv, std::string_view(longest)}) {
    std::array<std::byte, 512> buffer{};
    ByteWriter writer(buffer);
    writer.WriteSized16(AsBytes(name));
    ByteReader reader(writer.written());
    EXPECT_EQ(AsText(ReadName(reader)), name);
    EXPECT_TRUE(reader.ok());
  }
}

// Every prefix of an entry but the whole fails, and fails once for all.
TEST(Hostile, TruncatedEntries) {
  std::array<std::byte, 256> buffer{};
  ByteWriter writer(buffer);
  WriteEntry(writer, {.handle = MakeHandle("0123456789"), .attr = Attr(), .entry_lease_ms = 9});
  for (std::size_t size = 0; size < writer.size(); ++size) {
    ByteReader reader(writer.written().first(size));
    (void)ReadEntry(reader);
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_TRUE(reader.ReadBytes(0).empty());
    EXPECT_FALSE(reader.ok()) << size;
  }
  ByteReader reader(writer.written());
  const Entry entry = ReadEntry(reader);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(entry.handle, MakeHandle("0123456789"));
  EXPECT_EQ(std::uint64_t{entry.attr.change}, std::uint64_t{Attr().change});
}

// What must happen exactly once, and what may be asked twice.
TEST(Protocol, MutatingRequests) {
  for (const Opcode opcode : {Opcode::kMkdir, Opcode::kRename, Opcode::kUnlink, Opcode::kWrite,
                              Opcode::kCommit, Opcode::kSetAttr, Opcode::kOpen, Opcode::kSetLock}) {
    EXPECT_TRUE(IsMutating(opcode)) << OpcodeName(opcode);
  }
  for (const Opcode opcode : {Opcode::kLookup, Opcode::kGetAttr, Opcode::kRead, Opcode::kReadDir,
                              Opcode::kRenew, Opcode::kFsync, Opcode::kGetLock}) {
    EXPECT_FALSE(IsMutating(opcode)) << OpcodeName(opcode);
  }
}

}  // namespace
}  // namespace rdfs::fs
