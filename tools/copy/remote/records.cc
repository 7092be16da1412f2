#include "tools/copy/remote/records.h"

#include <algorithm>
#include <utility>

#include "tools/copy/file/names.h"

namespace rdfs::copy {
namespace {

Status Malformed(const char* what) {
  return {Code::kProtocolError, std::string("the other rdcp sent a malformed ") + what};
}

TimeWire ToWire(const timespec& time) {
  return {std::int64_t{time.tv_sec}, static_cast<std::uint32_t>(time.tv_nsec)};
}

bool FromWire(const TimeWire& wire, timespec& out) {
  const std::uint32_t nanoseconds = wire.nanoseconds;
  out.tv_sec = wire.seconds;
  out.tv_nsec = nanoseconds;
  return nanoseconds < 1'000'000'000;
}

RecordHeader HeaderOf(RecordType type, std::uint16_t flags, std::size_t length) {
  return {static_cast<std::uint8_t>(type), 0, flags, static_cast<std::uint32_t>(length)};
}

// What follows the header, without a whole file's bytes.
std::size_t BodyOf(const Entry& entry) {
  std::size_t size = sizeof(EntryWire) + 2 * sizeof(Le16) + entry.path.size() + entry.target.size();
  for (const Xattr& xattr : entry.xattrs) {
    size += sizeof(Le16) + sizeof(Le32) + xattr.name.size() + xattr.value.size();
  }
  return size;
}

Result<std::vector<Xattr>> ReadXattrList(ByteReader& reader, std::uint32_t count) {
  std::vector<Xattr> out;
  // Each takes six bytes at least.
  if (count > kMaxXattrs || count > reader.remaining() / 6) return Malformed("list of attributes");
  out.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Xattr xattr;
    xattr.name = AsText(reader.ReadSized16(kMaxXattrNameBytes));
    xattr.value = AsText(reader.ReadSized32(kMaxXattrValueBytes));
    if (!reader.ok() || xattr.name.empty() || xattr.name.find('\0') != std::string::npos) {
      return Malformed("attribute");
    }
    out.push_back(std::move(xattr));
  }
  return out;
}

bool FillEntry(const EntryWire& wire, Entry& out) {
  const std::uint8_t kind = wire.kind;
  if (kind < 1 || kind > static_cast<std::uint8_t>(Kind::kBlockDevice)) return false;
  out.kind = static_cast<Kind>(kind);
  out.mode = wire.mode;
  out.uid = wire.uid;
  out.gid = wire.gid;
  out.source = wire.source;
  out.major = wire.major;
  out.minor = wire.minor;
  out.size = wire.size;
  out.id = {wire.device, wire.inode};
  out.links = wire.links;
  return FromWire(wire.atime, out.atime) && FromWire(wire.mtime, out.mtime) && out.mode <= 07777 &&
         out.size <= kMaxFileBytes && (out.kind != Kind::kDirectory || out.links == 1);
}

Result<std::optional<Record>> ReadEntry(ByteSpan body, std::uint16_t flags) {
  ByteReader reader(body);
  const auto wire = reader.Read<EntryWire>();
  EntryRecord out;
  constexpr std::uint16_t kKnown = EntryWire::kWhole | EntryWire::kNoData | EntryWire::kOffer |
                                   EntryWire::kAnswer | EntryWire::kDigest | EntryWire::kResumable |
                                   EntryWire::kGoesOn;
  if ((flags & ~kKnown) != 0 || !reader.ok() || !FillEntry(wire, out.entry)) {
    return Malformed("entry");
  }
  out.number = wire.number;
  out.whole = (flags & EntryWire::kWhole) != 0;
  out.no_data = (flags & EntryWire::kNoData) != 0;
  out.offer = (flags & EntryWire::kOffer) != 0;
  out.answer = (flags & EntryWire::kAnswer) != 0;
  out.entry.path = AsText(reader.ReadSized16(kMaxPathBytes));
  out.entry.target = AsText(reader.ReadSized16(kMaxTargetBytes));
  if (!reader.ok() || !CheckPath(out.entry.path).ok()) return Malformed("path");
  const bool symlink = out.entry.kind == Kind::kSymlink;
  if (symlink == out.entry.target.empty() || out.entry.target.find('\0') != std::string::npos) {
    return Malformed("target of a link");
  }
  RDFS_ASSIGN_OR_RETURN(out.entry.xattrs, ReadXattrList(reader, wire.xattrs));
  if (out.whole && (out.entry.kind != Kind::kFile || out.no_data)) return Malformed("whole file");
  if (out.no_data && out.entry.links < 2) return Malformed("link");
  if (out.offer && (out.entry.kind != Kind::kFile || out.whole || out.no_data || out.answer)) {
    return Malformed("offer");
  }
  if (out.answer && (out.entry.kind != Kind::kFile || out.no_data)) return Malformed("answer");
  out.resumable = (flags & EntryWire::kResumable) != 0;
  out.goes_on = (flags & EntryWire::kGoesOn) != 0;
  if (out.goes_on && !(out.answer && out.resumable)) return Malformed("answer");
  if (out.resumable && !((out.offer || out.answer) && !out.whole &&
                         FromWire(reader.Read<TimeWire>(), out.entry.ctime) && reader.ok())) {
    return Malformed("large file");
  }
  if ((flags & EntryWire::kDigest) != 0) {
    if (!out.offer) return Malformed("offer");
    out.digest = reader.Read<Digest>();
    if (!reader.ok()) return Malformed("offer");
  }
  out.content = reader.rest();
  if (out.content.size() != (out.whole ? out.entry.size : 0)) return Malformed("whole file");
  return std::optional<Record>(std::move(out));
}

Result<std::optional<Record>> ReadLeave(ByteSpan body, std::uint16_t flags) {
  ByteReader reader(body);
  LeaveRecord out;
  out.entry.kind = Kind::kDirectory;
  out.entry.source = reader.Read<Le32>();
  out.entry.path = AsText(reader.ReadSized16(kMaxPathBytes));
  if (!reader.ok() || reader.remaining() != 0 || (flags & ~LeaveFlags::kPartial) != 0 ||
      !CheckPath(out.entry.path).ok()) {
    return Malformed("directory's end");
  }
  out.partial = flags != 0;
  return std::optional<Record>(std::move(out));
}

Result<std::optional<Record>> ReadPiece(ByteSpan body, std::uint16_t flags) {
  ByteReader reader(body);
  const auto wire = reader.Read<PieceWire>();
  const PieceRecord out{wire.number, wire.offset, reader.rest()};
  if (!reader.ok() || flags != 0 || out.content.empty() || out.offset > kMaxFileBytes ||
      out.content.size() > kMaxFileBytes - out.offset) {
    return Malformed("piece of a file");
  }
  return std::optional<Record>(out);
}

Result<std::optional<Record>> ReadFileEnd(ByteSpan body, std::uint16_t flags) {
  ByteReader reader(body);
  const auto wire = reader.Read<FileEndWire>();
  FileEndRecord out{wire.number, wire.size, wire.brought, flags == FileEndWire::kGivenUp};
  if (!reader.ok() || reader.remaining() != 0 || (flags & ~FileEndWire::kGivenUp) != 0 ||
      out.size > kMaxFileBytes) {
    return Malformed("file's end");
  }
  return std::optional<Record>(out);
}

}  // namespace

