// Batches: records of what is copied, packed one behind the other into a slot. PROTOCOL.md has the
// layout; tests/tools/copy/remote/records_test.cc holds the bytes.
//
// A peer is hostile, and may change a slot while it is read: every field is copied out once and
// then checked; only the bytes of files are views of the slot. Values and pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tools/copy/file/entry.h"
#include "tools/copy/remote/wire.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::copy {

inline constexpr std::size_t kMaxPathBytes = 0xffff;
inline constexpr std::size_t kMaxTargetBytes = 4095;  // PATH_MAX with its end
inline constexpr std::uint32_t kMaxXattrs = 1024;
inline constexpr std::size_t kMaxXattrNameBytes = 255;
inline constexpr std::size_t kMaxXattrValueBytes = 64 << 10;
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 62;
// Files that have begun and not ended.
inline constexpr std::size_t kMaxOpenFiles = 64;

enum class RecordType : std::uint8_t { kEntry = 1, kLeave = 2, kPiece = 3, kFileEnd = 4 };

struct RecordHeader {
  Le8 type, zero;
  Le16 flags;
  Le32 length;  // of what follows
};
static_assert(sizeof(RecordHeader) == 8 && alignof(RecordHeader) == 1);

struct TimeWire {
  LeI64 seconds;
  Le32 nanoseconds;
};

struct EntryWire {
  static constexpr std::uint16_t kWhole = 1, kNoData = 2, kOffer = 4, kAnswer = 8, kDigest = 16,
                                 kResumable = 32, kGoesOn = 64;
  Le8 kind;
  std::array<Le8, 3> zero;
  Le32 mode, uid, gid, source, major, minor, links;
  Le64 number, size, device, inode;
  TimeWire atime, mtime;
  Le32 xattrs;
};
static_assert(sizeof(EntryWire) == 92 && alignof(EntryWire) == 1);

struct LeaveFlags {
  static constexpr std::uint16_t kPartial = 1;
};
struct PieceWire {
  Le64 number, offset;
};
struct FileEndWire {
  static constexpr std::uint16_t kGivenUp = 1;
  Le64 number, size, brought;
};
static_assert(sizeof(FileEndWire) == 24 && alignof(FileEndWire) == 1);

struct EntryRecord {
  Entry entry;
  std::uint64_t number = 0;
  bool whole = false;              // `content` is all of it
  bool no_data = false;            // a later name of a file that came before
  bool offer = false;              // a file whose data come only if they are wanted
  bool answer = false;             // one that was offered and wanted
  std::optional<Digest> digest{};  // of an offer: see ContentDigest
  bool resumable = false;          // a large file, with all that SourceMark wants
  bool goes_on = false;            // an answer, without what the receiver said that it has
  ByteSpan content;
};
struct LeaveRecord {
  Entry entry;           // source and path only
  bool partial = false;  // not all that is in it came
};
struct PieceRecord {
  std::uint64_t number = 0, offset = 0;
  ByteSpan content;
};
struct FileEndRecord {
  std::uint64_t number = 0, size = 0;
  std::uint64_t brought = 0;  // bytes, by its pieces
  bool given_up = false;
};
using Record = std::variant<EntryRecord, LeaveRecord, PieceRecord, FileEndRecord>;

// Fills one slot. What does not fit is left out, and nothing of it stays.
class BatchWriter {
 public:
  explicit BatchWriter(MutableByteSpan slot) : writer_(slot) {}

  // Whether there is any batch that such an entry goes into.
  static bool CanHold(const Entry& entry);
  // What the entry takes in a batch without its content, digest and change time.
  static std::size_t SizeOf(const Entry& entry);

  // `flags`: EntryWire's.
  bool Add(const Entry& entry, std::uint64_t number, std::uint16_t flags);
  // `flags`: kResumable or nothing.
  bool AddOffer(const Entry& entry, std::uint64_t number, std::uint16_t flags,
                const std::optional<Digest>& digest);
  // A whole file. `fill` puts at most so many bytes there and returns how many they are: that is
  // the file's size then. Its failure is returned, and nothing of the entry stays. kBusy: it does
  // not fit.
  template <typename Fill>
  Status AddWhole(Entry entry, std::uint64_t number, std::uint16_t flags, Fill fill) {
    flags |= EntryWire::kWhole;
    const std::size_t before = writer_.size();
    if (!Write(entry, number, flags) || writer_.room() < entry.size) {
      writer_.TruncateTo(before);
      return {Code::kBusy, "the batch is full"};
    }
    const MutableByteSpan place = writer_.Reserve(entry.size);
    Result<std::size_t> filled = fill(place);
    writer_.TruncateTo(before);
    if (!filled.ok()) return filled.status();
    // The bytes are where they belong: what precedes them has the same length whatever they are.
    entry.size = std::min<std::uint64_t>(*filled, place.size());
    (void)Write(entry, number, flags);
    (void)writer_.Reserve(entry.size);
    return {};
  }
  bool AddLeave(std::uint32_t source, const std::string& path, bool partial = false);
  // Room for a piece of `length` bytes; empty when it does not fit.
  MutableByteSpan AddPiece(std::uint64_t number, std::uint64_t offset, std::size_t length);
  bool AddFileEnd(const FileEndRecord& end);
  // Takes back what was added since size() was this.
  void TruncateTo(std::size_t size) { writer_.TruncateTo(size); }

  [[nodiscard]] std::size_t size() const { return writer_.size(); }
  [[nodiscard]] std::size_t room() const { return writer_.room(); }
  [[nodiscard]] ByteSpan written() const { return writer_.written(); }

 private:
  bool Write(const Entry& entry, std::uint64_t number, std::uint16_t flags);
  bool Keep(std::size_t before);

  ByteWriter writer_;
};
// What a piece takes besides its bytes.
inline constexpr std::size_t kPieceOverhead = sizeof(RecordHeader) + sizeof(PieceWire);

// Takes a batch apart.
class BatchReader {
 public:
  explicit BatchReader(ByteSpan batch) : reader_(batch) {}
  // The next record; nullopt at the end. Errors: kProtocolError. Its views are of the batch.
  Result<std::optional<Record>> Next();

 private:
  ByteReader reader_;
};

// What the order of records must be, whatever they say. One for each copy, fed with every record in
// order; one thread.
class RecordRules {
 public:
  explicit RecordRules(std::uint32_t sources) : sources_(sources) {}
  // Errors: kProtocolError.
  Status Check(const Record& record);
  // Nothing is open, and so many entries came.
  Status CheckEnd(std::uint64_t entries) const;
  [[nodiscard]] std::uint64_t entries() const { return entries_; }

 private:
  struct OpenFile {
    std::uint64_t brought = 0;
  };
  Status CheckEntry(const EntryRecord& record);

  const std::uint32_t sources_;
  std::uint64_t next_ = 0;  // the lowest number that the next entry may have
  std::uint64_t entries_ = 0;
  std::uint64_t depth_ = 0;  // directories that have been entered and not left
  std::unordered_map<std::uint64_t, OpenFile> open_;
};

}  // namespace rdfs::copy