std::size_t BatchWriter::SizeOf(const Entry& entry) { return sizeof(RecordHeader) + BodyOf(entry); }

bool BatchWriter::CanHold(const Entry& entry) {
  return entry.path.size() <= kMaxPathBytes && entry.target.size() <= kMaxTargetBytes &&
         entry.xattrs.size() <= kMaxXattrs &&
         std::ranges::all_of(entry.xattrs, [](const Xattr& xattr) {
           return xattr.name.size() <= kMaxXattrNameBytes &&
                  xattr.value.size() <= kMaxXattrValueBytes;
         });
}

// Undoes what did not fit whole.
bool BatchWriter::Keep(std::size_t before) {
  if (writer_.ok()) return true;
  writer_.TruncateTo(before);
  return false;
}

bool BatchWriter::Write(const Entry& entry, std::uint64_t number, std::uint16_t flags) {
  const std::size_t before = writer_.size();
  if (!CanHold(entry)) return false;
  const bool whole = (flags & EntryWire::kWhole) != 0;
  const bool resumable = (flags & EntryWire::kResumable) != 0;
  const std::size_t digest = (flags & EntryWire::kDigest) != 0 ? sizeof(Digest) : 0;
  const std::size_t length =
      BodyOf(entry) + (resumable ? sizeof(TimeWire) : 0) + digest + (whole ? entry.size : 0);
  if (length > kMaxSlotBytes) return false;
  writer_.Write(HeaderOf(RecordType::kEntry, flags, length));
  writer_.Write(EntryWire{static_cast<std::uint8_t>(entry.kind),
                          {},
                          entry.mode,
                          entry.uid,
                          entry.gid,
                          entry.source,
                          entry.major,
                          entry.minor,
                          entry.links,
                          number,
                          entry.size,
                          entry.id.device,
                          entry.id.inode,
                          ToWire(entry.atime),
                          ToWire(entry.mtime),
                          static_cast<std::uint32_t>(entry.xattrs.size())});
  writer_.WriteSized16(AsBytes(entry.path));
  writer_.WriteSized16(AsBytes(entry.target));
  for (const Xattr& xattr : entry.xattrs) {
    writer_.WriteSized16(AsBytes(xattr.name));
    writer_.WriteSized32(AsBytes(xattr.value));
  }
  if (resumable) writer_.Write(ToWire(entry.ctime));
  return Keep(before);
}

bool BatchWriter::Add(const Entry& entry, std::uint64_t number, std::uint16_t flags) {
  return Write(entry, number, flags);
}

bool BatchWriter::AddOffer(const Entry& entry, std::uint64_t number, std::uint16_t flags,
                           const std::optional<Digest>& digest) {
  flags |= EntryWire::kOffer;
  if (digest) flags |= EntryWire::kDigest;
  const std::size_t before = writer_.size();
  if (!Write(entry, number, flags)) return false;
  if (digest) writer_.WriteBytes(*digest);
  return Keep(before);
}

bool BatchWriter::AddLeave(std::uint32_t source, const std::string& path, bool partial) {
  const std::size_t before = writer_.size();
  writer_.Write(HeaderOf(RecordType::kLeave, partial ? LeaveFlags::kPartial : 0,
                         sizeof(Le32) + sizeof(Le16) + path.size()));
  writer_.Write(Le32(source));
  writer_.WriteSized16(AsBytes(path));
  return Keep(before);
}

MutableByteSpan BatchWriter::AddPiece(std::uint64_t number, std::uint64_t offset,
                                      std::size_t length) {
  const std::size_t before = writer_.size();
  writer_.Write(HeaderOf(RecordType::kPiece, 0, sizeof(PieceWire) + length));
  writer_.Write(PieceWire{number, offset});
  const MutableByteSpan place = writer_.Reserve(length);
  return Keep(before) ? place : MutableByteSpan();
}

bool BatchWriter::AddFileEnd(const FileEndRecord& end) {
  const std::size_t before = writer_.size();
  writer_.Write(HeaderOf(RecordType::kFileEnd, end.given_up ? FileEndWire::kGivenUp : 0,
                         sizeof(FileEndWire)));
  writer_.Write(FileEndWire{end.number, end.size, end.brought});
  return Keep(before);
}

Result<std::optional<Record>> BatchReader::Next() {
  if (reader_.remaining() == 0) return std::optional<Record>();
  const auto header = reader_.Read<RecordHeader>();
  const ByteSpan body = reader_.ReadBytes(header.length);
  if (!reader_.ok() || header.zero != 0) return Malformed("record");
  switch (static_cast<RecordType>(std::uint8_t{header.type})) {
    case RecordType::kEntry:
      return ReadEntry(body, header.flags);
    case RecordType::kLeave:
      return ReadLeave(body, header.flags);
    case RecordType::kPiece:
      return ReadPiece(body, header.flags);
    case RecordType::kFileEnd:
      return ReadFileEnd(body, header.flags);
  }
  return Malformed("record: an unknown type");
}

Status RecordRules::CheckEntry(const EntryRecord& record) {
  if (record.number < next_ || record.number == ~std::uint64_t{0} ||
      record.entry.source >= sources_) {
    return Malformed("entry's number");
  }
  next_ = record.number + 1;
  ++entries_;
  if (record.entry.kind == Kind::kDirectory) ++depth_;
  if (record.entry.kind != Kind::kFile || record.whole || record.no_data || record.offer) {
    return {};
  }
  if (open_.size() >= kMaxOpenFiles) return Malformed("sequence: too many files at a time");
  open_.emplace(record.number, OpenFile{});
  return {};
}

Status RecordRules::Check(const Record& record) {
  if (const auto* entry = std::get_if<EntryRecord>(&record)) return CheckEntry(*entry);
  if (const auto* leave = std::get_if<LeaveRecord>(&record)) {
    if (depth_ == 0 || leave->entry.source >= sources_) return Malformed("directory's end");
    --depth_;
    return {};
  }
  if (const auto* piece = std::get_if<PieceRecord>(&record)) {
    const auto file = open_.find(piece->number);
    if (file == open_.end()) return Malformed("piece: its file is not open");
    file->second.brought += piece->content.size();
    return {};
  }
  const auto& end = std::get<FileEndRecord>(record);
  const auto file = open_.find(end.number);
  if (file == open_.end()) return Malformed("file's end: it is not open");
  if (!end.given_up && (end.brought != file->second.brought || end.brought > end.size)) {
    return Malformed("file's end: bytes are missing");
  }
  open_.erase(file);
  return {};
}

Status RecordRules::CheckEnd(std::uint64_t entries) const {
  if (depth_ != 0 || !open_.empty() || entries != entries_) {
    return Malformed("end: there is more to come");
  }
  return {};
}

}  // namespace rdfs::copy
